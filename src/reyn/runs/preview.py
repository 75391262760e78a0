"""Preview prompts: execute a run in memory up to a model call, and read what the model would see.

A preview uses the code of a real run (pinned copies, `visit`, `Driver`), so it cannot differ from one. It performs only
ops that read, behind the permission gate, and writes nothing to the project's journal. `settled_state` reads in the
same way what a turn of a conversation has completed, and `fault_of_draft` whether a fork fails before its first effect.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from reyn.config.values import ProjectContext
from reyn.context.frame import ContextFrame
from reyn.errors import InputInvalid, InternalError, ReplayMismatch, RunNotResumable
from reyn.journal import Blob, Body, InboxMessage, Journal, MemoryJournal, canonical, decode, kinds
from reyn.journal.family import reply_to
from reyn.journal.summary import limit_of
from reyn.kernel.core.child_effects import CancelChild
from reyn.kernel.core.driver import Driver
from reyn.kernel.core.effects import CallModel, Effect, PerformOp, Permit, PlanOp, ReadOverviews, Restore
from reyn.kernel.core.limits import visits_left
from reyn.kernel.core.run_orchestrator import Postprocess, Visit
from reyn.kernel.core.run_state import apply
from reyn.kernel.core.tape import RecordingEnded, Tape
from reyn.kernel.versions import SUPPORTED_RULES
from reyn.kernel.visit.compiled_skill import CompiledSkill
from reyn.kernel.world.inbox import answer_error, inbox_events
from reyn.kernel.world.loading import (
    LoadedRun,
    load_run,
    load_uncancelled,
    new_run,
    new_tape,
    pin_ops,
    pin_run,
    pin_settings,
    unpin_ops,
)
from reyn.kernel.world.unsafe_ops import open_children
from reyn.runs.frames import RecordedPrompt
from reyn.skills import Skill, pin, unpin
from reyn.skills.inputs import to_artifact
from reyn.skills.state_fields import state_name

if TYPE_CHECKING:
    from reyn.config import RunSettings
    from reyn.journal.canonical import ReadBlob
    from reyn.kernel.core.child_effects import StartChildren
    from reyn.kernel.core.driver import ProgramCompiler
    from reyn.kernel.core.errors_of_nodes import HandleError
    from reyn.kernel.core.snapshot import Models, RunState
    from reyn.kernel.visit.compiled_phase import CompiledPhase
    from reyn.kernel.world.op_performer import OpPerformer
    from reyn.vocabulary import Vocabulary

    OverviewReader = Callable[[ReadOverviews, Tape], tuple[Body, tuple[Blob, ...]]]

_RUN = "preview"


# -- the first frame of a phase -------------------------------------------------------------------------


class Preview(NamedTuple):
    """What a previewed run would start with, besides its skill and input."""

    settings: RunSettings
    vocabulary: Vocabulary
    model: Models
    summaries: Blob | None = None
    performer: Callable[[], OpPerformer] | None = None
    """Performs the ops of preprocessor steps that only read."""


async def preview_frame(skill: Skill, input: Any, phase: str | None, preview: Preview) -> ContextFrame:
    """Return the frame of a first visit of a phase; without `phase`, of the entry phase.

    Preprocessor steps run if they only read, and no rule denies or asks. Otherwise the frame shows the input without
    them, and `warnings` names the reason. Without `input`, the input is empty data of the phase's first type.

    Raises:
        InputInvalid: The input does not fit the phase, there is no such phase, or it is a node that calls no model.
    """
    phase = skill.entry if phase is None else phase
    asking = [name for name in skill.phases if name not in skill.rules and skill.fan_out(name) is None]
    if phase not in asking:
        does = (
            "has rules" if phase in skill.rules else "runs branches" if skill.fan_out(phase) else "runs another skill"
        )
        is_node = phase in skill.graph
        reason = f"node `{phase}` {does} and calls no model" if is_node else f"there is no phase `{phase}`"
        raise InputInvalid(f"skill `{skill.name}`: {reason}", hint=f"Its phases are: {', '.join(asking)}.")
    if input is None:
        artifact: dict[str, Any] = {"type": skill.inputs_of(phase)[0].name, "data": {}}
    else:
        artifact = to_artifact(input, skill, strict=preview.settings.strict, node=phase)
    preview, content = _estimating(preview), Blob.of(canonical(artifact))
    frame = await _first_frame(skill, phase, content, preview)
    warnings: tuple[str, ...] = ()
    if isinstance(frame, _NotReached) and not frame.is_limit:
        part = "preprocessor" if skill.phases[phase].preprocessor else "conditions"
        warnings = (f"the {part} of phase `{phase}` was not executed: {frame.reason}",)
        skill = replace(
            skill, conditions={}, phases=skill.phases | {phase: replace(skill.phases[phase], preprocessor=())}
        )
        frame = await _first_frame(skill, phase, content, preview)
    if isinstance(frame, _NotReached):
        warnings = (*warnings, f"the run would stop here: {frame.reason}")
        frame = await _first_frame(skill, phase, content, preview, is_limited=False)
    assert isinstance(frame, ContextFrame)
    return replace(frame, warnings=(*frame.warnings, *warnings))


class _NotReached(NamedTuple):
    """The reason why a visit does not reach its first model call; `is_limit` if the prompt exceeds its limit."""

    reason: str
    is_limit: bool = False


def _estimating(preview: Preview) -> Preview:
    """Return a preview that opens no model, needs no tokenizer, and is not stopped before the first model call."""
    settings = preview.settings
    limits = replace(settings.limits, tokens=None, run_seconds=None, phase_seconds=None)  # not shown in a frame
    estimated = {name: replace(one, counter="bytes") for name, one in settings.prompt_limits.items()}
    context = settings.context
    if isinstance(context, ProjectContext):
        context = replace(context, counter="bytes")
    settings = replace(settings, limits=limits, prompt_limits=estimated, context=context)
    limit = replace(preview.model.prompt_limit, counter="bytes")
    return preview._replace(settings=settings, model=replace(preview.model, prompt_limit=limit))


async def _first_frame(
    skill: Skill, phase: str, artifact: Blob, preview: Preview, *, is_limited: bool = True
) -> ContextFrame | _NotReached:
    """Visit a phase in memory; return the frame, or why the visit does not reach its first model call."""
    settings, specs = preview.settings, pin_ops(skill, preview.vocabulary)
    copies = pin_run(skill, artifact, specs)
    reads = {
        name: Blob.of(canonical({"type": name, "data": {}}))
        for name in skill.phases[phase].reads
        if name != copies.input.type and not state_name(name)
    }
    copies = copies._replace(blobs=(*copies.blobs, *reads.values()))
    run = new_run(_RUN, copies, pin_settings(settings), preview.model, summaries=preview.summaries)
    journal = MemoryJournal()
    tape = new_tape(journal.blob, run, now=0)
    if not is_limited:
        tape.record(kinds.LimitRaised("max_prompt_tokens", None, 0), 0)
    compiled = _OneVisit(unpin(pin(skill).content), settings, unpin_ops(specs.content))
    latest = {name: blob.hash for name, blob in reads.items()}
    cap = limit_of(tape.state, settings, "max_phase_visits")
    left = visits_left(tape.state, skill, cap, phase)
    compiled.entry = Visit(phase, copies.input, visit=1, step=1, path=(phase,), latest=latest, cap=cap, left=left)
    world = _StillWorld(journal, tape.state, None, _no_overviews, preview.performer)
    await Driver(tape, lambda _: compiled, world).execute()
    if not isinstance(world.reached, CallModel):
        return _reason(tape)
    frame = RecordedPrompt.at(_RUN, tape.pending, None, tape.content).context_frame(lambda _: compiled)
    return replace(frame, warnings=(*frame.warnings, *_missing(compiled.phase(phase, tape.state), frame)))


def _no_overviews(effect: ReadOverviews, tape: Tape) -> tuple[Body, tuple[Blob, ...]]:
    return kinds.OverviewsRead(effect.key), ()


class _OneVisit(CompiledSkill):
    """A skill of which the driver executes one visit."""

    entry: Visit | None = None

    def begin(self, move: Visit | Postprocess | HandleError, tape: Tape) -> Coroutine[Effect[Any], Any, None]:
        entry, self.entry = self.entry, None
        if entry is None:
            raise RecordingEnded
        return super().begin(entry, tape)


def _reason(tape: Tape) -> _NotReached:
    for body in map(decode, tape.pending):
        if isinstance(body, kinds.LimitReached | kinds.PhaseFailed):
            return _NotReached(body.reason, is_limit=isinstance(body, kinds.LimitReached))
    return _NotReached("a step asks a person" if tape.state.wait is not None else "a step has side effects")


def _missing(phase: CompiledPhase, frame: ContextFrame) -> list[str]:
    """Return warnings about what a frame of a run has and a preview does not."""
    warnings = []
    if frame.read_artifacts:
        warnings.append(f"the artifacts that phase `{phase.name}` reads are empty in a preview")
    receives = phase.receives_handoffs and phase.name != phase.skill.entry
    if receives and frame.handoff is None:
        warnings.append(f"phase `{phase.name}` receives handoffs, which a preview does not have")
    if phase.listing_ops:
        warnings.append(f"what the ops of phase `{phase.name}` can act on is not listed in a preview")
    return warnings


# -- the next request of a recorded run -----------------------------------------------------------------


async def next_prompt(
    journal: Journal,
    run_id: str,
    compile_skill: ProgramCompiler,
    answer: Any = None,
    *,
    read_overviews: OverviewReader | None = None,
) -> list[tuple[str, str]]:
    """Return role and text of the messages that a run would send next.

    Args:
        journal: The journal.
        run_id: The run.
        compile_skill: Compiles the run's copy of its skill.
        answer: The answer to the open question of the run, for example the user's next message.
        read_overviews: Lists the objects that the ops of a conversation can act on.

    Raises:
        RunNotResumable: The run calls no model before it ends, asks again, or has a side effect.
    """
    loaded = load_run(journal, run_id)
    world = _StillWorld(journal, loaded.state, answer, read_overviews)
    await Driver(loaded.tape, compile_skill, world).execute()
    effect, tape = world.reached, loaded.tape
    if not isinstance(effect, CallModel):
        reason = "a step has side effects" if effect is not None else f"it is {tape.state.status}"
        raise RunNotResumable(f"run `{run_id}` does not call its model next: {reason}")
    return RecordedPrompt.at(run_id, chain(journal.read(run_id), tape.pending), None, tape.content).messages


# -- a turn that has stopped ----------------------------------------------------------------------------


def settled_state(journal: Journal, state: RunState, compile_skill: ProgramCompiler) -> tuple[RunState, ReadBlob]:
    """Return the state of a run with everything that a turn has completed which no process executes, and its content.

    Such a turn has stopped, was interrupted, or was copied. Its state is as if it were aborted there, so that its
    transcript has every call that was completed, also those of an answer whose other calls were not.
    """
    has_turn = state.visit.is_open and state.visit.has_message and state.started.rules in SUPPORTED_RULES
    if not has_turn or (state.status == "running" and journal.is_claimed(state.run_id)):
        return state, journal.blob
    return _stopped_turn(journal, state.run_id, compile_skill)


def _stopped_turn(journal: Journal, run_id: str, compile_skill: ProgramCompiler) -> tuple[RunState, ReadBlob]:
    """Return the state of a run after an abort of its turn where it is, and the content of this state."""
    tape, state, _ = load_uncancelled(journal, run_id)
    execution = Driver(tape, compile_skill, _LeavingWorld(journal, state)).execute()
    try:
        execution.send(None)
    except StopIteration:
        for event in tape.pending:
            state = apply(state, decode(event), event.ts)
            if event.kind == kinds.PhaseAborted.kind:
                return state, tape.content
    raise InternalError(f"the turn of run `{run_id}` did not end when it was aborted")


def end_reason(cause: str, stop: str) -> str:
    """Return why a turn without a reply ended: what ended it, and why it had stopped, if it had."""
    return f"{cause}; it had stopped: {stop.partition(chr(10))[0]}" if stop else cause


# -- a fork that is not recorded yet ----------------------------------------------------------------------


def fault_of_draft(
    journal: Journal,
    draft: LoadedRun,
    compile_skill: Callable[[kinds.RunStarted, ReadBlob], CompiledSkill],
    *,
    answered: str = "",
) -> str:
    """Return why the visit that a fork continues fails by itself; empty if it does not.

    Only what follows from the recorded outcomes counts: nothing is performed, and the fork need not exist.

    Args:
        journal: The journal of its origin.
        draft: The fork.
        compile_skill: Compiles the fork's copy of its skill.
        answered: The model call that has an answer of the user: its rejection counts as a failure.
    """
    if not draft.state.visit.is_open:
        return ""
    tape = draft.tape
    world = _EndingWorld(journal, draft.state)
    execution = Driver(tape, lambda started: compile_skill(started, tape.content), world).execute()
    try:
        execution.send(None)
    except StopIteration:
        pass
    except ReplayMismatch as error:  # the event is not one before an effect
        return error.message
    for body in map(decode, tape.pending):
        match body:
            case kinds.ValidationError(call=call, path=path, message=message) if call == answered:
                return f"at `{path}`: {message}"
            case kinds.PhaseFailed(reason=reason) | kinds.PostprocessorFailed(reason=reason):
                return reason
            case kinds.PhaseCompleted() | kinds.PostprocessorCompleted():
                return ""
    return "the visit has failed" if isinstance(world.reached, Restore) else ""


class _StillWorld:
    """A world that nothing changes: it answers the open question, reads, and stops at the first other effect."""

    def __init__(
        self,
        journal: Journal,
        state: RunState,
        answer: Any = None,
        read_overviews: OverviewReader | None = None,
        performer: Callable[[], OpPerformer] | None = None,
    ) -> None:
        self._read_overviews = read_overviews
        self._performer = performer
        self._ops: OpPerformer | None = None
        self._journal = journal
        self._run = state.run_id
        self._answer = answer
        self._resumes = state.status not in ("running", "waiting")
        self._now = state.last_input
        self.reached: Effect[Any] | None = None

    async def perform(self, effect: Effect[Any], tape: Tape) -> tuple[Body, tuple[Blob, ...]] | None:
        if isinstance(effect, ReadOverviews) and self._read_overviews is not None:
            return self._read_overviews(effect, tape)
        if isinstance(effect, Permit):  # what it is about is the effect that is reached
            return None
        if isinstance(effect, PlanOp | PerformOp) and self._performer is not None:
            ops = self._ops = self._performer()
            op = ops.op_of(effect, tape)
            if op is not None and not op.is_foreign and op.only_reads(effect.args):
                if isinstance(effect, PerformOp):
                    return await ops.perform(effect, op, tape)
                return await ops.prepare_and_plan(effect, op, tape) if op.is_preparable else ops.plan(effect, op, tape)
        self.reached = effect
        raise RecordingEnded

    def now(self) -> int:
        return self._now

    def external_events(self, state: RunState) -> list[tuple[Body, tuple[Blob, ...]]]:
        if self._resumes:
            self._resumes = False
            return [(kinds.RunResumed("preview", retry=True), ())]
        if state.wait is None or self._answer is None:
            return []
        if reason := answer_error(state.wait, state.wait.id, self._answer):
            raise RunNotResumable(f"run `{self._run}` waits for another answer: {reason}")
        request, self._answer = reply_to(state.wait, self._answer, ""), None
        return inbox_events([InboxMessage(state.messages_taken + 1, request)], state, self._now, self._journal)

    async def wait_for_answer(self, wait: kinds.Question, state: RunState) -> bool:
        return False

    async def start(self, effect: StartChildren, tape: Tape) -> None:
        """Start nothing: executing them is the first effect."""

    async def flush(self, tape: Tape) -> None:
        """Write nothing: a preview leaves no trace."""

    async def commit_intent(self, effect: Effect[Any], tape: Tape) -> None:
        """Write nothing: a preview leaves no trace."""

    async def settle(self, *, is_finishing: bool = False) -> None:
        """Forget the environment of the ops; nothing was started."""
        if self._ops is not None:
            self._ops.forget(self._run)


class _LeavingWorld(_StillWorld):
    """A still world in which the user aborts the turn as soon as it has stopped."""

    def external_events(self, state: RunState) -> list[tuple[Body, tuple[Blob, ...]]]:
        if not state.is_turn_open:
            return []
        reason = end_reason("the turn has no reply", state.reason)
        children = open_children(self._journal, state)
        return [(kinds.TurnAborted(reason, state.messages_taken, children=children), ())]


class _EndingWorld(_StillWorld):
    """A still world in which the branches that are not needed any more end."""

    async def perform(self, effect: Effect[Any], tape: Tape) -> tuple[Body, tuple[Blob, ...]] | None:
        if isinstance(effect, CancelChild):
            run = effect.started.run
            return kinds.ChildEnded(effect.key, "skill", effect.started.skill, run, "canceled"), ()
        return await super().perform(effect, tape)
