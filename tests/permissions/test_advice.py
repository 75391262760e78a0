"""Advice works: an action is allowed, or asked about, once the reasons of its denials are followed.

The texts are applied as a user applies them: lines for skill.md and reyn.yaml are parsed as YAML, switches are set, and
the project is trusted. A denial that nothing can change gives no advice.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from reyn.permissions import AnyTarget, Denied, Gate, Policy, Verdict, parse_requests, parse_rules
from reyn.permissions.explain import explain_requests
from reyn.permissions.gate import ABSOLUTE, UNGRANTABLE
from reyn.permissions.paths import exact_pattern
from reyn.permissions.rules import SkillRequests
from reyn.vocabulary import PERMISSIONS
from reyn.workspace import Location, Roots, locate

ROOT = Path("/nowhere/project")
ROOTS = Roots(ROOT, ROOT / ".reyn", ROOT / ".reyn/workspace/run", (Path("/nowhere/user/.config/reyn"),))
KEYS = tuple(entry.key for entry in PERMISSIONS)
SKILLS = ("inner", "outer")
FINAL = (*UNGRANTABLE, "default: a folder is not written", "default: recorded content is read-only")

REQUEST = re.compile(
    r"(the skill(?: `\w+`)?(?: and the skill `\w+`)?) must request it(?::| \() ?`([^`]+)` under `permissions`"
)
GRANT = re.compile(r"add `([^`]+)` (?:to the list `([^`]+)` )?under `permissions` in reyn.yaml, and trust the project")
SWITCH = re.compile(r"must start the run with `--(allow-[a-z-]+)`")
TRUST = "trust the project, whose configuration grants it"


class World:
    """Skills, rules and switches that a user edits."""

    def __init__(self, rules: dict[str, Any], requests: dict[str, Any], depth: int, *, is_trusted: bool) -> None:
        self.rules = {key: list(entry) for key, entry in rules.items()}
        self.requests = {skill: {key: list(one) for key, one in requests.items()} for skill in SKILLS[:depth]}
        self.switches: dict[str, bool] = {}
        self.is_trusted = is_trusted

    @property
    def policy(self) -> Policy:
        rules = parse_rules(self.rules, KEYS)
        if self.is_trusted:
            return Policy(rules, **self.switches)
        kept = tuple(rule for rule in rules if rule.effect != "allow")
        ignored = tuple(rule for rule in rules if rule.effect == "allow")
        return Policy(kept, ignored=ignored, note="Not trusted.", **self.switches)

    @property
    def gate(self) -> Gate:
        requests = tuple(map(parse_requests, self.requests.values()))
        return Gate(ROOTS, self.policy, requests, SKILLS[0], SKILLS[1 : len(requests)])

    def follow(self, reason: str, path: str = "") -> bool:
        """Do what a reason says; return whether it says anything."""
        before = repr(vars(self))
        reason = reason.replace(ABSOLUTE, json.dumps(path, ensure_ascii=False))
        for skills, line in REQUEST.findall(reason):
            for name in re.findall("the skill(?: `(\\w+)`)?", skills):
                _merge(self.requests[name or SKILLS[0]], yaml.safe_load(line))
        for line, key in GRANT.findall(reason):
            self.is_trusted = True
            parsed = yaml.safe_load(line)
            assert (key in self.rules) if key else parsed.keys().isdisjoint(self.rules), "a key must be unique"
            _merge(self.rules, {key: parsed} if key else parsed)
        self.is_trusted = self.is_trusted or TRUST in reason
        self.switches |= {name.replace("-", "_"): True for name in SWITCH.findall(reason)}
        return before != repr(vars(self))


def _merge(mapping: dict[str, Any], more: dict[str, Any]) -> None:
    for key, value in more.items():
        mapping[key] = [*mapping.get(key, []), *value] if isinstance(value, list) else value


def decide(gate: Gate, key: str, target: Any) -> Verdict:
    match key:
        case "show":
            return gate.show(locate(target, ROOTS))
        case "file.read":
            return gate.read(locate(target, ROOTS))
        case "file.write":
            return gate.write(locate(target, ROOTS))
    return gate.capability(key, target)


NAMES = st.one_of(
    st.sampled_from([
        "a", "notes[1].md", "x*.py", "what?", ".env", ".git", ".reyn", "reyn", "Makefile", "run.sh", "a b", "a: b",
        "# x", "~home", "'quoted'", '"', "- x", "a,b", "{x}", "ÄÖ.md", "yes", "1", "workspace:x", "**", "!x", "&x",
        "]", "%x", "x]y",
    ]),
    st.text(st.characters(exclude_characters="/`", exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6),
)  # fmt: skip
INSIDE = st.builds("/".join, st.lists(NAMES.filter(lambda name: name not in (".", "..")), min_size=1, max_size=3))
PATHS = st.one_of(
    INSIDE, INSIDE.map("workspace:{}".format), st.sampled_from([".", "..", "workspace:", ".reyn/x", "../x"])
)
OUTSIDE = st.one_of(
    INSIDE.map("/srv/{}".format), INSIDE.map("../../{}".format), st.sampled_from(["/nowhere/user/.config/reyn/x"])
)
TEXTS = st.one_of(NAMES, st.sampled_from(["ls *", "cat [a]", "sh -c 'x'", "x" * 100]))
CAPABILITIES = st.one_of(
    st.tuples(
        st.just("web"),
        st.sampled_from(
            ["example.org", "example.org:8080", "private:10.0.0.1", "private:[::1]:80", AnyTarget("web_search")]
        ),
    ),
    st.tuples(st.just("exec"), st.one_of(TEXTS, st.sampled_from(["/bin/ls", "system:listen"]))),
    st.tuples(st.sampled_from(["shell", "mcp", "tool", "memory", "skill.write", "agent", "run_skill"]), TEXTS),
)
ACTIONS = st.one_of(
    st.tuples(st.sampled_from(["file.read", "file.write"]), st.one_of(PATHS, OUTSIDE)),
    st.tuples(st.just("show"), st.one_of(PATHS, OUTSIDE)),
    CAPABILITIES,
)


@given(
    ACTIONS,
    st.sampled_from(["", "another", "matching"]),
    st.sampled_from(["", "another"]),
    st.integers(1, 2),
    st.booleans(),
)
@example(("file.write", "../out"), "", "", 1, True)
@example(("show", "../../x[1]"), "", "", 1, True)
@example(("file.read", ".env"), "matching", "", 2, False)
@example(("exec", "system:listen"), "another", "another", 2, False)
def test_an_action_that_is_denied_with_advice_is_allowed_once_the_advice_is_followed(
    action: tuple[str, Any], rules: str, requests: str, depth: int, is_trusted: bool
):
    key, target = action
    rule_key = "file.read" if key == "show" else key
    location = locate(target, ROOTS) if key in ("show", "file.read", "file.write") else None
    matching = exact_pattern(location) if location is not None and location.parts else str(target)
    world = World(
        {rule_key: [{"allow": {"another": "other.example", "matching": matching}[rules]}]} if rules else {},
        {rule_key: ["other.example"]} if requests else {},
        depth,
        is_trusted=is_trusted,
    )
    for _ in range(5):
        verdict = decide(world.gate, key, target)
        if not isinstance(verdict, Denied):
            return
        if verdict.rule in FINAL:
            assert not world.follow(verdict.reason)
            return
        path = exact_pattern(location) if location is not None else ""
        assert world.follow(verdict.reason, path), verdict.reason
    pytest.fail(f"still denied: {decide(world.gate, key, target)}")


def test_advice_does_not_show_where_links_lead():
    """Nor where the project is."""
    verdict = decide(World({}, {}, 1, is_trusted=True).gate, "show", "../../x")
    assert isinstance(verdict, Denied)
    assert ABSOLUTE in verdict.reason
    assert "/nowhere" not in verdict.reason


# -- requests, before a run -----------------------------------------------------------------------------------

PATTERNS = st.one_of(
    INSIDE, INSIDE.map("{}/".format), st.sampled_from(["./", "~/data/", ".reyn/", ".reyn/journal.db", "*.md"])
)
REQUESTED = st.one_of(
    st.tuples(
        st.sampled_from(["file.read", "file.write"]), st.one_of(PATTERNS, OUTSIDE.filter(lambda path: ".." not in path))
    ),
    st.tuples(st.sampled_from(["shell", "exec", "web", "mcp", "tool"]), st.sampled_from(["name", "a.b", ""])),
)


@given(REQUESTED, st.sampled_from(["", "another", "matching"]), st.booleans())
@example(("file.read", ".reyn/"), "", True)
@example(("file.read", "/nowhere/project/notes.md"), "", True)
@example(("file.read", "/nowhere/user/.config/reyn/"), "", True)
def test_a_request_is_granted_once_its_advice_is_followed(request: tuple[str, str], rules: str, is_trusted: bool):
    key, target = request
    matching = {"another": "other.example", "matching": target or "*"}
    world = World({key: [{"allow": matching[rules]}]} if rules else {}, {}, 1, is_trusted=is_trusted)
    asked = {key: [target] if target else True}
    for _ in range(4):
        [verdict] = explain_requests("inner", asked, world.policy, roots=ROOTS)
        if verdict.effect in ("allow", "ask"):
            return
        if "no rule can grant it" in verdict.reason or "it is in the project" in verdict.reason:
            assert not world.follow(verdict.reason)
            return
        if "the project is not trusted" in verdict.reason:
            assert not world.is_trusted
            world.is_trusted = True
        elif "start the run with" in verdict.reason:
            world.switches["allow_shell"] = True
        else:
            assert world.follow(verdict.reason), verdict.reason
    pytest.fail(f"still denied: {verdict}")


@pytest.mark.parametrize("above", [(), (SkillRequests("outer", {"file.read": [".reyn/"]}),)])
def test_no_grant_is_advised_for_the_state_directory(above: tuple[SkillRequests, ...]):
    for grant in ({}, {"file.read": [{"allow": ".reyn/"}]}):
        [verdict] = explain_requests("inner", {"file.read": [".reyn/"]}, Policy(parse_rules(grant, KEYS)), above)
        assert verdict.effect == "deny"
        assert "reyn.yaml" not in verdict.warning
    assert isinstance(Gate(ROOTS, Policy()).read(Location("state", ("journal.db",), ".reyn/journal.db")), Denied)
