"""Select the runtime of a call: that of the calling op, that of `use_runtime`, or that of the current project.

A function without a `runtime` uses the project of the current folder: the nearest folder with a `reyn.yaml`, else the
current folder. Each event loop opens one runtime per project and closes it with the loop. Plain functions run on an
event loop in a separate thread, so they can be called inside a running event loop, as in a notebook.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol, TypeVar
from weakref import WeakKeyDictionary

from reyn.private_files import nearest_project
from reyn.runtime import OSRuntime, SyncRuntime
from reyn.runtime.sync_form import LoopThread

T = TypeVar("T")
AnyRuntime = OSRuntime | SyncRuntime

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
        root = nearest_project("If you trust that user, open the folder with `OSRuntime.open` and `use_runtime`.")
        found = next((one for one in opened.values() if one.runtime.project.root == root), None)
        if found is None:
            runtime = OSRuntime.open(root)
            found = _OpenRuntime(runtime, await close_with_loop(runtime))
        opened[folder] = found
    return opened[folder].runtime


# -- plain functions ------------------------------------------------------------------------------------------


_thread = LoopThread()


def close() -> None:
    """Close the runtimes that plain functions opened. The next call opens them again."""
    _thread.close()


def call_on_project(work: Callable[[OSRuntime], Coroutine[Any, Any, T]]) -> T:
    """Execute a coroutine with the runtime of the current project, on the event loop of plain functions."""

    async def execute() -> T:
        return await work(await project_runtime())

    return _thread.run(execute())


def is_loop_running() -> bool:
    """Return whether an event loop is running in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
