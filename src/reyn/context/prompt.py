"""The static message of a turn: the task, the choices with their fields, the ops on offer, the form of the answer.

It is the same on every visit of a phase and comes first, so that provider prompt caches hit. The texts of the short
form were chosen by measurement on small models (`bench/decisions`): few words. The smallest models choose `abort` once
they have read of it, so their adapter leaves out how to abort. Several choices are repeated in short after the input,
where larger models read them best.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from reyn.jsonschema.words import describe_fields, either, quote_schema
from reyn.models.protocol import ABORT_INSTEAD, ABORT_NOTE, ANSWER_HEADING
from reyn.texts import one_line

if TYPE_CHECKING:
    from reyn.context.frame import StableFrame
    from reyn.contract import Candidate
    from reyn.journal.kinds import AnswerForm

OPENING = ""
"""The first line of every prompt. Empty: measured on small models, nothing is better than any sentence tried."""

MAX_REPEATED = 80
"""Maximum length of the text of a choice where it is repeated."""

ENOUGH = "If the input is enough, and nothing has to be looked up, changed or stored first:\n"
ACTING = "If something has to be looked up, changed or stored first:\n"
ACT = "To act, answer {}. You are then asked again, with the results.\n"
MUST_ACT = "This has to be done first:\n"


HANDOFF = (
    "After the {}, you may add handoff, for the phases that follow: decisions_made (list of text), open_risks (list of "
    "text), artifacts_produced (list of text), verdicts (names with text), goal (text), epic_id (text), narrative "
    "(text). Leave out what you have nothing to say about.\n"
)


def static_text(
    frame: StableFrame,
    form: AnswerForm,
    *,
    asks_handoff: bool = False,
    is_plain_text: bool = False,
    allows_abort: bool = True,
) -> str:
    """Return the text of the system message.

    Args:
        frame: The part of the frame that is the same on every visit.
        form: The form of the answer; in the form `tools`, the ops are tools of the request and not in the text.
        asks_handoff: Whether the model may add a handoff.
        is_plain_text: Whether the answer is the text of a reply instead of JSON.
        allows_abort: Whether the prompt says how to abort the run.
    """
    finish = "".join(f"- {one_line(criterion)}\n" for criterion in frame.finish_criteria)
    language = f"Write all texts in {one_line(frame.output_language)}.\n" if frame.output_language else ""
    if is_plain_text or (form != "full" and not frame.candidate_outputs):
        answer = ABORT_INSTEAD if allows_abort else ""
    else:
        answer = (_full_format if form == "full" else _short_format)(frame, allows_abort)
    parts = [
        task_text(frame),
        f"{'Reply' if is_plain_text else 'Choose end'} only when:\n{finish}" if finish else "",
        _options(frame, form, is_plain_text=is_plain_text),
        answer,
        HANDOFF.format("artifact" if form == "full" else "data") if asks_handoff and frame.candidate_outputs else "",
        language,
    ]
    return OPENING + "\n".join(part if part.endswith("\n") else f"{part}\n" for part in parts if part)


def task_text(frame: StableFrame) -> str:
    """Return the role and the instructions of the phase."""
    role = f"Your role: {one_line(frame.current_phase_role)}\n" if frame.current_phase_role else ""
    return role + frame.instructions


def closing_text(frame: StableFrame, form: AnswerForm, *, is_plain_text: bool = False) -> str:
    """Return the end of the last message: what to answer, with the choices once more in short."""
    if is_plain_text:
        return f"{ANSWER_HEADING}Reply in text{', or call tools' if frame.available_control_ops else ''}.\n"
    candidates = frame.candidate_outputs
    if not candidates:
        return f"{ANSWER_HEADING}{_MUST_ANSWER[form]}.\n"
    if form == "full":
        choices = "".join(
            f"- {candidate.next_phase} (type {candidate.schema_name}): {_shortened(candidate.description)}\n"
            for candidate in candidates
        )
        return f"{ANSWER_HEADING}The reason first, then one choice:\n{choices}"
    act = _CLOSING_ACT[form] if frame.available_control_ops else ""
    if len(candidates) == 1:
        return f"{ANSWER_HEADING}reason, choice ({candidates[0].label}), data.{act}\n"
    choices = "".join(f"{candidate.label}: {_shortened(candidate.description)}\n" for candidate in candidates)
    return f"{ANSWER_HEADING}reason, choice, data.{act}\n{choices}"


_CLOSING_ACT = {
    "short": " Or reason, ops, if something has to be looked up, changed or stored first.",
    "tools": " Or call tools, if something has to be looked up, changed or stored first.",
}
_MUST_ANSWER = {"full": "control_ir", "short": "reason, ops", "tools": "Call the tools"}


def _shortened(text: str) -> str:
    """Return the beginning of a text on one line, cut between words."""
    line = one_line(text)
    return line if len(line) <= MAX_REPEATED else f"{line[:MAX_REPEATED].rpartition(' ')[0] or line[:MAX_REPEATED]} …"


def _options(frame: StableFrame, form: AnswerForm, *, is_plain_text: bool) -> str:
    """Return all that the model may do next, one line each: the candidates, then the acts."""
    candidates, acts = frame.candidate_outputs, frame.act_lines
    if form == "full":
        listed = (
            f"- {one.next_phase}: {one_line(one.description)}\n"
            f"  artifact type {one.schema_name}, data: {_fields(one)}\n"
            for one in candidates
        )
        choices = f"Choices:\n{''.join(listed)}"
    elif is_plain_text:
        choices = "reply in text.\n" if acts else ""
    else:
        is_list = len(candidates) > 1 or acts
        choices = "".join(f"{one.label}: {one_line(one.description)}\n" for one in candidates) if is_list else ""
    if not acts:
        return choices
    first = _act_shape(frame.available_control_ops[0]["example"])
    answer = f'{{"reason": ..., "ops": [{first}]}}' if form == "short" else f'{{"control_ir": [{first}]}}'
    lines = "".join(f"- {line}\n" for line in acts) if form != "tools" else ""
    act = ACT.replace("{}", answer) if form != "tools" else "call tools.\n"
    return f"{ENOUGH}{choices}{ACTING}{lines}{act}" if candidates else f"{MUST_ACT}{lines}{act}"


def _act_shape(example: dict[str, Any]) -> str:
    """Return the shape of an op. `...` keeps it from being valid JSON: a model that copies an example copies values."""
    fields = (
        f"{json.dumps(name)}: {json.dumps(value) if name in ('kind', 'op') else '...'}"
        for name, value in example.items()
    )
    return f"{{{', '.join(fields)}}}"


def _short_format(frame: StableFrame, allows_abort: bool) -> str:
    candidates = frame.candidate_outputs
    names = either([candidate.label for candidate in candidates])
    fields = {candidate.label: _fields(candidate) for candidate in candidates}
    if len(set(fields.values())) == 1:
        data = f"data: {next(iter(fields.values()))}.\n"
    else:
        data = "".join(f"data for {label}: {text}.\n" for label, text in fields.items())
    abort = ABORT_NOTE if allows_abort else ""
    return f"Answer in JSON: reason, choice ({names}), confidence (0 to 1), data.\n{data}{abort}"


def _fields(candidate: Candidate) -> str:
    fields = describe_fields(candidate.artifact_schema)
    return f"JSON that satisfies {quote_schema(candidate.artifact_schema)}" if fields is None else fields or "empty"


def _full_format(frame: StableFrame, allows_abort: bool) -> str:
    carries = ' A decision may carry "control_ir", too; it holds only if all ops succeed.' * bool(
        frame.available_control_ops
    )
    abort = 'If the task is impossible: type "abort", decision "abort", next_phase null, artifact null.\n'
    if not frame.candidate_outputs:
        return _FULL_ABORT if allows_abort else ""
    return (
        "Answer in JSON:\n"
        '{"control": {"reason": {"summary": ...}, "type": ..., "decision": ..., "next_phase": ..., "confidence": ...}, '
        '"artifact": {"type": ..., "data": {...}}}\n'
        f"summary: one short sentence about the input. confidence: 0 to 1.{carries}\n"
        'To go on to a phase: type "transition", decision "continue", next_phase its name. '
        'To choose end: type "finish", decision "finish", next_phase null.\n'
    ) + (abort if allows_abort else "")


_FULL_ABORT = (
    'If the task is impossible, answer {"control": {"reason": {"summary": ...}, "type": "abort", "decision": "abort", '
    '"next_phase": null, "confidence": ...}} instead.\n'
)
