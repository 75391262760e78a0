"""Reconstruct the context frame of a recorded turn as a value, from the events and the run's own copy of its skill.

`reyn.runs.frames` reconstructs the text. Runs and previews both use this module, so that their frames are equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.context.frame import PATH_LENGTH, ContextFrame, Execution, RejectedArtifact
from reyn.context.render import turn_parts
from reyn.journal import decode, kinds
from reyn.kernel.core.limits import visits_left
from reyn.kernel.core.run_state import EMPTY, apply
from reyn.runs.frames import RecordedFrame, find_frame, messages_of, sections_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from reyn.journal import Event
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.visit.compiled_phase import CompiledPhase, TurnSpec
    from reyn.kernel.visit.compiled_skill import CompiledSkill

    Content = Callable[[str], bytes]


def context_frame(
    run_id: str,
    events: Iterable[Event],
    seq: int | None,
    content: Content,
    compile_skill: Callable[[kinds.RunStarted], CompiledSkill],
) -> ContextFrame:
    """Return the frame of a turn.

    Args:
        run_id: The run.
        events: Its events.
        seq: The frame at this event, or the last one before it; by default the last frame of the run.
        content: Returns content by its hash.
        compile_skill: Compiles the run's copy of its skill.

    Raises:
        RunNotFound: The run has no event `seq`, or no frame at or before it.
        RunBlocked: The run's copy of its skill cannot be read.
    """
    visits = _VisitFolder()
    recorded = find_frame(run_id, visits.follow(events, seq), seq, content)
    visit = visits.at_frame
    assert visit is not None
    compiled = compile_skill(visit.before.started)
    phase, spec, warnings = _spec_of(compiled, visit, recorded)
    history = visit.before.history
    parts = turn_parts(recorded.turn)
    back = visit.before.visit.rollback

    def value(name: str) -> Any:
        """Return a stored value, whole even if the frame truncates it."""
        return msgspec.json.decode(content(recorded.truncated.get(name, name)))

    return ContextFrame(
        spec.frame,
        value(visit.started.input.hash if warnings else parts.input),
        Execution(
            (*history.path, phase.name)[-PATH_LENGTH:],
            visit.started.visit,
            history.total_steps + 1,
            phase.remaining_visits(visit.now, visits_left(visit.now, compiled.skill, compiled.settings, phase.name)),
        ),
        parts.remaining_act_turns,
        tuple(value(name) for name in parts.reads),
        content(parts.handoff).decode() if parts.handoff else None,
        RejectedArtifact(value(back.rejected.hash), back.reason) if back is not None else None,
        tuple(value(name) for name in recorded.results),
        tuple(messages_of(recorded, content)),
        sections_of(recorded, content),
        warnings,
    )


class _RecordedVisit(NamedTuple):
    """A visit of a phase: the state before it, its first event, and the state at one of its frames."""

    before: RunState
    started: kinds.PhaseStarted
    now: RunState


class _VisitFolder:
    """Folds the events that pass through it. `at_frame` is the visit of the last frame."""

    def __init__(self) -> None:
        self.at_frame: _RecordedVisit | None = None

    def follow(self, events: Iterable[Event], seq: int | None) -> Iterator[Event]:
        state = before = EMPTY
        started: kinds.PhaseStarted | None = None
        for event in events:
            if seq is None or event.seq <= seq:
                body = decode(event)
                if isinstance(body, kinds.PhaseStarted):
                    before, started = state, body
                if isinstance(body, kinds.FrameBuilt) and started is not None:
                    self.at_frame = _RecordedVisit(before, started, state)
                state = apply(state, body, event.ts)
            yield event


def _spec_of(
    skill: CompiledSkill, visit: _RecordedVisit, recorded: RecordedFrame
) -> tuple[CompiledPhase, TurnSpec, tuple[str, ...]]:
    """Return the phase and the turn whose static text was recorded.

    A limit that was raised during the visit changes the phase. If no turn has the recorded text, another version of
    Reyn phrased it.
    """
    phases = [skill.phase(visit.started.phase, state) for state in (visit.before, visit.now)]
    for phase in phases:
        for is_truncated in (False, True):
            for acting in (True, False):
                spec = phase.turn_spec(recorded.form, acting=acting, is_truncated=is_truncated)
                if spec.system == recorded.messages[0]:
                    return phase, spec, ()
    phase = phases[0]
    warning = "another version of Reyn phrased this prompt; its exact text is in the messages"
    return phase, phase.turn_spec(recorded.form, acting=bool(phase.ops), is_truncated=False), (warning,)
