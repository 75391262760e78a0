"""Where a process can die: before and after every call of what is wrapped. Knows nothing of runs."""

from __future__ import annotations

import gc
import inspect
import os
import signal
import threading
import time
import traceback
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

KILLED = -signal.SIGKILL
"""The exit status of a child that was killed."""

FILE_CALLS = ("open", "write", "fchmod", "fsync", "rename", "unlink", "mkdir", "rmdir")
"""The calls of `os` by which a file is changed: a kill between two of them leaves something else on the disk."""


LOOKS = frozenset(("approvals", "blob", "drain", "find", "is_claimed", "new", "now", "read", "runs"))
"""Calls of ports that change nothing: to die after one is to die before it, so each is one point."""


class Failpoints:
    """Counts the points that the wrapped ports pass, and kills its process at one of them."""

    def __init__(self, kill_at: int = 0) -> None:
        self.passed: list[str] = []
        self._kill_at = kill_at
        self._lock = threading.Lock()

    def pass_by(self, name: str) -> None:
        with self._lock:  # commits may be made in a thread of their own
            self.passed.append(name)
            if len(self.passed) == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    def wrap(self, port: Any, name: str, only: Collection[str] = ()) -> Any:
        """The same port, each of its calls two points, before and after; or those `only` that are named."""
        return _Wrapped(port, name, self, only)


class _Wrapped:
    def __init__(self, port: Any, name: str, points: Failpoints, only: Collection[str]) -> None:
        self._port = port
        self._name = name
        self._points = points
        self._only = only

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(self._port, attribute)
        if not callable(found) or (self._only and attribute not in self._only):
            return found
        label = f"{self._name}.{attribute}"
        if attribute in LOOKS:
            return self._wrap_look(found, label)
        return self._wrap_async(found, label) if inspect.iscoroutinefunction(found) else self._wrap_sync(found, label)

    def _wrap_look(self, method: Any, label: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._points.pass_by(label)
            return method(*args, **kwargs)

        return call

    def _wrap_async(self, method: Any, label: str) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self._points.pass_by(f"{label} before")
            result = await method(*args, **kwargs)
            self._points.pass_by(f"{label} after")
            return result

        return call

    def _wrap_sync(self, method: Any, label: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._points.pass_by(f"{label} before")
            result = method(*args, **kwargs)
            self._points.pass_by(f"{label} after")
            return self._guard(result, label) if hasattr(result, "__enter__") else result

        return call

    @contextmanager
    def _guard(self, held: Any, label: str) -> Iterator[Any]:
        with held as value:
            self._points.pass_by(f"{label} held")
            yield value
            self._points.pass_by(f"{label} releasing")
        self._points.pass_by(f"{label} released")


def in_child(work: Callable[[], object], *, kill_after: float | None = None) -> int:
    """Do the work in a forked process, perhaps killed after some seconds; its exit status, negative for a signal."""
    gc.freeze()  # else a collection in the child copies every page that it shares with us
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads: the child uses none of them
        child = os.fork()
    if child == 0:
        status = 99
        try:
            work()
            status = 0
        except BaseException:  # noqa: BLE001 - nobody above may see it: this is another process
            traceback.print_exc()
        finally:
            os._exit(status)
    gc.unfreeze()
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
