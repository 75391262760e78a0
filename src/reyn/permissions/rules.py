"""Requests of skills and rules of the operator, as pure values. `gate` decides with them.

A request takes effect only together with a rule that grants it. If several rules match, the most restrictive one
decides: `deny`, then `ask`, then `allow`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from reyn.documents import nearest, nearest_or_all
from reyn.permissions.hosts import PRIVATE, host_pattern
from reyn.permissions.paths import AccessMode, PathPattern, parse_patterns
from reyn.permissions.targets import (
    AnyTarget,
    Restrictions,
    Target,
    access_of,
    is_file,
    is_granted,
    is_protected,
    python_name,
)
from reyn.vocabulary import PERMISSIONS
from reyn.workspace import Location

RuleEffect = Literal["allow", "ask", "deny"]
EFFECTS: tuple[RuleEffect, ...] = ("deny", "ask", "allow")
"""In the order in which they win."""

ASKED = frozenset(entry.key for entry in PERMISSIONS if entry.is_asked)
"""Capabilities of which a person decides about each new target, unless a rule does."""
BOUND_TO_ARGUMENTS = frozenset(entry.key for entry in PERMISSIONS if entry.binds_arguments)
"""Capabilities whose standing approvals cover only the arguments that the person saw."""
OPEN = frozenset(entry.key for entry in PERMISSIONS if entry.is_open)
"""Capabilities that every run has without a request, unless a rule denies them or asks."""


class RuleError(ValueError):
    """A rule or a request that is not understood. `path` leads to it in its mapping; `fix` says what to write."""

    def __init__(self, message: str, *path: str | int, fix: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.fix = fix


class Rule(msgspec.Struct, frozen=True):
    """One rule of the operator. Without patterns it holds for every target, without skills for every skill."""

    effect: RuleEffect
    capability: str
    patterns: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The rule as verdicts and explanations name it."""
        targets = f" {', '.join(self.patterns)}" if self.patterns else ""
        skills = f" (skill {', '.join(self.skills)})" if self.skills else ""
        return f"permissions.{self.capability}: {self.effect}{targets}{skills}"

    def concerns(self, capability: str, skills: Sequence[str]) -> bool:
        """Return whether it is about a capability and skills: that of a run, then those of the runs above it.

        A rule that allows something to a skill allows it to runs of that skill. Any other also holds for the runs
        that they start.
        """
        if capability != self.capability:
            return False
        named = skills[:1] if self.effect == "allow" else skills
        return not self.skills or not set(self.skills).isdisjoint(named)

    def applies(self, capability: str, skills: Sequence[str], target: Target, restrictions: Restrictions) -> bool:
        if not self.concerns(capability, skills):
            return False
        if self.effect != "allow":
            covers = restrictions.covers
            return not self.patterns or any(covers(pattern, capability, target) for pattern in self.patterns)
        if self.patterns:
            return any(is_granted(pattern, capability, target) for pattern in self.patterns)
        # A grant for everything does not name what is protected.
        return not is_protected(capability, target)


class Policy(msgspec.Struct, frozen=True):
    """The operator's rules, and the zones that need no request."""

    rules: tuple[Rule, ...] = ()
    read_zone: tuple[PathPattern, ...] = (PathPattern.parse("./"),)
    write_zone: tuple[PathPattern, ...] = (PathPattern.parse("output/"),)
    ignored: tuple[Rule, ...] = ()
    """Rules of the project that need trust and have no effect, because the project is not trusted."""
    note: str = ""
    """Added to the reason of a denial: why settings of the project are ignored."""
    allow_shell: bool = False
    """Whether the operator has switched `shell` on. It needs a grant as well."""
    allow_unsafe_python: bool = False
    """Whether the operator has allowed unsafe python steps."""

    def decide(self, capability: str, skills: Sequence[str], target: Target, restrictions: Restrictions) -> Rule | None:
        """Return the rule that decides, or `None` if no rule matches.

        Args:
            capability: The permission key.
            skills: The skill of the run, then those of the runs above it.
            target: What the action will use.
            restrictions: Which targets a pattern covers in the folders of the run.
        """
        if not self.rules:
            return None
        matching = [rule for rule in self.rules if rule.applies(capability, skills, target, restrictions)]
        return min(matching, key=lambda rule: EFFECTS.index(rule.effect), default=None)

    def has_restrictions(self, capability: str) -> bool:
        """Return whether a rule denies or asks about some of a capability."""
        return any(rule.capability == capability and rule.effect != "allow" for rule in self.rules)

    def zone(self, access: AccessMode) -> tuple[PathPattern, ...]:
        return self.read_zone if access == "read" else self.write_zone

    def grant(self, capability: str, pattern: str) -> str:
        """Return what to add where, so that a rule allows what a pattern covers; everything if it is empty.

        A second key of the same name would be an error in YAML.
        """
        if any(rule.capability == capability for rule in (*self.rules, *self.ignored)):
            rule = f"- allow: {yaml_text(pattern)}" if pattern else "- allow"
            return f"`{rule}` to the list `{capability}` under `permissions`"
        rules = f"[{{allow: {yaml_text(pattern)}}}]" if pattern else "allow"
        return f"`{capability}: {rules}` under `permissions`"


def yaml_text(text: str) -> str:
    """Quote a text that YAML would not read as it is."""
    is_plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return text if is_plain else msgspec.json.encode(text).decode()


_PLAIN = re.compile(r"(\.|\./|/|~/)?[A-Za-z_][A-Za-z0-9_./-]*|\./")
_WORDS = frozenset(("yes", "no", "on", "off", "true", "false", "null", "y", "n", ".inf", ".nan"))
"""Words that YAML reads as a value of another type."""


def parse_rules(value: Mapping[str, Any], known: Iterable[str]) -> tuple[Rule, ...]:
    """Parse the `permissions` of a configuration.

    A capability has one effect (`shell: deny`), or a list of rules with patterns (`- allow: tickets/`), each of which
    may name the skills that it holds for (`skill: triage`).

    Raises:
        RuleError: names the key that is wrong.
    """
    placed, errors = read_rules(value, known)
    if errors:
        raise errors[0]
    return tuple(rule for rule, _ in placed)


def read_rules(
    value: Mapping[str, Any], known: Iterable[str]
) -> tuple[list[tuple[Rule, tuple[str | int, ...]]], list[RuleError]]:
    """Return the valid rules of a configuration, each with the keys that lead to it, and every error."""
    capabilities = tuple(known)
    rules: list[tuple[Rule, tuple[str | int, ...]]] = []
    errors: list[RuleError] = []
    for capability, entry in value.items():
        if capability not in capabilities:
            errors.append(
                RuleError(
                    f"unknown permission `{capability}`", capability, fix=nearest_or_all(capability, capabilities)
                )
            )
            continue
        for index, one in enumerate(entry if isinstance(entry, list) else [entry]):
            path = (capability, index) if isinstance(entry, list) else (capability,)
            try:
                rules.append((_rule(capability, one, path), path))
            except RuleError as error:
                errors.append(error)
    return rules, errors


def _effect(word: str, *path: str | int) -> RuleEffect:
    for effect in EFFECTS:
        if word == effect:
            return effect
    raise RuleError(f"`{word}` is neither `allow`, `ask` nor `deny`", *path)


def _rule(capability: str, entry: Any, path: tuple[str | int, ...]) -> Rule:
    if isinstance(entry, str):
        return Rule(_effect(entry, *path), capability)
    if not isinstance(entry, dict):
        raise RuleError("a rule is `allow`, `ask` or `deny` with a pattern", *path)
    effects = [key for key in entry if key in EFFECTS]
    unknown = [key for key in entry if key not in (*EFFECTS, "skill")]
    if unknown:
        fix = nearest(str(unknown[0]), (*EFFECTS, "skill"))
        raise RuleError(f"unknown key `{unknown[0]}`", *path, unknown[0], fix=fix)
    if len(effects) != 1:
        raise RuleError("a rule has exactly one of `allow`, `ask` and `deny`", *path)
    effect = _effect(effects[0], *path)
    patterns = _texts(entry[effect], *path, effect)
    for pattern in patterns:
        try:
            if is_file(capability):
                PathPattern.parse(pattern)
            elif capability == "web":
                host_pattern(pattern)
        except ValueError as error:
            raise RuleError(str(error), *path, effect) from error
    skills = _texts(entry["skill"], *path, "skill") if "skill" in entry else ()
    return Rule(effect, capability, patterns, skills)


def _texts(value: Any, *path: str | int) -> tuple[str, ...]:
    texts = value if isinstance(value, list) else [value]
    # A rule without patterns holds for everything: an empty list must not become one.
    if not texts or not all(isinstance(text, str) and text for text in texts):
        raise RuleError("a pattern is a text, or a list of texts", *path)
    return tuple(texts)


class SkillRequests(msgspec.Struct, frozen=True):
    """The `permissions` of a skill, as it has them, and its name, as rules name it."""

    skill: str
    permissions: dict[str, Any]


class Requests(msgspec.Struct, frozen=True):
    """The requests of one skill, by capability: paths of files, names of anything else; empty means everything."""

    files: dict[str, tuple[PathPattern, ...]] = {}
    others: dict[str, tuple[str, ...]] = {}
    unsafe_python: frozenset[str] = frozenset()
    """The functions of `python` whose entries say `mode: unsafe`, as `module:function`."""

    def covers(self, capability: str, target: Target) -> bool:
        if isinstance(target, Location):
            patterns = self.files.get(capability, ())
            return any(pattern.covers(target, access_of(capability)) for pattern in patterns)
        names = self.others.get(capability)
        # Whether an address is private is for the operator to decide.
        plain = target.kind if isinstance(target, AnyTarget) else target.removeprefix(PRIVATE)
        if not names:
            return names is not None and not is_protected(capability, plain)
        return any(is_granted(name, capability, plain) for name in names)

    @property
    def capabilities(self) -> tuple[str, ...]:
        return (*self.files, *self.others)


def parse_requests(value: Mapping[str, Any]) -> Requests:
    """Parse the `permissions` of a skill.

    Raises:
        RuleError: names the key that is wrong.
    """
    files: dict[str, tuple[PathPattern, ...]] = {}
    others: dict[str, tuple[str, ...]] = {}
    unsafe: frozenset[str] = frozenset()
    for capability, entry in value.items():
        try:
            if is_file(capability):
                files[capability] = parse_patterns(entry)
            elif capability == "python" and isinstance(entry, list) and all(isinstance(one, dict) for one in entry):
                if entry:
                    others[capability] = tuple(map(python_target, entry))
                unsafe = frozenset(python_target(one) for one in entry if one.get("mode") == "unsafe")
            elif entry not in (False, None, []):
                named = isinstance(entry, str) or (isinstance(entry, list) and any(isinstance(x, str) for x in entry))
                others[capability] = _texts(entry) if named else ()
        except ValueError as error:
            raise RuleError(str(error), capability) from error
    return Requests(files, others, unsafe)


def python_target(entry: Mapping[str, Any]) -> str:
    """Return how rules name a function of a skill: `module:function`."""
    return python_name(f"{entry.get('module')}:{entry.get('function')}")


def recorded_requests(value: Mapping[str, Any]) -> Requests:
    """Parse the `permissions` of a recorded copy of a skill. One that is malformed requests nothing."""
    try:
        return parse_requests(value)
    except RuleError:
        return Requests()
