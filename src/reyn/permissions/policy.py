"""Build the operator's policy from the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.errors import ConfigInvalid, Finding
from reyn.permissions.paths import PathPattern
from reyn.permissions.rules import Policy, RuleError, parse_rules

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reyn.config import Config
    from reyn.permissions.trust import ProjectTrust


def policy_of(config: Config, known: Iterable[str], trust: ProjectTrust | None = None) -> Policy:
    """Return the policy of a configuration. `known` are the permission keys that exist.

    Grants that are ignored because the project is not trusted are checked, too.

    Raises:
        ConfigInvalid: names the rule or zone that is wrong.
    """
    try:
        capabilities = tuple(known)
        rules = parse_rules(config.permissions, capabilities)
        parse_rules(trust.ignored_permissions if trust else {}, capabilities)
        zones = [tuple(_zone(text, key) for text in getattr(config.files, key)) for key in ("read", "write")]
    except RuleError as error:
        where = ".".join(str(part) for part in error.path)
        finding = Finding("reyn.yaml", 1, 1, "RYN701", f"`{where}`: {error}")
        raise ConfigInvalid("the configuration has errors:", [finding]) from error
    note = "Settings of this project are ignored because the operator has not trusted it."
    return Policy(rules, zones[0], zones[1], note if trust is not None and trust.ignored else "")


def _zone(text: str, key: str) -> PathPattern:
    try:
        return PathPattern.parse(text)
    except ValueError as error:
        raise RuleError(str(error), "files", key) from error
