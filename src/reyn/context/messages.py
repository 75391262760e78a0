"""Messages of a transcript: normalized messages with typed metadata, and their checks.

`normalized_message` also reads a `Message`, or a dict in the format of chat completion APIs.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec

from reyn.errors import MessageInvalid, surrogate_fault
from reyn.journal.kinds import Part
from reyn.models import Image, Message, Role, Thoughts, ToolCall
from reyn.models.messages import image_of_url, message_to_dict

ROLES: tuple[str, ...] = get_args(Role)
Content = str | tuple[Part, ...]
"""The content of a message: its text, or references to stored content that are rendered when a model is called."""
RESULTS_HEADING = "# Results\n"
"""The first part of a message with op results."""
RESULTS_PARTS = (Part(text=RESULTS_HEADING),)


class MemoryEntry(msgspec.Struct, frozen=True):
    """One text in the memory of a conversation. Its id is never reused."""

    id: str
    text: str


class Memory(msgspec.Struct, frozen=True):
    """The memory of a conversation, as typed metadata of the system message. It is never parsed from text.

    Attributes:
        entries: The entries, the oldest first.
        next_id: The number of the next entry. Ids are never reused.
    """

    entries: tuple[MemoryEntry, ...] = ()
    next_id: int = 1


class NormalizedMessage(Message, frozen=True, omit_defaults=True):
    """A message of a transcript, with typed metadata.

    Attributes:
        parts: References to stored content, instead of `text`.
        is_summary: Whether the message is a summary that replaces older messages.
        status: `truncated` for an aborted answer, `cancelled` for a tool call without a result,
            `unknown` for a call that was interrupted and may have taken effect.
        reason: Why the answer or the call was aborted.
        marker: The memory of the conversation; only on a system message.
        base: The prompt that a compiled system message began with, before advice about tools and the memory.
        is_results: Whether a message with a text has the results of ops, which Reyn says on the user's behalf.
        is_from_hook: Whether a hook added the message on the user's behalf.
    """

    parts: tuple[Part, ...] = ()
    is_summary: bool = False
    status: Literal["", "truncated", "cancelled", "unknown"] = ""
    reason: str = ""
    marker: Memory | None = None
    base: Content | None = None
    is_results: bool = False
    is_from_hook: bool = False

    @property
    def content(self) -> Content:
        """The text, or the references to it."""
        return self.parts or self.text

    @property
    def is_said(self) -> bool:
        """Whether a user says it: not a summary, not op results, and not what a hook added."""
        return self.role == "user" and not (self.is_summary or self._has_results or self.is_from_hook)

    @property
    def shows_images(self) -> bool:
        """Whether it has images other than those in results of ops, whose text says what they are."""
        has_images = bool(self.images) or any(part.image is not None for part in self.parts)
        is_input = self.role == "user" and not (self.is_summary or self._has_results)
        return has_images and (is_input or self.role != "user") and self.role != "tool"

    @property
    def _has_results(self) -> bool:
        return self.is_results or self.parts[:1] == RESULTS_PARTS

    def to_dict(self) -> dict[str, Any]:
        """Return the message as JSON; see `Message.to_dict`.

        Raises:
            MessageInvalid: It refers to content of its run, or is malformed.
        """
        if self.parts or self.marker is not None or self.base is not None:
            hint = "Use the messages of `rt.runs.transcript(run)`, or the `history` of a reply."
            raise MessageInvalid("a message refers to stored content of its run", hint=hint)
        return message_to_dict(self, **{name: getattr(self, name) for name in _Own.__struct_fields__[1:]})


def message_of(role: Role, content: Content, **fields: Any) -> NormalizedMessage:
    """Return a message with a text or with references to its content. Lists are copied.

    Raises:
        MessageInvalid: The content, an image or a tool call is of another type.
    """
    if "images" in fields:
        fields["images"] = _images_of(fields["images"]) if fields["images"] else ()
    if "tool_calls" in fields:
        fields["tool_calls"] = _calls_of(fields["tool_calls"]) if fields["tool_calls"] else ()
    if isinstance(content, str):
        return NormalizedMessage(role, content, **fields)
    unchecked: Any = content
    parts = tuple(unchecked) if isinstance(unchecked, tuple | list) else (unchecked,)
    for part in parts:
        if part.__class__ is not Part:
            raise MessageInvalid(f"a message has content that is neither text nor a `Part`: {part!r:.200}")
    return NormalizedMessage(role, "", parts=parts, **fields)


def check_message(message: NormalizedMessage, number: int = 0) -> None:
    """Check that a message can be recorded and sent. The time depends on its length.

    Raises:
        MessageInvalid: It cannot.
    """
    if message.role not in ROLES:
        raise MessageInvalid(f"message {number} has the role {message.role!r}; use one of {', '.join(ROLES)}")
    if not (message.text.isascii() and message.reason.isascii() and message.tool_call_id.isascii()):
        for text in (message.text, message.reason, message.tool_call_id):
            _check_text(text, number)
    if message.name:
        _check_text(message.name, number)
    for part in message.parts:
        _check_text(part.text, number)
    for image in message.images:
        _check_text(image.url + image.media_type, number)
    for call in message.tool_calls:
        _check_text(call.id + call.name, number)
        _check_text(call.arguments, number)


def _check_text(text: str, number: int) -> None:
    if fault := surrogate_fault(text):
        raise MessageInvalid(f"message {number} has {fault}")


def normalized_message(message: Any, number: int = 0) -> NormalizedMessage:
    """Return a message of a transcript: a `Message`, or a dict in the format of chat completion APIs.

    Raises:
        MessageInvalid: It is neither, or is malformed.
    """
    match message:
        case NormalizedMessage():
            return message
        case Message(role, str(text), images, calls, str(call_id), thoughts, str(name), annotations):
            return NormalizedMessage(
                role,
                text,
                _images_of(images),
                _calls_of(calls),
                call_id,
                _thoughts_of(thoughts, number),
                name,
                _annotations_of(annotations, number),
            )
        case dict():
            return _from_dict(message, number)
    hint = "Pass its `model_dump()`." if hasattr(message, "model_dump") else None
    what = f"message {number} is a {type(message).__name__}; pass a `Message` with texts, or a dict"
    raise MessageInvalid(what, hint=hint)


def user_message(message: Any) -> Message:
    """Return what a user says: a text, a `Message`, or a dict in the format of chat completion APIs.

    Raises:
        MessageInvalid: It is nothing of these, has another role, or is malformed.
    """
    if isinstance(message, str):
        found = Message("user", message)
    elif isinstance(message, Message | dict):
        found = normalized_message(message)
    else:
        hint = "Pass a text, a `Message` of the user, or a dict with `role` and `content`."
        raise MessageInvalid(f"the message is a {type(message).__name__}", hint=hint)
    if found.role != "user":
        hint = "Pass earlier messages as `history`."
        raise MessageInvalid(f"the message has the role {found.role!r}; only the user says something", hint=hint)
    check_message(NormalizedMessage("user", found.text, found.images, name=found.name))
    return found


class _Own(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What only Reyn knows about a message: the key `reyn` of a dict. The fields are those of `NormalizedMessage`."""

    thoughts: Thoughts | None = None
    is_summary: bool = False
    status: Literal["", "truncated", "cancelled", "unknown"] = ""
    reason: str = ""
    is_results: bool = False
    is_from_hook: bool = False


_KEYS = {"role", "content", "tool_calls", "tool_call_id", "name", "annotations", "refusal", "reyn"}
_UNSUPPORTED = {
    "audio": "Pass the text of the answer; Reyn keeps no audio.",
    "function_call": "Use `tool_calls`, and messages with the role `tool` for the results.",
}


def _from_dict(message: dict[str, Any], number: int) -> NormalizedMessage:
    for key in message:
        if key in _UNSUPPORTED and message[key] is None:
            continue  # the SDK of OpenAI writes it
        if key not in _KEYS:
            hint = _UNSUPPORTED.get(key)
            raise MessageInvalid(f"message {number} has the unknown key {key!r:.100}", hint=hint)
    role = message.get("role")
    role = "system" if role == "developer" else role
    if not isinstance(role, str) or role not in ROLES:
        raise MessageInvalid(f"message {number} has the role {role!r:.100}; use one of {', '.join(ROLES)}")
    text, images = _content_of(message.get("content"), number)
    calls = _calls_of(message.get("tool_calls") or (), number)
    texts = {key: message.get(key) or "" for key in ("tool_call_id", "name", "refusal")}
    for key, value in texts.items():
        if not isinstance(value, str):
            raise MessageInvalid(f"message {number}: `{key}` is {value!r:.100}, not text")
    own = {} if message.get("reyn") is None else message["reyn"]
    try:
        found = msgspec.convert(own, _Own)
    except (TypeError, ValueError) as error:
        raise MessageInvalid(f"message {number}: `reyn`: {error}") from error
    return NormalizedMessage(
        role,  # type: ignore[arg-type]  # one of the roles
        text or texts["refusal"],
        images,
        calls,
        texts["tool_call_id"],
        _thoughts_of(found.thoughts, number),
        texts["name"],
        _annotations_of(message.get("annotations") or (), number),
        is_summary=found.is_summary,
        status=found.status,
        reason=found.reason,
        is_results=found.is_results,
        is_from_hook=found.is_from_hook,
    )


def _annotations_of(annotations: Any, number: int) -> tuple[dict[str, Any], ...]:
    """Return a copy of the annotations of a message."""
    if not annotations and isinstance(annotations, list | tuple):
        return ()
    if not isinstance(annotations, list | tuple) or not all(isinstance(one, dict) for one in annotations):
        raise MessageInvalid(f"message {number}: `annotations` is {annotations!r:.100}, not a list of objects")
    try:
        return tuple(msgspec.json.decode(msgspec.json.encode(annotations)))
    except (TypeError, ValueError, RecursionError) as error:
        raise MessageInvalid(f"message {number}: `annotations` has no JSON form: {error}") from error


def _thoughts_of(thoughts: Any, number: int) -> Thoughts | None:
    if thoughts is None:
        return None
    if not isinstance(thoughts, Thoughts):
        raise MessageInvalid(f"message {number}: `thoughts` is {thoughts!r:.100}, not `Thoughts`")
    try:
        msgspec.json.encode(thoughts)
    except (TypeError, ValueError, RecursionError) as error:
        raise MessageInvalid(f"message {number}: `thoughts` has no JSON form: {error}") from error
    return thoughts


def _content_of(content: Any, number: int) -> tuple[str, tuple[Image, ...]]:
    """Return text and images of `content`: text, nothing, or a list of typed parts."""
    if content is None or isinstance(content, str):
        return content or "", ()
    texts: list[str] = []
    images: list[Image] = []
    for part in content if isinstance(content, list) else (content,):
        match part:
            case {"type": "text", "text": str(text)}:
                texts.append(text)
            case {"type": "image_url", "image_url": {"url": str(url)}, "media_type": str(media_type)}:
                images.append(Image(media_type, url=url))
            case {"type": "image_url", "image_url": {"url": str(url)}}:
                images.append(image_of_url(url))
            case {"type": "refusal", "refusal": str(text)}:
                texts.append(text)
            case _:
                raise MessageInvalid(f"message {number} has content that is neither text nor an image: {part!r:.200}")
    return "\n".join(texts), tuple(images)


def _images_of(images: Any) -> tuple[Image, ...]:
    """Return a copy of the images of a message."""
    copied = tuple(images) if isinstance(images, list | tuple) else (images,)
    for image in copied:
        if not isinstance(image, Image):
            raise MessageInvalid(f"a message has an image that is no `Image`: {image!r:.200}")
    return copied


def _calls_of(calls: Any, number: int = 0) -> tuple[ToolCall, ...]:
    if not isinstance(calls, list | tuple):
        raise MessageInvalid(f"message {number}: `tool_calls` is {calls!r:.100}, not a list")
    return tuple([_call_of(call, number) for call in calls])


def _call_of(call: Any, number: int) -> ToolCall:
    match call:
        case ToolCall():
            return call
        case {"id": str(call_id), "function": {"name": str(name), "arguments": str(arguments)}}:
            return ToolCall(call_id, name, arguments)
    raise MessageInvalid(f"message {number} has a malformed tool call: {call!r:.200}")
