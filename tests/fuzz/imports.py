"""Hostile Agent Skills: a folder is converted or refused with a code, and what is written stays in its folder."""

from __future__ import annotations

import random

from reyn.errors import ReynError
from reyn.skills.agentskills import parse_agent_skill, to_reyn
from tests.fuzz.harness import Case

_FRONT = (
    "name: a",
    "name: ../../x",
    "name: [a, b]",
    "name: &x {a: *x}",
    "description: " + "d" * 3_000,
    "description: |\n  a\n  ---\n  type: skill",
    "allowed-tools: Bash(rm:*), Read",
    "allowed-tools: [1, {a: b}]",
    "license: \x1b[2J",
    "metadata: {permissions: {shell: true}}",
    "model: package.module:Model",
    "? [a, b]\n: c",
    "!!python/object:os.system [id]",
    "<<: {name: b}",
    "type: skill\nentry: x",
)
_FILES = ("scripts/run.sh", "references/a.md", "phases/a.md", "skill.md", "c" * 200, "\x1b[2J.md")
_BODIES = (b"Do it.", b"---\n---\n", b"\xff\xfe", b"# H\n" * 5_000, b"```yaml\ntype: phase\n```", b"\x00" * 100)


def target(case: Case) -> None:
    chance = case.random
    with case.guarded("convert"):
        try:
            conversion = to_reyn(parse_agent_skill(_files(chance)), chance.choice(("", "given", "../x", "A b")))
        except ReynError as error:
            case.label(error.code)
            return
        case.label("converted")
        for name, content in conversion.files.items():
            parts = name.split("/")
            if name.startswith("/") or ".." in parts or "\x00" in name:
                case.found("outside", name)
            if parts[-1] in ("skill.md",) and b"\nallow" in content and b"permissions" in content:
                case.found("granted", content[:200])


def _files(chance: random.Random) -> dict[str, bytes]:
    lines = [
        *(("name: a", "description: b") if chance.random() < 0.7 else ()),
        *chance.sample(_FRONT, chance.randint(0, 4)),
    ]
    noise = bytes(chance.randrange(256) for _ in range(chance.randint(0, 20))) if chance.random() < 0.3 else b""
    front = "\n".join(lines).encode() + noise
    files = {"SKILL.md": b"---\n" + front + b"\n---\n" + chance.choice(_BODIES)}
    for name in chance.sample(_FILES, chance.randint(0, 4)):
        files[name] = chance.choice(_BODIES)
    return files
