"""Precedence of permission rules: deny beats ask beats allow, for every name, always.

The attacker controls the names of files, hosts, tools and skills, and the rules of an untrusted source that allow. The
oracles are a reference of ten lines, and the file system after a run.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.config.load import merge_rules
from reyn.permissions import Allowed, Denied, Gate, NeedsApproval, Policy, parse_requests, parse_rules
from reyn.vocabulary import PERMISSIONS
from reyn.workspace import Roots, locate
from tests.kernel.support import Project
from tests.properties import examples
from tests.support import act, file, finish, write_skill

KEYS = tuple(entry.key for entry in PERMISSIONS)
NAMES = ("src", "vendor", "a.md", "x.py", "run.sh", ".env", ".git", "Makefile", "hooks", "node_modules", "Vendor")
SEGMENTS = (*NAMES, "*", "*.py", "*.md", ".*", "**")
EFFECTS = ("deny", "ask", "allow")

paths = st.lists(st.sampled_from(NAMES), min_size=1, max_size=4).map("/".join)
folders = st.sampled_from(("", "/"))
patterns = st.builds(
    lambda names, end: "/".join(names) + end, st.lists(st.sampled_from(SEGMENTS), min_size=1, max_size=3), folders
)
skills = st.sampled_from((None, "own", "parent", "other"))
file_rules = st.lists(st.tuples(st.sampled_from(EFFECTS), patterns, skills), max_size=6)


def gate_of(root: Path, rules: dict[str, Any], requests: dict[str, Any]) -> Gate:
    roots = Roots(root, root / ".reyn", root / ".reyn" / "workspace" / "run")
    asked = parse_requests(requests)
    return Gate(roots, Policy(parse_rules(rules, KEYS), allow_shell=True), (asked, asked), "own", ("parent",))


def is_covered(pattern: str, path: str) -> bool:
    """Return whether a pattern covers a path or a folder above it: the reference."""

    def is_matched(segments: list[str], names: list[str]) -> bool:
        if not segments:
            return True
        if segments[0] == "**":
            return any(is_matched(segments[1:], names[start:]) for start in range(len(names) + 1))
        return bool(names) and fnmatchcase(names[0], segments[0]) and is_matched(segments[1:], names[1:])

    return is_matched(pattern.casefold().strip("/").split("/"), path.casefold().split("/"))


@given(path=paths, rules=file_rules, access=st.sampled_from(("read", "write")), at=st.integers(0, 2))
@examples(400)
def test_deny_beats_ask_beats_allow_for_every_file(path: str, rules: list[Any], access: str, at: int):
    """Rules of two sources, in any order: no allow of either weakens a deny or an ask of the other."""
    key = f"file.{access}"
    entries = [{effect: pattern} | ({"skill": skill} if skill else {}) for effect, pattern, skill in rules]
    sources = merge_rules({key: entries[:at]} if entries[:at] else {}, {key: entries[at:]} if entries[at:] else {})
    gate = gate_of(Path("/nowhere/project"), sources, {key: [path]})
    verdict = getattr(gate, access)(locate(path, gate.roots))
    holding = {
        effect for effect, pattern, skill in rules if skill in (None, "own", "parent") and is_covered(pattern, path)
    }
    if "deny" in holding:
        assert isinstance(verdict, Denied)
    elif "ask" in holding:
        assert isinstance(verdict, NeedsApproval)
    elif isinstance(verdict, Allowed):
        is_default = verdict.rule.startswith("default: read ./")
        assert is_default or any(effect == "allow" and is_covered(pattern, path) for effect, pattern, _ in rules)


@pytest.mark.parametrize(
    "name", ["x.py", "run.sh", ".env", "Makefile", ".git/config", "hooks/pre-commit", "package.json"]
)
@pytest.mark.parametrize("effect", ["deny", "ask"])
@pytest.mark.parametrize(
    "spelling", ["src/vendor/", "src/vendor", "src/", "src/**", "**", "./", "SRC/Vendor/", "src/*/"]
)
def test_a_protected_name_is_denied_or_asked_about_by_every_pattern_above_it(
    tmp_path: Path, name: str, effect: str, spelling: str
):
    path = f"src/vendor/{name}"
    for rules in ([{"allow": path}, {effect: spelling}], [{effect: spelling}, {"allow": path}]):
        gate = gate_of(tmp_path, {"file.write": rules, "file.read": rules}, {"file.write": [path], "file.read": [path]})
        for verdict in (gate.write(locate(path, gate.roots)), gate.read(locate(path, gate.roots))):
            assert isinstance(verdict, Denied if effect == "deny" else NeedsApproval)


names = st.sampled_from(("alpha", "beta", "alphabet", "Alpha", "gamma"))
name_patterns = st.sampled_from(("*", "alpha", "a*", "beta", "[ab]*", "gamma", "?eta", "ALPHA"))
KINDS = sorted({entry.key for entry in PERMISSIONS} - {"file.read", "file.write"})


@given(
    key=st.sampled_from(KINDS),
    target=names,
    rules=st.lists(st.tuples(st.sampled_from(EFFECTS), st.none() | name_patterns, skills), max_size=5),
)
@examples(400)
def test_deny_beats_ask_beats_allow_for_every_capability(key: str, target: str, rules: list[Any]):
    entries = [
        (
            effect
            if pattern is None and skill is None
            else {effect: pattern or "*"} | ({"skill": skill} if skill else {})
        )
        for effect, pattern, skill in rules
    ]
    gate = gate_of(Path("/nowhere/project"), {key: entries} if entries else {}, {key: True})
    verdict = gate.python(target, is_unsafe=False) if key == "python" else gate.capability(key, target)
    holding = {
        effect
        for effect, pattern, skill in rules
        if skill in (None, "own", "parent") and fnmatchcase(target.casefold(), (pattern or "*").casefold())
    }
    if "deny" in holding:
        assert isinstance(verdict, Denied)
    elif "ask" in holding:
        assert isinstance(verdict, NeedsApproval)


# -- files of a run -------------------------------------------------------------------------------------------

REQUESTS = "permissions:\n  file.write: [lib/, 'lib/**/*.py', 'lib/**/*.sh', lib/third/.env, lib/third/Makefile]\n"
ALLOW = [{"allow": one} for one in ("lib/", "lib/**/*.py", "lib/**/*.sh", "lib/third/.env", "lib/third/Makefile")]


@pytest.mark.parametrize("name", ["x.py", "x.sh", ".env", "Makefile", "notes.md"])
@pytest.mark.parametrize("effect", ["deny", "ask"])
def test_a_run_writes_nothing_below_a_restricted_folder(tmp_path: Path, name: str, effect: str):
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file"}, skill_keys=REQUESTS)
    project = Project(tmp_path)
    rules = {"file.write": [*ALLOW, {effect: "lib/third/"}]}
    ops = [file("write", f"lib/{folder}/{name}", content="x") for folder in ("own", "third")]
    result = project.run("s", [act(*ops), finish()], permissions=rules)
    assert result.status == ("finished" if effect == "deny" else "waiting")
    assert not (tmp_path / "lib" / "third").exists()
    assert (tmp_path / "lib" / "own").exists() is (name not in (".env", "Makefile"))


def test_a_deny_for_a_skill_holds_for_the_runs_that_it_starts(tmp_path: Path):
    request = "permissions:\n  file.write: [lib/]\n"
    write_skill(tmp_path, "inner", {"b": ["end"]}, ops={"b": "file"}, skill_keys=request)
    write_skill(tmp_path, "outer", {"@inner": ["end"]}, skill_keys=request)
    project = Project(tmp_path)
    answers = [act(file("write", "lib/x.md", content="x")), finish()]
    rules = {"file.write": [{"allow": "lib/"}, {"deny": "lib/", "skill": "outer"}]}
    project.run("outer", answers, run_id="first", permissions=rules)
    assert not (tmp_path / "lib").exists()
    project.run("inner", answers, run_id="second", permissions=rules)
    assert (tmp_path / "lib" / "x.md").exists()


def test_a_file_rule_that_asks_holds_beside_a_grant_to_write_skills(tmp_path: Path):
    gate = gate_of(
        tmp_path,
        {"file.write": [{"ask": "reyn/"}], "skill.write": "allow", "memory": "allow"},
        {"skill.write": True, "memory": True},
    )
    for path in ("reyn/local/new/skill.md", "reyn/memory/fact.md"):
        assert isinstance(gate.write(locate(path, gate.roots)), NeedsApproval)


def test_a_pattern_covers_the_same_files_from_wherever_it_begins(tmp_path: Path):
    """A rule on an absolute path, or through a link, restricts the files in the project that it leads to."""
    (tmp_path / "data").mkdir()
    (tmp_path / "alias").symlink_to("data")
    for spelling in (f"{tmp_path}/data/", f"{tmp_path}/alias", "alias/", f"{tmp_path.parent}/*/data"):
        for path in ("data/x.py", "alias/x.py", f"{tmp_path}/data/x.py"):
            gate = gate_of(tmp_path, {"file.read": [{"deny": spelling}]}, {})
            assert isinstance(gate.read(locate(path, gate.roots)), Denied), (spelling, path)
