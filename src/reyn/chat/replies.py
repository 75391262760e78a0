"""Everyone who waits for a reply of a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import asyncio

    from reyn.chat.items import Reply
    from reyn.models import Image


class UnsentMessage(NamedTuple):
    """A message that is not in the inbox yet, and who waits for the reply."""

    text: str
    images: tuple[Image, ...]
    reply: asyncio.Future[Reply] | None


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
