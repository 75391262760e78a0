"""What a pattern grants is no more than it names, what it denies no less, and deciding takes no long time.

The attacker controls programs, commands and paths of ops, and the modules and requests of a skill. The oracles are a
reference for patterns of paths, a count of steps, and files that a command would create.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.errors import SkillInvalid
from reyn.permissions import Allowed, Denied, PathPattern, paths
from reyn.permissions.paths import _matches, must_spell
from reyn.workspace import Location, locate
from tests.attacks.test_rule_spelling import gate_of
from tests.kernel.support import Project
from tests.properties import examples
from tests.support import act, finish, write_skill

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
