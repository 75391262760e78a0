"""The context frame as a value. `reyn.context.render` turns it into text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from reyn.context.budget import FrameSection
from reyn.contract import Candidate
from reyn.journal.kinds import Part
from reyn.texts import one_line

if TYPE_CHECKING:
    from reyn.skills import Skill
    from reyn.vocabulary import OpSpec


MAX_LISTED_OPTIONS = 8
"""The number of options, candidates included, above which the forms of an op are one option."""


class Constraints(msgspec.Struct, frozen=True):
    """Limits that the model should know."""

    max_phase_visits: int | None


class Execution(msgspec.Struct, frozen=True, omit_defaults=True):
    """The position in the run.

    Attributes:
        path: The phases entered, in order; the last 20 of them.
        current_visit: The number of visits of the current phase.
        total_steps: The number of visits in the whole run.
        remaining_visits: How often each candidate that was visited before can still be visited.
    """

    path: tuple[str, ...]
    current_visit: int
    total_steps: int
    remaining_visits: dict[str, int] = {}


class Repetition(msgspec.Struct, frozen=True):
    """Something that the model did more than once without progress.

    Attributes:
        kind: A decision with the same artifact for the same input, or an op that failed with the same arguments.
        name: The next phase of the decision, or the kind of the op.
        times: How often the model did it.
    """

    kind: Literal["decision", "op"]
    name: str
    times: int


class StableFrame(msgspec.Struct, frozen=True):
    """The part of the frame that is the same on every visit of a phase.

    `act_lines` says what `available_control_ops` says, as a prompt lists it.
    """

    current_phase: str
    current_phase_role: str | None
    instructions: str
    candidate_outputs: tuple[Candidate, ...]
    available_control_ops: tuple[dict[str, Any], ...]
    finish_criteria: tuple[str, ...]
    constraints: Constraints
    output_language: str | None
    act_lines: tuple[str, ...] = ()


class Rollback(msgspec.Struct, frozen=True):
    """Why a phase is visited again.

    Attributes:
        rejected_artifact: The hash of the artifact that was rejected; `None` if a transcript has it, or without one.
        reason: Why it was rejected; empty if an earlier visit failed without one.
        done: The unsafe ops that earlier visits completed, in short.
        tried: Those that may have taken effect, but have no usable result.
    """

    rejected_artifact: str | None
    reason: str
    done: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()

    @property
    def note(self) -> Part | None:
        """The message to a conversation: its transcript has the input of the visit, and what it decided."""
        is_note = self.rejected_artifact is None and self.reason
        return Part(text=f"{self.text}\nIt was given what you decided before.") if is_note else None

    @property
    def text(self) -> str:
        """The section of a prompt, before the artifact."""
        done = f"\nYou have done this already, do not repeat it: {'; '.join(self.done)}" if self.done else ""
        if self.tried:
            done += f"\nYou have tried this already, do not repeat what took effect: {'; '.join(self.tried)}"
        why = f"\nThe next phase failed: {one_line(self.reason)}" if self.reason else ""
        return f"# Rejected{done}{why}"


class RejectedArtifact(msgspec.Struct, frozen=True):
    """The artifact of an earlier visit of the phase that a rollback rejected, and the reason."""

    rejected_artifact: dict[str, Any]
    reason: str


class ContextFrame(msgspec.Struct, frozen=True):
    """The frame of one turn, as one value.

    Attributes:
        stable: The part that is the same on every visit of the phase.
        input_artifact: The whole input; the text of a large one is truncated in `messages`.
        execution: The position in the run.
        remaining_act_turns: Turns left for ops; `None` if no ops are offered.
        read_artifacts: Earlier artifacts of the run that the phase reads, the whole of each.
        handoff: What the phase receives from earlier phases; `None` if it receives nothing.
        rollback: Set if the phase was re-entered by a rollback.
        control_ir_results: The results of the ops of this visit so far, the whole of each.
        messages: Role and exact text of every message that the model receives.
        sections: The estimated tokens of each section of the messages.
        warnings: Reasons why a real run may send a different text.
    """

    stable: StableFrame
    input_artifact: dict[str, Any]
    execution: Execution
    remaining_act_turns: int | None = None
    read_artifacts: tuple[dict[str, Any], ...] = ()
    handoff: str | None = None
    rollback: RejectedArtifact | None = None
    control_ir_results: tuple[dict[str, Any], ...] = ()
    messages: tuple[tuple[str, str], ...] = ()
    sections: tuple[FrameSection, ...] = ()
    warnings: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return the frame as one JSON object with the documented keys, in their documented order."""
        stable: dict[str, Any] = msgspec.to_builtins(self.stable)
        frame = {name: stable[name] for name in ("current_phase", "current_phase_role", "instructions")}
        frame["input_artifact"] = self.input_artifact
        frame["execution"] = msgspec.to_builtins(self.execution)
        for name in ("candidate_outputs", "finish_criteria", "constraints", "available_control_ops", "output_language"):
            frame[name] = stable[name]
        if self.read_artifacts:
            frame["read_artifacts"] = list(self.read_artifacts)
        if self.handoff is not None:
            frame["handoff"] = self.handoff
        if self.rollback is not None:
            frame["rollback"] = msgspec.to_builtins(self.rollback)
        if self.control_ir_results:
            frame["control_ir_results"] = list(self.control_ir_results)
        if self.remaining_act_turns is not None:
            frame["remaining_act_turns"] = self.remaining_act_turns
        return frame


def advised(instructions: str, advice: str) -> str:
    """Return instructions that are followed by advice about tools."""
    separator = "\n" if advice and not instructions.endswith("\n") else ""
    return instructions + separator + advice


def _option_lines(ops: tuple[OpSpec, ...], candidates: int, *, lists_targets: bool) -> tuple[str, ...]:
    """Return the acts as a prompt lists them: one line for each form or target, or for each kind if there are many.

    Args:
        ops: The ops on offer.
        candidates: The number of candidates.
        lists_targets: Whether to list targets. A conversation lists them with its overviews.
    """
    targets = [spec.targets if lists_targets else () for spec in ops]
    if (
        candidates + sum(len(named or spec.forms) for spec, named in zip(ops, targets, strict=True))
        > MAX_LISTED_OPTIONS
    ):
        return tuple(f"{spec.kind}: {one_line(str(spec.offered()['description']))}" for spec in ops)
    lines: list[str] = []
    for spec, named in zip(ops, targets, strict=True):
        if named:
            lines += [f"{spec.kind} {one.name}({', '.join(one.arguments)}): {one_line(one.text)}" for one in named]
        elif len(spec.forms) == 1:
            text = " ".join(part for part in (spec.summary_of(spec.forms[0]), one_line(spec.advice)) if part)
            lines.append(f"{spec.kind}({spec.forms[0].fields}): {text}")
        else:
            lines += [f"{spec.kind} {form.op}({form.fields}): {spec.summary_of(form)}" for form in spec.forms]
            lines += [f"every {spec.kind}: {one_line(spec.advice)}"] if spec.advice else []
    return tuple(lines)


def stable_frame(
    skill: Skill,
    phase: str,
    candidates: tuple[Candidate, ...],
    ops: tuple[OpSpec, ...] = (),
    *,
    max_phase_visits: int | None,
    output_language: str | None,
) -> StableFrame:
    """Build the stable part of the frame of a phase. Finish criteria are included only if the phase may finish."""
    can_finish = any(candidate.control_type == "finish" for candidate in candidates)
    definition = skill.phases[phase]
    return StableFrame(
        current_phase=phase,
        current_phase_role=definition.role,
        instructions=advised(definition.instructions, definition.advice),
        candidate_outputs=candidates,
        available_control_ops=tuple(spec.offered() for spec in ops),
        finish_criteria=skill.finish_criteria if can_finish else (),
        constraints=Constraints(max_phase_visits),
        output_language=output_language,
        act_lines=_option_lines(ops, len(candidates), lists_targets=definition.conversation is None),
    )
