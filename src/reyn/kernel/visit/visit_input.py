"""The input of a visit: take the next message of a conversation, run the preprocessor, truncate what is too large."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.context.field_order import plain_text
from reyn.context.frame import Rollback
from reyn.journal import Blob, canonical, kinds
from reyn.kernel.core.effects import ReadOverviews
from reyn.kernel.core.history import MAX_DONE
from reyn.kernel.visit.skill_state import ReadContent, shown_state
from reyn.kernel.visit.steps import NOTHING, run_steps
from reyn.kernel.visit.turn import PreparedInput
from reyn.kernel.visit.waits import ask_person, beginning, question_id
from reyn.skills.state_fields import state_name
from reyn.skills.values import USER_MESSAGE

if TYPE_CHECKING:
    from reyn.kernel.core.run_orchestrator import Visit
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.compiled_phase import CompiledPhase
    from reyn.kernel.visit.op_log import OpLog

MAX_MESSAGE_CHARS = 10_000_000
_MESSAGE = {"type": "string", "minLength": 1, "maxLength": MAX_MESSAGE_CHARS}
NO_REPLY = "no reply to the last message"
"""Begins what a conversation shows instead of a reply, after a turn without one."""


def plain_input(phase: CompiledPhase, entry: Visit, tape: Tape) -> PreparedInput | None:
    """Return the input of a visit that takes it as it is, like most; `None` if it has to be prepared."""
    if not phase.takes_input or entry.rollback is not None or entry.done:
        return None
    if phase.definition.conversation is not None and _continues(phase, entry):
        return None
    name = entry.input.hash
    if len(tape.content(name)) > phase.settings.sizes.input_bytes:
        return None
    order = phase.field_order(entry.input.type)
    blobs, orders = ((), None) if order is None else ((order,), {name: order.hash})
    named = _named_type(phase, entry) if phase.accepts_several else None
    if not tape.state.started.images:  # nearly always
        return PreparedInput(name, name, blobs, orders=orders, type=named)
    images = _images(entry, tape)
    return PreparedInput(name, name, blobs, images=images, orders=orders, type=named)


async def prepare_input(phase: CompiledPhase, entry: Visit, log: OpLog, tape: Tape) -> PreparedInput:
    """Take the next message of a conversation, run the preprocessor, and truncate what is too large for a prompt.

    Includes the artifacts that the phase reads, if they exist and are not the input itself. After a rollback, the
    transcript of a conversation has the input and what the visit did with it; the new message has the reason alone.

    Raises:
        StepFault: A step of the preprocessor failed.
    """
    limit, back = phase.settings.sizes.input_bytes, entry.rollback
    if back is not None and phase.conversation is not None and tape.state.holds_conversation(entry.phase):
        return PreparedInput(entry.input.hash, entry.input.hash, rollback=Rollback(None, back.reason))
    content = Blob(entry.input.hash, tape.content(entry.input.hash))
    is_reply, images, instructions = _continues(phase, entry), _images(entry, tape), None
    if is_reply:
        content, images, instructions = await _next_message(content.content, entry, tape)
    local: Mapping[str, Any] = NOTHING
    if phase.definition.preprocessor:
        artifact: dict[str, Any] = msgspec.json.decode(content.content)
        steps, prefix = phase.definition.preprocessor, f"{entry.step}.pre"
        enriched, local = await run_steps(steps, artifact, prefix, phase, log, tape, entry.phase)
        content = Blob.of(canonical(enriched))
    done, tried = _done_before(entry, tape)
    rollback = Rollback(None, "", done, tried) if done or tried else None
    if back is not None:
        rejected = log.truncate(f"{entry.step}.rejected", back.rejected.hash, limit, tape)
        rollback = Rollback(rejected, back.reason, done, tried)
    shown = content.hash
    earlier = list(_reads(phase, entry, tape)) if phase.definition.reads else []
    blobs: tuple[Blob, ...] = (content,) if phase.definition.preprocessor or is_reply else ()
    reads = tuple(
        (one.heading, log.truncate_blob(f"{entry.step}.read{number}", one.content, limit, tape))
        for number, one in enumerate(earlier, start=1)
    )
    if len(content.content) > limit:
        is_said = is_reply or entry.input.type == USER_MESSAGE.name
        text = plain_text(content.content) if is_said else "\0"
        whole = content if "\0" in text else Blob.of(text.encode())  # no op reads NUL characters; JSON escapes them
        if len(whole.content) > limit:
            shown = log.truncate_blob(f"{entry.step}.input", whole, limit, tape)
            blobs = blobs if is_said else ()
    blobs = (*blobs, *(one.content for one in earlier if one.is_new))
    types = {shown: USER_MESSAGE.name if is_reply else entry.input.type}
    types |= {name: one.type for (_, name), one in zip(reads, earlier, strict=True)}
    if back is not None and rollback is not None and rollback.rejected_artifact is not None:
        types[rollback.rejected_artifact] = back.rejected.type
    found = {one: order for one, name in types.items() if (order := phase.field_order(name)) is not None}
    blobs = (*blobs, *dict.fromkeys(found.values()))
    orders = {one: order.hash for one, order in found.items()}
    named = _named_type(phase, entry) if phase.accepts_several and not is_reply else None
    return PreparedInput(content.hash, shown, blobs, rollback, reads, images, orders, named, instructions, local)


def _done_before(entry: Visit, tape: Tape) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what earlier attempts did, and what they tried that has no usable result, in short."""
    texts: dict[bool, list[str]] = {True: [], False: []}
    for op in entry.done[-MAX_DONE:]:
        texts[bool(op.form)].append(tape.content(op.text).decode(errors="ignore"))
    if len(entry.done) > MAX_DONE:
        texts[True].insert(0, f"more than {MAX_DONE} ops, of which only the last are listed")
    return tuple(texts[True]), tuple(texts[False])


def _reads(phase: CompiledPhase, entry: Visit, tape: Tape) -> Iterator[ReadContent]:
    """Yield what a phase reads besides its input: the latest artifacts of types, and fields of the state."""
    for read in phase.definition.reads:
        if name := state_name(read):
            yield from shown_state(phase.skill, name, entry, tape)
        elif entry.latest.get(read) not in (None, entry.input.hash):
            yield ReadContent(read, read, Blob(entry.latest[read], tape.content(entry.latest[read])))


def _images(entry: Visit, tape: Tape) -> tuple[kinds.Part, ...]:
    """Return the images of the run's input, if that is the input of the visit."""
    started = tape.state.started
    return tuple(kinds.Part(image=image) for image in started.images) if entry.input == started.input else ()


def _named_type(phase: CompiledPhase, entry: Visit) -> str | None:
    """Return the type of an input that may have several; what a user says in a conversation has no heading."""
    is_said = phase.conversation is not None and entry.input.type == USER_MESSAGE.name
    return None if is_said else entry.input.type


async def _next_message(reply: bytes, entry: Visit, tape: Tape) -> tuple[Blob, tuple[kinds.Part, ...], str | None]:
    """Take the oldest message in the queue; return it as a `user_message`, with its images and instructions."""
    if not tape.state.inbox.queued:
        ended, wait_id = tape.state.turn_end, question_id(f"{entry.step}.{kinds.MESSAGE}", tape)
        text, code = (plain_text(reply), "") if ended is None else (f"{NO_REPLY}: {ended.reason}", ended.code)
        await ask_person(wait_id, beginning(text), _MESSAGE, tape, reason=kinds.MESSAGE, code=code)
    queued = tape.state.inbox.queued[0]
    tape.emit(kinds.MessageTaken(entry.phase, entry.visit, queued.text, queued.message, queued.by, queued.run))
    text = tape.content(queued.text).decode()
    if queued.note is not None:
        text = f"{text}\n\n{tape.content(queued.note).decode()}"
    message = {"type": USER_MESSAGE.name, "data": {"text": text}}
    images = tuple(kinds.Part(image=image) for image in queued.images)
    return Blob.of(canonical(message)), images, queued.instructions


def _continues(phase: CompiledPhase, entry: Visit) -> bool:
    """Return whether the visit continues a conversation: the phase follows itself, and its input is its own reply.

    A fork may replace the input by a message of the user.
    """
    if phase.definition.conversation is None or entry.rollback is not None:
        return False
    if entry.phase not in phase.skill.graph.get(entry.phase, ()):
        return False
    is_repeated = len(entry.path) > 1 and entry.path[-2] == entry.phase
    return is_repeated and (not entry.reply or entry.reply == entry.input.hash)


async def read_overviews(
    phase: CompiledPhase, entry: Visit, prepared: PreparedInput, tape: Tape, call: str = ""
) -> kinds.OverviewsRead:
    """Return what the ops of a phase can act on. One of them must be able to tell.

    `call` is the last call of the visit: its ops may have changed what there is.
    """
    new = {blob.hash: blob.content for blob in prepared.blobs}
    text = plain_text(new.get(prepared.input) or tape.content(prepared.input))
    if _continues(phase, entry):  # a short message, such as `yes`, refers to what was said before
        text += f"\n{plain_text(tape.content(entry.input.hash))}"
    return await ReadOverviews(f"{call or entry.step}.overviews", phase.listing_ops, text)
