"""Findings about an agent before a conversation starts."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from reyn.documents import nearest
from reyn.errors import AgentNotFound, SkillInvalid, SkillNotFound, codes
from reyn.lint.structure import unknown_class
from reyn.permissions import RuleError, parse_requests
from reyn.skills.loader import UNKNOWN_OP_FIX

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from reyn.documents import Document
    from reyn.errors import Finding
    from reyn.skills.agents import Agent, Agents
    from reyn.vocabulary import Vocabulary


def lint_agent(
    agents: Agents,
    name: str,
    skills: Iterable[str],
    vocabulary: Vocabulary,
    classes: Collection[str] | None = None,
) -> list[Finding]:
    """Return every finding about an agent, sorted by position.

    Args:
        agents: The agents of the project.
        name: The agent.
        skills: The names of the skills of the project.
        vocabulary: The known ops.
        classes: The model classes that the configuration defines; `None` if it is not known.

    Raises:
        AgentNotFound: There is no such agent.
    """
    try:
        agent, document = agents.read(name)
    except SkillInvalid as error:
        return error.findings
    if document is None:
        return []
    return sorted(
        [
            *_unknown_ops(agent, document, vocabulary),
            *_requests(agent, document, vocabulary),
            *_unknown_skills(agent, document, list(skills)),
            *(unknown_class(document, classes) if classes is not None else ()),
            *_unknown_agents(agent, document, [other for other in agents if other != name]),
        ]
    )


def _unknown_ops(agent: Agent, document: Document, vocabulary: Vocabulary) -> Iterator[Finding]:
    for index, kind in enumerate(agent.allowed_ops or ()):
        if vocabulary.op(kind) is None:
            fix = nearest(kind, vocabulary.op_kinds) or UNKNOWN_OP_FIX
            yield document.finding(codes.UNKNOWN_OP, f"unknown op `{kind}`", "allowed_ops", index, fix=fix)


def _requests(agent: Agent, document: Document, vocabulary: Vocabulary) -> Iterator[Finding]:
    for key, value in agent.permissions.items():
        if key not in vocabulary.permission_keys:
            fix = nearest(key, vocabulary.permission_keys)
            message = f"unknown permission `{key}`"
            yield document.finding(codes.UNKNOWN_PERMISSION, message, "permissions", key, fix=fix)
            continue
        try:
            parse_requests({key: value})
        except RuleError as error:
            message = f"`permissions.{key}`: {error}"
            yield document.finding(codes.WRONG_VALUE, message, "permissions", key, fix=error.fix)


def _unknown_skills(agent: Agent, document: Document, skills: list[str]) -> Iterator[Finding]:
    """Report patterns that match no skill. They are warnings, because a program can add skills."""
    for index, pattern in enumerate(agent.skills or ()):
        if not any(fnmatchcase(skill, pattern) for skill in skills):
            fix, message = nearest(pattern, skills), f"no skill matches `{pattern}`"
            yield document.finding(SkillNotFound.code, message, "skills", index, fix=fix, severity="warning")


def _unknown_agents(agent: Agent, document: Document, others: list[str]) -> Iterator[Finding]:
    """Report patterns that match no other agent. They are warnings, because the agent can still be written."""
    for index, pattern in enumerate(agent.agents):
        if not any(fnmatchcase(other, pattern) for other in others):
            fix, message = nearest(pattern, others), f"no other agent matches `{pattern}`"
            yield document.finding(AgentNotFound.code, message, "agents", index, fix=fix, severity="warning")
