"""A frame becomes text. The only place that does.

What is stable for a phase comes first, byte for byte the same on every visit, so that a provider's prompt cache hits;
what changes comes last. A message is a list of parts: contents that are kept anyway (the stable text, the input
artifact, a rejected answer) by their hash, the little text between them as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.journal import canonical, digest
from reyn.journal.kinds import FrameMessage, Part

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.context.frame import ContextFrame, Execution, StableFrame

CONTRACT = """\
You decide one step of a workflow. Answer with exactly one JSON object and nothing else:
{"control": {"type": "...", "decision": "...", "next_phase": "...", "confidence": 0.5, \
"reason": {"summary": "..."}}, "artifact": {"type": "...", "data": {...}}}
- Choose exactly one entry of `candidate_outputs`.
- For an entry with control_type "transition": type "transition", decision "continue", next_phase as in the entry.
- For an entry with control_type "finish": type "finish", decision "finish", next_phase null.
- `artifact.type` is the entry's schema_name; `artifact.data` satisfies its artifact_schema.
- `confidence` is a number from 0 to 1; `reason.summary` says why in one sentence.
- If the task cannot be done: type "abort", decision "abort", next_phase null, and the cause in `reason.summary`.
"""


def stable_text(frame: StableFrame) -> str:
    """The first message: the contract, then the stable keys of the frame, each under its name."""
    sections = [
        ("current_phase", frame.current_phase),
        ("current_phase_role", frame.current_phase_role),
        ("instructions", frame.instructions),
        ("candidate_outputs", _json_lines(frame.candidate_outputs)),
        ("available_control_ops", _json_lines(frame.available_control_ops)),
        ("finish_criteria", "\n".join(f"- {criterion}" for criterion in frame.finish_criteria)),
        ("constraints", canonical(frame.constraints).decode()),
        ("output_language", frame.output_language),
    ]
    return CONTRACT + "".join(f"\n## {name}\n{text or 'none'}\n" for name, text in sections)


def volatile_parts(input_hash: str, execution: Execution) -> FrameMessage:
    """The second message: the input artifact by its hash, then where the run stands."""
    tail = f"\n\n## execution\n{canonical(execution).decode()}\n"
    return FrameMessage("user", (_INPUT_HEADING, Part(blob=input_hash), Part(text=tail)))


def correction(answer_hash: str, path: str, message: str) -> tuple[FrameMessage, FrameMessage]:
    """The two messages after a rejected answer: the answer itself, and what was wrong with it."""
    text = f"Your answer was rejected.\n{path}: {message}\nAnswer again with one corrected JSON object."
    return (
        FrameMessage("assistant", (Part(blob=answer_hash),)),
        FrameMessage("user", (Part(text=text),)),
    )


def join(message: FrameMessage, content: Callable[[str], bytes]) -> str:
    """The exact text of a message."""
    return "".join(part.text if part.blob is None else content(part.blob).decode() for part in message.parts)


def messages_of(frame: ContextFrame) -> tuple[tuple[str, str], ...]:
    """Role and exact text of every message that a frame becomes."""
    artifact = canonical(frame.input_artifact)
    changing = volatile_parts(digest(artifact), frame.execution)
    return (("system", stable_text(frame.stable)), (changing.role, join(changing, lambda _: artifact)))


_INPUT_HEADING = Part(text="## input_artifact\n")


def _json_lines(values: tuple[Any, ...]) -> str:
    return "\n".join(canonical(value).decode() for value in values)
