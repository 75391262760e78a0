"""Select the runtime of a call: that of the calling op, that of `use_runtime`, or that of the current project.

A function without a `runtime` uses the project of the current folder: the nearest folder with a `reyn.yaml`, else the
current folder. Each event loop opens one runtime per project and closes it with the loop. Plain functions run on an
event loop in a separate thread, so they can be called inside a running event loop, as in a notebook.
"""

from __future__ import annotations

import asyncio
import atexit
import contextvars
import os
import threading
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary

from reyn.errors import ProjectNotFound
from reyn.runtime import OSRuntime, SyncRuntime

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator

T = TypeVar("T")
AnyRuntime = OSRuntime | SyncRuntime
_CONFIG = "reyn.yaml"
_CLOSE_SECONDS = 5.0

_in_use: ContextVar[AnyRuntime | None] = ContextVar("reyn_runtime", default=None)


@contextmanager
def use_runtime(runtime: AnyRuntime) -> Iterator[None]:
    """Use a runtime for all calls in the block, except of functions with a `runtime` of their own."""
    token = _in_use.set(runtime)
    try:
        yield
    finally:
        _in_use.reset(token)


def runtime_in_use() -> AnyRuntime | None:
    """Return the runtime of the innermost `use_runtime`."""
    return _in_use.get()


def current_project() -> Path:
    """Return the nearest folder with a `reyn.yaml`, from the current one upwards, else the current one."""
    try:
        current = Path.cwd()
    except OSError as error:
        raise ProjectNotFound(f"the current folder does not exist: {error.strerror}") from error
    return next((folder for folder in (current, *current.parents) if (folder / _CONFIG).is_file()), current)


# -- runtimes of event loops ----------------------------------------------------------------------------------


class Closable(Protocol):
    """Something with connections that belong to an event loop."""

    async def aclose(self) -> None:
        """Close it."""
        ...


async def close_with_loop(resource: Closable) -> AsyncGenerator[None]:
    """Close a resource when the running event loop ends, or when the generator that this returns is closed."""

    async def lifetime() -> AsyncGenerator[None]:
        try:  # `asyncio.run` closes the generators that were started in it
            yield
        finally:
            await resource.aclose()

    generator = lifetime()
    await anext(generator)
    return generator


class _OpenRuntime(NamedTuple):
    runtime: OSRuntime
    lifetime: AsyncGenerator[None]


_loops: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, _OpenRuntime]] = WeakKeyDictionary()
"""The runtimes of each event loop, by the current folder."""


async def project_runtime() -> OSRuntime:
    """Return the runtime of the current project for the running event loop, opened on first use."""
    opened = _loops.setdefault(asyncio.get_running_loop(), {})
    try:
        folder = os.getcwd()  # noqa: PTH109 - the text is enough, and this is called for every call
    except OSError:
        folder = ""
    if folder not in opened:
        root = current_project()
        found = next((one for one in opened.values() if one.runtime.root == root), None)
        if found is None:
            runtime = OSRuntime.open(root)
            found = _OpenRuntime(runtime, await close_with_loop(runtime))
        opened[folder] = found
    return opened[folder].runtime


# -- plain functions ------------------------------------------------------------------------------------------


class _LoopThread:
    """An event loop in a daemon thread, started on first use."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._execute, name="reyn-functions", daemon=True)
        self._thread.start()

    def _execute(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()

    @property
    def is_alive(self) -> bool:
        """Whether the loop is running."""
        return self._thread.is_alive()

    def close(self) -> None:
        """Interrupt what the loop executes, close its runtimes, then the loop."""
        if not self._thread.is_alive():
            return
        closing = asyncio.run_coroutine_threadsafe(_end_tasks(), self.loop)
        try:
            closing.result(_CLOSE_SECONDS)
        except TimeoutError:  # a run does not end: the process ends without it, and the run can be resumed
            return
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(_CLOSE_SECONDS)
        if not self._thread.is_alive():
            self.loop.close()


async def _end_tasks() -> None:
    """Interrupt the other tasks of the loop, then close its generators, which the tasks may still be using."""
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


_thread: _LoopThread | None = None
_lock = threading.Lock()


def _loop_thread() -> _LoopThread:
    global _thread  # noqa: PLW0603 - one per process
    with _lock:
        if _thread is None or not _thread.is_alive:
            _thread = _LoopThread()
        return _thread


def _forget_thread() -> None:
    """Forget the thread after a fork of the process, because threads do not survive a fork."""
    global _thread  # noqa: PLW0603 - one per process
    _thread = None


def close() -> None:
    """Close the runtimes that plain functions opened. The next call opens them again."""
    global _thread
    with _lock:
        found, _thread = _thread, None
    if found is not None:
        found.close()


atexit.register(close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_thread)


def wait_for(work: Callable[[], Coroutine[Any, Any, T]], loop: asyncio.AbstractEventLoop | None = None) -> T:
    """Execute a coroutine on another thread's event loop and wait for its result.

    Args:
        work: Creates the coroutine.
        loop: The loop; by default that of plain functions.
    """
    future = asyncio.run_coroutine_threadsafe(work(), loop or _loop_thread().loop)
    try:
        return future.result()
    except BaseException:
        future.cancel()  # a Ctrl-C interrupts the run, which can be resumed
        raise


def is_loop_running() -> bool:
    """Return whether an event loop is running in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


_runner_lock = threading.Lock()


def in_other_thread(work: Callable[[], T]) -> T:
    """Call a function that runs an event loop of its own, although one is running in this thread."""
    context = contextvars.copy_context()
    outcome: list[tuple[Any, BaseException | None]] = []

    def execute() -> None:
        with _runner_lock:  # two calls must not run the same loop at the same time
            try:
                outcome.append((context.run(work), None))
            except BaseException as error:  # noqa: BLE001 - raised again by the caller
                outcome.append((None, error))

    thread = threading.Thread(target=execute, name="reyn-functions-call")
    thread.start()
    thread.join()
    value, error = outcome[0]
    if error is not None:
        raise error
    result: T = value
    return result
