"""The gate decides about every file and capability, and its verdict names the rule."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from reyn.permissions import (
    Allowed,
    Denied,
    Gate,
    NeedsApproval,
    PathPattern,
    Policy,
    parse_requests,
    parse_rules,
    refusal,
)
from reyn.permissions.rules import Requests, Rule
from reyn.workspace import Roots, locate
from tests.properties import examples

KEYS = ("file.read", "file.write", "memory", "skill.write", "tool")


def gate(roots, rules: dict | None = None, *requests: dict) -> Gate:
    asked = tuple(parse_requests(one) for one in requests) or (parse_requests({}),)
    return Gate(roots, Policy(parse_rules(rules or {}, KEYS)), asked, "triage")


def read(roots, text: str, rules: dict | None = None, *requests: dict):
    return gate(roots, rules, *requests).read(locate(text, roots))


def write(roots, text: str, rules: dict | None = None, *requests: dict):
    return gate(roots, rules, *requests).write(locate(text, roots))


# -- the default zones --------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["output/a.md", "output/x/y.csv", "workspace:a.md", "workspace:run.py"])
def test_output_and_the_workspace_can_be_written(roots, text):
    assert isinstance(write(roots, text), Allowed)


@pytest.mark.parametrize("text", ["README.md", "src/a.py", "reyn/local/a.md", "reyn.yaml", "Makefile"])
def test_the_project_can_be_read(roots, text):
    assert read(roots, text) == Allowed("default: read ./")


@pytest.mark.parametrize("text", [".env", ".git/config", "src/.hidden/a.md", ".github/workflows/ci.yml"])
def test_hidden_names_cannot_be_read(roots, text):
    assert isinstance(read(roots, text), Denied)


@pytest.mark.parametrize(
    "text",
    [
        "README.md",
        "reyn.yaml",
        "reyn.local.yaml",
        "reyn/__init__.py",
        "reyn/local/evil/skill.md",
        "reyn/.git/config",
        "output",
        "output/run.py",
        "output/Makefile",
        "output/.git/hooks/pre-commit",
        "output/.env",
        "OUTPUT/a.md",
        "workspace:.git/config",
    ],
)
def test_everything_else_cannot_be_written_without_a_grant(roots, text):
    verdict = write(roots, text)
    assert isinstance(verdict, Denied)
    assert "the skill must request it" in verdict.reason


@pytest.mark.parametrize("text", [".reyn", ".reyn/journal.db", "workspace:../run-2/theirs.md"])
def test_the_state_directory_is_out_of_reach_whatever_is_granted(roots, text):
    rules, request = (
        {"file.read": "allow", "file.write": "allow"},
        {"file.read": ["./"], "file.write": ["./", ".reyn/"]},
    )
    for verdict in (read(roots, text, rules, request), write(roots, text, rules, request)):
        assert isinstance(verdict, Denied)
        assert verdict.rule == "the state directory is out of reach"


def test_recorded_content_is_read_only_whatever_is_granted(roots):
    assert read(roots, "workspace:.full/call-1") == Allowed("default: content of this run")
    for path in ("workspace:.full/call-1", "workspace:.full"):
        verdict = write(roots, path, {"file.write": "allow"}, {"file.write": ["workspace:./"]})
        assert verdict.rule == "default: recorded content is read-only"


RECORDED_PATHS = [
    "",
    "/input",
    "/1.artifact",
    "/1.1.1",
    "/1.1.1.run",
    "/1.1.1.run/2.artifact",
    "/1.1.1.run/1.1.run/input",
]
PATTERNS = [
    "**", "*", "{}", "{}/", "{}/**", "{}/*", "{}/1.*", "{}/*.run", "{}/*.run/", "{}/**/input", "{}/*/2.artifact",
    "{}/1.1.1.run/**", "{}/INPUT", "{}/[1-3].artifact", "**/1.artifact", "other/**", "{}x/**",
]  # fmt: skip


@examples(150, allow=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(RECORDED_PATHS), st.sampled_from(PATTERNS), st.sampled_from(["deny", "ask"]), st.booleans())
def test_a_rule_restricts_recorded_content_like_a_folder_of_the_workspace(roots, path, pattern, effect, is_absolute):
    below = f"{roots.workspace}/" if is_absolute else "workspace:"

    def verdict(folder: str):
        rules = {"file.read": [{effect: below + pattern.format(folder)}]}
        return read(roots, f"workspace:{folder}{path}", rules)

    recorded, ordinary = verdict(".full"), verdict("full")
    assert type(recorded) is type(ordinary)
    assert recorded.rule == ordinary.rule.replace("full", ".full") or isinstance(recorded, Allowed)


@pytest.mark.parametrize("effect", ["deny", "ask"])
def test_a_link_in_place_of_recorded_content_does_not_evade_its_rule(roots, effect):
    link = roots.workspace / ".full"
    link.symlink_to(roots.project / "elsewhere")
    restricted = gate(roots, {"file.read": [{effect: "workspace:.full/**"}]})
    assert not isinstance(restricted.read(locate("workspace:.full/input", roots)), Allowed)
    link.unlink()
    assert not isinstance(restricted.read(locate("workspace:.full/input", roots)), Allowed)


@pytest.mark.parametrize("text", ["/etc/passwd", "../beside/secret.md", "workspace:../../../README.md"])
def test_outside_the_project_nothing_is_allowed_by_default(roots, text):
    assert isinstance(read(roots, text), Denied)
    assert isinstance(write(roots, text), Denied)


# -- requests and rules -------------------------------------------------------------------------------------


REQUEST = {"file.write": ["tickets/"]}
GRANT = {"file.write": [{"allow": "tickets/"}]}


def test_a_request_with_a_grant_widens_what_a_skill_may_write(roots):
    assert write(roots, "tickets/a.md", GRANT, REQUEST) == Allowed("permissions.file.write: allow tickets/")


def test_a_request_or_a_grant_alone_does_not(roots):
    assert write(roots, "tickets/a.md", {}, REQUEST).rule == "default: no grant"
    assert write(roots, "tickets/a.md", GRANT).rule == "default: no write outside the zones"


def test_every_run_above_must_request_it_too(roots):
    assert isinstance(write(roots, "tickets/a.md", GRANT, REQUEST, REQUEST), Allowed)
    assert isinstance(write(roots, "tickets/a.md", GRANT, REQUEST, {}), Denied)


def test_a_grant_must_name_a_protected_file(roots):
    request = {"file.write": ["tools/", "tools/*.py"]}
    assert isinstance(write(roots, "tools/run.py", {"file.write": [{"allow": "tools/"}]}, request), Denied)
    assert isinstance(write(roots, "tools/run.py", {"file.write": [{"allow": "tools/*.py"}]}, request), Allowed)


def test_an_unconditional_grant_does_not_name_protected_files(roots):
    request = {"file.write": ["./", "docs/run.py"]}
    assert isinstance(write(roots, "docs/a.md", {"file.write": "allow"}, request), Allowed)
    assert isinstance(write(roots, "docs/run.py", {"file.write": "allow"}, request), Denied)


def test_deny_wins_also_inside_the_zones(roots):
    assert isinstance(read(roots, "secrets/a.md", {"file.read": [{"deny": "secrets/"}]}), Denied)
    rules = {"file.write": [{"deny": "output/final/"}, {"allow": "output/"}]}
    assert isinstance(write(roots, "output/final/a.md", rules, {"file.write": ["output/"]}), Denied)
    assert isinstance(write(roots, "output/a.md", rules), Allowed)


@pytest.mark.parametrize(
    ("folder", "rules", "verdict"),
    [
        ("vault", {}, Allowed),
        (".git", {"file.read": "ask"}, Denied),
        *(("vault", {"file.read": [{"deny": f"vault{end}"}]}, Denied) for end in ("", "/", "/*", "/**", "/?*")),
        *(("vault", {"file.read": [{"deny": f"vault/{name}"}]}, Allowed) for name in ("a.md", "*.md", "*/*")),
        *(("vault", {"file.read": [{"ask": f"vault{end}"}]}, NeedsApproval) for end in ("/", "/*")),
        ("vault", {"file.read": [{"ask": "vault/"}, {"ask": "vault/*"}]}, NeedsApproval),
        ("vault", {"file.read": [{"ask": "vault/"}, {"deny": "vault/*"}]}, Denied),
        *(("reyn/memory", {"memory": rule}, Denied) for rule in ("deny", [{"deny": "*"}], [{"deny": ["shared", "*"]}])),
        *(("reyn/memory", {"memory": rule}, Allowed) for rule in ("ask", [{"deny": "shared"}], [{"deny": "ada"}])),
        *(("reyn/memory/Ada", {"memory": rule}, Denied) for rule in ("deny", [{"deny": "ada"}])),
        ("reyn/memory/bob", {"memory": [{"deny": "ada"}]}, Allowed),
        ("reyn/memory/ada/deeper", {"memory": "deny"}, Allowed),
        ("reyn", {"memory": "deny"}, Allowed),
        ("workspace:reyn/memory", {"memory": "deny"}, Allowed),
    ],
)
def test_a_rule_about_all_in_a_folder_decides_about_a_search_of_it(roots, folder, rules, verdict):
    assert isinstance(gate(roots, rules).search(locate(folder, roots)), verdict)


def test_ask_needs_approval(roots):
    verdict = write(roots, "output/a.md", {"file.write": [{"ask": "output/"}]})
    assert verdict == NeedsApproval("permissions.file.write: ask output/", "default: write output/")
    verdict = write(roots, "tickets/a.md", {"file.write": [{"ask": "tickets/"}]}, REQUEST)
    assert isinstance(verdict, NeedsApproval)


def test_an_approval_counts_for_the_rules_that_the_person_was_asked_for():
    asks, denies = NeedsApproval("b", "why"), Denied("b", "why")
    assert refusal(Allowed("b")) is None
    assert [refusal(asks), refusal(denies), refusal(denies, approved="b")] == [asks, denies, denies]
    assert [refusal(asks, approved=approved) for approved in ("b", "a and b", "a and b and c")] == [None, None, None]
    assert [refusal(asks, approved=approved) for approved in ("a", "bb", "a and bb")] == [asks, asks, asks]


def test_a_denial_names_the_line_to_add_and_the_file(roots):
    reason = write(roots, "tickets/a.md", {}, REQUEST).reason
    assert "add `file.write: [{allow: tickets/a.md}]` under `permissions` in reyn.yaml" in reason
    reason = write(roots, "tickets/a.md").reason
    assert "`file.write: [tickets/a.md]` under `permissions` in skill.md" in reason


def test_outside_the_project_a_program_may_see_a_path_that_is_granted(roots):
    """No op opens it, so that no advice is given for it."""
    outside = str(roots.project.parent / "elsewhere" / "a.csv")
    request, grant = {"file.read": [outside]}, {"file.read": [{"allow": outside}]}
    location = locate(outside, roots)
    assert isinstance(gate(roots, grant, request).show(location), Allowed)
    assert isinstance(gate(roots, grant).show(location), Denied)
    for verdict in (read(roots, outside, grant, request), write(roots, outside, grant, request)):
        assert verdict.rule == "default: no files outside the project"
        assert "reyn.yaml" not in verdict.reason


def test_other_capabilities_need_request_and_grant(roots):
    assert gate(roots).capability("tool", "notify").rule == "default: no request"
    assert gate(roots, {}, {"tool": True}).capability("tool", "notify").rule == "default: no grant"
    assert gate(roots, {"tool": "allow"}, {"tool": True}).capability("tool", "notify") == Allowed(
        "permissions.tool: allow"
    )
    assert isinstance(gate(roots, {"tool": "ask"}, {"tool": True}).capability("tool", "notify"), NeedsApproval)
    assert isinstance(gate(roots, {"tool": "deny"}, {"tool": True}).capability("tool", "notify"), Denied)


def test_every_run_above_must_request_a_capability_too(roots):
    rules, request = {"tool": "allow"}, {"tool": ["notify"]}
    assert isinstance(gate(roots, rules, request, request).capability("tool", "notify"), Allowed)
    for requests in ((request, {}), ({}, request)):
        assert gate(roots, rules, *requests).capability("tool", "notify").rule == "default: no request"


def test_a_denied_capability_names_its_target_if_it_has_one(roots):
    denying = gate(roots, {"tool": "deny"})
    assert denying.capability("tool", "notify").reason == "the operator denies `tool` for `notify`"
    assert denying.capability("tool").reason == "the operator denies `tool`"


def test_a_denial_names_the_zones_that_need_no_grant(roots):
    policy = Policy((), *(tuple(map(PathPattern.parse, zone)) for zone in (["docs/", "data/"], ["output/"])))
    verdict = Gate(roots, policy).read(locate("README.md", roots))
    assert verdict.reason.startswith("`docs/`, `data/` and `workspace:` can be read without a grant; ")
    verdict = Gate(roots, policy).write(locate("README.md", roots))
    assert verdict.reason.startswith("`output/` and `workspace:` can be written without a grant; ")


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("output/x/run.py", "`run.py` is protected and must be named."),
        ("a/.git/config", "`.git` is protected and must be named."),
        ("README.md", ""),
    ],
)
def test_a_denial_names_the_protected_name(roots, path, named):
    reason = write(roots, path).reason
    assert reason.endswith(f"trust the project.{named and f' {named}'}")


def test_a_denial_lists_what_can_be_read_where_there_are_no_zones(roots):
    verdict = Gate(roots, Policy(read_zone=())).read(locate("README.md", roots))
    assert verdict.reason.startswith("only `workspace:` can be read without a grant; ")


@pytest.mark.parametrize("text", [".", "workspace:", "reyn/.."])
def test_a_folder_that_is_a_root_cannot_be_written(roots, text):
    assert "is a folder" in write(roots, text, {"file.write": "allow"}, {"file.write": ["./"]}).reason


def test_a_denial_in_an_untrusted_project_says_that_its_settings_are_ignored(roots):
    untrusted = Gate(roots, Policy(note="Not trusted."), (parse_requests({"tool": True}),))
    for verdict in (untrusted.write(locate("a.md", roots)), untrusted.capability("tool", "notify")):
        assert verdict.reason.endswith(". Not trusted.")
        assert ".. " not in verdict.reason


@pytest.mark.parametrize(
    "value",
    [
        Allowed("a"),
        Denied("a", "b"),
        NeedsApproval("a", "b"),
        Gate(Roots(Path(), Path(), Path())),
        Policy(),
        Rule("deny", "tool"),
        Requests(),
        PathPattern.parse("./"),
    ],
)
def test_values_cannot_be_changed_after_a_decision(value):
    for name in value.__struct_fields__:
        with pytest.raises(AttributeError):
            setattr(value, name, None)


# -- local skills -------------------------------------------------------------------------------------------

WRITES = {"skill.write": True}


@pytest.mark.parametrize("text", ["reyn/local/a/skill.md", "reyn/local/a/phases/b.md", "reyn/local/a/files/run.py"])
def test_a_person_decides_about_the_files_of_a_local_skill(roots, text):
    verdict = write(roots, text, None, WRITES)
    assert isinstance(verdict, NeedsApproval)
    assert verdict.rule == "default: ask for skill.write a"


@pytest.mark.parametrize(
    "text",
    [
        "reyn/local/a",
        "reyn/local/skill.md",
        "reyn/project/a/skill.md",
        "reyn/agents/a.md",
        "reyn/local/.git/hooks/pre-commit",
        "reyn/local/a/.env",
        "reyn/__init__.py",
        "local/a/skill.md",
        "../reyn/local/a/skill.md",
    ],
)
def test_the_request_covers_nothing_but_local_skills(roots, text):
    assert isinstance(write(roots, text, None, WRITES), Denied)


def test_every_skill_above_must_request_it(roots):
    assert isinstance(write(roots, "reyn/local/a/skill.md", None, WRITES, {}), Denied)
    assert isinstance(write(roots, "reyn/local/a/skill.md", None, WRITES, WRITES), NeedsApproval)
    assert isinstance(write(roots, "reyn/local/a/skill.md", None, {"skill.write": ["b*"]}), Denied)


def test_rules_decide_about_local_skills(roots):
    path, program = "reyn/local/a/skill.md", "reyn/local/a/files/run.py"
    assert isinstance(write(roots, path, {"skill.write": "deny"}, WRITES), Denied)
    assert isinstance(write(roots, path, {"file.write": [{"deny": "reyn/"}]}, WRITES), Denied)
    allowed = {"skill.write": [{"allow": "a*"}]}
    assert isinstance(write(roots, path, allowed, WRITES), Allowed)
    assert isinstance(write(roots, "reyn/local/b/skill.md", allowed, WRITES), NeedsApproval)
    assert isinstance(write(roots, program, allowed, WRITES), NeedsApproval)  # a program has to be seen


def test_a_link_in_the_place_of_a_local_skill_leads_nowhere(roots):
    folder = roots.project / "reyn" / "local"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "linked").symlink_to(roots.project / "src")
    assert isinstance(write(roots, "reyn/local/linked/skill.md", None, WRITES), Denied)
