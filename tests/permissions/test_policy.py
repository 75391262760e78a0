"""The operator's policy: zones, rules and the places where they are written."""

from __future__ import annotations

from pathlib import Path

import pytest

from reyn.config import Config
from reyn.errors import ConfigInvalid
from reyn.permissions import parse_rules
from reyn.permissions.policy import RulePlaces, policy_of
from reyn.permissions.trust import load_project

KEYS = ("file.read", "file.write", "tool", "shell")


def configure(root: Path, text: str, local: str = "") -> None:
    (root / "reyn.yaml").write_text(text)
    if local:
        (root / "reyn.local.yaml").write_text(local)


def policy(root: Path, *, trust: bool | None = True):
    loaded = load_project(root, trust=trust)
    return policy_of(loaded.config, KEYS, root, loaded.trust)


def findings(root: Path, **options) -> list[tuple]:
    with pytest.raises(ConfigInvalid) as caught:
        policy(root, **options)
    return [(one.file, one.line, one.message) for one in caught.value.findings]


def test_a_policy_holds_the_zones_and_rules_of_the_configuration(tmp_path: Path):
    configure(tmp_path, "files: {read: [docs/, data/], write: [tickets/]}\npermissions: {tool: ask}")
    found = policy(tmp_path)
    assert [pattern.text for pattern in found.read_zone] == ["docs/", "data/"]
    assert [pattern.text for pattern in found.write_zone] == ["tickets/"]
    assert [rule.text for rule in found.rules] == ["permissions.tool: ask"]


def test_a_policy_notes_that_settings_of_an_untrusted_project_are_ignored(tmp_path: Path):
    configure(tmp_path, "permissions: {tool: allow}")
    assert "has not trusted it" in policy(tmp_path, trust=False).note
    assert policy(tmp_path).note == ""
    assert policy_of(Config(), KEYS).note == ""
    configure(tmp_path, "permissions: {tool: deny}")
    assert policy(tmp_path, trust=False).note == ""


def test_every_wrong_rule_and_zone_is_reported_at_its_line(tmp_path: Path):
    configure(
        tmp_path,
        "files:\n  read: [docs/, ../x]\n  write:\n  - ok/\n  - ../y\n"
        "permissions:\n  shel: deny\n  tool:\n  - deny\n  - maybe\n",
        local="permissions:\n  tool: 3\n",
    )
    assert findings(tmp_path) == [
        ("reyn.local.yaml", 2, "`permissions.tool`: a rule is `allow`, `ask` or `deny` with a pattern"),
        ("reyn.yaml", 2, "`files.read`: `../x` is not a usable path pattern"),
        ("reyn.yaml", 5, "`files.write`: `../y` is not a usable path pattern"),
        ("reyn.yaml", 7, "`permissions.shel`: unknown permission `shel`"),
        ("reyn.yaml", 10, "`permissions.tool[1]`: `maybe` is neither `allow`, `ask` nor `deny`"),
    ]


def test_a_wrong_grant_is_reported_although_the_project_is_not_trusted(tmp_path: Path):
    configure(tmp_path, "permissions: {file.write: [{allow: ../x}]}")
    assert findings(tmp_path, trust=False) == [
        ("reyn.yaml", 1, "`permissions.file.write[0].allow`: `../x` is not a usable path pattern")
    ]


def test_an_error_that_no_file_contains_is_reported_for_the_configuration(tmp_path: Path):
    for root in (None, tmp_path):
        with pytest.raises(ConfigInvalid) as caught:
            policy_of(Config(permissions={"shel": "deny"}), KEYS, root)
        [one] = caught.value.findings
        assert (one.file, one.line, one.column) == ("configuration", 1, 1)
        assert "shell" in one.fix
    with pytest.raises(ConfigInvalid, match=r"`files.read`: `../x` is not a usable path pattern"):
        policy_of(load_project(tmp_path, {"files": {"read": ["../x"]}}).config, KEYS)


def test_places_of_rules_and_zones(tmp_path: Path):
    configure(
        tmp_path,
        "files:\n  write: [a/, b/]\n  read:\n  - c/\n  - d/\npermissions:\n  tool:\n  - deny\n  - ask\n  shell: deny\n",
        local="files:\n  write:\n  - e/\npermissions:\n  tool: deny\n",
    )
    places = RulePlaces(tmp_path, KEYS)
    deny, ask, shell, other = parse_rules({"tool": ["deny", "ask"], "shell": "deny", "file.read": "ask"}, KEYS)
    assert [places.of_rule(rule) for rule in (deny, ask, shell, other)] == [
        "reyn.yaml:8",
        "reyn.yaml:9",
        "reyn.yaml:10",
        "",
    ]
    assert places.of_zone("read", "d/") == "reyn.yaml:5"
    assert places.of_zone("write", "e/") == "reyn.local.yaml:3"
    assert places.of_zone("write", "a/") == ""  # replaced by the local file


def test_a_zone_that_no_file_sets_is_the_default(tmp_path: Path):
    assert RulePlaces(tmp_path, KEYS).of_zone("read", "./") == "default"
    configure(tmp_path, "files: {write: [a/]}")
    assert RulePlaces(tmp_path, KEYS).of_zone("read", "./") == "default"


@pytest.mark.parametrize("text", ["- a\n", "files: 3\npermissions: 3\n", "{", "files: {read: 3}"])
def test_a_file_that_is_not_understood_has_no_places(tmp_path: Path, text: str):
    configure(tmp_path, text, local="files: {write: [a/]}")
    places = RulePlaces(tmp_path, KEYS)
    assert places.of_zone("write", "a/") == "reyn.local.yaml:1"
    assert places.of_zone("read", "./") == "default"
