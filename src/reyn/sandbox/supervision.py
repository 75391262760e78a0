"""Supervise one process: feed its input, keep the beginning of its output, end it when its time is up.

Backends start processes; this module decides how long they live. Nothing here isolates anything.
"""

from __future__ import annotations

import asyncio
import os
import selectors
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import msgspec

from reyn.errors import SandboxStartFailed
from reyn.sandbox.tasks import open_process, tree_bytes

if TYPE_CHECKING:
    T = TypeVar("T")

_CHUNK = 65_536
_CHECK_SECONDS = 0.02
"""How often the use of a process is compared with its limits."""
_DRAIN_SECONDS = 2.0
"""How long output is read after the process has ended: another process may still have it open."""


class ProgramLimits(msgspec.Struct, frozen=True):
    """The most that one program may use.

    Attributes:
        seconds: Wall-clock time.
        memory_bytes: Memory: of each process, and of all processes together.
        output_bytes: How much of each output stream is returned; the rest is discarded.
        processes: Processes and threads at the same time, if it may start processes.
        file_bytes: The size of a file that it writes, and of its temporary folder where the backend has its own.
    """

    seconds: float = 60.0
    memory_bytes: int = 512_000_000
    output_bytes: int = 1_000_000
    processes: int = 64
    file_bytes: int = 64_000_000


class PartialFolder(msgspec.Struct, frozen=True):
    """A folder of which a program sees a part.

    Attributes:
        path: The folder.
        shown: Names of the entries that it sees whole. Folders that it sees in part are values of their own.
        hidden: Names of the entries that it does not see.
    """

    path: str
    shown: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()


class Access(msgspec.Struct, frozen=True):
    """The access of a program, besides the programs and libraries of the system.

    Attributes:
        read: Files and folders that it can read, with everything below, as absolute paths without links.
        folders: Folders that it can read in part, upper ones first.
        write: Files and folders that it can read and write.
        read_only: Files and folders below those that it can only read.
        hidden: Files and folders below those that it cannot see or open.
        private: Paths among the system's programs and libraries that it cannot see, unless it can read or write them.
        network: Whether it can open sockets.
        subprocesses: Whether it can start other processes.
        groups: Further system calls that it can use, by the names of `filters.GROUPS`.
        env: Its whole environment, besides `PATH`, `HOME`, `TMPDIR` and `LANG`.
        cwd: The folder in which it starts.
    """

    read: tuple[str, ...] = ()
    folders: tuple[PartialFolder, ...] = ()
    write: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    private: tuple[str, ...] = ()
    network: bool = False
    subprocesses: bool = False
    groups: tuple[str, ...] = ()
    env: dict[str, str] = {}
    cwd: str = "/"


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a program.

    Attributes:
        status: `exited` by itself, `timeout` if its time was up, `killed` if it used too much of something else.
        returncode: Its exit code; negative for the signal that ended it.
        stdout: The beginning of its standard output.
        stderr: The beginning of its standard error.
        truncated: Whether some of the output was discarded.
        reason: Why it was killed.
    """

    status: Literal["exited", "timeout", "killed"]
    returncode: int
    stdout: bytes = b""
    stderr: bytes = b""
    truncated: bool = False
    reason: str = ""


def start_piped(argv: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    """Start a process in a session of its own, with pipes for its standard streams."""
    pipe = subprocess.PIPE
    return subprocess.Popen(  # noqa: S603 - the point of this package
        argv, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, start_new_session=True, **options
    )


class Running:
    """A process that a backend has started, with its descriptors, which belong to the caller.

    Attributes:
        pid: The process.
        streams: The descriptors of its standard input, output and error.
    """

    def __init__(self, process: Any) -> None:
        self.process = process
        self.pid: int = process.pid
        streams = (process.stdin, process.stdout, process.stderr)
        stdin, stdout, stderr = (os.dup(stream.fileno()) for stream in streams)
        self.streams = (stdin, stdout, stderr)
        for stream in streams:  # nothing else closes the descriptors
            stream.close()

    def overuse(self, limits: ProgramLimits) -> str:
        """Return which limit its processes exceed together; empty if none, or if the kernel enforces all of them."""
        return ""

    def kill(self) -> None:
        """End it and every process that it started, even if they ignore signals."""
        self.process.kill()

    def wait(self) -> int:
        """Wait until it has ended and release it; return its exit code, negative for a signal."""
        code: int = self.process.wait()
        return 128 - code if code > 128 else code  # bwrap and the reaper report a signal as 128 plus its number

    def discard(self) -> None:
        """End it and close its descriptors."""
        self.kill()
        self.wait()
        for descriptor in self.streams:
            with suppress(OSError):
                os.close(descriptor)


def memory_overuse(pid: int, limits: ProgramLimits) -> str:
    """Return whether a process and its descendants use too much memory together; the kernel limits each of them."""
    if tree_bytes(pid) <= limits.memory_bytes:
        return ""
    return f"its processes used more than {limits.memory_bytes} bytes"


class StopSignal:
    """Ends a supervised process from another thread."""

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe()
        self._lock = threading.Lock()
        self._is_closed = False
        self._end: Callable[[], None] | None = None
        self.is_set = False

    @contextmanager
    def calling(self, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` when the signal is set, or has been set, as long as the context is open."""
        with self._lock:
            self._end = end
            if self.is_set:
                end()
        try:
            yield
        finally:
            with self._lock:
                self._end = None

    def fileno(self) -> int:
        return self._reading

    def set(self) -> None:
        with self._lock:
            if not self._is_closed:
                self.is_set = True
                os.write(self._writing, b"1")
                if self._end is not None:
                    self._end()

    def close(self) -> None:
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._reading)
                os.close(self._writing)


def supervise(process: Running, stdin: bytes, limits: ProgramLimits, stop: StopSignal | None = None) -> Outcome:
    """Wait until a process has ended, and end it if it exceeds a limit or `stop` is set.

    Raises:
        SandboxStartFailed: This process cannot open the files that it needs; the process was ended.
    """
    try:
        supervision = _Supervision(process, stdin, limits, stop)
    except OSError as error:  # no descriptor is free
        process.discard()
        raise SandboxStartFailed(f"the process was ended: {(error.strerror or str(error)).lower()}") from error
    return supervision.run()


class _Supervision:
    def __init__(self, process: Running, stdin: bytes, limits: ProgramLimits, stop: StopSignal | None) -> None:
        self._process = process
        self._stdin = memoryview(stdin)
        self._limits = limits
        self._deadline = time.monotonic() + limits.seconds
        self._output: dict[int, bytearray] = {}
        self._stop = stop
        self._truncated = False
        self._has_ended = False
        self._open = {*process.streams}
        self._pidfd = open_process(process.pid)
        try:
            self._selector = selectors.DefaultSelector()
        except OSError:
            os.close(self._pidfd)
            raise

    def run(self) -> Outcome:
        stdin, stdout, stderr = self._process.streams
        try:
            self._register(stdin, stdout, stderr)
            status, reason = self._watch()
        finally:
            if not self._has_ended:
                self._process.kill()
            os.close(self._pidfd)
        self._drain()
        returncode = self._process.wait()
        self._selector.close()
        for descriptor in tuple(self._open):
            self._close(descriptor)
        out, err = bytes(self._output[stdout]), bytes(self._output[stderr])
        return Outcome(status, returncode, out, err, self._truncated, reason)

    def _register(self, stdin: int, stdout: int, stderr: int) -> None:
        self._output = {stdout: bytearray(), stderr: bytearray()}
        for descriptor in (stdout, stderr):
            os.set_blocking(descriptor, False)
            self._selector.register(descriptor, selectors.EVENT_READ, "output")
        if self._stop is not None:
            self._selector.register(self._stop, selectors.EVENT_READ, "stop")
        os.set_blocking(stdin, False)
        self._selector.register(stdin, selectors.EVENT_WRITE, "input")
        self._selector.register(self._pidfd, selectors.EVENT_READ, "ended")

    def _watch(self) -> tuple[Literal["exited", "timeout", "killed"], str]:
        """Return the status and reason when the process has ended or must be ended."""
        checked = time.monotonic()
        while not self._has_ended:
            now = time.monotonic()
            if now >= self._deadline:
                return "timeout", f"it took more than {self._limits.seconds:g} seconds"
            if now - checked >= _CHECK_SECONDS:
                checked = now
                if reason := self._process.overuse(self._limits):
                    return "killed", reason
            for key, _ in self._selector.select(min(self._deadline - now, _CHECK_SECONDS)):
                match key.data:
                    case "output":
                        self._read(key.fd)
                    case "input":
                        self._feed(key.fd)
                    case "stop":
                        return "killed", "the run was stopped"
                    case _:
                        self._has_ended = True
        return "exited", ""

    def _close(self, descriptor: int) -> None:
        """Close a stream once: another thread may have got its number since."""
        self._open.remove(descriptor)
        os.close(descriptor)

    def _feed(self, descriptor: int) -> None:
        try:
            self._stdin = self._stdin[os.write(descriptor, self._stdin[:_CHUNK]) :] if self._stdin else self._stdin
        except BlockingIOError:
            return
        except OSError:  # the program does not read its input
            self._stdin = self._stdin[:0]
        if not self._stdin:
            self._selector.unregister(descriptor)
            self._close(descriptor)

    def _read(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._selector.unregister(descriptor)
            return
        output = self._output[descriptor]
        free = self._limits.output_bytes - len(output)
        output += data[:free]
        self._truncated = self._truncated or len(data) > free

    def _drain(self) -> None:
        """Read the rest of the output from the pipes."""
        deadline, is_last = time.monotonic() + _DRAIN_SECONDS, False
        # The last pass comes after the deadline and reads as much as a pipe holds: a process that was suspended
        # meanwhile loses no output.
        while not is_last:
            is_last = time.monotonic() >= deadline
            if not any(key.data == "output" for key in self._selector.get_map().values()):
                return
            ready = [key for key, _ in self._selector.select(0 if is_last else 0.05) if key.data == "output"]
            for key in ready:
                self._read(key.fd)


async def in_thread(work: Callable[[StopSignal], T]) -> T:
    """Run blocking work in a thread of its own; when the awaiting task is cancelled, `stop` is set for it.

    The thread is a daemon: work that cannot be stopped does not keep the interpreter from exiting.
    """
    loop, stop = asyncio.get_running_loop(), StopSignal()
    future: asyncio.Future[T] = loop.create_future()

    def finish(set_result: Callable[..., None], value: object) -> None:
        if not future.done():
            set_result(value)

    def run() -> None:
        try:
            result = work(stop)
        except BaseException as error:  # noqa: BLE001 - raised again by the awaiting task
            settle: tuple[Any, Any] = (future.set_exception, error)
        else:
            settle = (future.set_result, result)
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(finish, *settle)
        stop.close()

    thread = threading.Thread(target=run, name="reyn-sandbox", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        stop.close()
        raise SandboxStartFailed(f"no thread can be started to supervise a process: {error}") from error
    try:
        return await future
    except asyncio.CancelledError:
        stop.set()
        raise
