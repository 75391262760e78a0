"""Rules of the operator and requests of skills: what they say, and which one decides."""

from __future__ import annotations

from pathlib import Path

import pytest

from reyn.permissions import Policy, RuleError, parse_requests, parse_rules
from reyn.permissions.rules import Requests, read_rules, recorded_requests
from reyn.permissions.targets import Restrictions
from reyn.workspace import Location, Roots

KEYS = ("file.read", "file.write", "shell", "tool", "web", "mcp")
NO_FOLDERS = Roots(Path("/p"), Path("/p/.reyn"), Path("/p/.reyn/workspace/run"))
TICKET = Location.at("project", ("tickets", "a.md"))


def decided(rules: dict, capability: str, target: object = "", skill: str = "triage") -> str:
    rule = Policy(parse_rules(rules, KEYS)).decide(capability, (skill,), target, Restrictions(NO_FOLDERS))
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
        ({"web": [{"allow": ["a", ""]}]}, "a pattern is a text", ("web", 0, "allow")),
        ({"web": [{"allow": []}]}, "a pattern is a text", ("web", 0, "allow")),
        ({"web": {"allow": "a", "skill": []}}, "a pattern is a text", ("web", "skill")),
        ({"web": [{"allow": "a", "skill": [3]}]}, "a pattern is a text", ("web", 0, "skill")),
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


def test_a_rule_covers_what_one_of_its_patterns_covers():
    rules = {"file.write": [{"allow": ["tickets/", "notes/"]}], "web": {"deny": ["a.example", "b.example"]}}
    assert decided(rules, "file.write", TICKET) == "allow"
    assert decided(rules, "web", "b.example") == "deny"
    requests = parse_requests({"file.write": ["notes/", "tickets/"], "mcp": ["calendar", "mail"], "tool": "notify"})
    assert requests.covers("file.write", TICKET)
    assert requests.covers("mcp", "mail")
    assert requests.covers("tool", "notify")
    assert not requests.covers("tool", "other")


def test_a_rule_for_everything_denies_protected_files_asks_about_them_and_grants_none():
    makefile, hidden = (Location.at("project", (name,)) for name in ("Makefile", ".env"))
    for effect, found in (("deny", "deny"), ("allow", "none"), ("ask", "ask")):
        assert decided({"file.write": effect}, "file.write", makefile) == found
        assert decided({"file.read": effect}, "file.read", hidden) == found
    assert decided({"file.read": "allow"}, "file.read", makefile) == "allow"
    assert decided({"file.read": {"allow": "./"}}, "file.read", makefile) == "allow"
    assert decided({"file.write": {"allow": "./"}}, "file.write", makefile) == "none"
    assert parse_requests({"file.read": "./"}).covers("file.read", makefile)
    assert not parse_requests({"file.write": "./"}).covers("file.write", makefile)


@pytest.mark.parametrize(
    ("value", "fix"),
    [
        ({"shel": "allow"}, "shell"),
        ({"shell": {"allow": "a", "skil": "b"}}, "skill"),
        ({"shell": {"alow": "a"}}, "allow"),
    ],
)
def test_an_error_suggests_the_key_that_was_meant(value: dict, fix: str):
    with pytest.raises(RuleError) as caught:
        parse_rules(value, KEYS)
    assert fix in caught.value.fix


def test_an_error_without_a_suggestion_has_none():
    assert RuleError("it is wrong", "shell").fix == ""
    assert str(RuleError("it is wrong", "shell")) == "it is wrong"


def test_reading_rules_returns_the_valid_ones_and_every_error():
    rules, errors = read_rules({"shel": "allow", "tool": ["deny", "yes"], "web": 3, "mcp": "ask"}, KEYS)
    assert [(rule.text, path) for rule, path in rules] == [
        ("permissions.tool: deny", ("tool", 0)),
        ("permissions.mcp: ask", ("mcp",)),
    ]
    assert [error.path for error in errors] == [("shel",), ("tool", 1), ("web",)]


@pytest.mark.parametrize("entry", [False, None, []])
def test_an_empty_request_requests_nothing(entry: object):
    requests = parse_requests({"mcp": entry, "file.write": []})
    assert not requests.covers("mcp", "calendar")
    assert not requests.covers("file.write", TICKET)
    assert "mcp" not in requests.capabilities


def test_entries_of_a_request_may_have_fields_instead_of_names():
    assert parse_requests({"tool": [{"name": "x"}]}).covers("tool", "anything")


def test_an_entry_of_python_covers_its_function():
    requests = parse_requests({"python": [{"module": "./m.py", "function": "f", "mode": "unsafe"}]})
    assert requests.covers("python", "./m.py:f")
    assert not requests.covers("python", "./m.py:g")
    assert requests.unsafe_python == {"./m.py:f"}


@pytest.mark.parametrize("value", [{"mcp": ["calendar", 3]}, {"mcp": ["calendar", ""]}, {"file.read": [3]}])
def test_a_request_that_is_partly_not_understood_is_an_error(value: dict):
    with pytest.raises(RuleError) as caught:
        parse_requests(value)
    assert caught.value.path == tuple(value)
    assert recorded_requests(value) == Requests()


def test_a_policy_has_no_note_by_default():
    assert Policy().note == ""
