"""The gate: every side effect asks here, at the moment of execution, and the verdict names the rule that decided.

A run may do what its skill requests, the operator's rules grant, and the runs above it may do. Inside the default zones
no request is necessary. The state directory is out of reach for every skill.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.permissions.paths import must_spell, protected_name
from reyn.permissions.rules import ASKED, GRANTED, PRIVATE, Policy, Requests
from reyn.workspace import Location, Roots

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.permissions.paths import Access
    from reyn.permissions.rules import Rule


class Allowed(msgspec.Struct, frozen=True):
    rule: str


class Denied(msgspec.Struct, frozen=True):
    rule: str
    reason: str


class NeedsApproval(msgspec.Struct, frozen=True):
    """A rule says `ask`: a person decides about this one action."""

    rule: str
    reason: str


Verdict = Allowed | Denied | NeedsApproval

SKILL_WRITE = "skill.write"
"""The capability to write skills of this machine, below `reyn/local/`."""


def refusal(verdict: Verdict, *, approved: str = "") -> Denied | NeedsApproval | None:
    """Return why an action may not be executed now; `None` if it is allowed, or a person approved it.

    `approved` names the rules that the person was asked for, joined with `and`. If another rule asks now, the action is
    refused: its path may lead to another file than the one that was approved.
    """
    if approved and isinstance(verdict, NeedsApproval) and f" and {verdict.rule} and " in f" and {approved} and ":
        return None
    return None if isinstance(verdict, Allowed) else verdict


def memory_scope(location: Location) -> str | None:
    """Return the scope of the memory in a file: `shared`, or the name of an agent; `None` if it is no memory."""
    parts = location.parts
    if location.zone != "project" or parts[:2] != ("reyn", "memory") or not parts[-1].endswith(".md"):
        return None
    return {3: "shared", 4: parts[2] if len(parts) == 4 else ""}.get(len(parts))


def local_skill(location: Location) -> str | None:
    """Return the skill of this machine that a file belongs to; `None` for other files, and for hidden ones."""
    parts = location.parts
    is_inside = location.zone == "project" and parts[:2] == ("reyn", "local") and len(parts) > 3
    return parts[2] if is_inside and not any(name.startswith(".") for name in parts[2:]) else None


_MAX_REMEMBERED = 1_000
_OWN = Allowed("default: the run's workspace")
_RECORDED = Allowed("default: content of this run")


class Gate(msgspec.Struct, frozen=True, dict=True):
    """Decides which actions a run may perform.

    A verdict depends only on the gate and the action, so the gate remembers recent ones: an op asks when it is planned
    and again when it is performed.
    """

    roots: Roots
    policy: Policy = Policy()
    requests: tuple[Requests, ...] = (Requests(),)
    """The requests of the skill, then those of its ancestors. Every ancestor run's skill must request it, too."""
    skill: str = ""

    @cached_property
    def _verdicts(self) -> dict[tuple[str, Location | str], Verdict]:
        """Recent verdicts."""
        return {}

    def _remembered(self, key: str, target: Location | str, decide: Callable[[Gate, str, Any], Verdict]) -> Verdict:
        verdicts = self._verdicts
        found = verdicts.get((key, target))
        if found is None:
            if len(verdicts) >= _MAX_REMEMBERED:
                verdicts.clear()
            found = verdicts[key, target] = decide(self, key, target)
        return found

    def read(self, location: Location) -> Verdict:
        if location.zone == "full_content":
            return _RECORDED
        return self._remembered("file.read", location, Gate._file)

    def write(self, location: Location) -> Verdict:
        if location.zone == "full_content":
            return Denied("default: recorded content is read-only", f"`{location.display_path}` is recorded content")
        return self._remembered("file.write", location, Gate._file)

    def capability(self, key: str, target: str = "") -> Verdict:
        """Decide about a capability other than files."""
        return self._remembered(key, target, Gate._capability)

    def _capability(self, key: str, target: str) -> Verdict:
        rule = self.policy.decide(key, self.skill, target)
        if rule is not None and rule.effect == "deny":
            return Denied(rule.text, f"the operator denies `{key}`{f' for `{target}`' if target else ''}")
        if key == "shell" and not self.policy.allow_shell:
            return Denied("default: shell is off", "the operator must start the run with `--allow-shell`")
        if not all(requests.covers(key, target) for requests in self.requests):
            named = f" for `{target}`" if target and any(key in requests.others for requests in self.requests) else ""
            reason = f"the skill must request `{key}`{named} under `permissions` in skill.md"
            if key == "agent":
                reason = f"`agents` in the agent's file does not include `{target}`"
            return Denied("default: no request", reason)
        if rule is None and key in GRANTED:
            return Allowed(f"default: {key} as requested")
        if rule is None and key in ASKED and not target.startswith(PRIVATE):
            return NeedsApproval(f"default: ask for {key} {target}", f"no rule allows `{key}` for `{target}` yet")
        return self._granted(rule, key, _grant(key, target), target)

    def python(self, target: str, *, is_unsafe: bool) -> Verdict:
        """Decide about a function of the skill, named `module:function`.

        A safe one cannot reach anything, so it needs no grant, and no request of the skills above. An unsafe one needs
        `mode: unsafe` in the entry of every skill, and the operator's switch.
        """
        rule = self.policy.decide("python", self.skill, target)
        if rule is not None and rule.effect == "deny":
            return Denied(rule.text, f"the operator denies `python` for `{target}`")
        if not self.requests[0].covers("python", target):
            return Denied("default: no request", f"the skill must list `{target}` under `permissions.python`")
        if is_unsafe and not self.policy.allow_unsafe_python:
            reason = "the operator must start the run with `--allow-unsafe-python`"
            return Denied("default: no unsafe python", reason)
        if is_unsafe and not all(target in requests.unsafe_python for requests in self.requests):
            reason = f"each skill must list `{target}` with `mode: unsafe` under `permissions.python`"
            return Denied("default: no request", reason)
        if rule is not None and rule.effect == "ask":
            return NeedsApproval(rule.text, "the operator wants to be asked about `python`")
        return Allowed("--allow-unsafe-python" if is_unsafe else "default: python in the sandbox")

    def _file(self, key: str, location: Location) -> Verdict:
        access: Access = "read" if key == "file.read" else "write"
        if location.zone == "state":
            return Denied(
                "the state directory is out of reach", f"`{location.display_path}` belongs to Reyn's own records"
            )
        rule = self.policy.decide(key, self.skill, location)
        if rule is not None and rule.effect == "deny":
            return Denied(rule.text, f"the operator denies to {access} `{location.display_path}`")
        if (zone := self._zone(access, location)) is not None:
            return NeedsApproval(rule.text, zone.rule) if rule is not None and rule.effect == "ask" else zone
        if access == "write" and (verdict := self._local_skill(location)) is not None:
            return verdict
        if not all(requests.covers(key, location) for requests in self.requests):
            return Denied(f"default: no {access} outside the zones", self._noted(self._how_to(access, location)))
        return self._granted(rule, key, f"{key}: [{{allow: {location.display_path}}}]")

    def _zone(self, access: Access, location: Location) -> Allowed | None:
        if location.zone == "workspace":
            is_inside = bool(location.parts) and not protected_name(location.parts, "read")
            return _OWN if is_inside or access == "read" else None
        if access == "write" and (memory := self._memory(location)) is not None:
            return memory
        for pattern in self.policy.zone(access):
            if pattern.covers(location, access) and (access == "read" or len(location.parts) > len(pattern.segments)):
                return Allowed(f"default: {access} {pattern.text}")
        return None

    def _memory(self, location: Location) -> Allowed | None:
        """Allow to write memories of the scopes that the skills request, unless a rule denies it."""
        scope = memory_scope(location)
        if scope is None or not all(requests.covers("memory", scope) for requests in self.requests):
            return None
        rule = self.policy.decide("memory", self.skill, scope)
        return None if rule is not None and rule.effect != "allow" else Allowed(f"default: the memory `{scope}`")

    def _local_skill(self, location: Location) -> Verdict | None:
        """Decide about a file of a local skill, if the skills request to write it."""
        name = local_skill(location)
        if name is None or not all(requests.covers(SKILL_WRITE, name) for requests in self.requests):
            return None
        verdict = self.capability(SKILL_WRITE, name)
        if isinstance(verdict, Allowed) and any(must_spell(part, 1, "write") for part in location.parts[3:]):
            # A rule that allows skills does not name the programs in them.
            return NeedsApproval(f"default: ask for {SKILL_WRITE} {name}", f"`{location.parts[-1]}` can be executed")
        return verdict

    def _granted(self, rule: Rule | None, key: str, line: str, target: str = "") -> Verdict:
        if rule is None:
            reason = f"the operator must grant it: add `{line}` under `permissions` in reyn.yaml"
            return Denied("default: no grant", self._noted(reason))
        if rule.effect == "ask":
            # Named with its target, so that an approval of one host or tool does not cover another.
            text = f"{rule.text} for {target}" if key in ASKED else rule.text
            return NeedsApproval(text, f"the operator wants to be asked about `{key}`")
        return Allowed(rule.text)

    def _noted(self, reason: str) -> str:
        return f"{reason.rstrip('.')}. {self.policy.note}" if self.policy.note else reason

    def _how_to(self, access: Access, location: Location) -> str:
        zones = ", ".join(f"`{pattern.text}`" for pattern in self.policy.zone(access))
        named = protected_name(location.parts, access) if location.zone == "project" else ""
        why = f" `{named}` is protected and must be named." if named else ""
        path = location.display_path
        return (
            f"to {access} `{path}` the skill must request it (`file.{access}: [{path}]` under "
            f"`permissions` in skill.md) and the operator must grant it in reyn.yaml.{why} "
            f"Without a grant, {zones} and `workspace:` can be {'read' if access == 'read' else 'written'}."
        )


_MAX_TARGET = 80


def _grant(key: str, target: str) -> str:
    """Return the narrowest line of reyn.yaml that grants a capability: for one target, if a pattern can name it."""
    is_plain = target.isprintable() and not any(char in target for char in "*?[]'`") and len(target) <= _MAX_TARGET
    if not target or not (is_plain or target.startswith(PRIVATE)):
        return f"{key}: allow"
    return f"{key}: [{{allow: '{target}'}}]"
