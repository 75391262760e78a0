"""Select the runtime of a call: that of the calling op, that of `use_runtime`, or that of the current project.

A function without a `runtime` uses the project of the current folder: the nearest folder with a `reyn.yaml`, else the
current folder. Each event loop opens one runtime per project and closes it with the loop. Plain functions run on an
event loop in a separate thread, so they can be called inside a running event loop, as in a notebook.
"""

from __future__ import annotations

import asyncio
import os
import weakref
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from reyn.errors import ProjectNotFound
from reyn.runtime import OSRuntime, SyncRuntime
from reyn.runtime.sync_form import LoopThread, run_on

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator

T = TypeVar("T")
AnyRuntime = OSRuntime | SyncRuntime
_CONFIG = "reyn.yaml"

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


class _LoopRuntimes:
    """The runtimes of one event loop, by the current folder."""

    def __init__(self) -> None:
        self.by_folder: dict[str, OSRuntime] = {}
        self._by_root: dict[Path, OSRuntime] = {}
        self._lifetimes: list[AsyncGenerator[None]] = []

    async def open(self, folder: str) -> OSRuntime:
        root = current_project()
        if root not in self._by_root:
            runtime = self._by_root[root] = OSRuntime.open(root)
            lifetime = _lifetime(runtime)
            await anext(lifetime)
            self._lifetimes.append(lifetime)
        runtime = self.by_folder[folder] = self._by_root[root]
        return runtime


async def _lifetime(runtime: OSRuntime) -> AsyncGenerator[None]:
    """Close a runtime when its event loop ends: `asyncio.run` closes the generators that were started in it."""
    try:
        yield
    finally:
        await runtime.aclose()


_loops: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopRuntimes] = weakref.WeakKeyDictionary()


async def project_runtime() -> OSRuntime:
    """Return the runtime of the current project for the running event loop, opened on first use."""
    loop = asyncio.get_running_loop()
    runtimes = _loops.get(loop)
    if runtimes is None:
        runtimes = _loops[loop] = _LoopRuntimes()
    try:
        folder = os.getcwd()  # noqa: PTH109 - the text is enough, and this is called for every call
    except OSError:
        folder = ""
    runtime = runtimes.by_folder.get(folder)
    return runtime if runtime is not None else await runtimes.open(folder)


# -- plain functions ------------------------------------------------------------------------------------------


_thread = LoopThread()


def close() -> None:
    """Close the runtimes that plain functions opened. The next call opens them again."""
    _thread.close()


def wait_for(work: Callable[[], Coroutine[Any, Any, T]], loop: asyncio.AbstractEventLoop | None = None) -> T:
    """Execute a coroutine on another thread's event loop and wait for its result.

    Args:
        work: Creates the coroutine.
        loop: The loop; by default that of plain functions.
    """
    return _thread.run(work()) if loop is None else run_on(loop, work())


def is_loop_running() -> bool:
    """Return whether an event loop is running in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
