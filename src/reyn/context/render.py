"""A frame becomes text. The only place that does.

What is the same for every phase comes first, then what is stable for a phase, byte for byte the same on every visit, so
that a prompt cache hits; what changes comes last. A message is a list of parts: contents that are kept anyway (the
stable text, the input artifact, a rejected answer) by their hash, the little text between them as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.context.frame import Execution, Rollback
from reyn.contract.example import example_answer
from reyn.journal import canonical, digest
from reyn.journal.kinds import FrameMessage, Part
from reyn.workspace.paths import FULL_CONTENT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from reyn.context.frame import StableFrame

CONTRACT = """\
You decide one step of a workflow. Answer with exactly one JSON object and nothing else.
- Choose exactly one entry of `candidate_outputs`.
- For an entry with control_type "transition": type "transition", decision "continue", next_phase as in the entry.
- For an entry with control_type "finish": type "finish", decision "finish", next_phase null.
- `artifact.type` is the entry's schema_name; `artifact.data` satisfies its artifact_schema. Write your own values \
where the example has <...>.
- `confidence` is a number from 0 to 1; `reason.summary` says why in one sentence.
- If the task cannot be done: type "abort", decision "abort", next_phase null, and the cause in `reason.summary`.
"""

ACTING = """\
- To act before you decide, answer {"control_ir": [...]} alone, with entries like those of `available_control_ops`; you
  are asked again with what came of them under `control_ir_results`. A decision may carry `control_ir`, too; it holds
  only if all of it succeeds.
"""

EXAMPLE = "\nFor example:\n{answer}\n"


def stable_text(frame: StableFrame) -> str:
    """The first message: the contract, an example, then the stable keys of the frame that say something, each under its
    name."""
    sections = [
        ("current_phase", frame.current_phase),
        ("current_phase_role", frame.current_phase_role),
        ("instructions", frame.instructions),
        ("candidate_outputs", _json_lines(frame.candidate_outputs)),
        ("available_control_ops", _in_order(frame.available_control_ops)),
        ("finish_criteria", "\n".join(f"- {criterion}" for criterion in frame.finish_criteria)),
        ("constraints", canonical(frame.constraints).decode()),
        ("output_language", frame.output_language),
    ]
    contract = CONTRACT + (ACTING if frame.available_control_ops else "")
    answer = msgspec.json.encode(example_answer(frame.candidate_outputs)).decode()
    shown = "".join(f"\n## {name}\n{text}\n" for name, text in sections if text)
    return contract + EXAMPLE.replace("{answer}", answer) + shown


class Volatile(msgspec.Struct, frozen=True):
    """What changes from turn to turn. `shown_input` and `results` name content; the digest covers all the results."""

    shown_input: str
    execution: Execution
    rollback: Rollback | None = None
    results: int = 0
    results_digest: str | None = None
    remaining_act_turns: int | None = None


def volatile_message(turn: Volatile) -> FrameMessage:
    """The second message: what stays as it is during a visit first, then the results that only grow, then the count."""
    parts = [_INPUT_HEADING, Part(blob=turn.shown_input)]
    if turn.rollback is not None:
        reason = canonical(turn.rollback.reason).decode()
        parts += [
            Part(text=f'\n\n## rollback\n{{"reason":{reason},"rejected_artifact":'),
            Part(blob=turn.rollback.rejected_artifact),
            Part(text="}"),
        ]
    tail = f"\n\n## execution\n{canonical(turn.execution).decode()}\n"
    if turn.results:
        parts += [
            Part(text=f"{tail}\n## control_ir_results\n"),
            Part(results=turn.results, digest=turn.results_digest),
        ]
        tail = "\n"
    if turn.remaining_act_turns is not None:
        tail += f"\n## remaining_act_turns\n{turn.remaining_act_turns}\n"
    return FrameMessage("user", (*parts, Part(text=tail)))


def next_digest(digest_so_far: str | None, result: str) -> str:
    """The digest of a list of results after one more: constant work, however long the list is."""
    return digest(f"{digest_so_far or ''}{result}".encode())


PART = 2_000
"""How many characters of something kept a model is told to read at once: in any script, they still fit a result."""


def truncate(content: bytes, limit: int, name: str) -> bytes:
    """The beginning of something too large for a frame, with a mark that says where the whole is."""
    shown = content[:limit].decode("utf-8", "ignore")
    path = f"{FULL_CONTENT}{name}"
    mark = (
        f"\n[cut: the first {len(shown)} characters of {len(content)} bytes. "
        f'The rest: {{"kind": "file", "op": "read", "path": "{path}", "start": {len(shown)}, "length": {PART}}}]'
    )
    return (shown + mark).encode()


def correction(answer_hash: str, path: str, message: str) -> tuple[FrameMessage, FrameMessage]:
    """The two messages after a rejected answer: the answer itself, and what was wrong with it."""
    text = f"Your answer was rejected.\n{path}: {message}\nAnswer again with one corrected JSON object."
    return (
        FrameMessage("assistant", (Part(blob=answer_hash),)),
        FrameMessage("user", (Part(text=text),)),
    )


def join(message: FrameMessage, content: Callable[[str], bytes], results: Sequence[str] = ()) -> str:
    """The exact text of a message. `results` name what the visit's ops gave so far, as it is shown."""
    return "".join(_text(part, content, results) for part in message.parts)


def _text(part: Part, content: Callable[[str], bytes], results: Sequence[str]) -> str:
    if part.results:
        return "\n".join(content(name).decode() for name in results[: part.results])
    return part.text if part.blob is None else content(part.blob).decode()


_INPUT_HEADING = Part(text="## input_artifact\n")


def _in_order(values: tuple[Any, ...]) -> str:
    """With the fields in the order in which they are to be written."""
    return "\n".join(msgspec.json.encode(value).decode() for value in values)


def _json_lines(values: tuple[Any, ...]) -> str:
    return "\n".join(canonical(value).decode() for value in values)
