"""The recorded form of messages and mutations: JSON that refers to texts and images by hash.

Mutations of a program are recorded, so that a replay applies them without the code that made them.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

from msgspec.structs import replace

from reyn.context.messages import RESULTS_PARTS, NormalizedMessage, check_message, message_of
from reyn.context.mutation import (
    AssistantMessage,
    AssistantTruncated,
    ContextMutation,
    ContextReplace,
    ContextSummary,
    ExperienceForget,
    ExperienceRemember,
    MultimodalToolResult,
    ToolCancelled,
    ToolResult,
    UserMessage,
    check_summary,
)
from reyn.context.render import frame_message, normalized, recorded_mutation
from reyn.context.transcript import NormalizedMessageList
from reyn.errors import ImageInvalid, MutationInvalid, surrogate_fault
from reyn.journal import Blob
from reyn.journal.kinds import FrameMessage, ImageRef, MutationRecord, Part
from reyn.models import Image, ModelAnswer
from reyn.models.protocol import encode_reply


def image_part(image: Image, blobs: list[Blob]) -> Part:
    """Return an image as a part of a message; its content is added to the blobs.

    Raises:
        ImageInvalid: The image has neither content in base64 nor an address.
    """
    if not image.data:
        if not image.url:
            raise ImageInvalid("an image has neither data nor an address")
        return Part(image=ImageRef(url=image.url))
    try:
        content = Blob.of(base64.b64decode(image.data, validate=True))
    except (binascii.Error, ValueError) as error:
        raise ImageInvalid(f"the data of an image is not base64: {error}") from error
    blobs.append(content)
    return Part(image=ImageRef(image.media_type, content.hash))


def stored_message(message: NormalizedMessage, blobs: list[Blob], scrub: Callable[[str], str] = str) -> FrameMessage:
    """Return a message as events record it. Its text, arguments and images are added to the blobs.

    Raises:
        MessageInvalid: It cannot be sent.
        ImageInvalid: An image has no content.
    """
    check_message(message)
    images = tuple(image_part(image, blobs) for image in message.images)
    recorded = frame_message(message)
    if message.parts:
        return replace(recorded, parts=(*recorded.parts, *images)) if images else recorded
    if message.tool_calls:
        reply = Blob.of(encode_reply(ModelAnswer(message.text, tool_calls=message.tool_calls), "tools", scrub))
        blobs.append(reply)
        return replace(recorded, parts=(Part(blob=reply.hash, reply=True), *images))
    heading = RESULTS_PARTS if message.is_results else ()
    text = Blob.of(scrub(message.text.removeprefix("".join(part.text for part in heading))).encode())
    blobs.append(text)
    return replace(recorded, parts=(*heading, Part(blob=text.hash), *images))


def stored_system(system: NormalizedMessage | None) -> tuple[FrameMessage, list[Blob]]:
    """Return the system message of a conversation as events record it: what it remembers is stored once."""
    assert system is not None
    blobs = {part.text: Blob.of(part.text.encode()) for part in system.parts if part.text}
    parts = (Part(blob=blobs[part.text].hash) if part.text else part for part in system.parts)
    return FrameMessage("system", tuple(parts)), [*blobs.values()]


def record_mutation(mutation: ContextMutation, blobs: list[Blob], scrub: Callable[[str], str]) -> MutationRecord:
    """Return a mutation as events record it; its texts and images are added to the blobs.

    Raises:
        MutationInvalid: It is not a mutation, or its summary is blank.
        MessageInvalid: A text is not valid Unicode.
        ImageInvalid: An image has no content.
    """
    messages: tuple[NormalizedMessage, ...] = ()
    keep, texts = 0, tuple[str, ...]()
    match mutation:
        case AssistantMessage(content, calls):
            messages = (message_of("assistant", content, tool_calls=calls),)
        case ToolResult(call, content):
            messages = (message_of("tool", content, tool_call_id=call),)
        case MultimodalToolResult(call, content, images):
            messages = (message_of("tool", content, images=images, tool_call_id=call),)
        case UserMessage(content, images, is_from_hook):
            messages = (message_of("user", content, images=images, is_from_hook=is_from_hook),)
        case AssistantTruncated(content, reason):
            messages = (message_of("assistant", content, status="truncated", reason=reason),)
        case ToolCancelled(call, _, reason, is_unknown, details):
            status = "unknown" if is_unknown else "cancelled"
            cancelled = NormalizedMessage("tool", "", tool_call_id=call, status=status, reason=reason)  # type: ignore[arg-type]  # a literal
            messages = (replace(cancelled, parts=(Part(text=""), Part(text=details))) if details else cancelled,)
        case ContextReplace(replacement):
            messages = tuple(replacement)
        case ContextSummary(content, keep, texts):
            messages = (message_of("user", content),)
            check_summary(messages[0].content)
        case ExperienceRemember(text) | ExperienceForget(text):
            texts = (text,)
        case _:
            raise MutationInvalid(f"{type(mutation).__name__} is not a mutation of a transcript")
    recorded = tuple(stored_message(message, blobs, scrub) for message in messages)
    if fault := surrogate_fault("".join(texts)):
        raise MutationInvalid(f"a text to remember, or the id of one, has {fault}")
    return MutationRecord(type(mutation).__name__, recorded, keep, tuple(map(scrub, texts)))  # type: ignore[arg-type]  # the classes are those of the literal


def mutation_of(record: MutationRecord) -> ContextMutation:
    """Return the mutation that an event records.

    Raises:
        MutationInvalid: The record is incomplete; only a forged or damaged journal has such a one.
        TranscriptInvalid: The messages of a replacement break the rules of a transcript.
    """
    match record.mutation:
        case "ContextReplace":
            return ContextReplace(NormalizedMessageList(map(normalized, record.messages)))
        case "ContextSummary" if len(record.messages) == 1:
            return ContextSummary(record.messages[0].parts, record.keep, record.texts)
        case "ExperienceRemember" if len(record.texts) == 1:
            return ExperienceRemember(record.texts[0])
        case "ExperienceForget" if len(record.texts) == 1:
            return ExperienceForget(record.texts[0])
        case _ if len(record.messages) == 1:
            return recorded_mutation(record.messages[0])
    raise MutationInvalid(f"a recorded `{record.mutation}` is incomplete")
