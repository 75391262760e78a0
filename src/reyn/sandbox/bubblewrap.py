"""The bubblewrap backend: namespaces, read-only mounts, a system-call filter, and limits.

The program sees a file system that has only the system's programs and libraries and the paths of its access. It runs
as an unprivileged user in namespaces of its own; when it ends, the kernel ends every process that it started.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from reyn.errors import SandboxStartFailed
from reyn.sandbox.seccomp import compile_filter, is_supported
from reyn.sandbox.shortages import find_shortage, is_shortage, start_failed
from reyn.sandbox.system import FOLDERS, NOBODY, environment, limited, readable
from reyn.sandbox.values import Access, Limits

if TYPE_CHECKING:
    from collections.abc import Iterator

_TEMPORARY = "/tmp"  # noqa: S108 - inside the sandbox, where it is a file system of its own
_SHARED_MEMORY_BYTES = 16_000_000
_PROBE_SECONDS = 20.0


class Bubblewrap:
    """Runs programs with `bwrap`."""

    name = "bubblewrap"

    def __init__(self, program: str = "bwrap") -> None:
        self._program = program

    @cached_property
    def problem(self) -> str:
        """Why it cannot be used on this machine; empty if it can. Found out by running a program.

        Raises:
            SandboxStartFailed: The machine lacks something at the moment, so the program could not run.
        """
        if not is_supported():
            return f"there is no system-call filter for {os.uname().machine}"
        if self._path is None:
            return f"`{self._program}` is not installed"
        from reyn.sandbox.supervision import supervise

        try:
            outcome = supervise(self._start(("/bin/true",), Access(), Limits()), b"", Limits(seconds=_PROBE_SECONDS))
        except OSError as error:
            if find_shortage(error):
                raise start_failed(self.name, error) from error
            return f"`{self._program}` cannot be started: {error.strerror}"
        if outcome.status == "timeout":
            raise SandboxStartFailed(f"{self.name} could not run a program within {_PROBE_SECONDS:g} seconds")
        if outcome.returncode == 0:
            return ""
        words = " ".join(outcome.stderr.decode("utf-8", "replace").split())[:200]
        if is_shortage(words):
            raise SandboxStartFailed(f"{self.name} could not start a process: {words}")
        return f"`{self._program}` does not work here: {words or f'exit code {outcome.returncode}'}"

    @cached_property
    def _path(self) -> str | None:
        return shutil.which(self._program)

    def start(self, argv: tuple[str, ...], access: Access, limits: Limits) -> _Wrapped:
        """Start a program. The caller has checked that there is no `problem`.

        Raises:
            SandboxStartFailed: The machine lacks something at the moment.
        """
        try:
            return self._start(argv, access, limits)
        except OSError as error:
            raise start_failed(self.name, error) from error

    def _start(self, argv: tuple[str, ...], access: Access, limits: Limits) -> _Wrapped:
        assert self._path is not None
        filter_ = compile_filter(network=access.network, subprocesses=access.subprocesses)
        process = _popen(self._path, filter_, access, limits, argv)
        return _Wrapped(process, counts_processes=access.subprocesses)


def _popen(
    program: str, filter_: bytes, access: Access, limits: Limits, argv: tuple[str, ...]
) -> subprocess.Popen[bytes]:
    with _readable(filter_) as number:
        arguments = [*_namespaces(access), *_mounts(access, limits), "--seccomp", str(number)]
        # Other users can read the command line of a process, and the environment has credentials.
        with _readable(b"".join(os.fsencode(argument) + b"\0" for argument in arguments)) as options:
            return subprocess.Popen(  # noqa: S603 - the point of this module
                [program, "--args", str(options), "--", *limited(argv, limits)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                env={},
                cwd="/",
                pass_fds=(number, options),
                start_new_session=True,
            )


@contextmanager
def _readable(content: bytes) -> Iterator[int]:
    """Open a descriptor from which a program can read some content."""
    descriptor = os.memfd_create("reyn")
    try:
        os.write(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def _namespaces(access: Access) -> Iterator[str]:
    yield from ("--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try")
    if not access.network:
        yield "--unshare-net"
    yield from ("--uid", str(NOBODY), "--gid", str(NOBODY), "--hostname", "sandbox")
    yield from ("--die-with-parent", "--new-session", "--clearenv")
    for name, value in environment(access, _TEMPORARY).items():
        yield from ("--setenv", name, value)


def _mounts(access: Access, limits: Limits) -> Iterator[str]:
    for folder in FOLDERS:
        path = Path(folder)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), folder)
        elif path.is_dir():
            yield from ("--ro-bind", folder, folder)
    for name in readable(access):
        yield from ("--ro-bind", name, name)
    # Files of /proc/sys belong to root by number: a sandbox that root starts could write them, also `core_pattern`.
    yield from ("--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev")
    for name in ("/proc/keys", "/proc/key-users"):  # those of the user who runs Reyn
        yield from ("--ro-bind", "/dev/null", name) if Path(name).exists() else ()
    yield from ("--size", str(_SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm", "--remount-ro", "/dev")  # noqa: S108
    yield from ("--size", str(limits.file_bytes), "--tmpfs", _TEMPORARY)
    for name in access.read:
        yield from ("--ro-bind", name, name)
    for name in access.write:
        yield from ("--bind", name, name)
    for name in access.hidden:
        yield from _cover(name)
    yield from ("--dir", access.cwd) if access.cwd != "/" else ()
    yield from ("--remount-ro", "/", "--chdir", access.cwd)


def _cover(name: str) -> Iterator[str]:
    """Cover a file with an empty one, and a folder with an empty, read-only one."""
    try:
        is_folder = stat.S_ISDIR(os.lstat(name).st_mode)
    except OSError:  # it is gone
        return
    if is_folder:
        yield from ("--tmpfs", name, "--remount-ro", name)
    else:
        yield from ("--ro-bind", "/dev/null", name)


class _Wrapped:
    """A process in `bwrap`. Ending `bwrap` ends its namespace with every process in it."""

    def __init__(self, process: subprocess.Popen[bytes], *, counts_processes: bool) -> None:
        self._process = process
        self._counts_processes = counts_processes
        self.streams = _descriptors(process)

    @property
    def pid(self) -> int:
        return self._process.pid

    def overuse(self, limits: Limits) -> str:
        # The kernel limits each process; how many there are, and what they use together, is counted here.
        return tree_overuse(self._process.pid, limits) if self._counts_processes else ""

    def kill(self) -> None:
        self._process.kill()

    def wait(self) -> int:
        code = self._process.wait()
        return 128 - code if code > 128 else code  # bwrap reports a signal as 128 plus its number


def _descriptors(process: subprocess.Popen[bytes]) -> tuple[int, int, int]:
    """Take over the descriptors of a process, so that nothing else closes them."""
    streams = (process.stdin, process.stdout, process.stderr)
    descriptors = tuple(os.dup(stream.fileno()) for stream in streams if stream is not None)
    for stream in streams:
        if stream is not None:
            stream.close()
    return descriptors  # type: ignore[return-value]  # there are three


def tree_overuse(pid: int, limits: Limits) -> str:
    """Return which limit a process and its descendants exceed together; empty if none."""
    page = os.sysconf("SC_PAGE_SIZE")
    waiting, count, pages = [pid], 0, 0
    while waiting:
        one = waiting.pop()
        with suppress(OSError, ValueError, IndexError):  # it has ended in the meantime
            waiting += descendants_of(one)
            pages += int(Path(f"/proc/{one}/statm").read_text().split()[1])
            count += 1
        if count > limits.processes + 3:  # bwrap itself, its init and the shell that sets the limits
            return f"it started more than {limits.processes} processes"
    return f"its processes used more than {limits.memory_bytes} bytes" if pages * page > limits.memory_bytes else ""


def descendants_of(pid: int) -> list[int]:
    """Return the children of all threads of a process."""
    descriptors: list[int] = []
    for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - names alone
        descriptors += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return descriptors
