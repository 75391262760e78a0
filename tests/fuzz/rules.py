"""Random rules and paths: no path that a rule denies or asks about is allowed, whatever else allows it."""

from __future__ import annotations

import random
from pathlib import Path

from reyn.errors import ReynError
from reyn.permissions import Allowed, Denied
from reyn.workspace import PathInvalid, locate
from tests.attacks.test_precedence import gate_of, is_covered
from tests.fuzz.harness import Case

_NAMES = (
    "src",
    "Vendor",
    "a.md",
    "x.py",
    ".env",
    ".git",
    "Makefile",
    "hooks",
    "é",
    "e\u0301",
    "ß",
    "\u017f",
    "a b",
    "..a",
)
_LETTERS = "ab.-_ éßİı\u0301"


def target(case: Case) -> None:
    chance, root = case.random, Path(case.folder) / "project"
    root.mkdir()
    for _ in range(200):
        names = [_name(chance) for _ in range(chance.randint(1, 4))]
        path = "/".join(names)
        rules = [
            (chance.choice(("deny", "ask", "allow")), _pattern(chance, names)) for _ in range(chance.randint(1, 5))
        ]
        access = chance.choice(("read", "write"))
        entries = [{effect: pattern} for effect, pattern in rules]
        spelled = _spelled(chance, names, root)
        try:
            gate = gate_of(root, {f"file.{access}": entries}, {f"file.{access}": [path]})
            verdict = getattr(gate, access)(locate(spelled, gate.roots))
        except (ReynError, PathInvalid, ValueError):
            case.label("refused")
            continue
        strict = {effect for effect, pattern in rules if is_covered(pattern, path)} - {"allow"}
        case.label("covered" if strict else "free")
        if isinstance(verdict, Allowed) and strict:
            case.found("allowed", f"{spelled!r} is allowed by {verdict.rule} in spite of {rules}")
        elif "deny" in strict and not isinstance(verdict, Denied):
            case.found("asked", f"{spelled!r} is asked about in spite of {rules}")


def _name(chance: random.Random) -> str:
    if chance.random() < 0.6:
        return chance.choice(_NAMES)
    return "".join(chance.choice(_LETTERS) for _ in range(chance.randint(1, 5))).strip(" .") or "a"


def _pattern(chance: random.Random, names: list[str]) -> str:
    """Return a pattern of the names of the path, or of others."""
    parts = [chance.choice((name, name, "*", "**", name.upper(), name[:1] + "*", _name(chance))) for name in names]
    kept = parts[: chance.randint(1, len(parts))]
    return "/".join(kept) + chance.choice(("", "/", "/**"))


def _spelled(chance: random.Random, names: list[str], root: Path) -> str:
    """Spell a path in another way that leads to the same file."""
    parts = [chance.choice((name, f"./{name}", f"{name}/../{name}", f"/{name}")) for name in names]
    return chance.choice(("", "./", f"{root}/")) + "/".join(parts).lstrip("/")
