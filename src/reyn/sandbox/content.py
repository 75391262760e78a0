"""Convert hostile pages to Markdown in worker processes with limits of time, memory and output.

A worker converts one page after another; one that exceeds a limit is killed. It holds no credential and no connection,
and its code is Reyn's own: the limits are the point, not isolation. `content_worker` is the program.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import selectors
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import msgspec

from reyn.errors import SandboxStartFailed
from reyn.sandbox.process import find_shortage
from reyn.sandbox.supervision import Running, start_piped

MEMORY_BYTES = 1_000_000_000
"""The address space of a worker. A page of 5 MB needs a tenth of it, unless it is made to need more."""
_PROGRAM = Path(__file__).with_name("content_worker.py")
_MAX_DEPTH = 500
_MAX_IDLE = 2
_MAX_HEADER = 10_000
_CHUNK = 65_536


class ContentFailed(Exception):
    """A page was not converted. `timed_out` says whether its time was up."""

    def __init__(self, message: str, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.timed_out = timed_out


class MarkdownPage(NamedTuple):
    """A page as Markdown, its title, and whether text is missing: it is longer than asked for, or nested too deep."""

    text: str
    title: str
    is_truncated: bool


class _Answer(msgspec.Struct):
    size: int
    error: str = ""
    title: str = ""
    truncated: bool = False


def missing_package() -> str:
    """Return the package that is missing to convert pages; empty if there is none."""
    return "" if find_spec("html_to_markdown") else "html-to-markdown"


class ContentWorkers:
    """The workers of this process that wait for a page."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._idle: list[Running] = []
        self._owner = os.getpid()

    async def to_markdown(self, html: str, url: str, *, most: int, seconds: float) -> MarkdownPage:
        """Convert a page. If the caller is cancelled, the worker is killed.

        Args:
            html: The page.
            url: Its URL, for links.
            most: Characters of the result.
            seconds: Time limit.

        Raises:
            ContentFailed: It took too long, needed too much memory, or is not convertible.
            SandboxStartFailed: The machine lacks something that a process needs.
        """
        content = html.encode("utf-8", "replace")
        fields = {"url": url, "depth": _MAX_DEPTH, "seconds": seconds, "size": len(content), "most": most}
        request = msgspec.json.encode(fields) + b"\n" + content
        started: list[Running] = []
        is_cancelled = threading.Event()

        def work() -> tuple[_Answer, bytes]:
            worker = self._take()
            started.append(worker)
            try:
                if is_cancelled.is_set():
                    raise ContentFailed("the run was stopped")
                done = _Exchange(worker, seconds, 4 * most).run(request)
            except BaseException:
                worker.discard()
                raise
            self._give_back(worker)
            return done

        try:
            answer, text = await asyncio.to_thread(work)
        except asyncio.CancelledError:
            is_cancelled.set()
            for worker in started:  # its thread notices the end, and releases it
                worker.kill()
            raise
        if answer.error:
            raise ContentFailed(f"it cannot be converted ({answer.error})")
        return MarkdownPage(text.decode("utf-8", "replace"), answer.title, answer.truncated)

    def _take(self) -> Running:
        with self._lock:
            if self._owner != os.getpid():  # a forked process shares the descriptors of its parent's workers
                self._owner, self._idle = os.getpid(), []
            if self._idle:
                return self._idle.pop()
        found = find_spec("html_to_markdown")
        folders = [str(Path(place).parent) for place in (found.submodule_search_locations or ())] if found else []
        argv = [sys.executable, "-I", "-S", str(_PROGRAM), str(MEMORY_BYTES), *folders]
        try:
            return Running(start_piped(argv, env={"PYTHONUTF8": "1"}, cwd="/"))
        except OSError as error:
            raise SandboxStartFailed(f"no process can be started: {find_shortage(error) or error}") from error

    def _give_back(self, worker: Running) -> None:
        with self._lock:
            if len(self._idle) < _MAX_IDLE:
                self._idle.append(worker)
                return
        worker.discard()

    def close(self) -> None:
        """End the workers that wait."""
        with self._lock:
            workers, self._idle = self._idle, []
        if self._owner == os.getpid():
            for worker in workers:
                worker.discard()


class _Exchange:
    """One request to a worker and its answer, within a time."""

    def __init__(self, worker: Running, seconds: float, most: int) -> None:
        self._stdin, self._stdout, _ = worker.streams
        self._seconds, self._deadline = seconds, time.monotonic() + seconds
        self._most = most + _MAX_HEADER
        self._received = bytearray()
        self._answer: _Answer | None = None

    def run(self, request: bytes) -> tuple[_Answer, bytes]:
        waiting = memoryview(request)
        with selectors.DefaultSelector() as selector:
            for descriptor, event in ((self._stdin, selectors.EVENT_WRITE), (self._stdout, selectors.EVENT_READ)):
                os.set_blocking(descriptor, False)
                selector.register(descriptor, event)
            while True:
                for descriptor in self._ready(selector):
                    if descriptor == self._stdin:
                        waiting = waiting[self._feed(waiting) :]
                        if not waiting:
                            selector.unregister(descriptor)
                    elif (answer := self._receive()) is not None:
                        return answer

    def _ready(self, selector: selectors.BaseSelector) -> list[int]:
        left = self._deadline - time.monotonic()
        found = [key.fd for key, _ in selector.select(max(0.0, left))]
        if not found and left <= 0:
            raise ContentFailed(f"its conversion takes more than {self._seconds:.3g} seconds", timed_out=True)
        return found

    def _feed(self, waiting: memoryview) -> int:
        try:
            return os.write(self._stdin, waiting[:_CHUNK])
        except BlockingIOError:
            return 0
        except OSError as error:
            raise ContentFailed(_TOO_LARGE) from error

    def _receive(self) -> tuple[_Answer, bytes] | None:
        """Read a part of the answer; return it when it is complete."""
        chunk = os.read(self._stdout, _CHUNK)
        self._received += chunk
        if not chunk or len(self._received) > self._most:
            raise ContentFailed(_TOO_LARGE)
        if self._answer is None:
            head, end, rest = self._received.partition(b"\n")
            if not end:
                return None
            self._answer, self._received = msgspec.json.decode(head, type=_Answer), rest
        return (self._answer, bytes(self._received)) if len(self._received) >= self._answer.size else None


_TOO_LARGE = f"its conversion needs more than {MEMORY_BYTES // 1_000_000} MB of memory, or more time than it has"
WORKERS = ContentWorkers()
atexit.register(WORKERS.close)
