"""Render a turn as messages: the input, earlier artifacts, results, and what to answer.

The static messages before it come from `reyn.context.prompt`; together they are all that the model sees. A recorded
message is a list of parts, which refer to stored content by hash.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.context.field_order import plain_text
from reyn.context.frame import Execution, Repetition, Rollback
from reyn.context.images import described, image_text, images_in
from reyn.context.messages import RESULTS_HEADING, RESULTS_PARTS, NormalizedMessage
from reyn.context.mutation import (
    AssistantMessage,
    AssistantTruncated,
    ContextMutation,
    MultimodalToolResult,
    ToolCancelled,
    ToolResult,
    UserMessage,
)
from reyn.journal import canonical, digest
from reyn.journal.kinds import CallRef, FrameMessage, Part
from reyn.jsonschema.words import escape_line_ends
from reyn.models import ToolCall
from reyn.models.protocol import decode_reply
from reyn.texts import counted, one_line
from reyn.workspace.paths import RECORDED

if TYPE_CHECKING:
    from reyn.models.thoughts import Thoughts
    from reyn.vocabulary import OpForm


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
        handoff: The hash of what the phase sees of the handoffs of earlier phases.
        orders: The hash of the author's order of the fields, by the hash of the artifact.
        input_type: The type of the input, if the phase accepts several.
        done: The ops that succeeded in this visit, in short.
        work: What is done and left of the work that the visit must do (`work_note`).
    """

    input_hash: str
    execution: Execution
    rollback: Rollback | None = None
    results: int = 0
    results_digest: str | None = None
    remaining_act_turns: int | None = None
    reads: tuple[tuple[str, str], ...] = ()
    repetitions: tuple[Repetition, ...] = ()
    handoff: str | None = None
    orders: dict[str, str] = {}
    input_type: str | None = None
    work: str = ""
    done: tuple[str, ...] = ()


INPUT_HEADING = "# Input "
HANDOFF_HEADING = "# Handoff"
_NOTES = "# Notes"
_EARLIER = "\n\n# Earlier "
_MAX_ARGUMENT = 60
_TURNS_LEFT = "Turns with ops left: "


def turn_message(turn: TurnFrame, closing: str, *, has_choices: bool) -> FrameMessage:
    """Build the last message: what is constant in a visit, then the results, then what to answer.

    Args:
        turn: What changes from turn to turn.
        closing: The end of the message.
        has_choices: Whether there are several candidates. With one, a message with the input alone has no closing.
    """
    if turn.rollback is not None and (note := turn.rollback.note) is not None:
        return FrameMessage("user", (note,))
    order_of = turn.orders.get
    parts = [Part(blob=turn.input_hash, plain=True, order=order_of(turn.input_hash))]
    for name, content in turn.reads:
        parts += [Part(text=f"{_EARLIER}{name}\n"), Part(blob=content, plain=True, order=order_of(content))]
    if turn.handoff is not None:
        parts += [Part(text=f"\n\n{HANDOFF_HEADING}\n"), Part(blob=turn.handoff)]
    if (back := turn.rollback) is not None:
        parts.append(Part(text=f"\n\n{back.text}"))
        if back.rejected_artifact is not None:
            parts[-1] = Part(text=f"\n\n{back.text}\nIt was given what you produced before:\n")
            parts.append(Part(blob=back.rejected_artifact, plain=True, order=order_of(back.rejected_artifact)))
    if turn.results:
        parts += [Part(text="\n\n# Results\n"), Part(results=turn.results, digest=turn.results_digest)]
    notes = _notes(turn)
    tail = f"\n\n{_NOTES}\n{notes}" if notes else ""
    if len(parts) > 1 or tail or has_choices:
        parts.append(Part(text=tail + closing))
    if turn.input_type is not None:
        parts.insert(0, Part(text=f"{INPUT_HEADING}{turn.input_type}\n"))
    return FrameMessage("user", tuple(parts))


class TurnParts(msgspec.Struct, frozen=True):
    """The values in a recorded last message, as `turn_message` built it. Contents are hashes."""

    input: str
    reads: tuple[str, ...] = ()
    handoff: str | None = None
    remaining_act_turns: int | None = None


def turn_parts(message: FrameMessage) -> TurnParts:
    """Return the values in a last message: the inverse of `turn_message`."""
    reads: list[str] = []
    handoff = remaining = None
    for part, following in zip(message.parts, (*message.parts[1:], Part()), strict=True):
        if part.text.startswith(_EARLIER) and following.blob is not None:
            reads.append(following.blob)
        elif part.text == f"\n\n{HANDOFF_HEADING}\n":
            handoff = following.blob
        elif part.text.startswith(f"\n\n{_NOTES}\n"):
            remaining = noted_turns((part,))
    given = next((part.blob for part in message.parts if part.blob is not None), "")
    return TurnParts(given, tuple(reads), handoff, remaining)


def begins_visit(message: FrameMessage | NormalizedMessage) -> bool:
    """Return whether a message begins with the input of a visit, as `turn_message` builds it."""
    first = message.parts[0] if message.parts else Part()
    return message.role == "user" and (first.blob is not None or first.text.startswith(INPUT_HEADING))


def turns_left_note(turns: int, work: str = "") -> str:
    """Return the line that says how many turns with ops are left, `remaining_act_turns` of the frame, then the work."""
    return f"{_TURNS_LEFT}{turns}.\n{work}" if work else f"{_TURNS_LEFT}{turns}."


def work_note(done: Iterable[str], left: Iterable[str]) -> str:
    """Return what the notes say about the work that a visit must do: what is done, and what is left."""
    lists = (("Done", ", ".join(done)), ("Left to do before anything else", ", ".join(left)))
    return "\n".join(f"{heading}: {names}." for heading, names in lists if names)


def noted_turns(parts: Sequence[Part]) -> int | None:
    """Return the turns that are left by the last note in a message; `None` without one."""
    notes = re.findall(rf"^{_TURNS_LEFT}(\d+)\.$", "\n".join(part.text for part in parts), re.MULTILINE)
    return int(notes[-1]) if notes else None


def _notes(turn: TurnFrame) -> str:
    notes = []
    if turn.execution.current_visit > 1:
        notes.append(f"You are in this phase for the {_ordinal(turn.execution.current_visit)} time.")
    notes += [
        f"`{name}` can be visited {counted(count, 'more time')}."
        for name, count in turn.execution.remaining_visits.items()
    ]
    if turn.remaining_act_turns is not None:
        notes.append(turns_left_note(turn.remaining_act_turns, turn.work))
    if turn.done and not turn.work:
        notes.append(f"Done so far: {'; '.join(turn.done)}.")
    notes += [_repetition(repetition) for repetition in turn.repetitions]
    return "\n".join(notes)


def act_in_short(args: dict[str, Any]) -> str:
    """Return an op in a few words: its kind, its form, and its first argument."""
    words = [str(args["kind"])]
    if "op" in args:
        words.append(str(args["op"]))
    for name, value in args.items():
        if name not in ("kind", "op") and value is not None:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            text = one_line(text[: 4 * _MAX_ARGUMENT])
            words.append(text if len(text) <= _MAX_ARGUMENT else f"{text[:_MAX_ARGUMENT]}…")
            break
    return " ".join(words)


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


def _ordinal(number: int) -> str:
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def next_digest(previous: str | None, result: str) -> str:
    """Return the digest of a list of results with one more appended, in constant time."""
    return digest(f"{previous or ''}{result}".encode())


READ_LENGTH = 2_000
"""Characters to read at once, as the truncation marker suggests. In any script, they fit the size cap of a result."""
READ_MORE = " Read more with "


def truncate(content: bytes, limit: int, name: str, reader: OpForm | None) -> bytes:
    """Truncate content to `limit` bytes, and append a marker that says how to read the rest.

    Args:
        content: The content.
        limit: The number of bytes to keep.
        name: The name under which ops can read the whole.
        reader: The form of an op that reads it, if there is one.
    """
    beginning = content[:limit].decode("utf-8", "ignore")
    path, start = f"{RECORDED}{name}", len(beginning)
    more = ""
    if reader is not None:
        op = reader.example | {"path": path, "start": start, "length": READ_LENGTH}
        more = f"{READ_MORE}{json.dumps(op, ensure_ascii=False)}"
    marker = f"\n[truncated: these are the first {start} characters of {len(content)} bytes.{more}]"
    return (beginning + marker).encode()


def read_marker(name: str, reader: OpForm | None) -> str:
    """Return what follows a text that a prompt budget truncated: how to read the whole, if an op can."""
    if reader is None:
        return "\n[truncated]\n"
    op = reader.example | {"path": f"{RECORDED}{name}", "start": 0, "length": READ_LENGTH}
    return f"\n[truncated. Read the whole, in parts, with {json.dumps(op, ensure_ascii=False)}]\n"


def correction(
    answer_hash: str, path: str, message: str, again: str = "Answer again with one corrected JSON object."
) -> tuple[AssistantMessage, UserMessage]:
    """Return the mutations that follow a rejected answer: the answer itself, and the error.

    `again` says what to do next.
    """
    text = f"Your answer was rejected: {one_line(path)}: {one_line(message)}\n{again}"
    return AssistantMessage((Part(blob=answer_hash),)), UserMessage((Part(text=text),))


def results_message(results: Sequence[str], notes: str = "") -> tuple[Part, ...]:
    """Return the content of a message with op results: one per line, then notes."""
    parts = [Part(text=RESULTS_HEADING)]
    for name in results:
        parts += [Part(blob=name), Part(text="\n")]
    return (*parts, Part(text=f"\n{notes}\n")) if notes else tuple(parts)


def frame_message(message: NormalizedMessage) -> FrameMessage:
    """Return a message as it is recorded."""
    parts = message.parts or (Part(text=message.text),)
    if message.role in ("system", "user"):
        return FrameMessage(
            message.role, parts, summary=message.is_summary, hook=message.is_from_hook, name=message.name
        )
    calls = tuple(CallRef(call.id, call.name) for call in message.tool_calls)
    return FrameMessage(
        message.role, parts, calls, message.tool_call_id, message.status, message.reason, name=message.name
    )


def normalized(message: FrameMessage) -> NormalizedMessage:
    """Return a recorded message as a message of a transcript."""
    calls = tuple(ToolCall(call.id, call.name, "") for call in message.calls)
    return NormalizedMessage(
        message.role,
        "",
        (),
        calls,
        message.call_id,
        name=message.name,
        parts=message.parts,
        is_summary=message.summary,
        status=message.status,
        reason=message.reason,
        is_from_hook=message.hook,
    )


def recorded_mutation(message: FrameMessage) -> ContextMutation:
    """Return the mutation that adds a recorded message to a transcript."""
    match message.role:
        case "assistant" if message.status == "truncated":
            return AssistantTruncated(message.parts, message.reason)
        case "tool" if message.status in ("cancelled", "unknown"):
            details = message.parts[1].text or "" if len(message.parts) > 1 else ""
            return ToolCancelled(message.call_id, "", message.reason, message.status == "unknown", details.strip())
        case "assistant":
            return AssistantMessage(message.parts, tuple(ToolCall(call.id, call.name, "") for call in message.calls))
        case "tool" if any(part.image is not None for part in message.parts):
            return MultimodalToolResult(message.call_id, message.parts, ())
        case "tool":
            return ToolResult(message.call_id, message.parts)
    return UserMessage(message.parts, is_from_hook=message.hook)


def rendered_message(
    message: NormalizedMessage,
    content: Callable[[str], bytes],
    scrub: Callable[[str], str] = str,
    results: Sequence[str] = (),
    *,
    with_images: bool = False,
    own_thoughts: Callable[[bytes], Thoughts | None] | None = None,
) -> NormalizedMessage:
    """Return a message with its text, and with the arguments of its native tool calls.

    Args:
        message: A message that refers to its content.
        content: Returns stored content by its hash.
        scrub: Removes secrets from a text.
        results: The hashes of the op results of the visit, as they appear in the frame.
        with_images: Whether the model reads images. Otherwise, the text describes them.
        own_thoughts: Returns recorded thoughts if they are those of the model; without it, the message has none.
    """
    if not message.parts:
        if message.thoughts is not None:  # of a history, which may be that of another model
            found = None if own_thoughts is None else own_thoughts(canonical(message.thoughts))
            message = msgspec.structs.replace(message, thoughts=found)
        return message if with_images or not message.images else described(message)
    images = message.images
    if with_images:
        images += images_in(message, content, results)
    shown = (part for part in message.parts if not (with_images and part.image is not None))
    text = scrub("".join(_part_text(part, content, results) for part in shown))
    calls = message.tool_calls
    if calls:
        [reply] = [part.blob for part in message.parts if part.reply and part.blob]
        calls = tuple(
            ToolCall(call.id, call.name, scrub(call.arguments)) for call in decode_reply(content(reply)).tool_calls
        )
    thoughts = message.parts[0].thoughts
    return NormalizedMessage(
        message.role,
        text,
        images,
        calls,
        message.tool_call_id,
        None if thoughts is None or own_thoughts is None else own_thoughts(content(thoughts)),
        message.name,
        is_summary=message.is_summary,
        status=message.status,
        reason=message.reason,
        is_results=message.parts[:1] == RESULTS_PARTS,
        is_from_hook=message.is_from_hook,
    )


def message_text(
    message: FrameMessage | NormalizedMessage, content: Callable[[str], bytes], results: Sequence[str] = ()
) -> str:
    """Return the exact text of a message.

    Args:
        message: The message.
        content: Returns stored content by its hash.
        results: The hashes of the op results of the visit, as they appear in the frame.
    """
    return "".join([_part_text(part, content, results) for part in message.parts])


def sent_text(
    message: FrameMessage | NormalizedMessage, content: Callable[[str], bytes], results: Sequence[str] = ()
) -> str:
    """Return everything of a message that a provider counts: its text, and names and arguments of its tool calls."""
    if isinstance(message, NormalizedMessage) and not message.parts:
        calls: Sequence[ToolCall] = message.tool_calls
        text = (described(message) if message.images else message).text
    else:
        text = message_text(message, content, results)
        replies = [part.blob for part in message.parts if part.reply and part.blob]
        calls = [call for name in replies for call in decode_reply(content(name)).tool_calls]
    return text + "".join(f"{call.name}{call.arguments}" for call in calls)


def _part_text(part: Part, content: Callable[[str], bytes], results: Sequence[str]) -> str:
    if part.results:
        return escape_line_ends(b"\n".join([content(name) for name in results[: part.results]]).decode())
    if part.image is not None:
        return image_text(part.image.media_type or part.image.url)
    if part.blob is None:
        return part.text
    if part.reply:
        return decode_reply(content(part.blob)).content
    if part.plain:
        return plain_text(content(part.blob), content(part.order) if part.order is not None else b"null")
    return content(part.blob).decode()
