"""Failpoints: points before and after every call of a wrapped object at which a process can be killed."""

from __future__ import annotations

import gc
import inspect
import os
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

KILLED = -signal.SIGKILL
"""The exit status of a child that was killed."""

FILE_CALLS = ("open", "write", "fchmod", "fsync", "rename", "unlink", "mkdir", "rmdir")
"""The functions of `os` that change files; a kill between two of them leaves a different state on disk."""


READS = frozenset(
    (
        "approvals",
        "blob",
        "check_claim",
        "claimed",
        "drain",
        "find",
        "first_wakes",
        "is_claimed",
        "new",
        "now",
        "peek",
        "read",
        "removals",
        "runs",
        "wakes",
    )
)
"""Port methods that change nothing: a kill after one equals a kill before it, so each is a single point."""


class Failpoints:
    """Counts the points that wrapped ports reach, and kills its process at one of them."""

    def __init__(self, kill_at: int = 0) -> None:
        self.reached: list[str] = []
        self._kill_at = kill_at
        self._lock = threading.Lock()

    def reach(self, name: str) -> None:
        with self._lock:  # commits may run in a worker thread
            self.reached.append(name)
            if len(self.reached) == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    def wrap(self, port: Any, name: str, only: Collection[str] = ()) -> Any:
        """Return the port with a point before and after each call, or only around the named methods."""
        return _Wrapped(port, name, self, only)


class _Wrapped:
    def __init__(self, port: Any, name: str, points: Failpoints, only: Collection[str]) -> None:
        self._port = port
        self._name = name
        self._points = points
        self._only = only

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(self._port, attribute)
        if not callable(value) or (self._only and attribute not in self._only):
            return value
        label = f"{self._name}.{attribute}"
        if attribute in READS:
            return self._wrap_read(value, label)
        return self._wrap_async(value, label) if inspect.iscoroutinefunction(value) else self._wrap_sync(value, label)

    def _wrap_read(self, method: Any, label: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._points.reach(label)
            return method(*args, **kwargs)

        return call

    def _wrap_async(self, method: Any, label: str) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self._points.reach(f"{label} before")
            result = await method(*args, **kwargs)
            self._points.reach(f"{label} after")
            return result

        return call

    def _wrap_sync(self, method: Any, label: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._points.reach(f"{label} before")
            result = method(*args, **kwargs)
            self._points.reach(f"{label} after")
            return self._guard(result, label) if hasattr(result, "__enter__") else result

        return call

    @contextmanager
    def _guard(self, manager: Any, label: str) -> Iterator[Any]:
        with manager as value:
            self._points.reach(f"{label} held")
            yield value
            self._points.reach(f"{label} releasing")
        self._points.reach(f"{label} released")


def in_child(
    work: Callable[[], object], *, kill_after: float | None = None, meanwhile: Callable[[], object] | None = None
) -> int:
    """Do the work in a forked process; return its exit status, negative for a signal.

    Args:
        work: The work.
        kill_after: Seconds after which the process is killed.
        meanwhile: What this process does at the same time.
    """
    gc.freeze()  # otherwise a collection in the child copies every shared page
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking with threads: the child uses none of them
        child = os.fork()
    if child == 0:
        status = 99
        try:
            work()
            status = 0
        except BaseException:  # noqa: BLE001 - it must not propagate in the child process
            traceback.print_exc()
        finally:
            os._exit(status)
    gc.unfreeze()
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    try:
        if meanwhile is not None:
            meanwhile()
    finally:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status
