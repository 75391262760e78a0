"""Findings about an agent before a conversation starts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from reyn.documents import Document, nearest
from reyn.errors import AgentNotFound, Finding, SkillInvalid, SkillNotFound, codes
from reyn.lint.requests import malformed, unknown_keys
from reyn.lint.structure import unknown_class
from reyn.skills.allowed_ops import unknown_op_fix

if TYPE_CHECKING:
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
    others = [other for other in agents if other != name]
    requests = {key: value for key, value in agent.permissions.items() if key in vocabulary.permission_keys}
    return sorted(
        [
            *_unknown_ops(agent, document, vocabulary),
            *unknown_keys(document, vocabulary),
            *malformed(document, requests),
            # They are warnings, because a program can add skills, and an agent can still be written.
            *_unmatched(document, "skills", agent.skills or (), list(skills), SkillNotFound.code, "skill"),
            *_unmatched(document, "agents", agent.agents, others, AgentNotFound.code, "other agent"),
            *(unknown_class(document, classes) if classes is not None else ()),
        ]
    )


def _unknown_ops(agent: Agent, document: Document, vocabulary: Vocabulary) -> Iterator[Finding]:
    for index, kind in enumerate(agent.allowed_ops or ()):
        if vocabulary.op(kind) is None:
            fix = unknown_op_fix(kind, vocabulary.op_kinds)
            yield document.finding(codes.UNKNOWN_OP, f"unknown op `{kind}`", "allowed_ops", index, fix=fix)


def _unmatched(
    document: Document, key: str, patterns: Iterable[str], names: list[str], code: str, noun: str
) -> Iterator[Finding]:
    """Report patterns that match no name."""
    for index, pattern in enumerate(patterns):
        if not any(fnmatchcase(name, pattern) for name in names):
            message = f"no {noun} matches `{pattern}`"
            yield document.finding(code, message, key, index, fix=nearest(pattern, names), severity="warning")
