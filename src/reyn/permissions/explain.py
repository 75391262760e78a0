"""Explain the permissions of a skill before a run: each request with the rule that decides about it.

A request is a pattern, so a rule may cover it as a whole or in part. The gate decides about a sample of the request, as
it decides about each action at the moment of execution.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from reyn.journal.port import STATE
from reyn.permissions.gate import SWITCHES, UNGRANTABLE, Allowed, Denied, Gate, Verdict
from reyn.permissions.paths import AccessMode, PathPattern
from reyn.permissions.rules import EFFECTS, Policy, Rule, SkillRequests, recorded_requests
from reyn.permissions.targets import Target, access_of
from reyn.skills.agents import agent_of
from reyn.workspace import Location, Roots, locate
from reyn.workspace.paths import folded

PermissionAnswer = Literal["allow", "ask", "partly", "deny"]
_NO_FOLDERS = Roots(Path(), Path(), Path())
"""A sample is no file of this machine."""
_NAME = "any-name"
"""Stands for a name that a wildcard matches and no rule spells."""


class RequestVerdict(msgspec.Struct, frozen=True):
    """The verdict of the rules on one request.

    Attributes:
        skill: The skill that makes it.
        capability: The permission key.
        target: The path or name that is requested; empty for everything.
        place: Its file and line, in a report.
        effect: `allow`, `ask` or `deny` for all of it; `partly` if only some of it is granted.
        rules: The rules that decide; in a report, with their lines.
        exceptions: Rules that decide otherwise about a part of it.
        reason: Why it is not granted, or what would grant all of it; empty if it is.
    """

    skill: str
    capability: str
    target: str
    place: str
    effect: PermissionAnswer
    rules: tuple[str, ...] = ()
    exceptions: tuple[str, ...] = ()
    reason: str = ""

    @property
    def warning(self) -> str:
        """The message for a run whose skill makes this request without a grant; empty if a rule grants some of it."""
        if self.effect != "deny":
            return ""
        text = f"{self.capability}: {self.target}" if self.target else self.capability
        return f"skill `{self.skill}` requests `{text}`, but {self.reason}"


def explain_requests(
    skill: str,
    permissions: dict[str, Any],
    policy: Policy,
    above: Sequence[SkillRequests] = (),
    roots: Roots | None = None,
) -> tuple[RequestVerdict, ...]:
    """Return a verdict about every request of a skill.

    Args:
        skill: The skill's name, which rules may name.
        permissions: Its `permissions`.
        policy: The operator's rules and zones.
        above: The requests of the skills that run it: each has to make the request as well.
        roots: The folders of the project, if it is known: a rule for an absolute path covers nothing in them.
    """
    requests = recorded_requests(permissions)
    all_requests = (requests, *(recorded_requests(one.permissions) for one in above))
    names = tuple(one.skill for one in above)
    gate = Gate(_NO_FOLDERS, policy, all_requests, skill, names, "" if above else agent_of(skill))
    verdicts = []
    for capability, patterns in requests.files.items():
        for pattern in patterns:
            sample, access = _sample(pattern, roots), access_of(capability)
            if pattern.zone == "outside" and sample.zone == "project":
                rule, reason = "default: no request", f"it is in the project; request `{sample.display_path}`"
                verdicts.append(RequestVerdict(skill, capability, pattern.text, "", "deny", (rule,), reason=reason))
                continue
            decided = gate.write(sample) if access == "write" else gate.show(sample)
            covered = partial(_covers_sample, pattern, access)
            verdicts.append(_explained(gate, decided, capability, sample, _grant_pattern(pattern), covered))
    for capability, names in requests.others.items():
        for name in names or ("",):
            if capability == "python" and name:
                decided = gate.python(name, is_unsafe=name in requests.unsafe_python)
            else:
                decided = gate.capability(capability, name or _NAME)
            covered = partial(_covers_name, name)
            verdicts.append(_explained(gate, decided, capability, name or _NAME, name, covered))
    return tuple(verdicts)


def _explained(
    gate: Gate, decided: Verdict, capability: str, sample: Target, target: str, covered: Callable[[str], bool]
) -> RequestVerdict:
    """Explain the verdict of the gate on a sample of a request, and the rules that decide otherwise about a part of it.

    Args:
        gate: The gate.
        decided: Its verdict.
        capability: The permission key.
        sample: A path or name that the request covers.
        target: The request, as a rule would write it.
        covered: Returns whether the request covers what a pattern of a rule covers.
    """
    policy, skill = gate.policy, gate.skill
    concerned = [rule for rule in policy.rules if rule.concerns(capability, (skill, *gate.above))]
    part = [
        rule for rule in concerned if not gate.applies(rule, capability, sample) and any(map(covered, rule.patterns))
    ]
    decisive = gate.rule(capability, sample)
    if isinstance(decided, Denied):
        return _denied(gate, decided, capability, sample, target, decisive, part)
    if decisive is not None:
        part = [rule for rule in part if EFFECTS.index(rule.effect) < EFFECTS.index(decisive.effect)]
        return RequestVerdict(skill, capability, target, "", decisive.effect, (decisive.text,), _texts(part))
    effect: PermissionAnswer = "allow" if isinstance(decided, Allowed) else "ask"
    rule = decided.rule if effect == "allow" else f"default: ask for each new {capability} target"
    return RequestVerdict(skill, capability, target, "", effect, (rule,), _texts(part, but=effect))


def _denied(
    gate: Gate, decided: Denied, capability: str, sample: Target, target: str, decisive: Rule | None, part: list[Rule]
) -> RequestVerdict:
    rule = decided.rule
    if decisive is not None and decisive.effect == "deny":
        reason = f"the rule `{decisive.text}` denies it"
    elif rule in UNGRANTABLE:
        reason = f"no rule can grant it: {decided.reason}"
    elif rule in SWITCHES:
        reason = f"{rule.removeprefix('default: ')}: start the run with `{SWITCHES[rule]}`"
    elif capability == "python" and target:
        rule = "default: no request above"
        reason = "the skill that runs it does not list it with `mode: unsafe` under `permissions.python`"
    elif not all(requests.covers(capability, sample) for requests in gate.requests[1:]):
        rule = "default: no request above"
        reason = "the skill that runs it does not request it under `permissions` in its skill.md"
    else:
        rule, line = "default: no grant", gate.policy.grant(capability, target)
        if granting := _texts(part, but="deny"):
            denying = tuple(one.text for one in part if one.effect == "deny")
            reason = f"to grant all of it, add {line} in reyn.yaml, and trust the project"
            return RequestVerdict(gate.skill, capability, target, "", "partly", granting, denying, reason)
        reason = f"no rule grants it: add {line} in reyn.yaml, and trust the project"
        if gate.is_ignored(capability, sample):
            reason = "the configuration of the project grants it, and the project is not trusted"
    return RequestVerdict(gate.skill, capability, target, "", "deny", (rule,), reason=reason)


def _texts(rules: list[Rule], *, but: str = "") -> tuple[str, ...]:
    """Return the texts of rules, without those that have an effect."""
    return tuple(rule.text for rule in rules if rule.effect != but)


def _covers_sample(request: PathPattern, access: AccessMode, pattern: str) -> bool:
    return request.covers(_sample(PathPattern.parse(pattern)), access)


def _covers_name(request: str, pattern: str) -> bool:
    return not request or fnmatchcase(pattern, request)


def _sample(pattern: PathPattern, roots: Roots | None = None) -> Location:
    """Return a path that a pattern covers, with names that stand for any name where it has wildcards."""
    parts = tuple(_sample_name(segment) for segment in pattern.segments)
    parts = (*parts, _NAME) if pattern.is_recursive else parts
    if pattern.zone == "outside" and roots is not None:
        return locate(f"/{'/'.join(parts)}", roots)
    is_state = pattern.zone == "project" and folded(parts[0]) == STATE
    return Location("state" if is_state else pattern.zone, parts, pattern.text)


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
