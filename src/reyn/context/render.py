"""Render a frame as messages. All text that the model sees is built here.

Content that all phases share comes first, then content that is stable for a phase, then content that changes, so that
provider prompt caches hit. A recorded message is a list of parts, which refer to stored content by hash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.context.frame import Execution, Repetition, Rollback
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
    """Return the text of the first message: the contract, an example, and a section per stable key with a value."""
    sections = [
        ("current_phase", frame.current_phase),
        ("current_phase_role", frame.current_phase_role),
        ("instructions", frame.instructions),
        ("candidate_outputs", _ordered_lines(frame.candidate_outputs)),
        ("available_control_ops", _ordered_lines(frame.available_control_ops)),
        ("finish_criteria", "\n".join(f"- {criterion}" for criterion in frame.finish_criteria)),
        ("constraints", canonical(frame.constraints).decode()),
        ("output_language", frame.output_language),
    ]
    contract = CONTRACT + (ACTING if frame.available_control_ops else "")
    answer = msgspec.json.encode(example_answer(frame.candidate_outputs)).decode()
    body = "".join(f"\n## {name}\n{text}\n" for name, text in sections if text)
    return contract + EXAMPLE.replace("{answer}", answer) + body


class TurnFrame(msgspec.Struct, frozen=True):
    """The part of the frame that changes from turn to turn.

    Attributes:
        input_hash: The hash of the input artifact, or of its truncated text.
        execution: The position in the run.
        rollback: Set if the phase was re-entered by a rollback.
        results: The number of op results in this visit.
        results_digest: The digest of their hashes (`next_digest`).
        remaining_act_turns: Turns left for ops; `None` if no ops are offered.
        reads: Type and hash of each earlier artifact that the phase reads, or the hash of its truncated text.
        repetitions: What the model did more than once without progress.
    """

    input_hash: str
    execution: Execution
    rollback: Rollback | None = None
    results: int = 0
    results_digest: str | None = None
    remaining_act_turns: int | None = None
    reads: tuple[tuple[str, str], ...] = ()
    repetitions: tuple[Repetition, ...] = ()


def turn_message(turn: TurnFrame) -> FrameMessage:
    """Build the second message: first the parts that are constant in a visit, then the results, then the turn count."""
    parts = [_INPUT_HEADING, Part(blob=turn.input_hash)]
    for name, content in turn.reads:
        parts += [Part(text=f"\n\n## read_artifacts: {name}\n"), Part(blob=content)]
    if turn.rollback is not None:
        reason = canonical(turn.rollback.reason).decode()
        parts += [
            Part(text=f'\n\n## rollback\n{{"reason":{reason},"rejected_artifact":'),
            Part(blob=turn.rollback.rejected_artifact),
            Part(text="}"),
        ]
    tail = f"\n\n## execution\n{canonical(turn.execution).decode()}\n"
    tail += "".join(
        f"`{name}` can be visited {count} more {'time' if count == 1 else 'times'}.\n"
        for name, count in turn.execution.remaining_visits.items()
    )
    if turn.results:
        parts += [
            Part(text=f"{tail}\n## control_ir_results\n"),
            Part(results=turn.results, digest=turn.results_digest),
        ]
        tail = "\n"
    if turn.remaining_act_turns is not None:
        tail += f"\n## remaining_act_turns\n{turn.remaining_act_turns}\n"
    if turn.repetitions:
        tail += "\n## no_progress\n" + "".join(f"{_repetition(one)}\n" for one in turn.repetitions)
    return FrameMessage("user", (*parts, Part(text=tail)))


def _repetition(repetition: Repetition) -> str:
    if repetition.kind == "op":
        return (
            f"You called `{repetition.name}` {repetition.times} times with the same arguments; it failed each time. "
            "Change the arguments, use another op, or decide."
        )
    return (
        f"For this input you chose `{repetition.name}` with the same artifact {repetition.times} times. "
        "Choose another output, or change the artifact."
    )


def next_digest(previous: str | None, result: str) -> str:
    """Return the digest of a list of results with one more appended, in constant time."""
    return digest(f"{previous or ''}{result}".encode())


READ_LENGTH = 2_000
"""Characters to read at once, as the truncation marker suggests. In any script, they fit the size cap of a result."""


def truncate(content: bytes, limit: int, name: str) -> bytes:
    """Truncate content to `limit` bytes, and append a marker that says how to read the rest."""
    beginning = content[:limit].decode("utf-8", "ignore")
    path, start = f"{FULL_CONTENT}{name}", len(beginning)
    marker = (
        f"\n[cut: the first {start} characters of {len(content)} bytes. "
        f'The rest: {{"kind": "file", "op": "read", "path": "{path}", "start": {start}, "length": {READ_LENGTH}}}]'
    )
    return (beginning + marker).encode()


def correction(answer_hash: str, path: str, message: str) -> tuple[FrameMessage, FrameMessage]:
    """Build the two messages that follow a rejected answer: the answer itself, and the error."""
    text = f"Your answer was rejected.\n{path}: {message}\nAnswer again with one corrected JSON object."
    return (
        FrameMessage("assistant", (Part(blob=answer_hash),)),
        FrameMessage("user", (Part(text=text),)),
    )


def message_text(message: FrameMessage, content: Callable[[str], bytes], results: Sequence[str] = ()) -> str:
    """Return the exact text of a message.

    Args:
        message: The message.
        content: Returns stored content by its hash.
        results: The hashes of the op results of the visit, as they appear in the frame.
    """
    return "".join(_part_text(part, content, results) for part in message.parts)


def _part_text(part: Part, content: Callable[[str], bytes], results: Sequence[str]) -> str:
    if part.results:
        return "\n".join(content(name).decode() for name in results[: part.results])
    return part.text if part.blob is None else content(part.blob).decode()


_INPUT_HEADING = Part(text="## input_artifact\n")


def _ordered_lines(values: tuple[Any, ...]) -> str:
    """Return one JSON line per value, with keys in the author's order, in which the model should write them."""
    return "\n".join(msgspec.json.encode(value).decode() for value in values)
