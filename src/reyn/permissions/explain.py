"""Explain the permissions of a skill before a run: each request with the rule that decides about it.

A request is a pattern, so a rule may cover it as a whole or in part. The gate decides about each action at the moment
of execution, with the same rules.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from reyn.permissions.paths import PathPattern, protected_name
from reyn.permissions.rules import ASKED, EFFECTS, GRANTED, Requests, access_of, recorded_requests
from reyn.workspace import Location

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from reyn.permissions.rules import Policy, Rule

Effect = Literal["allow", "ask", "partly", "deny"]
_NAME = "any-name"
"""Stands for a name that a wildcard matches and no rule spells."""


class RequestVerdict(msgspec.Struct, frozen=True):
    """The verdict of the rules on one request.

    Attributes:
        capability: The permission key.
        target: The path or name that is requested; empty for everything.
        effect: `allow`, `ask` or `deny` for all of it; `partly` if only some of it is granted.
        rules: The rules that decide.
        exceptions: Rules that decide otherwise about a part of it.
        reason: Why it is not granted; empty if it is.
        line: The line to add to the configuration to grant it.
    """

    capability: str
    target: str
    effect: Effect
    rules: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()
    reason: str = ""
    line: str = ""

    @property
    def text(self) -> str:
        """The request as messages name it."""
        return f"{self.capability}: {self.target}" if self.target else self.capability

    def warning(self, skill: str) -> str:
        """Return the message for a run whose skill makes this request without a grant."""
        return f"skill `{skill}` requests `{self.text}`, but {self.reason}"


def explain_requests(
    skill: str, permissions: dict[str, Any], policy: Policy, above: Sequence[dict[str, Any]] = ()
) -> tuple[RequestVerdict, ...]:
    """Return a verdict about every request of a skill.

    Args:
        skill: The skill's name, which rules may name.
        permissions: Its `permissions`.
        policy: The operator's rules and zones.
        above: The `permissions` of the skills that run it: each has to make the request as well.
    """
    requests = recorded_requests(permissions)
    outer = [recorded_requests(one) for one in above]
    verdicts = []
    for capability, patterns in requests.files.items():
        verdicts += [_file_verdict(capability, pattern, skill, policy, outer) for pattern in patterns]
    for capability, names in requests.others.items():
        decide = _python_verdict if capability == "python" and names else _verdict
        verdicts += [decide(capability, name, skill, policy, outer, requests) for name in names or ("",)]
    return tuple(verdicts)


def _file_verdict(
    capability: str, pattern: PathPattern, skill: str, policy: Policy, above: Sequence[Requests]
) -> RequestVerdict:
    access, sample = access_of(capability), _sample(pattern)
    rules = [rule for rule in policy.rules if _concerns(rule, capability, skill)]
    whole = [rule for rule in rules if rule.applies(capability, skill, sample)]
    part = [rule for rule in rules if rule not in whole and _touches(rule, pattern, capability)]
    zones = [zone for zone in policy.zone(access) if zone.covers(sample, access)]
    zone = f"default: {access} {zones[0].text}" if zones else "default: the run's workspace"
    is_own = pattern.zone == "workspace" and (access == "read" or not protected_name(sample.parts, "read"))
    in_zone = bool(zones) or is_own
    text = _grant_pattern(pattern)
    line = _line(capability, text, policy)
    is_requested = all(requests.covers(capability, sample) for requests in above)
    return _judged(capability, text, whole, part, line, zone=zone if in_zone else "", is_requested=is_requested)


def _python_verdict(
    capability: str, name: str, skill: str, policy: Policy, above: Sequence[Requests], own: Requests
) -> RequestVerdict:
    """Judge a function of the skill as `Gate.python` does."""
    rule = policy.decide(capability, skill, name)
    if rule is not None and rule.effect != "allow":
        reason = f"the rule `{rule.text}` denies it" if rule.effect == "deny" else ""
        return RequestVerdict(capability, name, rule.effect, (rule.text,), reason=reason)
    if name not in own.unsafe_python:
        return RequestVerdict(capability, name, "allow", ("default: python in the sandbox",))
    if not policy.allow_unsafe_python:
        reason = "it is unsafe: start the run with `--allow-unsafe-python`"
        return RequestVerdict(capability, name, "deny", ("default: no unsafe python",), reason=reason)
    if not all(name in requests.unsafe_python for requests in above):
        reason = "the skill that runs it does not list it with `mode: unsafe` under `permissions.python`"
        return RequestVerdict(capability, name, "deny", ("default: no request above",), reason=reason)
    return RequestVerdict(capability, name, "allow", ("--allow-unsafe-python",))


def _verdict(
    capability: str, name: str, skill: str, policy: Policy, above: Sequence[Requests], own: Requests
) -> RequestVerdict:
    rules = [rule for rule in policy.rules if _concerns(rule, capability, skill)]
    whole = [rule for rule in rules if not rule.patterns or any(fnmatchcase(name or _NAME, p) for p in rule.patterns)]
    part = [
        rule for rule in rules if rule not in whole and any(not name or fnmatchcase(p, name) for p in rule.patterns)
    ]
    line = _line(capability, name, policy)
    if capability == "shell" and not policy.allow_shell and not any(rule.effect == "deny" for rule in whole):
        reason = "shell is off: start the run with `--allow-shell`"
        return RequestVerdict(capability, name, "deny", ("default: shell is off",), reason=reason, line=line)
    is_requested = all(requests.covers(capability, name or _NAME) for requests in above)
    return _judged(capability, name, whole, part, line, is_requested=is_requested)


def _judged(
    capability: str,
    target: str,
    whole: list[Rule],
    part: list[Rule],
    line: str,
    *,
    zone: str = "",
    is_requested: bool = True,
) -> RequestVerdict:
    decisive = min(whole, key=lambda rule: EFFECTS.index(rule.effect), default=None)
    if not is_requested:
        reason = "the skill that runs it does not request it under `permissions` in its skill.md"
        return RequestVerdict(capability, target, "deny", ("default: no request above",), reason=reason)
    if decisive is not None and decisive.effect == "deny":
        reason = f"the rule `{decisive.text}` denies it"
        return RequestVerdict(capability, target, "deny", (decisive.text,), reason=reason)
    others = tuple(
        rule.text for rule in part if decisive is None or EFFECTS.index(rule.effect) < EFFECTS.index(decisive.effect)
    )
    if decisive is not None:
        return RequestVerdict(capability, target, decisive.effect, (decisive.text,), others)
    if zone:
        return RequestVerdict(capability, target, "allow", (zone,), tuple(r.text for r in part if r.effect != "allow"))
    if capability in GRANTED:
        exceptions = tuple(rule.text for rule in part if rule.effect != "allow")
        return RequestVerdict(
            capability, target, "allow", (f"default: {capability} that a skill requests",), exceptions
        )
    if capability in ASKED:
        exceptions = tuple(rule.text for rule in part if rule.effect != "ask")
        return RequestVerdict(
            capability, target, "ask", (f"default: ask for each new {capability} target",), exceptions
        )
    granting = tuple(rule.text for rule in part if rule.effect != "deny")
    if granting:
        denying = tuple(rule.text for rule in part if rule.effect == "deny")
        return RequestVerdict(capability, target, "partly", granting, denying, line=line)
    reason = f"no rule grants it: add {line} in reyn.yaml"
    return RequestVerdict(capability, target, "deny", ("default: no grant",), reason=reason, line=line)


def _line(capability: str, target: str, policy: Policy) -> str:
    """Return what to add where. A second key of the same name would be an error in YAML."""
    has_rules = any(rule.capability == capability for rule in policy.rules)
    if has_rules:
        rule = f"- allow: {_yaml(target)}" if target else "- allow"
        return f"`{rule}` to the list `{capability}` under `permissions`"
    rules = f"[{{allow: {_yaml(target)}}}]" if target else "allow"
    return f"`{capability}: {rules}` under `permissions`"


def _concerns(rule: Rule, capability: str, skill: str) -> bool:
    return rule.capability == capability and (not rule.skills or skill in rule.skills)


def _touches(rule: Rule, pattern: PathPattern, capability: str) -> bool:
    """Return whether a rule covers some path that a pattern covers, too."""
    access = access_of(capability)
    return any(pattern.covers(_sample(PathPattern.parse(text)), access) for text in rule.patterns)


def _sample(pattern: PathPattern) -> Location:
    """Return a path that a pattern covers, with names that stand for any name where it has wildcards."""
    parts = tuple(_sample_name(segment) for segment in pattern.segments)
    parts = (*parts, _NAME) if pattern.is_recursive else parts
    return Location(pattern.zone, parts, pattern.text)


def _sample_name(segment: str) -> str:
    if segment == "**":
        return _NAME
    name = re.sub(r"\[!?(.).*?\]", r"\1", segment).replace("?", "x").replace("*", _NAME)
    return name if fnmatchcase(name, segment) else segment


def _grant_pattern(pattern: PathPattern) -> str:
    """Return a pattern that means the same in a rule, where there is no `scope`."""
    is_slashed = pattern.text.endswith("/")
    if pattern.is_recursive:
        return pattern.text if is_slashed else f"{pattern.text}/"
    return pattern.text.rstrip("/") if is_slashed else pattern.text


def _yaml(text: str) -> str:
    """Quote a text that YAML would not read as it is."""
    return text if re.fullmatch(r"[A-Za-z0-9_./~][A-Za-z0-9_./~-]*", text) else msgspec.json.encode(text).decode()


def ungranted(skill: str, verdicts: Iterable[RequestVerdict]) -> list[str]:
    """Return a warning for every request that is not granted at all."""
    return [verdict.warning(skill) for verdict in verdicts if verdict.effect == "deny"]
