"""Transcripts as persistent values: normalized messages, and the list of them.

A list never changes. Appending returns a new list that shares the storage of the old one, in constant time, so no code
copies a history. This module checks the rules that link tool calls to their results; `reyn.context.mutation` applies
mutations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple, get_args, overload

import msgspec

from reyn.errors import MessageInvalid, TranscriptInvalid
from reyn.journal import canonical, digest
from reyn.journal.kinds import Part
from reyn.models import Image, Message, Role, ToolCall

ROLES: tuple[str, ...] = get_args(Role)
Content = str | tuple[Part, ...]
"""The content of a message: its text, or references to stored content that are rendered when a model is called."""
RESULTS_HEADING = "# Results\n"
"""The first part of a message with op results."""
_RESULTS = (Part(text=RESULTS_HEADING),)
_BLOCK = 64
_EMPTY_DIGEST = digest(b"")


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
    """

    parts: tuple[Part, ...] = ()
    is_summary: bool = False
    status: Literal["", "truncated", "cancelled", "unknown"] = ""
    reason: str = ""
    marker: Memory | None = None
    base: Content | None = None

    @property
    def content(self) -> Content:
        """The text, or the references to it."""
        return self.parts or self.text

    @property
    def is_said(self) -> bool:
        """Whether a user says it: not a summary, and not op results."""
        return self.role == "user" and not self.is_summary and self.parts[:1] != _RESULTS


def message_of(role: Role, content: Content, **fields: Any) -> NormalizedMessage:
    """Return a message with a text or with references to its content. Lists are copied."""
    for name in ("images", "tool_calls"):
        if name in fields:
            fields[name] = tuple(fields[name])
    if isinstance(content, str):
        return NormalizedMessage(role, content, **fields)
    return NormalizedMessage(role, "", parts=tuple(content), **fields)


class _Block:
    """A full block of messages, linked to the one before it."""

    __slots__ = ("before", "end", "messages")

    def __init__(self, before: _Block | None, messages: tuple[NormalizedMessage, ...]) -> None:
        self.before = before
        self.messages = messages
        self.end: int = (before.end if before else 0) + len(messages)


class _Shape(NamedTuple):
    """The memory of a list: full blocks that other lists share, and the messages after them."""

    system: NormalizedMessage | None = None
    first: NormalizedMessage | None = None
    blocks: _Block | None = None
    tail: tuple[NormalizedMessage, ...] = ()
    open_calls: tuple[ToolCall, ...] = ()
    digest_length: int = 0
    digest: str = _EMPTY_DIGEST
    """The digest of the first `digest_length` messages."""


_NOTHING = _Shape()


class NormalizedMessageList(Sequence[NormalizedMessage]):
    """An immutable list of messages: the system message first, if there is one, then the messages in order.

    A transcript has one system message: the latest replaces the one before. Lists are equal if their content is.
    Appending checks that every tool call is followed by exactly one result before anything else comes.
    """

    __slots__ = ("_shape",)

    def __init__(self, messages: Iterable[NormalizedMessage] = (), *, _shape: _Shape = _NOTHING) -> None:
        for message in messages:
            _shape = _appended(_shape, message)
        self._shape = _shape

    # -- new lists ------------------------------------------------------------------------------------

    def append(self, *messages: NormalizedMessage) -> NormalizedMessageList:
        """Return a list with more messages, in time that depends on their number only.

        Raises:
            TranscriptInvalid: A message breaks the rules that link tool calls to their results.
            MessageInvalid: A message cannot be sent: an unknown role, or text that is not valid Unicode.
        """
        return NormalizedMessageList(messages, _shape=self._shape)

    def with_system(self, system: NormalizedMessage | None) -> NormalizedMessageList:
        """Return a list with another system message, or without one."""
        old = self._shape
        shape = _Shape(system, old.first, old.blocks, old.tail, old.open_calls, old.digest_length, old.digest)
        return NormalizedMessageList(_shape=shape)

    def tail(self, count: int) -> tuple[NormalizedMessage, ...]:
        """Return the last messages, without the system message, in time that depends on their number only."""
        if count <= 0:
            return ()
        shape = self._shape
        chunks: list[tuple[NormalizedMessage, ...]] = [shape.tail]
        missing, block = count - len(shape.tail), shape.blocks
        while missing > 0 and block is not None:
            chunks.append(block.messages)
            missing, block = missing - len(block.messages), block.before
        return tuple(chain.from_iterable(reversed(chunks)))[-count:]

    # -- what is known without looking at every message -----------------------------------------------

    @property
    def system(self) -> NormalizedMessage | None:
        """The latest system message."""
        return self._shape.system

    @property
    def first(self) -> NormalizedMessage | None:
        """The first message besides the system message."""
        return self._shape.first

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The tool calls that have no result yet, in the order of the calls."""
        return self._shape.open_calls

    @property
    def length(self) -> int:
        """The number of messages besides the system message."""
        shape = self._shape
        return (shape.blocks.end if shape.blocks else 0) + len(shape.tail)

    @property
    def digest(self) -> str:
        """The digest of the messages besides the system message: a hash chain, extended by new messages."""
        shape, length = self._shape, self.length
        if shape.digest_length != length:
            chained = shape.digest
            for message in self.tail(length - shape.digest_length):
                chained = digest(chained.encode() + canonical(message))
            # Only a value that was not computed yet is added; the list itself stays what it is.
            self._shape = shape = shape._replace(digest_length=length, digest=chained)
        return shape.digest

    def extends(self, other: NormalizedMessageList) -> bool:
        """Return whether this list was made from another list by appending messages.

        Compares only the new messages: two lists that were built independently do not extend each other.
        """
        theirs = other._shape
        block, following = self._shape.blocks, self._shape.tail
        while block is not theirs.blocks:
            if block is None:
                return False
            following = block.messages
            block = block.before
        return len(theirs.tail) <= len(following) and all(
            one is other_one for one, other_one in zip(following, theirs.tail, strict=False)
        )

    # -- as a sequence --------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self.length + (self._shape.system is not None)

    def __iter__(self) -> Iterator[NormalizedMessage]:
        shape = self._shape
        blocks: list[tuple[NormalizedMessage, ...]] = [shape.tail]
        block = shape.blocks
        while block is not None:
            blocks.append(block.messages)
            block = block.before
        if shape.system is not None:
            blocks.append((shape.system,))
        return chain.from_iterable(reversed(blocks))

    @overload
    def __getitem__(self, index: int) -> NormalizedMessage: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[NormalizedMessage, ...]: ...

    def __getitem__(self, index: int | slice) -> NormalizedMessage | tuple[NormalizedMessage, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        length = len(self)
        at = index + length if index < 0 else index
        if not 0 <= at < length:
            raise IndexError(f"the transcript has {length} messages, so there is no message {index}")
        if at == 0 and self._shape.system is not None:
            return self._shape.system
        return self.tail(length - at)[0]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NormalizedMessageList):
            return NotImplemented
        return self is other or (
            self.length == other.length and self.system == other.system and self.digest == other.digest
        )

    def __hash__(self) -> int:
        return hash((self.system, self.digest))

    def __repr__(self) -> str:
        return f"NormalizedMessageList({len(self)} messages)"


def _appended(shape: _Shape, message: NormalizedMessage) -> _Shape:
    number = (shape.blocks.end if shape.blocks else 0) + len(shape.tail)
    check_message(message, number)
    if message.role == "system":
        return shape._replace(system=message)
    open_calls = _calls_after(shape.open_calls, message, number)
    blocks, tail = shape.blocks, (*shape.tail, message)
    if len(tail) == _BLOCK:
        blocks, tail = _Block(blocks, tail), ()
    first = message if shape.first is None else shape.first
    return _Shape(shape.system, first, blocks, tail, open_calls, shape.digest_length, shape.digest)


NO_MESSAGES = NormalizedMessageList()


def normalize(messages: Iterable[Message | dict[str, Any]]) -> NormalizedMessageList:
    """Return the transcript of a history: messages, or dicts in the format of chat completion APIs.

    A transcript is returned as it is, in constant time.

    Raises:
        MessageInvalid: A message has an unknown role, a malformed field, or text that is not valid Unicode.
        TranscriptInvalid: A tool call has no result or several, or a result has no call.
    """
    if isinstance(messages, NormalizedMessageList):
        return messages
    if isinstance(messages, list | tuple) and not messages:
        return NO_MESSAGES
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        raise MessageInvalid(f"the history is a {type(messages).__name__}; pass a list of messages")
    normalized = NormalizedMessageList(_normalized(message, number) for number, message in enumerate(messages))
    check_closed(normalized)
    return normalized


def check_closed(messages: NormalizedMessageList) -> None:
    """Check that every tool call has its result.

    Raises:
        TranscriptInvalid: One has none.
    """
    if messages.open_calls:
        names = ", ".join(f"`{call.name}` ({call.id})" for call in messages.open_calls)
        raise TranscriptInvalid(f"the transcript ends with tool calls that have no result: {names}")


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
    for call in message.tool_calls:
        _check_text(call.id + call.name, number)
        _check_text(call.arguments, number)


def _check_text(text: str, number: int) -> None:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise MessageInvalid(
                f"message {number} has a lone surrogate at character {error.start}, which is not valid Unicode"
            ) from None


def _calls_after(open_calls: tuple[ToolCall, ...], message: NormalizedMessage, number: int) -> tuple[ToolCall, ...]:
    """Return the calls that are open after a message."""
    if message.role == "tool":
        rest = tuple(call for call in open_calls if call.id != message.tool_call_id)
        if len(rest) == len(open_calls):
            raise TranscriptInvalid(
                f"message {number} is the result of tool call {message.tool_call_id!r}, which is not open: "
                "the call does not exist, or it has a result already"
            )
        return rest
    if open_calls:
        names = ", ".join(f"`{call.name}` ({call.id})" for call in open_calls)
        raise TranscriptInvalid(f"message {number} ({message.role}) comes before the results of {names}")
    calls = message.tool_calls
    if not calls:
        return ()
    if message.role != "assistant":
        raise TranscriptInvalid(f"message {number} ({message.role}) has tool calls; only an assistant calls tools")
    ids = [call.id for call in calls]
    if not all(ids) or len(set(ids)) != len(ids):
        raise TranscriptInvalid(f"message {number} has tool calls whose ids are empty or not unique: {ids!r:.200}")
    return calls


# -- histories in the format of chat completion APIs ------------------------------------------------------


def _normalized(message: Any, number: int) -> NormalizedMessage:
    match message:
        case NormalizedMessage():
            return message
        case Message():
            return NormalizedMessage(*(getattr(message, name) for name in Message.__struct_fields__))
        case dict():
            return _from_dict(message, number)
    raise MessageInvalid(f"message {number} is a {type(message).__name__}; pass a `Message` or a dict")


def _from_dict(message: dict[str, Any], number: int) -> NormalizedMessage:
    unknown = message.keys() - {"role", "content", "tool_calls", "tool_call_id", "name"}
    if unknown:
        raise MessageInvalid(f"message {number} has the unknown key {min(unknown, key=str)!r}")
    role = message.get("role")
    if role not in ROLES:
        raise MessageInvalid(f"message {number} has the role {role!r}; use one of {', '.join(ROLES)}")
    text, images = _content_of(message.get("content"), number)
    listed = message.get("tool_calls") or ()
    if not isinstance(listed, list | tuple):
        raise MessageInvalid(f"message {number}: `tool_calls` is {listed!r:.100}, not a list")
    calls = tuple(_call_of(call, number) for call in listed)
    call_id = message.get("tool_call_id") or ""
    if not isinstance(call_id, str):
        raise MessageInvalid(f"message {number}: `tool_call_id` is {call_id!r:.100}, not text")
    return NormalizedMessage(role, text, images, calls, call_id)


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
            case {"type": "image_url", "image_url": {"url": str(url)}}:
                images.append(image_of_url(url))
            case _:
                raise MessageInvalid(f"message {number} has content that is neither text nor an image: {part!r:.200}")
    return "\n".join(texts), tuple(images)


def image_of_url(url: str) -> Image:
    """Return the image at a URL; a `data:` URL holds the image itself."""
    head, comma, data = url.partition(",")
    if head.startswith("data:") and comma and head.endswith(";base64"):
        return Image(media_type=head[5:-7], data=data)
    return Image(url=url)


def _call_of(call: Any, number: int) -> ToolCall:
    match call:
        case ToolCall():
            return call
        case {"id": str(call_id), "function": {"name": str(name), "arguments": str(arguments)}}:
            return ToolCall(call_id, name, arguments)
    raise MessageInvalid(f"message {number} has a malformed tool call: {call!r:.200}")
