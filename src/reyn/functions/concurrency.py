"""Limit concurrent tool calls, and run plain functions in threads."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Slots:
    """A semaphore for all event loops of the process: at most `count` holders at a time, in order of arrival."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._lock = threading.Lock()
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    async def acquire(self) -> None:
        """Wait for a slot."""
        with self._lock:
            if self._free > 0:
                self._free -= 1
                return
            loop = asyncio.get_running_loop()
            turn = loop.create_future()
            self._waiting.append((loop, turn))
        try:
            await turn
        except asyncio.CancelledError:
            with self._lock:
                is_waiting = (loop, turn) in self._waiting
                if is_waiting:
                    self._waiting.remove((loop, turn))
            if not is_waiting:  # the slot was passed to this waiter at the same moment
                self.release()
            raise

    def release(self) -> None:
        """Return a slot, from any thread."""
        with self._lock:
            while self._waiting:
                loop, turn = self._waiting.popleft()
                try:
                    loop.call_soon_threadsafe(_wake, turn)
                except RuntimeError:  # the loop of the waiter is closed
                    continue
                return
            self._free += 1


def _wake(turn: asyncio.Future[None]) -> None:
    if not turn.done():
        turn.set_result(None)


async def run_in_thread(work: Callable[[], Any], on_end: Callable[[], None]) -> Any:
    """Run a plain function in a new thread, with the context variables of the caller.

    The thread is a daemon, so a function that never returns does not delay the end of the event loop or the process.

    Args:
        work: The function.
        on_end: Called in the thread when the function has returned, also if nothing waits for it any more.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def execute() -> None:
        result: Any = None
        error: BaseException | None = None
        try:
            result = context.run(work)
        except KeyboardInterrupt as raised:
            # Ctrl-C interrupts only the main thread; raised in the event loop, this one would end it.
            error = RuntimeError(f"the tool raised KeyboardInterrupt: {raised}".rstrip(": "))
        except BaseException as raised:  # noqa: BLE001 - raised again in the event loop
            error = raised
        on_end()
        try:
            loop.call_soon_threadsafe(_settle, outcome, result, error)
        except RuntimeError:  # the loop is closed: nothing waits for the result
            return

    threading.Thread(target=execute, name="reyn-tool", daemon=True).start()
    result, error = await outcome
    if error is not None:
        raise error
    return result


def _settle(outcome: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if not outcome.done():
        # As a value: an exception such as `StopIteration` or `SystemExit` must not be set on a future.
        outcome.set_result((result, error))
