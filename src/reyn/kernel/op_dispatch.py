"""Execute one op of a visit: plan, fulfil its request, perform, record. The same for every kind.

What an op does is in `reyn.ops`; how it is performed and recovered is in `op_performer`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.context import next_digest, truncate
from reyn.journal import Blob, canonical, kinds
from reyn.kernel.approvals import Rejected, plan_op
from reyn.kernel.effects import Ask, ExecuteSubRun, PerformOp, PlanSubRun, UnknownOutcome
from reyn.ops import RunOutcome

if TYPE_CHECKING:
    from reyn.kernel.briefs import Surroundings
    from reyn.kernel.tape import Tape
    from reyn.skills import Skill


class Done(NamedTuple):
    """The outcome of an op. `result` is the hash of the whole result."""

    kind: str
    status: kinds.OpStatus
    result: str
    bytes: int
    changes: tuple[kinds.Change, ...] = ()
    asked: bool = False
    """Whether a person was asked."""


class OpLog:
    """The ops of one visit so far: their results as the model sees them, and the files they changed."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.digest: str | None = None
        self.is_truncated = False
        self._changes: list[tuple[str, kinds.Change]] = []

    def add(self, changes: tuple[kinds.Change, ...], tape: Tape) -> None:
        self._changes += [(tape.state.run_id, change) for change in changes]

    def changes_of(self, run_id: str) -> tuple[kinds.Change, ...]:
        """The changes that a run has to restore, newest first.

        Changes that a fork inherited belong to its origin, except in the workspace, of which the fork has a copy.
        """
        own = [change for run, change in self._changes if run == run_id or change.path.startswith("workspace:")]
        return tuple(reversed(own))

    def show(self, done: Done, call: str, limit: int, tape: Tape) -> None:
        """Add a result to what the model sees; of a large one, the beginning and the path of the whole."""
        name = self.truncate(call, done.result, limit, tape) if done.bytes > limit else done.result
        self.shown.append(name)
        self.digest = next_digest(self.digest, name)

    def truncate(self, name: str, whole: str, limit: int, tape: Tape) -> str:
        """Return the hash of what the model sees of some content: all of it, or its beginning."""
        return self.truncate_blob(name, Blob(whole, tape.content(whole)), limit, tape)

    def truncate_blob(self, name: str, whole: Blob, limit: int, tape: Tape) -> str:
        if len(whole.content) <= limit:
            return whole.hash
        part = Blob.of(truncate(whole.content, limit, name))
        self.is_truncated = True
        cut = kinds.ContentCut(name, whole.hash, part.hash, len(whole.content))
        return tape.emit(cut, whole, part).shown


async def run_op(args: dict[str, Any], call: str, around: Surroundings, tape: Tape) -> Done:
    """Execute an op that is well-formed and allowed. Whatever goes wrong is in its result."""
    args, started = await plan_op(args, call, around, tape)
    kind = args["kind"]
    if isinstance(started, kinds.PermissionDenied | Rejected):
        return Done(kind, "denied", started.result, 0)
    request, answer, changes = started.request, None, started.changes
    match request:
        case kinds.AskRequest():
            answer = await _ask(request, call, tape)
        case kinds.RunRequest():
            given = msgspec.json.decode(tape.content(request.input))
            ended = await run_sub_skill(request.skill, given, call, around.sub_skill(request.skill), tape)
            answer, changes = _outcome(ended, tape), ended.changes
    form = around.vocabulary.form_of(args)
    is_unsafe = form is not None and form.effect == "unsafe"
    if request is not None and is_unsafe:
        tape.emit(kinds.RequestFulfilled(call))
    needs_intent = request is None or is_unsafe
    completed = await PerformOp(call, args, started, answer, is_unsafe, needs_intent=needs_intent)
    attempts = 0
    while isinstance(completed, UnknownOutcome):
        attempts += 1
        settled = await _settle(call, attempts, args, tape)
        # Performed again, it can be interrupted again; an outcome that a person confirms is only recorded.
        completed = await PerformOp(call, args, started, answer, settled == "again", settled)
    if started.changes and not completed.changed:
        changes = ()
    for change in started.changes if completed.changed else ():
        tape.emit(kinds.WorkspaceUpdated(call, change))
    asked = isinstance(request, kinds.AskRequest)
    return Done(kind, completed.status, completed.result, completed.bytes, changes, asked)


async def _ask(request: kinds.AskRequest, call: str, tape: Tape) -> Any:
    wait = kinds.Wait(
        _wait_id(call, tape),
        "question",
        request.message,
        request.response_schema,
        suggestions=request.suggestions,
    )
    tape.emit(kinds.WaitOpened(wait))
    return await Ask(wait.id)


async def _settle(call: str, attempts: int, args: dict[str, Any], tape: Tape) -> str:
    """Ask a person about an unsafe op whose driver died: whether it took effect is unknown."""
    described = f"`{args['kind']}` {canonical(args).decode()[:500]}"
    choices = ("again", "done", "failed")
    wait = kinds.Wait(
        _wait_id(f"{call}.settle{attempts if attempts > 1 else ''}", tape),
        "unsafe",
        f"{described} may have taken effect before the run was interrupted. "
        "Execute it again, record it as done, or record it as failed?",
        {"type": "string", "enum": list(choices)},
        suggestions=choices,
    )
    tape.emit(kinds.WaitOpened(wait))
    settled: str = await Ask(wait.id)
    return settled


def _wait_id(call: str, tape: Tape) -> str:
    """The id of a question, unique among a run and its sub-runs, so that no answer is taken for another's."""
    assert tape.state.started is not None
    parent = tape.state.started.parent
    return f"{parent.path}/{call}" if parent else call


async def run_sub_skill(
    name: str, given: Any, call: str, pinned: Skill | None, tape: Tape, *, shares_workspace: bool = False
) -> kinds.SubRunCompleted:
    """Execute a skill as a sub-run: the run's own copy of the skill if it has one, else the one that is found."""
    started = await PlanSubRun(call, name, given, pinned, shares_workspace)
    return await ExecuteSubRun(call, started)


def _outcome(ended: kinds.SubRunCompleted, tape: Tape) -> RunOutcome:
    artifact = msgspec.json.decode(tape.content(ended.artifact.hash)) if ended.artifact else None
    return RunOutcome(ended.run, artifact, ended.error)
