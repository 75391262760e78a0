"""Transcripts as persistent values: lists of normalized messages.

A list never changes. Appending returns a new list that shares the storage of the old one, in constant time, so no code
copies a history. This module checks the rules that link tool calls to their results; `reyn.context.mutation` applies
mutations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from reyn.context.messages import NormalizedMessage, check_message, normalized_message
from reyn.errors import MessageInvalid, TranscriptInvalid
from reyn.journal import canonical, digest

if TYPE_CHECKING:
    from reyn.models import Message, ToolCall

_BLOCK = 64
_EMPTY_DIGEST = digest(b"")
_NO_CONTENT = (None, _EMPTY_DIGEST)
"""The references of a part without content."""


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
    has_images: bool = False
    """Whether a message has images and its text, instead of references to them."""


_NOTHING = _Shape()


class NormalizedMessageList(Sequence[NormalizedMessage]):
    """An immutable list of messages: the system message first, if there is one, then the messages in order.

    A transcript has one system message: the latest replaces the one before. Lists are equal if their content is.
    Appending checks that every tool call is followed by exactly one result before anything else comes. An empty message
    of a user or an assistant adds nothing.
    """

    __slots__ = ("_shape",)

    def __init__(self, messages: Iterable[Message | dict[str, Any]] = (), *, _shape: _Shape = _NOTHING) -> None:
        for message in messages if isinstance(messages, tuple) else _listed(messages):
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
        shape = _Shape(
            system, old.first, old.blocks, old.tail, old.open_calls, old.digest_length, old.digest, old.has_images
        )
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
    def has_images(self) -> bool:
        """Whether a message has images and its text, instead of references to them."""
        return self._shape.has_images

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

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return the messages as JSON, in the format of chat completion APIs.

        `history` of a chat, and `NormalizedMessageList(…)`, read them again.

        Raises:
            MessageInvalid: A message refers to stored content of its run.
        """
        return [message.to_dict() for message in self]

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
        return len(theirs.tail) <= len(following) and all(map(is_, following, theirs.tail))

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


def _appended(shape: _Shape, message: Any) -> _Shape:
    number = (shape.blocks.end if shape.blocks else 0) + len(shape.tail)
    if message.__class__ is not NormalizedMessage:
        message = normalized_message(message, number)
    check_message(message, number)
    if message.role == "system":
        return shape._replace(system=message)
    images = message.images
    if not (message.text or images or message.tool_calls or message.role == "tool"):
        for part in message.parts:
            if part.text or part.results or part.image is not None or part.blob not in _NO_CONTENT:
                break
        else:
            return shape
    open_calls = _calls_after(shape.open_calls, message, number)
    blocks, tail = shape.blocks, (*shape.tail, message)
    if len(tail) == _BLOCK:
        blocks, tail = _Block(blocks, tail), ()
    first = message if shape.first is None else shape.first
    has_images = shape.has_images or bool(images)
    return _Shape(shape.system, first, blocks, tail, open_calls, shape.digest_length, shape.digest, has_images)


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
    normalized = NormalizedMessageList(
        normalized_message(message, number) for number, message in enumerate(_listed(messages))
    )
    check_closed(normalized)
    return normalized


def _listed(messages: Iterable[Any]) -> Iterable[Any]:
    """Return what is a list of messages."""
    if isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable):
        hint = "Decode it: `json.loads(text)`." if isinstance(messages, str | bytes) else None
        raise MessageInvalid(f"the history is a {type(messages).__name__}; pass a list of messages", hint=hint)
    return messages


def check_closed(messages: NormalizedMessageList) -> None:
    """Check that every tool call has its result.

    Raises:
        TranscriptInvalid: One has none.
    """
    if messages.open_calls:
        names = ", ".join(f"`{call.name}` ({call.id})" for call in messages.open_calls)
        raise TranscriptInvalid(f"the transcript ends with tool calls that have no result: {names}")


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
