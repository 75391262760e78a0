"""What a skill may do is explained before it runs, and a request in vain is reported when it starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reyn.errors import ApprovalUnknown, ConfigInvalid, InputInvalid, OpUnknown, SkillInvalid
from reyn.permissions import Gate, Policy, SkillRequests, parse_requests, parse_rules
from reyn.permissions.explain import explain_requests
from reyn.workspace import Roots, locate
from tests.kernel.support import Project
from tests.support import act, file, finish, write_skill

KNOWN = ("file.read", "file.write", "shell", "tool", "web")


def verdict(request: dict[str, Any], rules: dict[str, Any], *above: dict[str, Any], skill: str = "s") -> tuple:
    callers = [SkillRequests("above", one) for one in above]
    [found] = explain_requests(skill, request, Policy(parse_rules(rules, KNOWN)), callers)
    return found.effect, found.rules, found.exceptions


WRITE = "permissions.file.write: "


@pytest.mark.parametrize(
    ("request_", "rules", "effect", "deciding", "exceptions"),
    [
        ("tickets/", [{"allow": "tickets/"}], "allow", "allow tickets/", []),
        ("tickets/", [{"ask": "tickets/"}], "ask", "ask tickets/", []),
        ("tickets/", [{"allow": "tickets/"}, {"ask": "tickets/*.md"}], "allow", "allow tickets/", ["ask tickets/*.md"]),
        ("tickets/", [{"allow": "tickets/"}, {"deny": "tickets/a/"}], "allow", "allow tickets/", ["deny tickets/a/"]),
        ("tickets/", [{"allow": "tickets/a.md"}], "partly", "allow tickets/a.md", []),
        ("tickets/", [{"deny": "tickets/"}, {"allow": "tickets/"}], "deny", "deny tickets/", []),
        ("tickets/", "deny", "deny", "deny", []),
        ("tickets/", "allow", "allow", "allow", []),
        ("tickets/a.md", [{"allow": "tickets/"}], "allow", "allow tickets/", []),
        ("*.md", [{"allow": "**"}], "allow", "allow **", []),
        ("tools/*.py", [{"allow": "tools/"}], "deny", "", []),
        ("tools/*.py", [{"allow": "tools/*.py"}], "allow", "allow tools/*.py", []),
        (".github/", "allow", "deny", "", []),
        ("reyn/local/", [{"allow": "./"}], "deny", "", []),
        ("tickets/", [{"allow": "tickets/", "skill": "other"}], "deny", "", []),
    ],
)
def test_the_verdict_on_a_request_names_its_rule(
    request_: str, rules: Any, effect: str, deciding: str, exceptions: list
):
    found = verdict({"file.write": [request_]}, {"file.write": rules})
    assert found == (
        effect,
        (f"{WRITE}{deciding}" if deciding else "default: no grant",),
        tuple(f"{WRITE}{text}" for text in exceptions),
    )


@pytest.mark.parametrize(
    ("request_", "rules", "effect"),
    [
        (True, "allow", "allow"),
        (True, "ask", "ask"),
        (True, [{"allow": "git*"}], "partly"),
        (["git"], [{"allow": "git*"}], "allow"),
        (["git*"], [{"allow": "git"}], "partly"),
        (["git"], [{"allow": "svn"}], "deny"),
        (["git"], [{"deny": "git"}, "allow"], "deny"),
        (True, [], "deny"),
    ],
)
def test_the_verdict_on_other_capabilities(request_: Any, rules: Any, effect: str):
    assert verdict({"tool": request_}, {"tool": rules})[0] == effect


@pytest.mark.parametrize(
    ("request_", "effect"),
    [("output/x/", "allow"), ("workspace:notes/", "allow"), ("workspace:.hidden", "deny"), ("output/x.py", "deny")],
)
def test_a_request_inside_a_zone_needs_no_grant(request_: str, effect: str):
    assert verdict({"file.write": [request_]}, {})[0] == effect


def test_a_request_that_the_run_above_does_not_make_is_denied():
    grant = {"file.write": [{"allow": "tickets/"}]}
    assert verdict({"file.write": ["tickets/"]}, grant, {"file.write": ["tickets/"]})[0] == "allow"
    assert verdict({"file.write": ["tickets/"]}, grant, {})[:2] == ("deny", ("default: no request above",))
    assert verdict({"file.write": ["tickets/"]}, grant, {"file.write": ["tickets/a"]})[0] == "deny"


def test_a_request_inside_a_zone_needs_no_request_above_either():
    """As the gate decides: zones hold for every run."""
    assert verdict({"file.write": ["output/x/"]}, {}, {})[0] == "allow"


@pytest.mark.parametrize("pattern", ["tickets/", "tickets/*.md", "a/**/b.txt", "x/[ab]?.md", ".github/", "tools/*.py"])
@pytest.mark.parametrize("rule", ["tickets/", "./", "**", "a/", "x/", ".github/", "tools/*.py", "tools/"])
def test_the_explanation_agrees_with_the_gate(tmp_path: Path, pattern: str, rule: str):
    """For a path that the request covers, whatever name a wildcard stands for."""
    policy = Policy(parse_rules({"file.write": [{"allow": rule}]}, KNOWN))
    request = {"file.write": [pattern]}
    [found] = explain_requests("s", request, policy)
    roots = Roots(tmp_path, tmp_path / ".reyn", tmp_path / ".reyn" / "w")
    name = pattern.replace("**", "q").replace("[ab]", "a").replace("?", "q").replace("*", "q")
    path = f"{name}q" if name.endswith("/") else name
    decided = Gate(roots, policy, (parse_requests(request),), "s").write(locate(path, roots))
    assert (found.effect == "allow") == (type(decided).__name__ == "Allowed"), (found, decided)


# -- when a run starts --------------------------------------------------------------------------------------

ASKING = "permissions:\n  file.write: [tickets/]\n"
TICKET = [act(file("write", "tickets/1.md", content="x\n")), finish()]


@pytest.fixture
def project(tmp_path: Path) -> Project:
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file"}, skill_keys=ASKING)
    return Project(tmp_path)


def configure(project: Project, text: str, name: str = "reyn.yaml") -> None:
    (project.root / name).write_text(text)


def test_a_request_with_a_grant_works_and_warns_about_nothing(project: Project):
    configure(project, "permissions:\n  file.write:\n    - allow: tickets/\n")
    result = project.run("s", TICKET)
    assert (result.ok, result.warnings) == (True, ())
    assert (project.root / "tickets" / "1.md").read_text() == "x\n"
    [started] = project.events("file_started")
    assert started["rule"] == "permissions.file.write: allow tickets/"


def test_a_request_without_a_grant_is_reported_with_the_line_to_add(project: Project):
    result = project.run("s", [finish()])
    [warning] = result.warnings
    assert warning == (
        "skill `s` requests `file.write: tickets/`, but no rule grants it: add "
        "`file.write: [{allow: tickets/}]` under `permissions` in reyn.yaml, and trust the project"
    )
    assert "permission_denied" not in project.kinds()
    configure(project, "permissions:\n  file.write: [{allow: tickets/}]\n")
    assert project.run("s", TICKET, run_id="granted").warnings == ()


def test_the_line_is_added_to_the_rules_that_exist(project: Project):
    configure(project, "permissions:\n  file.write: [{allow: reports/}]\n")
    [warning] = project.run("s", [finish()]).warnings
    assert "add `- allow: tickets/` to the list `file.write` under `permissions` in reyn.yaml" in warning
    configure(project, "permissions:\n  file.write: [{allow: reports/}, {deny: ./}]\n")
    [warning] = project.run("s", [finish()], run_id="denied").warnings
    assert warning.endswith("but the rule `permissions.file.write: deny ./` denies it")


def test_a_stopped_run_reports_it_as_well(project: Project):
    result = project.run("s", [act({"kind": "ask_user", "question": "?"})], max_phase_retries=0)
    assert result.status == "failed"
    assert len(result.warnings) == 1


def test_requests_of_sub_skills_are_reported_when_the_run_starts(project: Project, tmp_path: Path):
    write_skill(tmp_path, "above", {"@s": ["end"]}, skill_keys="permissions:\n  file.read: [/srv/]\n")
    configure(project, "permissions:\n  file.read: [{allow: /srv/}]\n  file.write: [{allow: tickets/}]\n")
    [warning] = project.run("above", [finish()]).warnings
    assert warning == (
        "skill `s` requests `file.write: tickets/`, but the skill that runs it does not request it under `permissions` "
        "in its skill.md"
    )


@pytest.mark.parametrize("value", ["[3]", "{path: x, scope: all}", "['']", "../x"])
def test_a_malformed_request_is_an_error_of_the_skill(tmp_path: Path, value: str):
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file"}, skill_keys=f"permissions:\n  file.write: {value}\n")
    with pytest.raises(SkillInvalid) as caught:
        Project(tmp_path).run("s", [finish()])
    [finding] = caught.value.findings
    assert (finding.file, finding.line, finding.code) == ("skill.md", 8, "RYN114")


# -- sources of rules ---------------------------------------------------------------------------------------


def test_rules_of_several_files_are_added_so_that_deny_wins(project: Project):
    configure(project, "permissions:\n  file.write: [{deny: tickets/}]\n  shell: deny\n")
    configure(project, "permissions:\n  file.write: [{allow: tickets/}]\n  shell: allow\n", "reyn.local.yaml")
    assert project.run("s", TICKET).ok
    assert not (project.root / "tickets").exists()
    [denied] = project.events("permission_denied")
    assert denied["rule"] == "permissions.file.write: deny tickets/"
    with project.open([]) as rt:
        assert rt.permissions.explain_op("s", file("write", "tickets/1.md", content="")).effect == "deny"
        assert rt.async_form.project.config.permissions["shell"] == ["deny", "allow"]


def test_a_caller_cannot_remove_a_deny_rule(project: Project, monkeypatch: pytest.MonkeyPatch):
    configure(project, "permissions:\n  file.write: [{deny: tickets/}]\n")
    monkeypatch.setenv("REYN_PERMISSIONS", "{file.write: allow}")
    project.run("s", TICKET, permissions={"file.write": "allow"})
    assert not (project.root / "tickets").exists()


def test_every_error_in_rules_and_zones_has_its_position(project: Project):
    configure(
        project,
        "permissions:\n  file.wrote: allow\n  file.write:\n    - alow: x\n    - allow: ../x\n  shell: maybe\n"
        "files:\n  write:\n    - output/\n    - ..\n",
    )
    configure(project, "permissions:\n  web: [{allow: a, ask: b}]\n", "reyn.local.yaml")
    with pytest.raises(ConfigInvalid) as caught:
        project.run("s", [finish()])
    found = [(finding.file, finding.line, finding.column, finding.fix) for finding in caught.value.findings]
    assert found == [
        ("reyn.local.yaml", 2, 9, ""),
        ("reyn.yaml", 2, 3, "did you mean `file.write`?"),
        ("reyn.yaml", 4, 7, "did you mean `allow`?"),
        ("reyn.yaml", 5, 7, ""),
        ("reyn.yaml", 6, 3, ""),
        ("reyn.yaml", 10, 7, ""),
    ]
    assert project.journal.find("k") is None


def test_an_error_in_the_settings_of_a_caller_has_no_position(project: Project):
    with pytest.raises(ConfigInvalid, match=r"permissions\.file\.write"):
        project.run("s", [finish()], permissions={"file.write": "maybe"})


# -- the report ---------------------------------------------------------------------------------------------


def test_the_report_names_every_line(project: Project):
    configure(
        project, "files:\n  write: [output/, out/]\npermissions:\n  file.write:\n    - ask: tickets/\n      skill: s\n"
    )
    with project.open([]) as rt:
        report = rt.permissions.explain("s")
    assert [(zone.access, zone.pattern, zone.place) for zone in report.zones] == [
        ("read", "./", "default"),
        ("write", "output/", "reyn.yaml:2"),
        ("write", "out/", "reyn.yaml:2"),
        ("read", "workspace:", "default"),
        ("write", "workspace:", "default"),
    ]
    [request] = report.requests
    assert (request.effect, request.place) == ("ask", "skill.md:8")
    assert request.rules == ("permissions.file.write: ask tickets/ (skill s) (reyn.yaml:5)",)
    [rule] = report.rules
    assert (rule.effect, rule.place) == ("ask", "reyn.yaml:5")
    [op] = report.ops
    assert (op.kind, op.phases, op.effect) == ("file", ("a",), "allow")


def test_the_verdict_on_an_op_is_that_of_the_gate_and_performs_nothing(project: Project):
    configure(project, "permissions:\n  file.write:\n    - allow: tickets/\n    - ask: tickets/*.md\n")
    with project.open([]) as rt:
        asked = rt.permissions.explain_op("s", file("write", "tickets/1.md", content="x"))
        allowed = rt.permissions.explain_op("s", file("write", "tickets/1.txt", content="x"))
        denied = rt.permissions.explain_op("s", file("write", "notes/1.txt", content="x"))
        missing = rt.permissions.explain_op("s", file("edit", "tickets/1.txt", old_string="x", new_string="y"))
        kind = rt.permissions.explain_op("s", "file")
    assert (asked.effect, asked.rule, asked.place) == (
        "ask",
        "permissions.file.write: ask tickets/*.md",
        "reyn.yaml:4",
    )
    assert (allowed.effect, allowed.place) == ("allow", "reyn.yaml:3")
    assert (denied.effect, denied.rule) == ("deny", "default: no write outside the zones")
    assert (missing.effect, missing.problem) == ("allow", "there is no file `tickets/1.txt`")
    assert (kind.effect, kind.phases) == ("allow", ("a",))
    assert not (project.root / "tickets").exists()
    assert not (project.root / ".reyn").exists()


@pytest.mark.parametrize(
    ("op", "error"),
    [
        ("sing", OpUnknown),
        ({"kind": "sing"}, OpUnknown),
        ({"kind": "mcp", "tool": "ls"}, OpUnknown),
        ({"kind": "file", "op": "rite"}, InputInvalid),
        ({"kind": "file", "op": "read"}, InputInvalid),
    ],
)
def test_an_op_that_does_not_exist_is_an_error(project: Project, op: Any, error: type[Exception]):
    with project.open([]) as rt, pytest.raises(error):
        rt.permissions.explain_op("s", op)


def test_an_unknown_approval_cannot_be_revoked(project: Project):
    with project.open([]) as rt, pytest.raises(ApprovalUnknown):
        rt.permissions.revoke(1)
