"""Keep one isolated interpreter started ahead: starting it takes most of the time of a python step.

A process executes one step and ends, so no step can leave anything behind for the next one. The first step of a kind
starts its own process; from then on, the next one is started while the current one runs.
"""

from __future__ import annotations

import atexit
import os
import queue
import select
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from reyn.errors import SandboxStartFailed

if TYPE_CHECKING:
    from reyn.sandbox.backends import Backend
    from reyn.sandbox.supervision import Running
    from reyn.sandbox.values import Access, Limits


class _Kind(NamedTuple):
    """The settings that a process was started with. The time limit does not matter before it gets a step."""

    backend: str
    argv: tuple[str, ...]
    limits: tuple[int, ...]


class Spares:
    """The interpreter that is started ahead in this process, if any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spare: tuple[_Kind, Running] | None = None
        self._orders: queue.SimpleQueue[tuple[_Kind, Backend, Access, Limits]] = queue.SimpleQueue()
        self._owner = 0
        """The process that this object belongs to."""

    def start(self, backend: Backend, argv: tuple[str, ...], access: Access, limits: Limits) -> Running:
        """Return a process that waits for its step, and order the next one."""
        kind = _Kind(
            backend.name, argv, (limits.memory_bytes, limits.file_bytes, limits.processes, limits.output_bytes)
        )
        process = self._take(kind)
        if process is None:
            process = backend.start(argv, access, limits)
        self._orders.put((kind, backend, access, limits))
        return process

    def _take(self, kind: _Kind) -> Running | None:
        with self._lock:
            if self._owner != os.getpid():  # a forked process has neither the thread nor the spare
                self._owner, self._spare, self._orders = os.getpid(), None, queue.SimpleQueue()
                # The kernel ends a sandbox with the thread that started it, so this thread never ends.
                threading.Thread(target=self._work, args=(self._orders,), name="reyn-spares", daemon=True).start()
            found, self._spare = self._spare, None
        if found is None:
            return None
        if found[0] == kind and not _has_ended(found[1].pid):
            return found[1]
        _discard(found[1])
        return None

    def _work(self, orders: queue.SimpleQueue[tuple[_Kind, Backend, Access, Limits]]) -> None:
        while True:
            kind, backend, access, limits = orders.get()
            if orders.empty() and not self._has_spare():
                with suppress(OSError, RuntimeError, SandboxStartFailed):
                    process = backend.start(kind.argv, access, limits)
                    with self._lock:
                        self._spare = (kind, process)

    def _has_spare(self) -> bool:
        with self._lock:
            return self._spare is not None

    def close(self) -> None:
        """End the spare."""
        with self._lock:
            found, self._spare = self._spare, None
        if found is not None and self._owner == os.getpid():
            _discard(found[1])


def _has_ended(pid: int) -> bool:
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return True
    try:
        return bool(select.select([descriptor], [], [], 0)[0])
    finally:
        os.close(descriptor)


def _discard(process: Running) -> None:
    process.kill()
    process.wait()
    for descriptor in process.streams:
        with suppress(OSError):
            os.close(descriptor)


SPARES = Spares()
atexit.register(SPARES.close)
