"""One op of a visit, as the visit sees it: an intent, an effect, what came of it. Knows how each kind is put to the
world; what an op does is in `reyn.ops`.

    file        the gate admits it, the world performs it
    ask_user    a wait is opened, a person answers it
    run_skill   a sub-run is driven to its end
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from reyn.context import cut, next_digest
from reyn.contract.ops import KEPT
from reyn.journal import Blob, canonical, kinds
from reyn.kernel.effects import Admit, AdmitSkill, Ask, Doubt, Perform, RunChild

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from reyn.kernel.briefs import Surroundings
    from reyn.kernel.tape import Tape
    from reyn.skills import Skill


class Done(NamedTuple):
    """What came of an op; `result` names its result, whole."""

    kind: str
    status: kinds.OpStatus
    result: str
    bytes: int
    changes: tuple[kinds.Change, ...] = ()
    artifact: kinds.ArtifactRef | None = None


class OpLog:
    """What the ops of one visit gave so far: results as the model is shown them, and the files that were changed."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.digest: str | None = None
        self.is_cut = False
        self._changes: list[tuple[str, kinds.Change]] = []

    def add(self, done: Done, tape: Tape) -> None:
        self._changes += [(tape.state.run_id, change) for change in done.changes]

    def changes_of(self, run_id: str) -> tuple[kinds.Change, ...]:
        """What a run has to put back, newest first. What a fork took over from its origin is the origin's, but for the
        files that the fork has of its own."""
        own = [change for run, change in self._changes if run == run_id or change.path.startswith("workspace:")]
        return tuple(reversed(own))

    def show(self, done: Done, call: str, limit: int, tape: Tape) -> None:
        """Let the model see a result; of a large one, the beginning and where the whole is."""
        name = self.cut(call, done.result, limit, tape) if done.bytes > limit else done.result
        self.shown.append(name)
        self.digest = next_digest(self.digest, name)

    def cut(self, name: str, whole: str, limit: int, tape: Tape) -> str:
        """What is shown of some content: itself, or its beginning if it is too large."""
        return self.cut_blob(name, Blob(whole, tape.content(whole)), limit, tape)

    def cut_blob(self, name: str, whole: Blob, limit: int, tape: Tape) -> str:
        if len(whole.content) <= limit:
            return whole.hash
        shown = Blob.of(cut(whole.content, limit, name))
        tape.emit(kinds.ContentCut(name, whole.hash, shown.hash, len(whole.content)), whole, shown)
        self.is_cut = True
        return shown.hash


def reads_kept(args: dict[str, Any]) -> bool:
    """Whether an op only reads the rest of something that was shown in part."""
    return args["kind"] == "file" and args.get("op") == "read" and str(args["path"]).startswith(KEPT)


async def run_op(args: dict[str, Any], call: str, around: Surroundings, tape: Tape) -> Done:
    """Perform an op that is well-formed and allowed; never raises for what the op does."""
    return await _KINDS[args["kind"]](args, call, around, tape)


async def _file(args: dict[str, Any], call: str, around: Surroundings, tape: Tape) -> Done:
    started = await Admit(call, args)
    if isinstance(started, kinds.PermissionDenied):
        return Done("file", "denied", started.result, 0)
    form = around.vocabulary.form_of(args)
    is_unsafe = form is not None and form.effect == "unsafe"
    completed = await Perform(call, args, started, is_unsafe)
    doubts = 0
    while isinstance(completed, Doubt):
        doubts += 1
        told = await _settle(call, doubts, "file", args, tape)
        # Done again, it can be cut short again; what a person vouches for is only written down.
        completed = await Perform(call, args, started, told == "again", told)
    changes = started.changes if completed.changed else ()
    for change in changes:
        tape.emit(kinds.WorkspaceUpdated(call, change))
    return Done("file", completed.status, completed.result, completed.bytes, changes)


async def _settle(call: str, doubts: int, kind: str, args: dict[str, Any], tape: Tape) -> str:
    """Nobody here knows whether an unsafe op took place before its driver died: a person says what holds."""
    words = f"`{kind}` {canonical(args).decode()[:500]} may have taken place before the run was interrupted."
    schema = {"type": "string", "enum": ["again", "done", "failed"]}
    wait = kinds.Wait(
        _wait_id(f"{call}.settle{doubts if doubts > 1 else ''}", tape),
        "unsafe",
        f"{words} Do it again, take it as done, or take it as failed?",
        schema,
        suggestions=("again", "done", "failed"),
    )
    tape.emit(kinds.WaitOpened(wait))
    told: str = await Ask(wait.id)
    return told


def _wait_id(call: str, tape: Tape) -> str:
    """The name of a question: of its own in the whole family of runs, so that no answer can be taken for another's."""
    assert tape.state.started is not None
    parent = tape.state.started.parent
    return f"{parent.path}/{call}" if parent else call


async def _ask_user(args: dict[str, Any], call: str, _: Surroundings, tape: Tape) -> Done:
    kept = Blob.of(canonical(args))
    tape.emit(kinds.AskUserStarted(call, kept.hash), kept)
    schema: dict[str, Any] = {"type": "string", "minLength": 1}
    if not args.get("required", True):
        schema = {"type": ["string", "null"]}
    wait = kinds.Wait(
        _wait_id(call, tape), "question", args["question"], schema, suggestions=tuple(args.get("suggestions", ()))
    )
    tape.emit(kinds.WaitOpened(wait))
    answer = await Ask(wait.id)
    result = Blob.of(canonical({"kind": "ask_user", "status": "ok", "question": args["question"], "answer": answer}))
    tape.emit(kinds.AskUserCompleted(call, "ok", result.hash, len(result.content)), result)
    return Done("ask_user", "ok", result.hash, len(result.content))


async def _run_skill(args: dict[str, Any], call: str, around: Surroundings, tape: Tape) -> Done:
    return await run_sub_skill(args["skill"], args["input"], call, around.sub_skill(args["skill"]), tape, args=args)


async def run_sub_skill(
    name: str,
    given: Any,
    call: str,
    pinned: Skill | None,
    tape: Tape,
    *,
    args: dict[str, Any] | None = None,
    shares_workspace: bool = False,
) -> Done:
    """Drive a sub-run to its end: of the run's own copy of a skill where it has one, else of one that is found."""
    started = await AdmitSkill(call, name, given, args, pinned, shares_workspace)
    if isinstance(started, kinds.PermissionDenied):
        return Done("run_skill", "denied", started.result, 0)
    done = await RunChild(call, started)
    return Done("run_skill", done.status, done.result, done.bytes, done.changes, done.artifact)


_KINDS: dict[str, Callable[[dict[str, Any], str, Surroundings, Tape], Awaitable[Done]]] = {
    "file": _file,
    "ask_user": _ask_user,
    "run_skill": _run_skill,
}
PERFORMED = frozenset(_KINDS)
"""The kinds that this version performs."""
