"""What a pattern grants is no more than it names, what it denies no less, and deciding takes no long time.

The attacker controls programs, commands and paths of ops, and the modules and requests of a skill. The oracles are a
reference for patterns of paths, a count of steps, and files that a command would create.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.errors import SkillInvalid
from reyn.permissions import Allowed, Denied, Gate, PathPattern, paths
from reyn.permissions.paths import _matches, must_spell
from reyn.permissions.policy import policy_of
from reyn.permissions.trust import load_project
from reyn.sandbox import process
from reyn.sandbox.backends import BACKENDS
from reyn.workspace import Location, Roots, locate
from tests.attacks.test_rule_spelling import KEYS, gate_of
from tests.kernel.support import Project
from tests.properties import examples
from tests.support import act, file, finish, write_skill

NOWHERE = Path("/nowhere")

# -- commands and programs ------------------------------------------------------------------------------------


@given(
    pattern=st.text("*?[]a-z stu", min_size=1, max_size=12).filter(lambda text: not text.startswith("sh -c")),
    before=st.text("abcdefghijklmnopqrstuvwxyz *?", max_size=8),
    sign=st.sampled_from(";|&$`<>\n\"'"),
)
@examples(100)
def test_no_pattern_of_a_plain_command_grants_shell_syntax(pattern: str, before: str, sign: str):
    gate = gate_of(NOWHERE, {"shell": [{"allow": [pattern, "*", "?*", f"*{before}", "s*", "sh*", "[s]h -c *"]}]})
    assert isinstance(gate.capability("shell", f"sh -c {before}{sign} {before}"), Denied)
    for rule in ({"allow": "sh -c*"}, {"allow": "sh -c *"}, "allow"):
        gate = gate_of(NOWHERE, {"shell": [rule]})
        assert isinstance(gate.capability("shell", f"sh -c {before}{sign} {before}"), Allowed)


@pytest.mark.parametrize("pattern", ["*--version", "?it status*", "*", "[a-z]* --help"])
def test_a_command_that_a_wildcard_begins_runs_no_second_one(tmp_path: Path, pattern: str):
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "shell"}, skill_keys="permissions: {shell: true}\n")
    commands = ["touch made; git --version", "git status; touch made", "touch made && ls --help", "touch made\nls"]
    project = Project(tmp_path)
    ops = [{"kind": "shell", "cmd": command} for command in commands]
    project.run("s", [act(*ops), finish()], permissions={"shell": [{"allow": pattern}]}, allow_shell=True)
    assert {one["status"] for one in project.results()} == {"denied"}
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("pattern", "granted", "others"),
    [
        ("wc*", ["wc", "wcx"], ["wcx/id", "wc/../id", "/usr/bin/wc", "./wc", "wcx/../../usr/bin/id", "wc/"]),
        ("?c", ["wc"], ["/c", "./wc"]),
        ("./wc", ["./wc", ".//wc", "././wc"], ["wc", "x/../wc", "../wc", "/wc"]),
        ("tools/*", ["tools/a", "./tools/a"], ["tools/a/b", "tools/../a", "tools/x/../../a", "tools", "a"]),
        ("tools/", ["tools/a", "tools/a/b"], ["tools/../a", "toolset/a", "tools/a/../../b"]),
        ("/nowhere/bin/*", ["/nowhere/bin/a", "/nowhere//bin/./a"], ["/nowhere/bin/a/b", "/nowhere/bin/../a", "a"]),
        ("/nowhere/**/a", ["/nowhere/a", "/nowhere/x/y/a"], ["/nowhere/x/../../a", "/nowhere/x/b"]),
        ("../own", ["../own"], ["own", "../../own", "../x/../own"]),
        ("*", ["wc", "/usr/bin/wc", "./wc"], ["system:listen"]),
    ],
)
def test_a_grant_of_programs_names_them(pattern: str, granted: list[str], others: list[str]):
    gate = gate_of(NOWHERE, {"exec": [{"allow": pattern}]}, {"exec": [pattern]})
    assert {name: isinstance(gate.capability("exec", name), Allowed) for name in (*granted, *others)} == (
        dict.fromkeys(granted, True) | dict.fromkeys(others, False)
    )


# -- modules --------------------------------------------------------------------------------------------------

modules = st.lists(st.sampled_from((".", "", "sub")), max_size=5).map(lambda names: "/".join((*names, "calc.py")))


@given(module=modules.filter(lambda text: not text.startswith("/")), function=st.sampled_from(("total", "\uff54otal")))
@examples(100)
def test_a_rule_on_a_python_function_covers_every_spelling_of_it(module: str, function: str):
    folders = "sub/" * module.split("/").count("sub")
    gates = [
        gate_of(NOWHERE, {"python": [{"deny": rule.format(f"{folders}calc.py")}]}, {"python": [entry]})
        for entry in ({"module": module, "function": function},)
        for rule in ("./{}:*", "{}:total", "{}*", ".//./{}:t*", "./{}:TOTAL", "*{}:total")
    ]
    asked = gates[0].requests[0].others["python"][0]
    assert all(isinstance(gate.python(asked, is_unsafe=False), Denied) for gate in gates)
    other = gate_of(NOWHERE, {"python": [{"deny": "./other.py:*"}]}, {"python": [{"module": module, "function": "f"}]})
    assert isinstance(other.python(other.requests[0].others["python"][0], is_unsafe=False), Allowed)


@pytest.mark.parametrize(
    "module", ["./calc.py", "calc.py", "././calc.py", ".//calc.py", "x/../calc.py", "../s/calc.py", "/"]
)
def test_a_denied_step_runs_under_no_spelling_of_its_module(tmp_path: Path, module: str):
    folder = tmp_path / "reyn" / "project" / "s"
    module = str(folder / "calc.py") if module == "/" else module
    step = f"{{python: {{module: {module}, function: f, into: data.text, output_schema: {{type: string}}}}}}"
    keys = f"permissions: {{python: [{{module: {module}, function: f}}]}}\n"
    keys += f"postprocessor: {{output_schema: note, steps: [{step}]}}\n"
    write_skill(tmp_path, "s", {"a": ["end"]}, skill_keys=keys)
    (folder / "x").mkdir()
    (folder / "calc.py").write_text("def f(artifact):\n    return 'executed'\n")
    project = Project(tmp_path)
    rules = {"python": [{"deny": "./calc.py:*"}]}
    if ".." in module or module.startswith("/"):
        with pytest.raises(SkillInvalid, match="outside the skill's folder"):
            project.run("s", [finish()], permissions=rules)
    else:
        assert project.run("s", [finish()], permissions=rules).status == "failed"
        assert project.events("permission_denied")


# -- paths ----------------------------------------------------------------------------------------------------

names = st.text("[]!a-b*?^]", min_size=1, max_size=6).filter(lambda name: name not in (".", ".."))


@given(folder=names, name=names, effect=st.sampled_from(("deny", "ask")), end=st.sampled_from(("", "/")))
@examples(200)
def test_a_rule_covers_the_name_that_it_spells(folder: str, name: str, effect: str, end: str):
    gate = gate_of(NOWHERE, {"file.read": [{effect: f"{folder}/{name}{end}"}]})
    for path in (f"{folder}/{name}", f"{folder}/{name}/x", f"./{folder.upper()}/{name}"):
        assert not isinstance(gate.read(locate(path, gate.roots)), Allowed), path


def is_granted(pattern: PathPattern, parts: tuple[str, ...], at: int = 0, segment: int = 0) -> bool:
    """Return whether a pattern grants to write a path: the reference."""
    if segment == len(pattern.segments):
        return at == len(parts) or (
            pattern.is_recursive and not any(must_spell(name, at + n, "write") for n, name in enumerate(parts[at:]))
        )
    wanted = pattern.segments[segment]
    if wanted == "**" and is_granted(pattern, parts, at, segment + 1):
        return True
    if at == len(parts):
        return False
    if wanted == "**":
        return not must_spell(parts[at], at, "write") and is_granted(pattern, parts, at + 1, segment)
    return _matches(wanted, parts[at], at, "write") and is_granted(pattern, parts, at + 1, segment + 1)


segments = st.lists(st.sampled_from(("**", "*", "a", "b*", ".x", "*.py")), min_size=1, max_size=6)


@given(segments, st.sampled_from(("", "/")), st.lists(st.sampled_from(("a", "b", "b1", ".x", "c.py")), max_size=5))
@examples(300)
def test_a_grant_covers_what_the_reference_says(pattern: list[str], end: str, parts: list[str]):
    parsed = PathPattern.parse("/".join(pattern) + end)
    assert parsed.covers(Location("project", tuple(parts), ""), "write") is is_granted(parsed, tuple(parts))


@pytest.mark.parametrize("wild", ["**/", "**/*/", "**/a/", "*/**/"])
def test_a_decision_takes_no_more_steps_than_pattern_times_path(monkeypatch: pytest.MonkeyPatch, wild: str):
    steps = 0

    def counted(*arguments: object) -> bool:
        nonlocal steps
        steps += 1
        assert steps <= 60 * 100
        return must_spell(*arguments)

    monkeypatch.setattr(paths, "must_spell", counted)
    pattern = PathPattern.parse("/" + wild * 30 + "x")
    assert not pattern.covers(Location("outside", ("a",) * 100, ""), "read")


# -- paths outside of the project, and many patterns ----------------------------------------------------------


class Looked:
    """Records the folders that are listed, and the files whose status is read."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.listed: list[str] = []
        self.read: list[str] = []
        for name, record in (("scandir", self.listed), ("lstat", self.read), ("stat", self.read)):
            monkeypatch.setattr(os, name, partial(self._call, getattr(os, name), record))

    @staticmethod
    def _call(function: Callable[..., Any], record: list[str], path: Any = ".", **keys: Any) -> Any:
        record.append(os.fsdecode(path) if isinstance(path, str | os.PathLike) else "")
        return function(path, **keys)


OUTSIDE_PATTERNS = ("~/**/z", "~/docs/", "HOME/docs/a.txt", "HOME/**", "~")


@pytest.mark.parametrize("effect", ["deny", "ask"])
@pytest.mark.parametrize("key", ["file.read", "file.write", "exec"])
def test_rules_of_an_untrusted_project_lead_nowhere_outside(
    key: str, effect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    root, home = tmp_path / "clone", tmp_path / "home"
    for folder in (root, home / "docs"):
        folder.mkdir(parents=True)
    (root / "a.txt").write_text("x")
    os.link(root / "a.txt", root / "b.txt")  # other names of such a file are looked for
    monkeypatch.setenv("HOME", str(home))
    outside = [pattern.replace("HOME", str(home)) for pattern in OUTSIDE_PATTERNS]
    rules = [*({effect: one} for one in outside), {effect: ["inner/", *outside], "skill": ["s"]}, {effect: "own/"}]
    (root / "reyn.yaml").write_text(json.dumps({"permissions": {key: rules}}))
    loaded = load_project(root)
    inside = [{effect: ["inner/"], "skill": ["s"]}, {effect: "own/"}]
    assert loaded.config.permissions == {key: inside}
    assert len(loaded.trust.ignored) == len(outside) + 1
    assert load_project(root, trust=True).config.permissions == {key: rules}

    gate = Gate(Roots(root, root / ".reyn", root / ".reyn/workspace/k"), policy_of(loaded.config, KEYS, root), (), "s")
    looked = Looked(monkeypatch)
    for path in ("a.txt", "own/x", "inner/x"):
        (gate.write if key == "file.write" else gate.read)(locate(path, gate.roots))
        gate.capability("exec", path)
    assert any(path.startswith(str(root)) for path in looked.read)
    assert not [path for path in (*looked.read, *looked.listed) if path.startswith(str(home))]


def test_a_link_in_a_rule_of_the_project_lists_no_folder_outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    root, home = tmp_path / "clone", tmp_path / "home"
    (home / "docs").mkdir(parents=True)
    root.mkdir()
    (root / "link").symlink_to(home)
    (root / "a.txt").write_text("x")
    os.link(root / "a.txt", root / "b.txt")
    gate = gate_of(root, {"file.read": [{"deny": ["link/**/z", "link/docs/"]}]})
    looked = Looked(monkeypatch)
    assert isinstance(gate.read(locate("a.txt", gate.roots)), Allowed)
    assert looked.listed == []


def many(pattern: str, count: int) -> list[str]:
    return [pattern.replace("#", str(number)) for number in range(count)]


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that every program sees, and a project beside it."""
    folder = tmp_path / "system"
    for name in ("a/b/c", "d/e", "f"):
        (folder / name).mkdir(parents=True)
        (folder / name / "z7").touch()
    (tmp_path / "project").mkdir()
    for name in ("FOLDERS", "_LOADER", "_NETWORK"):
        monkeypatch.setattr(process, name, (str(folder),) if name == "FOLDERS" else ())
    monkeypatch.setattr(process, "_python_parts", lambda: ())
    return folder


def test_many_patterns_take_one_walk_of_the_system(system: Path, monkeypatch: pytest.MonkeyPatch):
    listed = []
    for count in (1, 8, 200):
        gate = gate_of(system.parent / "project", {"file.read": [{"deny": many(f"{system}/**/z#", count)}]})
        with pytest.MonkeyPatch.context() as patch:
            looked = Looked(patch)
            private = gate.private
        listed.append(looked.listed)
        found = sorted(str(path) for path in system.rglob("z7")) if count > 7 else []
        assert sorted(private) == found
    assert listed[0] == listed[1] == listed[2]


@pytest.mark.skipif(all(backend.problem for backend in BACKENDS), reason="no process sandbox")
@pytest.mark.parametrize(("count", "is_refused"), [(1, False), (2, False), (3, True), (1_000, True)])
def test_rules_about_too_many_files_of_the_system_are_refused(
    count: int, is_refused: bool, system: Path, monkeypatch: pytest.MonkeyPatch
):
    entries = len([*system.rglob("*")])
    monkeypatch.setattr(paths, "MAX_RULE_COMPARISONS", 2 * entries)
    root = system.parent / "project"
    write_skill(root, "s", {"a": ["end"]}, ops={"a": "sandboxed_exec"}, skill_keys="permissions: {exec: ['true']}\n")
    project = Project(root)
    rules = {"exec": "allow", "file.read": [{"deny": many(f"{system}/**/y#", count)}]}
    call = {"kind": "sandboxed_exec", "argv": ["true"]}
    assert project.run("s", [act(call), finish()], permissions=rules).ok
    [result] = project.results()
    assert result.get("error", "").startswith("RYN332: ") == is_refused


def test_many_patterns_take_one_walk_for_other_names_of_a_file(tmp_path: Path):
    for name in ("a/b", "c", ".reyn/workspace/run"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "a/b/y").write_text("x")
    os.link(tmp_path / "a/b/y", tmp_path / "c/other")
    listed = []
    for count in (1, 200):
        rules = [*many("**/z#", count), *many("a/**/z#", count), "workspace:w"]
        gate = gate_of(tmp_path, {"file.read": [{"deny": rules}]})
        with pytest.MonkeyPatch.context() as patch:
            looked = Looked(patch)
            assert isinstance(gate.read(locate("c/other", gate.roots)), Allowed)
        listed.append(looked.listed)
    assert listed[0] == listed[1]
    os.link(tmp_path / "c/other", tmp_path / ".reyn/workspace/run/w")
    for rule in ("a/**/Y", "**/y", "a/", "workspace:w"):
        gate = gate_of(tmp_path, {"file.read": [{"deny": [*many("**/z#", 3), rule]}]})
        assert isinstance(gate.read(locate("c/other", gate.roots)), Denied), rule


def test_a_file_with_several_names_among_too_many_files_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(paths, "MAX_WALKED_FILES", 10)
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file"})
    (tmp_path / "plain.txt").write_text("x")
    (tmp_path / "a.txt").write_text("x")
    os.link(tmp_path / "a.txt", tmp_path / "b.txt")
    for number in range(10):
        (tmp_path / f"file{number}").touch()
    project = Project(tmp_path)
    project.run(
        "s",
        [act(file("read", "a.txt"), file("read", "plain.txt")), finish()],
        permissions={"file.read": [{"deny": "**/z"}]},
    )
    linked, plain = project.results()
    assert linked["error"].startswith("RYN332: ")
    assert plain["status"] == "ok"
