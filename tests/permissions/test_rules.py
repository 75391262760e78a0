"""Rules of the operator and requests of skills: what they say, and which one decides."""

from __future__ import annotations

import pytest

from reyn.permissions import Policy, RuleError, parse_requests, parse_rules
from reyn.workspace import Location

KEYS = ("file.read", "file.write", "shell", "tool", "web", "mcp")
TICKET = Location.at("project", ("tickets", "a.md"))


def decided(rules: dict, capability: str, target: object = "", skill: str = "triage") -> str:
    rule = Policy(parse_rules(rules, KEYS)).decide(capability, skill, target)
    return rule.effect if rule else "none"


def test_the_most_restrictive_rule_decides():
    rules = {"file.write": [{"allow": "tickets/"}, {"ask": "tickets/*.md"}]}
    assert decided(rules, "file.write", TICKET) == "ask"
    rules["file.write"].append({"deny": "tickets/a.*"})
    assert decided(rules, "file.write", TICKET) == "deny"
    assert decided(rules, "file.write", Location.at("project", ("tickets", "a.txt"))) == "deny"
    assert decided(rules, "file.write", Location.at("project", ("tickets", "b.txt"))) == "allow"
    assert decided(rules, "file.read", TICKET) == "none"


def test_a_rule_holds_for_the_skills_it_names():
    rules = {"tool": [{"allow": "*", "skill": ["triage", "report"]}]}
    assert decided(rules, "tool", "notify") == "allow"
    assert decided(rules, "tool", "notify", skill="other") == "none"


def test_an_effect_alone_holds_for_every_target():
    assert decided({"shell": "deny"}, "shell", "rm -rf /") == "deny"
    assert decided({"web": {"allow": "*.example.com"}}, "web", "api.example.com") == "allow"
    assert decided({"web": {"allow": "*.example.com"}}, "web", "example.org") == "none"


@pytest.mark.parametrize(
    ("value", "words", "path"),
    [
        ({"shel": "allow"}, "unknown permission `shel`", ("shel",)),
        ({"shell": "yes"}, "neither `allow`, `ask` nor `deny`", ("shell",)),
        ({"shell": [3]}, "a rule is", ("shell", 0)),
        ({"shell": [{"allow": "a", "deny": "b"}]}, "exactly one", ("shell", 0)),
        ({"shell": [{"skill": "x"}]}, "exactly one", ("shell", 0)),
        ({"shell": [{"allow": "a", "when": "b"}]}, "unknown key `when`", ("shell", 0, "when")),
        ({"file.write": [{"allow": "../x"}]}, "not a usable path pattern", ("file.write", 0, "allow")),
        ({"web": [{"allow": [3]}]}, "a pattern is a text", ("web", 0, "allow")),
    ],
)
def test_a_rule_that_is_not_understood_is_an_error_at_its_place(value: dict, words: str, path: tuple):
    with pytest.raises(RuleError, match=words) as caught:
        parse_rules(value, KEYS)
    assert caught.value.path == path


def test_requests_name_paths_or_names():
    requests = parse_requests({"file.write": ["tickets/"], "mcp": ["calendar"], "tool": True, "shell": False})
    assert requests.covers("file.write", TICKET)
    assert not requests.covers("file.read", TICKET)
    assert requests.covers("mcp", "calendar")
    assert not requests.covers("mcp", "mail")
    assert requests.covers("tool", "anything")
    assert not requests.covers("shell", "ls")
    assert requests.capabilities == ("file.write", "mcp", "tool")
