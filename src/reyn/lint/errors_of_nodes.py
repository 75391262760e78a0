"""Rules on `retry` and `on_error` of nodes: names that nothing gives an error, and handlers that cannot take one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from posixpath import normpath
from typing import TYPE_CHECKING

from reyn.documents import nearest
from reyn.errors import Finding, codes
from reyn.lint.nodes import phase_branches
from reyn.skills.arrivals import accepted_by
from reyn.skills.error_settings import MAX_BACKOFF_MS, NODE_ERROR
from reyn.skills.fan_out import branch_skill
from reyn.skills.graph import is_known, successors
from reyn.skills.step_types import AskUser, Iterate, PythonCall, RunOp, RunSkill
from reyn.skills.values import END, Skill, is_skill_node, skill_of
from reyn.vocabulary.error_names import (
    ANY_ERROR,
    DENIED,
    ERROR_NAMES,
    FAILED,
    LIMIT,
    REJECTED,
    TIMEOUT,
    is_error_name,
)

if TYPE_CHECKING:
    from reyn.documents import Document, KeyPath
    from reyn.skills import LoadResult
    from reyn.skills.step_types import AnyStep
    from reyn.skills.values import NodeSettings
    from reyn.vocabulary import Vocabulary

_FIX = "write a name of lower-case letters, digits and `_`, or `*` for every error but `limit`"

_QUOTED = re.compile(r"""["']([a-z][a-z0-9_]{0,63})["']""")
"""A text in the source of a python step that can be the name of an error."""


def errors_of_nodes(skill: Skill, loaded: LoadResult, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Report errors that cannot occur, handlers that do not take an error, and edges that nothing can follow."""
    document, branches = loaded.document(), phase_branches(skill)
    for node, settings in skill.nodes.items():
        if settings.retry is None and not settings.on_error:
            continue
        if node in branches and settings.on_error:
            message = f"`{node}` is run by a branch; errors of branches arrive at the handlers of the node that runs it"
            yield document.finding(codes.BAD_ERRORS, message, "nodes", node, "on_error", fix="move `on_error` there")
        elif node in skill.graph and is_known(skill, node):
            yield from _names(skill, node, settings, document, vocabulary)
            yield from _handlers(skill, node, settings, document)
        if skill.holds_conversation(node):
            message = f"`{node}` is a conversation: an error ends its turn, and the conversation goes on"
            yield document.finding(codes.BAD_ERRORS, message, "nodes", node, fix="remove `retry` and `on_error`")
        if settings.retry is not None and settings.retry.wait_ms(1) == MAX_BACKOFF_MS:
            message = "a `backoff` is at most a day"
            yield document.finding(codes.BAD_ERRORS, message, "nodes", node, "retry", "backoff", severity="warning")
    yield from _model_edges(skill, document)


def _names(
    skill: Skill, node: str, settings: NodeSettings, document: Document, vocabulary: Vocabulary
) -> Iterator[Finding]:
    """Report names that no error of the node can have."""
    named = [(("nodes", node, "on_error", name), name) for name in settings.on_error]
    for index, name in enumerate(settings.retry.on if settings.retry is not None else ()):
        named.append((("nodes", node, "retry", "on", index), name))  # type: ignore[arg-type]  # a path of another length
    possible: set[str] | None = None
    for path, name in named:
        if name == ANY_ERROR:
            continue
        if not is_error_name(name):
            yield document.finding(codes.BAD_ERRORS, f"`{name}` is not a valid name of an error", *path, fix=_FIX)
            continue
        if name in ERROR_NAMES and "retry" in path:
            continue  # a retry that never occurs hides nothing
        possible = possible_names(skill, node, vocabulary) if possible is None else possible
        if name not in possible and (ANY_ERROR not in possible or name in ERROR_NAMES):
            fix = nearest(name, possible) or f"the errors of `{node}` are {', '.join(sorted(possible))}"
            own = f"nothing in `{node}` names an error `{name}`"
            message = f"no error of `{node}` is `{name}`" if name in ERROR_NAMES else own
            yield document.finding(codes.BAD_ERRORS, message, *path, fix=fix, severity="warning")


def possible_names(skill: Skill, node: str, vocabulary: Vocabulary) -> set[str]:
    """Return the names that errors of a node can have; `*` among them if it may be any."""
    kind, settings = skill.node_kind(node), skill.nodes.get(node)
    found = {FAILED, LIMIT} if kind == "rules" else {*ERROR_NAMES}
    for step in skill.phases[node].preprocessor if node in skill.phases else ():
        found |= _names_of_step(skill, step, vocabulary)
    # A check of a model's answer rejects it, whatever the error; without a model, its error is that of the visit.
    for step in settings.check if settings is not None and kind != "phase" else ():
        found |= {REJECTED} | _names_of_step(skill, step, vocabulary)
    if is_skill_node(node):
        found |= _names_of_skill(skill, skill_of(node), vocabulary)
    for branch in settings.branches if settings is not None else ():
        if is_skill_node(branch.do):
            found |= _names_of_skill(skill, skill_of(branch.do), vocabulary)
        elif branch.do in skill.phases and branch.output in skill.types:
            inner = branch_skill(skill, branch)
            found |= possible_names(inner, branch.do, vocabulary)
    return found


def _names_of_step(skill: Skill, step: AnyStep, vocabulary: Vocabulary) -> set[str]:
    """Return the names of errors with which a step can fail the visit. One without a value is `failed` for any step."""
    applied = step.apply if isinstance(step, Iterate) else step
    if not {step.on_error, applied.on_error}.isdisjoint(("skip", "empty")):
        return set()
    match applied:
        case PythonCall(module=module):
            calls = (placed.applied for placed in skill.steps)
            others = {normpath(one.module) for one in calls if isinstance(one, PythonCall)} - {normpath(module)}
            texts = [text for name, text in skill.modules.items() if normpath(name) not in others]
            return {TIMEOUT, DENIED, *(name for text in texts for name in _QUOTED.findall(text))}
        case AskUser():
            return {TIMEOUT, DENIED}
        case RunOp(op=args):
            spec = vocabulary.op(str(args.get("kind")))
            return {*ERROR_NAMES, *({ANY_ERROR} if spec is None else spec.error_names)}
        case RunSkill(skill=name):
            return {*ERROR_NAMES} | _names_of_skill(skill, name, vocabulary)
    return set()


def _names_of_skill(skill: Skill, name: str, vocabulary: Vocabulary) -> set[str]:
    """Return the names that errors of a sub-skill can have: those of its nodes."""
    if name not in skill.skills:
        return {ANY_ERROR}
    inner = skill.sub_skill(name)
    return {found for node in inner.graph for found in possible_names(inner, node, vocabulary)}


def _handlers(skill: Skill, node: str, settings: NodeSettings, document: Document) -> Iterator[Finding]:
    """Report handlers that do not take an error. Unknown ones are reported with the graph."""
    for name, to in settings.on_error.items():
        path: KeyPath = ("nodes", node, "on_error", name)
        if to == node:
            message, fix = f"`{node}` handles its own error", "write `retry` to repeat the visit"
            yield document.finding(codes.BAD_ERRORS, message, *path, fix=fix)
        elif to == END or is_known(skill, to):
            accepted = [one.name for one in accepted_by(skill, to)]
            if NODE_ERROR not in accepted:
                takes = (
                    f"the run finishes with `{accepted[0]}`" if to == END else f"`{to}` takes `{' | '.join(accepted)}`"
                )
                fix = f"add `{NODE_ERROR}` to the `input` of a phase, and go on there"
                yield document.finding(codes.BAD_ERRORS, f"an error is a `{NODE_ERROR}`, but {takes}", *path, fix=fix)


def _model_edges(skill: Skill, document: Document) -> Iterator[Finding]:
    """Report edges of a model to a node that takes errors alone, which no model makes."""
    for node in skill.graph:
        for target in successors(skill, node) if skill.node_kind(node) == "phase" else ():
            if is_known(skill, target) and all(one.name == NODE_ERROR for one in skill.inputs_of(target)):
                message = f"`{target}` takes a `{NODE_ERROR}`, which the model of `{node}` cannot make"
                fix = f"write `on_error: {{'*': {target}}}` under `nodes` instead"
                yield document.finding(codes.BAD_ERRORS, message, "graph", node, fix=fix)
