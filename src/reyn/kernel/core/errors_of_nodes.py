"""Decide what follows the error of a node: another visit, or a visit of its handler. Pure, no I/O.

The order is: `retry` of the node, then `on_error` of the node, then `on_phase_failure` of the skill.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.errors import ModelAborted, error_name_of
from reyn.journal import kinds
from reyn.journal.summary import limit_of
from reyn.skills.values import END
from reyn.vocabulary.error_names import ANY_ERROR, LIMIT, is_named

if TYPE_CHECKING:
    from reyn.config import RunSettings
    from reyn.journal import Body
    from reyn.kernel.core.snapshot import Ending, RunState
    from reyn.skills import Skill
    from reyn.skills.values import NodeSettings

_ENVIRONMENT = ("RYN4", "RYN9")
"""Begin the codes of errors of the journal, of another process and of Reyn itself: no node handles them."""


class VisitFault(Exception):
    """Raised in a visit that fails: the files that it changed are restored, and the reason is recorded.

    Attributes:
        code: The code of the error.
        reason: The reason.
        error_name: Its name; empty for that of the code.
    """

    def __init__(self, code: str, reason: str, error_name: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.error_name = error_name


class NodeFailed(VisitFault):
    """Raised in a visit where it awaits an effect: that failed, or a limit was reached, and the node handles the error.

    Attributes:
        call: The effect.
    """

    def __init__(self, code: str, reason: str, error_name: str, call: str = "") -> None:
        super().__init__(code, reason, error_name)
        self.call = call


class HandleError(msgspec.Struct, frozen=True):
    """Go on at the handler of an error.

    Attributes:
        phase: The node whose visit failed.
        error: The name of the error.
        code: Its code.
        reason: The reason.
        to: The handler, or `end`.
        input: The input of the failed visit.
        attempts: The number of visits that failed.
    """

    phase: str
    error: str
    code: str
    reason: str
    to: str
    input: kinds.ArtifactRef
    attempts: int


def after_failure(state: RunState, ending: Ending, skill: Skill) -> kinds.VisitRetried | HandleError | None:
    """Return what follows a visit that failed, or that the model aborted; `None` if its node says nothing about it."""
    settings = skill.nodes.get(state.phase)
    if settings is None or (settings.retry is None and not settings.on_error):
        return None
    if skill.holds_conversation(state.phase):
        return None
    code = ModelAborted.code if ending.kind == "abort" else ending.code
    name, retry, attempt = ending.error_name or error_name_of(code), settings.retry, state.visit.attempt + 1
    if retry is not None and attempt <= retry.max and is_named(name, retry.on):
        return kinds.VisitRetried(state.phase, name, attempt, retry.max, retry.wait_ms(attempt))
    to = _handler(settings.on_error, name)
    return None if to is None else _handling(state, name, code, ending.reason, to)


def wait_of(state: RunState, skill: Skill) -> int:
    """Return the milliseconds before the next visit, which repeats one that failed."""
    settings = skill.nodes.get(state.phase)
    retry = settings.retry if settings is not None else None  # another version of the skill may have none
    return retry.wait_ms(state.visit.attempt) if retry is not None else 0


def at_limit(
    stop: kinds.LimitReached, state: RunState, skill: Skill, settings: RunSettings
) -> kinds.LimitReached | HandleError:
    """Return what follows a limit that is reached between two visits: the run stops, unless the node names `limit`.

    A handler without visits left cannot handle it.
    """
    node = skill.nodes.get(stop.phase)
    to = node.on_error.get(LIMIT) if node is not None else None
    cap = limit_of(state, settings, "max_phase_visits")
    if to is None or state.phase != stop.phase or skill.holds_conversation(stop.phase):
        return stop
    if to != END and cap is not None and state.history.visits.get(to, 0) >= cap:
        return stop
    return _handling(state, LIMIT, "", stop.reason, to)


def failure_in_visit(stop: Body, state: RunState, skill: Skill, call: str) -> NodeFailed | None:
    """Return the error of an event that would stop the run in a visit, if the node of the visit handles it."""
    settings = skill.nodes.get(state.phase)
    if settings is None or not state.visit.is_open or state.ending is not None:
        return None
    if skill.holds_conversation(state.phase):
        return None
    match stop:
        case kinds.LimitReached(reason=reason):
            code, name = "", LIMIT
        case kinds.RunFailed(code=code, reason=reason) if not code.startswith(_ENVIRONMENT):
            name = stop.error_name or error_name_of(code)
        case _:
            return None
    return NodeFailed(code, reason, name, call) if _is_handled(settings, state, name) else None


def handles_abort(state: RunState, skill: Skill) -> bool:
    """Return whether the run goes on, at the same phase or at a handler, if the model aborts the visit in progress."""
    settings = skill.nodes.get(state.phase)
    if settings is None or skill.holds_conversation(state.phase):
        return False
    return _is_handled(settings, state, error_name_of(ModelAborted.code))


def _is_handled(settings: NodeSettings, state: RunState, name: str) -> bool:
    """Return whether an error of the visit in progress leads to another visit, of its node or of a handler."""
    retry = settings.retry
    is_retried = retry is not None and state.visit.attempt < retry.max and is_named(name, retry.on)
    return is_retried or _handler(settings.on_error, name) is not None


def _handler(on_error: dict[str, str], name: str) -> str | None:
    """Return the handler of an error: the one of its name, else that of `*`."""
    return on_error.get(name) or (on_error.get(ANY_ERROR) if name != LIMIT else None)


def _handling(state: RunState, name: str, code: str, reason: str, to: str) -> HandleError:
    assert state.visit.input is not None  # since `run_started`
    return HandleError(state.phase, name, code, reason, to, state.visit.input, state.visit.attempt + 1)
