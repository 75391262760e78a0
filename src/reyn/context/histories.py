"""Histories that a caller passes to a run: stored once, in parts, and shared by the runs that continue each other.

A run starts with a list of parts. A history that extends an earlier one consists of the parts of the earlier one and
one part with the new messages, so a conversation of many runs stores each message about once.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from reyn.context.messages import NormalizedMessage
from reyn.context.render import READ_MORE, sent_text
from reyn.context.tokens import estimate_tokens
from reyn.context.transcript import NO_MESSAGES, NormalizedMessageList, check_closed
from reyn.errors import HistoryInvalid, ReynError
from reyn.journal import Blob, canonical, kinds
from reyn.models import ToolCall
from reyn.workspace.earlier import arguments_as_earlier, as_earlier

if TYPE_CHECKING:
    StoredParts = tuple[kinds.HistoryPart, ...]

MAX_PARTS = 256
"""A history of more parts is stored anew as one."""
_CACHED = 64
_decoder = msgspec.json.Decoder(tuple[NormalizedMessage, ...])
_MARKER = re.compile(rf"(\n\[truncated: [^\n]*){READ_MORE}\{{[^\n]*\}}\]".encode())


class _Known(NamedTuple):
    """A history in memory: its messages, and all content that its parts refer to."""

    messages: NormalizedMessageList = NO_MESSAGES
    blobs: tuple[Blob, ...] = ()


class Histories:
    """Histories in memory, by their parts. The least recently used is dropped first."""

    def __init__(self) -> None:
        self._known: OrderedDict[StoredParts, _Known] = OrderedDict()

    def store(
        self,
        messages: NormalizedMessageList,
        is_stored: Callable[[str], bool],
        scrub: Callable[[str], str] = str,
    ) -> tuple[StoredParts, tuple[Blob, ...]]:
        """Return the parts of a history, and all content that they refer to.

        A commit that refers to the parts has to bring all of it: runs that had it may be deleted until then. A journal
        writes only what it does not have. If the history extends a known one, only the new messages are encoded.

        Args:
            messages: The history.
            is_stored: Returns whether the journal has had some content, so that its secrets were removed.
            scrub: Removes secrets from a text.

        Raises:
            TranscriptInvalid: A tool call has no result.
        """
        check_closed(messages)
        text = scrub(messages.system.text) if messages.system is not None else ""
        system = Blob.of(text.encode()) if text.strip() else None
        before, known = next(
            (
                (parts, known)
                for parts, known in reversed(self._known.items())
                if len(parts) < MAX_PARTS
                and messages.extends(known.messages)
                and (system is not None or system_of(parts) is None)
                and all(is_stored(blob.hash) for blob in known.blobs)
            ),
            ((), _Known()),
        )
        rest = messages.tail(messages.length - known.messages.length)
        is_instructed = system is not None and system.hash != system_of(before)
        if not rest and not is_instructed:
            return before, known.blobs
        new = tuple(detached(message, scrub) for message in rest)
        content = Blob.of(canonical(new))
        tokens, size, images = 0, 0, 0
        for message in new:
            text = sent_text(message, _no_content)
            tokens, size = tokens + estimate_tokens(text), size + len(text.encode())
            if message.images and message.shows_images:
                images += 1
        named = system.hash if system is not None and is_instructed else None
        parts = (*before, kinds.HistoryPart(content.hash, len(new), tokens, size, named, images))
        is_clean = all(one is other for one, other in zip(new, rest, strict=True))
        # A list that continues the caller's own one extends it; one with the same messages does not.
        whole = messages.with_system(None) if is_clean else known.messages.append(*new)
        added = (content, system) if system is not None and is_instructed else (content,)
        blobs = (*known.blobs, *added)
        self._remember(parts, _Known(whole, blobs))
        return parts, blobs

    def load(self, parts: StoredParts, content: Callable[[str], bytes]) -> NormalizedMessageList:
        """Return the messages of a history.

        Raises:
            HistoryInvalid: The stored content is no history.
        """
        if not parts:
            return NormalizedMessageList()
        known = self._known.get(parts)
        if known is None:
            if len(parts) > MAX_PARTS:
                raise HistoryInvalid(f"the run's history has {len(parts)} parts; at most {MAX_PARTS} are stored")
            start = next((end for end in range(len(parts), 0, -1) if parts[:end] in self._known), 0)
            messages, blobs = self._known.get(parts[:start], _Known())
            try:
                for part in parts[start:]:
                    names = (part.content,) if part.system is None else (part.content, part.system)
                    read = [Blob(name, content(name)) for name in names]
                    messages, blobs = messages.append(*_decoder.decode(read[0].content)), (*blobs, *read)
            except (msgspec.MsgspecError, ReynError) as error:
                raise HistoryInvalid(f"the run's history cannot be read: {error}") from error
            known = _Known(messages, blobs)
        self._remember(parts, known)
        return known.messages

    def are_same(self, one: StoredParts, other: StoredParts, content: Callable[[str], bytes]) -> bool:
        """Return whether two histories have the same messages, which may be stored in different parts."""
        if one == other:
            return True
        digests = {self.load(parts, content).digest for parts in (one, other)}
        return len(digests) == 1 and system_of(one) == system_of(other)

    def known_part(self, messages: NormalizedMessageList) -> NormalizedMessageList:
        """Return a known history that a transcript begins with; an empty one if there is none."""
        for known in reversed(self._known.values()):
            if messages.extends(known.messages):
                return known.messages
        return NormalizedMessageList()

    def _remember(self, parts: StoredParts, known: _Known) -> None:
        _ = known.messages.digest  # computed once here, and inherited by every list that extends this one
        self._known[parts] = known
        self._known.move_to_end(parts)
        while len(self._known) > _CACHED:
            self._known.popitem(last=False)


class RenderedMessages:
    """Transcripts with their texts, by any key. Each message of a transcript that grows is read and rendered once."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, tuple[NormalizedMessageList, NormalizedMessageList]] = OrderedDict()

    def render(
        self,
        key: Hashable,
        source: NormalizedMessageList,
        render: Callable[[NormalizedMessage], NormalizedMessage],
        start: Callable[[], tuple[NormalizedMessageList, NormalizedMessageList]],
    ) -> NormalizedMessageList:
        """Return the messages with their texts; only new ones are rendered.

        Args:
            key: The transcript.
            source: Its messages, which refer to their content.
            render: Returns a message with its text.
            start: Returns the first messages of a transcript that is not known, and what they are rendered to.
        """
        before, rendered = self._known.pop(key, (NO_MESSAGES, NO_MESSAGES))
        if not before.length or not source.extends(before):
            before, rendered = start()
        rendered = rendered.append(*map(render, source.tail(source.length - before.length)))
        self._known[key] = source, rendered
        while len(self._known) > _CACHED:
            self._known.popitem(last=False)
        return rendered


def system_of(parts: StoredParts) -> str | None:
    """Return the hash of the system message of a history; `None` without one."""
    return next((part.system for part in reversed(parts) if part.system is not None), None)


def outside(content: Callable[[str], bytes]) -> Callable[[str], bytes]:
    """Return a reader of contents for a history that leaves its run.

    The marker at the end of truncated content then names no file: in another run, the file of this name has other
    content.
    """

    def read(name: str) -> bytes:
        found = content(name)
        marker = _MARKER.fullmatch(found, max(0, found.rfind(b"\n"))) if found.endswith(b"}]") else None
        return found if marker is None else found[: marker.end(1)] + b"]"

    return read


def _no_content(name: str) -> bytes:
    raise HistoryInvalid(f"a message of a history refers to the content `{name}`")


def detached(message: NormalizedMessage, scrub: Callable[[str], str] = str) -> NormalizedMessage:
    """Return a message for another run: without secrets and paths of its run; the same object if there are none."""
    text = as_earlier(scrub(message.text))
    calls = tuple(
        ToolCall(call.id, call.name, arguments_as_earlier(scrub(call.arguments))) for call in message.tool_calls
    )
    if text == message.text and calls == message.tool_calls:
        return message
    return replace(message, text=text, tool_calls=calls)


HISTORIES = Histories()
"""Of the whole process. Content is addressed by its hash, so that runs of several journals can share it."""
