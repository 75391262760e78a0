"""The items of a conversation until they are read, and the replies until they are given."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from reyn.chat.items import ChatItem, MessageReceived, OpFinished, OpRequested, Reply, ReplyDelta, Restarted, Stopped
from reyn.errors import StreamTaken

if TYPE_CHECKING:
    from reyn.models import Image


MAX_UNREAD = 10_000
"""The number of unread items that are stored. The oldest are dropped."""
_BEFORE_AN_ANSWER = Reply | MessageReceived | Restarted | OpRequested | OpFinished
"""The items after which the text of another answer begins."""


class UnreadItems:
    """The items that were not read yet, oldest first. One reader takes them at a time."""

    def __init__(self) -> None:
        self._items: deque[ChatItem] = deque()
        self._has_changed = asyncio.Event()
        self._reader: object = None
        self._is_ended = False

    def put(self, item: ChatItem) -> None:
        """Add an item."""
        self._items.append(item)
        if len(self._items) > MAX_UNREAD and self._reader is None:
            self._items.popleft()
        self._has_changed.set()

    def restart(self) -> None:
        """Drop everything, and expect more items."""
        self._items.clear()
        self._is_ended = False

    def drop_turns(self) -> None:
        """Drop the turns that are over."""
        last = max((at for at, item in enumerate(self._items, 1) if isinstance(item, Reply | Stopped)), default=0)
        for _ in range(last):
            self._items.popleft()

    def end(self) -> None:
        """Let the reader end after the items so far."""
        self._is_ended = True
        self._has_changed.set()

    @contextmanager
    def reading(self, reader: object) -> Iterator[None]:
        """Let a reader take the items in the block.

        Raises:
            StreamTaken: Another one does.
        """
        if self._reader is not None:
            raise StreamTaken("the conversation is being read, by `stream` or `items`")
        self._reader = reader
        try:
            yield
        finally:
            self.release(reader)

    def release(self, reader: object) -> None:
        """Let others take the items, if this reader did. It is safe in any thread."""
        if self._reader is reader:
            self._reader = None

    async def read(self) -> AsyncGenerator[ChatItem]:
        """Yield the items until the end."""
        while self._items or not self._is_ended:
            if self._items:
                yield self._items.popleft()
            else:
                self._has_changed.clear()
                await self._has_changed.wait()

    async def read_turn(self, reply: asyncio.Future[Reply], *, is_last: bool) -> AsyncGenerator[ChatItem]:
        """Yield the items until a reply, which is the last one. Its text is among them as pieces.

        Args:
            reply: The reply.
            is_last: Whether the conversation stops after the reply. Items are read until then.
        """
        text = ""
        async with aclosing(self.read()) as items:
            async for item in items:
                is_reply = isinstance(item, Reply) and reply.done() and item is reply.result()
                if isinstance(item, Stopped) or (is_reply and not is_last):
                    break
                if isinstance(item, ReplyDelta):
                    text += item.text
                elif isinstance(item, _BEFORE_AN_ANSWER) and not is_reply:
                    text = ""
                if not isinstance(item, Reply | MessageReceived):
                    yield item
        found = await reply
        if found.text and found.text.strip() != text.strip():
            yield ReplyDelta(found.text)
        yield found


class UnsentMessage(NamedTuple):
    """A message that is not in the inbox yet, and who waits for the reply."""

    text: str
    images: tuple[Image, ...]
    reply: asyncio.Future[Reply] | None
    by: str = ""


class PendingReplies:
    """The replies that were not given yet, by the id of their message in the inbox.

    0 stands for the next reply, whichever message it answers: the first message of the run has no id in the inbox, and
    a caller can wait for the reply in progress.

    Attributes:
        unsent: The messages that are not in the inbox yet, because this process does not execute the run yet.
    """

    def __init__(self) -> None:
        self.unsent: list[UnsentMessage] = []
        self._waiting: dict[int, list[asyncio.Future[Reply]]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting or self.unsent)

    def __contains__(self, message: int) -> bool:
        return message in self._waiting

    def add(self, message: int, reply: asyncio.Future[Reply] | None) -> None:
        """Await the reply to a message."""
        if reply is not None:
            self._waiting.setdefault(message, []).append(reply)

    def resolve(self, message: int, reply: Reply) -> None:
        """Give the reply to a message to everyone who waits for it or for the next reply."""
        for waiting in (*self._waiting.pop(0, ()), *self._waiting.pop(message, ())):
            if not waiting.done():
                waiting.set_result(reply)

    def fail(self, error: Exception | None) -> None:
        """Give everyone the reason why there is no reply; `None` if they stopped waiting."""
        waiting = [reply for replies in self._waiting.values() for reply in replies]
        waiting += [said.reply for said in self.unsent if said.reply is not None]
        self.unsent, self._waiting = [], {}
        for reply in waiting:
            if error is None:
                reply.cancel()
            elif not reply.done():
                reply.set_exception(error)
