"""Streams with one reader, which end with it: closing, leaving or dropping one ends what it reports."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, Generic, TypeVar

from reyn.errors import StreamTaken

T = TypeVar("T")


class Stream(ABC, Generic[T]):
    """An async iterator for one loop. It may be left in any way: `break`, `return`, an exception, a cancellation.

    A second reader is refused, because each would receive only a part of the items.
    """

    _is_looped = False
    _is_awaited = False

    def __aiter__(self) -> AsyncIterator[T]:
        if self._is_looped:
            raise StreamTaken("this stream has a loop that reads it, or had one")
        self._is_looped = True
        return _Loop(self)

    async def __anext__(self) -> T:
        if self._is_awaited:
            raise StreamTaken("another task waits for the next item of this stream")
        self._is_awaited = True
        try:
            return await self._next()
        finally:
            self._is_awaited = False

    @abstractmethod
    async def _next(self) -> T:
        """Return the next item."""

    @abstractmethod
    async def aclose(self) -> None:
        """End the stream early, and wait for that."""

    @abstractmethod
    def _leave(self) -> None:
        """End the stream without waiting. It is called in any thread, also during a garbage collection."""

    def __del__(self) -> None:
        self._leave()


class _Loop(Generic[T]):
    """The iterator of one loop. Only the loop holds it, so that it is dropped when the loop is left."""

    def __init__(self, stream: Stream[T]) -> None:
        self._stream = stream

    def __aiter__(self) -> AsyncIterator[T]:
        return self

    def __anext__(self) -> Awaitable[T]:
        return self._stream.__anext__()

    def __del__(self) -> None:
        self._stream._leave()  # noqa: SLF001 - of the class above


class ItemStream(Stream[T]):
    """The items of an async generator.

    Args:
        items: The generator. It must not refer to the stream.
        on_leave: Called at once when the reader has left, before the generator is closed, in any thread.
    """

    def __init__(self, items: AsyncGenerator[T], on_leave: Callable[[], object] = lambda: None) -> None:
        self._items, self._on_leave = items, on_leave
        self._loop: asyncio.AbstractEventLoop | None = None
        """The event loop, while the generator is suspended between two items."""
        self._is_left = False
        self._closing: asyncio.Future[Any] | None = None

    async def _next(self) -> T:
        if self._is_left:
            await self.aclose()
            raise StopAsyncIteration
        self._loop = None
        item = await anext(self._items)
        self._loop = asyncio.get_running_loop()
        return item

    async def aclose(self) -> None:
        """End the stream early, and wait for that."""
        self._close()
        assert self._closing is not None
        await self._closing

    def _close(self) -> None:
        self._is_left = True
        if self._closing is None:
            self._closing = asyncio.ensure_future(self._items.aclose())

    def _leave(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None and not loop.is_closed():
            self._is_left = True
            self._on_leave()
            loop.call_soon_threadsafe(self._close)
