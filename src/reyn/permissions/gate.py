"""The gate: every side effect asks here, at the moment of execution, and the verdict names the rule that decided.

A run may do what its skill requests, the operator's rules grant, and the runs above it may do. Inside the default zones
no request is necessary. The state directory is out of reach for every skill.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextvars import ContextVar
from functools import cached_property
from typing import Any

import msgspec

from reyn.permissions.hosts import PRIVATE
from reyn.permissions.owners import ANY_NAME, SHARED, SKILL_WRITE, any_memory, owner_of, scopes_in
from reyn.permissions.paths import AccessMode, exact_pattern, must_spell, protected_name, restricted_below
from reyn.permissions.rules import ASKED, OPEN, Policy, Requests, Rule, yaml_text
from reyn.permissions.targets import AnyTarget, Restrictions, Target, is_protected
from reyn.workspace import Location, Roots


class Allowed(msgspec.Struct, frozen=True):
    rule: str


class Denied(msgspec.Struct, frozen=True):
    """A rule denies an action, or no rule allows it."""

    rule: str
    reason: str


class NeedsApproval(msgspec.Struct, frozen=True):
    """A rule says `ask`: a person decides about this one action."""

    rule: str
    reason: str


Verdict = Allowed | Denied | NeedsApproval


class ProjectMissing(BaseException):
    """A run needs the project's files, and the worker that executes it does not have them.

    It is no error of the run, and ends its execution here, as a cancellation does: a worker that has the files
    continues it. So no op, and no handler of errors, catches it.
    """


DUE_APPROVALS: ContextVar[dict[str, None] | None] = ContextVar("DUE_APPROVALS", default=None)
"""Collects the rules that want an approval of what an op is planned with, in order."""


def _noted(verdict: Verdict) -> Verdict:
    if isinstance(verdict, NeedsApproval) and (asked := DUE_APPROVALS.get()) is not None:
        asked[verdict.rule] = None
    return verdict


def refusal(verdict: Verdict, *, approved: str = "") -> Denied | NeedsApproval | None:
    """Return why an action may not be executed now; `None` if it is allowed, or a person approved it.

    `approved` names the rules that the person was asked for, joined with `and`. If another rule asks now, the action is
    refused: its path may lead to another file than the one that was approved.
    """
    if approved and isinstance(verdict, NeedsApproval) and f" and {verdict.rule} and " in f" and {approved} and ":
        return None
    return None if isinstance(verdict, Allowed) else verdict


OUT_OF_REACH = "the state directory is out of reach"
DEFAULT_RULE = "default: "
"""Begins the name of a rule that no operator wrote."""
ASK_RULE = f"{DEFAULT_RULE}ask for "
"""Begins the name of such a rule by which a person decides."""
OUTSIDE = "default: no files outside the project"
NO_SHELL, NO_UNSAFE = "default: shell is off", "default: no unsafe python"
SWITCHES = {NO_SHELL: "--allow-shell", NO_UNSAFE: "--allow-unsafe-python"}
"""The options of a run that change what these rules deny."""
UNGRANTABLE = (OUT_OF_REACH, OUTSIDE)
"""The rules about files that no request and no grant opens."""
_OF_PROJECT = ("agent", "memory", SKILL_WRITE)
"""The capabilities that are about files of the project."""
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
    above: tuple[str, ...] = ()
    """The skills of the runs above."""
    agent: str = ""
    """The agent whose own conversation the run is. Its requests are those of the agent's file in this project."""
    has_project: bool = True
    """Whether the files of the project are here. Without them, every question about one raises `ProjectMissing`."""

    @cached_property
    def memory_scopes(self) -> tuple[str, ...]:
        """The memories that the run sees: the shared ones, and in a conversation those that the agent's file names."""
        if not self.agent:
            return (SHARED,)
        return tuple(scope for scope in (self.agent, SHARED) if self.requests[0].covers("memory", scope))

    @cached_property
    def readable_memories(self) -> tuple[str, ...]:
        """The memories that the run may read without asking."""
        scopes = self.memory_scopes
        return tuple(scope for scope in scopes if isinstance(self.read_listed(any_memory(scope)), Allowed))

    @cached_property
    def _verdicts(self) -> dict[tuple[str, Target], Verdict]:
        """Recent verdicts."""
        return {}

    @cached_property
    def _restrictions(self) -> Restrictions:
        return Restrictions(self.roots)

    @cached_property
    def private(self) -> tuple[str, ...]:
        """What no sandbox shows among the files of the system: Reyn's and the user's, and what a rule restricts.

        Raises `RulesTooBroad` if the rules are about too many files of the system.
        """
        from reyn.sandbox.process import private_places

        skills = (self.skill, *self.above)
        projects = [roots for roots in (self.roots, self.roots.origin) if roots is not None]
        places = [path for roots in projects for path in (roots.project_text, *roots.hidden_texts)]
        places = [*map(os.path.realpath, (*places, os.path.expanduser("~")))]  # noqa: PTH111 - text in, text out
        rules = [rule for rule in self.policy.rules if rule.effect != "allow" and rule.concerns("file.read", skills)]
        every = [Restrictions(roots) for roots in projects]
        patterns = [one.path(pattern) for one in every for rule in rules for pattern in rule.patterns]
        return private_places(places, lambda folder: restricted_below(folder, patterns, places))

    def rule(self, key: str, target: Target) -> Rule | None:
        """Return the rule that decides about a target, or `None` if no rule matches."""
        return self.policy.decide(key, (self.skill, *self.above), target, self._restrictions)

    def applies(self, rule: Rule, key: str, target: Target) -> bool:
        """Return whether a rule matches a target."""
        return rule.applies(key, (self.skill, *self.above), target, self._restrictions)

    def restriction(self, key: str, target: Target) -> Denied | NeedsApproval | None:
        """Return the verdict of a rule that denies or asks, for a target besides the one that the op names."""
        rule = self.rule(key, target)
        if rule is None or rule.effect == "allow":
            return None
        return (Denied if rule.effect == "deny" else NeedsApproval)(rule.text, f"the operator restricts `{key}`")

    def is_evaded_by(self, link: str) -> bool:
        """Return whether a rule restricts reading a path through a symlink, and not where the symlink leads."""
        return any(
            self._restrictions.is_evaded_by(pattern, link)
            for rule in self.policy.rules
            if rule.effect != "allow" and rule.concerns("file.read", (self.skill, *self.above))
            for pattern in rule.patterns
        )

    def _remembered(
        self, key: str, target: Target, decide: Callable[[Gate, str, Any], Verdict], *, is_noted: bool = True
    ) -> Verdict:
        verdicts = self._verdicts
        found = verdicts.get((key, target))
        if found is None:
            if len(verdicts) >= _MAX_REMEMBERED:
                verdicts.clear()
            found = verdicts[key, target] = decide(self, key, target)
        return _noted(found) if is_noted and found.__class__ is NeedsApproval else found

    def read(self, location: Location) -> Verdict:
        """Decide whether an op may read a file. No op opens one outside of the project; a program may be shown it."""
        if location.zone == "outside":
            advice = "a program that `sandboxed_exec` runs can read such a file, if its `read_paths` names it"
            return Denied(OUTSIDE, f"`{location.display_path}` is outside of the project; {advice}")
        return self.show(location)

    def read_listed(self, location: Location) -> Verdict:
        """Decide about a file that an op found in a folder, and leaves out if it may not read it without asking."""
        if location.zone == "outside":
            return self.read(location)
        return self._remembered("file.read", location, Gate._file, is_noted=False)

    def search(self, folder: Location) -> Verdict:
        """Decide whether an op may search a folder. A rule about all that it can contain decides about the folder.

        Of any other folder, the search leaves out what the run may not read.
        """
        verdict = self.read(folder)
        if isinstance(verdict, Denied) or not self.policy.rules:
            return verdict
        memories = [self.restriction("memory", scope) for scope in scopes_in(folder)]
        denied = [one for one in memories if isinstance(one, Denied)]
        if denied and len(denied) == len(memories):
            return denied[0]
        inside = self.restriction("file.read", folder.below(ANY_NAME))
        return _noted(inside) if isinstance(inside, Denied) or (inside and isinstance(verdict, Allowed)) else verdict

    def show(self, location: Location) -> Verdict:
        """Decide whether a program may see a file."""
        return self._remembered("file.read", location, Gate._file)

    def write(self, location: Location) -> Verdict:
        if location.zone == "recorded":
            reason = f"`{location.display_path}` is what the run has recorded; write to another path in `workspace:`"
            return Denied("default: recorded content is read-only", reason)
        if location.zone == "outside":
            return Denied(OUTSIDE, f"`{location.display_path}` is outside of the project and cannot be written")
        return self._remembered("file.write", location, Gate._file)

    def capability(self, key: str, target: str | AnyTarget = "") -> Verdict:
        """Decide about a capability other than files."""
        return self._remembered(key, target, Gate._capability)

    def _capability(self, key: str, target: str | AnyTarget) -> Verdict:
        if key in _OF_PROJECT and not self.has_project:
            raise ProjectMissing
        rule = self.rule(key, target)
        name = target.kind if isinstance(target, AnyTarget) else target
        if rule is not None and rule.effect == "deny":
            return Denied(rule.text, f"the operator denies `{key}`{_denied_target(rule, target)}")
        if key == "shell" and not self.policy.allow_shell:
            return Denied(NO_SHELL, f"the operator must start the run with `{SWITCHES[NO_SHELL]}`")
        if rule is None and key in OPEN:
            return Allowed(f"default: {key}")
        if key not in OPEN and (skills := self._without_request(key, target)):
            reason = f"{skills} must request it: {self._request(key, name)} under `permissions` in skill.md"
            if key == "agent" and self.agent:
                reason = f"`agents` in the agent's file does not include `{name}`"
            return Denied("default: no request", reason)
        if rule is None and self.agent and (key == "agent" or (key == "memory" and name in (self.agent, SHARED))):
            return Allowed(f"default: {key} of the agent `{self.agent}`")
        if rule is None and key in ASKED and not name.startswith(PRIVATE):
            reason = f"no rule allows `{key}` for `{name}` yet"
            if isinstance(target, AnyTarget):
                advice = self._to_grant(key, target, name)
                reason = f"`{name}` reaches every host, also private ones; to allow it, the operator must {advice}"
            return NeedsApproval(f"{ASK_RULE}{key} {name}", reason)
        return self._granted(rule, key, target, _nameable(name), name)

    def python(self, target: str, *, is_unsafe: bool) -> Verdict:
        """Decide about a function of the skill, named `module:function`.

        A safe one cannot reach anything, so it needs no grant, and no request of the skills above. An unsafe one needs
        `mode: unsafe` in the entry of every skill, and the operator's switch.
        """
        rule = self.rule("python", target)
        if rule is not None and rule.effect == "deny":
            return Denied(rule.text, f"the operator denies `python` for `{target}`")
        if not self.requests[0].covers("python", target):
            return Denied("default: no request", f"the skill must list `{target}` under `permissions.python`")
        if is_unsafe and not self.policy.allow_unsafe_python:
            return Denied(NO_UNSAFE, f"the operator must start the run with `{SWITCHES[NO_UNSAFE]}`")
        if is_unsafe and not all(target in requests.unsafe_python for requests in self.requests):
            reason = f"each skill must list `{target}` with `mode: unsafe` under `permissions.python`"
            return Denied("default: no request", reason)
        if rule is not None and rule.effect == "ask":
            return _noted(NeedsApproval(rule.text, "the operator wants to be asked about `python`"))
        return Allowed(SWITCHES[NO_UNSAFE] if is_unsafe else "default: python in the sandbox")

    def _file(self, key: str, location: Location) -> Verdict:
        access: AccessMode = "read" if key == "file.read" else "write"
        if location.zone == "project" and not self.has_project:
            raise ProjectMissing
        if location.zone == "state":
            return Denied(OUT_OF_REACH, f"`{location.display_path}` belongs to Reyn's own records")
        if access == "write" and not location.parts:
            reason = f"`{location.display_path}` is a folder; name a file in it"
            return Denied("default: a folder is not written", reason)
        rule, owner = self.rule(key, location), owner_of(location, access, is_folded=True)
        rules = (rule, None if owner is None else self.rule(*owner))
        for one in rules:
            if one is not None and one.effect == "deny":
                return Denied(one.text, f"the operator denies to {access} `{location.display_path}`")
        verdict = self._zone(access, location) or self._owned(access, location)
        if verdict is None:
            if skills := self._without_request(key, location):
                reason = self._how_to(access, location, skills, is_granted=rule is not None)
                return Denied(f"default: no {access} outside the zones", self._noted(reason))
            verdict = self._granted(rule, key, location, _shown_pattern(location))
        # A rule of a memory that asks is about changing it.
        asking = [one.text for one in rules[: 1 if access == "read" else 2] if one is not None and one.effect == "ask"]
        return _asked(verdict, asking)

    def _zone(self, access: AccessMode, location: Location) -> Allowed | None:
        if location.zone == "recorded":
            return _RECORDED
        if location.zone == "workspace":
            is_inside = bool(location.parts) and not protected_name(location.parts, "read")
            return _OWN if is_inside or access == "read" else None
        for pattern in self.policy.zone(access):
            if pattern.covers(location, access) and (access == "read" or len(location.parts) > len(pattern.segments)):
                return Allowed(f"default: {access} {pattern.text}")
        return None

    def _owned(self, access: AccessMode, location: Location) -> Verdict | None:
        """Decide about a memory or a file of a local skill, if the skills request it."""
        owner = owner_of(location, access)
        if owner is None or not all(requests.covers(*owner) for requests in self.requests):
            return None
        verdict = self._remembered(*owner, Gate._capability, is_noted=False)  # it becomes part of the file's verdict
        if access == "read":
            return verdict if isinstance(verdict, Allowed) else None
        if (
            owner[0] == SKILL_WRITE
            and isinstance(verdict, Allowed)
            and any(must_spell(part, 1, "write") for part in location.parts[3:])
        ):
            # A rule that allows skills does not name the programs in them.
            return NeedsApproval(f"{ASK_RULE}{SKILL_WRITE} {owner[1]}", f"`{location.parts[-1]}` can be executed")
        return verdict

    def _granted(self, rule: Rule | None, key: str, target: Target, pattern: str, name: str = "") -> Verdict:
        if rule is None:
            reason = f"the operator must {self._to_grant(key, target, pattern)}"
            return Denied("default: no grant", self._noted(reason))
        if rule.effect == "ask":
            # Named with its target, so that an approval of one host or tool does not cover another.
            text = f"{rule.text} for {name}" if key in ASKED or key in OPEN else rule.text
            return NeedsApproval(text, f"the operator wants to be asked about `{key}`")
        return Allowed(rule.text)

    def is_ignored(self, key: str, target: Target) -> bool:
        """Return whether a rule of the project would allow a target, if the operator trusted the project."""
        return any(rule.effect == "allow" and self.applies(rule, key, target) for rule in self.policy.ignored)

    def _noted(self, reason: str) -> str:
        return f"{reason.rstrip('.')}. {self.policy.note}" if self.policy.note else reason

    def _without_request(self, key: str, target: Target) -> str:
        """Return the skills that do not request a target, as a text: that of the run, and those of the runs above."""
        names = ["the skill", *(f"the skill `{skill}`" for skill in self.above)]
        lacking = [number for number, requests in enumerate(self.requests) if not requests.covers(key, target)]
        return " and ".join(names[number] if number < len(names) else "each skill above" for number in lacking)

    def _request(self, key: str, name: str) -> str:
        """Return the line of skill.md that requests a capability: for one target, if others are listed."""
        plain = _nameable(name.removeprefix(PRIVATE))
        is_listed = is_protected(key, plain) or any(requests.others.get(key) for requests in self.requests)
        return f"`{key}: [{yaml_text(plain)}]`" if plain and is_listed else f"`{key}: true`"

    def _to_grant(self, key: str, target: Target, pattern: str) -> str:
        """Return what the operator has to do, so that a rule allows a target."""
        if self.is_ignored(key, target):
            return "trust the project, whose configuration grants it"
        return f"grant it: add {self.policy.grant(key, pattern)} in reyn.yaml, and trust the project"

    def _how_to(self, access: AccessMode, location: Location, skills: str, *, is_granted: bool) -> str:
        key, pattern = f"file.{access}", _shown_pattern(location)
        grant = "" if is_granted else f", and the operator must {self._to_grant(key, location, pattern)}"
        named = protected_name(location.parts, access) if location.zone == "project" else ""
        why = f" `{named}` is protected and must be named." if named else ""
        listed = [f"`{one.text}`" for one in self.policy.zone(access)]
        zones = f"{', '.join(listed)} and `workspace:`" if listed else "only `workspace:`"
        return (
            f"{zones} can be {'read' if access == 'read' else 'written'} without a grant; to {access} "
            f"`{location.display_path}` {skills} must request it (`{key}: [{yaml_text(pattern)}]` under "
            f"`permissions` in skill.md){grant}.{why}"
        )


def _asked(verdict: Verdict, asking: list[str]) -> Verdict:
    """Return a verdict under the condition that a person approves for each of some rules."""
    if not asking or isinstance(verdict, Denied):
        return verdict
    if isinstance(verdict, Allowed):
        return NeedsApproval(" and ".join(asking), verdict.rule)
    # A verdict of a capability names its rule together with the target.
    more = [text for text in asking if not verdict.rule.startswith(text)]
    return NeedsApproval(" and ".join((*more, verdict.rule)), verdict.reason)


def _denied_target(rule: Rule, target: str | AnyTarget) -> str:
    if isinstance(target, AnyTarget) and rule.patterns:
        return f" for `{', '.join(rule.patterns)}`, and `{target.kind}` does not name what it uses"
    name = target.kind if isinstance(target, AnyTarget) else target
    return f" for `{name}`" if name else ""


_MAX_TARGET = 80
ABSOLUTE = "/ABSOLUTE/PATH"
"""Stands for the path of a file outside of the project in advice, if the model did not name it by its own path."""


def _nameable(target: str) -> str:
    """Return a target if a pattern can name it; empty otherwise."""
    is_plain = target.isprintable() and not any(char in target for char in "*?[]'`") and len(target) <= _MAX_TARGET
    return target if is_plain or target.startswith(PRIVATE) else ""


def _shown_pattern(location: Location) -> str:
    """Return the pattern of a file. Where links and `..` lead outside of the project is not shown to a model."""
    is_hidden = location.zone == "outside" and location.display_path != f"/{'/'.join(location.parts)}"
    return ABSOLUTE if is_hidden else exact_pattern(location)
