"""Preview a frame: execute a visit in memory up to its first model call, and read the frame it recorded.

The preview uses the code of a real run (pinned copies, `visit`, `context_frame`), so it cannot differ from one. It
performs no effects and writes nothing to the project's journal.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from reyn.config.values import ProjectContext, PromptLimit
from reyn.context import ContextFrame
from reyn.errors import InputInvalid
from reyn.journal import Blob, MemoryJournal, canonical, decode, kinds
from reyn.kernel.core.effects import Ask, CallModel
from reyn.kernel.core.limits import visits_left
from reyn.kernel.core.run_orchestrator import Visit
from reyn.kernel.visit.phase_executor import visit
from reyn.kernel.world.loading import new_tape, pin_ops, pin_settings, start_event
from reyn.runs.context_frames import context_frame
from reyn.runs.run_reader import RunReader
from reyn.skills.inputs import to_artifact

if TYPE_CHECKING:
    from reyn.config import RunSettings
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.compiled_phase import CompiledPhase
    from reyn.ops import OpTable
    from reyn.skills import Skill

_RUN = "preview"


def preview_frame(
    skill: Skill,
    input: Any,
    phase: str | None,
    settings: RunSettings,
    ops: OpTable,
    form: kinds.AnswerForm,
    summaries: Blob | None = None,
    limit: PromptLimit | None = None,
) -> ContextFrame:
    """Return the frame of a first visit of a phase; without `phase`, of the entry phase.

    Preprocessor steps run if they have no side effects. Otherwise the frame shows the input without them, and
    `warnings` names the reason. Without `input`, the input is empty data of the phase's first type.

    Raises:
        InputInvalid: The input does not fit the phase, there is no such phase, or it is a node that runs a skill.
    """
    phase = skill.entry if phase is None else phase
    if phase not in skill.phases:
        is_node = phase in skill.graph
        reason = f"node `{phase}` runs another skill and calls no model" if is_node else f"there is no phase `{phase}`"
        raise InputInvalid(f"skill `{skill.name}`: {reason}", hint=f"Its phases are: {', '.join(skill.phases)}.")
    if input is None:
        artifact: dict[str, Any] = {"type": skill.inputs_of(phase)[0].name, "data": {}}
    else:
        artifact = to_artifact(input, skill, strict=settings.strict, node=phase)
    # A preview opens no model and needs no tokenizer, so it estimates.
    limit = replace(limit or PromptLimit(), counter="bytes")
    estimated = {name: replace(one, counter="bytes") for name, one in settings.prompt_limits.items()}
    context = settings.context
    if isinstance(context, ProjectContext):
        context = replace(context, counter="bytes")
    settings = replace(settings, prompt_limits=estimated, context=context)
    preview = partial(_Preview, artifact=artifact, phase=phase, ops=ops, form=form, summaries=summaries, limit=limit)
    frame = preview(skill, settings).frame()
    warnings: tuple[str, ...] = ()
    if isinstance(frame, _NotReached) and not frame.is_limit:
        warnings = (f"the preprocessor of phase `{phase}` was not executed: {frame.reason}",)
        skill = replace(skill, phases=skill.phases | {phase: replace(skill.phases[phase], preprocessor=())})
        frame = preview(skill, settings).frame()
    if isinstance(frame, _NotReached):
        warnings = (*warnings, f"the run would stop here: {frame.reason}")
        frame = preview(skill, settings, is_limited=False).frame()
    assert isinstance(frame, ContextFrame)
    return replace(frame, warnings=(*frame.warnings, *warnings))


class _NotReached(NamedTuple):
    """The reason why a visit does not reach its first model call; `is_limit` if the prompt exceeds its limit."""

    reason: str
    is_limit: bool = False


class _Preview:
    """One visit in an in-memory journal."""

    def __init__(
        self,
        skill: Skill,
        settings: RunSettings,
        *,
        artifact: dict[str, Any],
        phase: str,
        ops: OpTable,
        form: kinds.AnswerForm,
        summaries: Blob | None,
        limit: PromptLimit,
        is_limited: bool = True,
    ) -> None:
        # These limits stop a run before the model is called; they do not appear in the frame.
        limits = replace(settings.limits, tokens=None, run_seconds=None, phase_seconds=None)
        settings = replace(settings, limits=limits)
        self._journal = MemoryJournal()
        started, blobs = start_event(
            _RUN,
            skill,
            pin_settings(settings),
            pin_ops(skill, ops.vocabulary),
            Blob.of(canonical(artifact)),
            model="",
            answer_form=form,
            summaries=summaries,
            prompt_limit=limit,
        )
        reads = {
            name: Blob.of(canonical({"type": name, "data": {}}))
            for name in skill.phases[phase].reads
            if name != started.input.type
        }
        self._tape: Tape = new_tape(self._journal, started, (*blobs, *reads.values()), now=0)
        if not is_limited:
            self._tape.record(kinds.LimitRaised("max_prompt_tokens", None, 0), 0)
        self._reader = RunReader(self._journal, lambda: ops)
        compiled = self._reader.compile_skill(started, self._tape.content)
        self._phase: CompiledPhase = compiled.phase(phase, self._tape.state)
        latest = {name: blob.hash for name, blob in reads.items()}
        left = visits_left(self._tape.state, skill, settings, phase)
        self._entry = Visit(phase, started.input, visit=1, step=1, path=(phase,), latest=latest, left=left)

    def frame(self) -> ContextFrame | _NotReached:
        """Return the frame, or why the visit does not reach its first model call."""
        coroutine = visit(self._phase, self._entry, self._tape)
        try:
            effect = coroutine.send(None)
        except StopIteration:
            effect = None
        finally:
            coroutine.close()
        self._tape.flush_now(self._journal)
        if isinstance(effect, CallModel):
            return self._recorded_frame()
        limits = [body.reason for body in self._bodies() if isinstance(body, kinds.LimitReached)]
        if limits:
            return _NotReached(limits[0], is_limit=True)
        failures = [body.reason for body in self._bodies() if isinstance(body, kinds.PhaseFailed)]
        if failures:
            return _NotReached(failures[0])
        return _NotReached("a step asks a person" if isinstance(effect, Ask) else "a step has side effects")

    def _bodies(self) -> list[Any]:
        return [decode(event) for event in self._journal.read(_RUN)]

    def _recorded_frame(self) -> ContextFrame:
        frame = context_frame(_RUN, self._journal.read(_RUN), None, self._journal.blob, self._reader.compile_skill)
        phase, warnings = self._phase, []
        if frame.read_artifacts:
            warnings.append(f"the artifacts that phase `{phase.name}` reads are empty in a preview")
        receives = phase.context(1).manifest is not None and phase.name != phase.skill.entry
        if receives and frame.handoff is None:
            warnings.append(f"phase `{phase.name}` receives handoffs, which a preview does not have")
        return replace(frame, warnings=(*frame.warnings, *warnings))
