"""The bubblewrap backend: namespaces, read-only mounts, a system-call filter, and limits.

The program sees a file system that has only the system's programs and libraries and the paths of its access. It runs
as an unprivileged user in namespaces of its own; when it ends, the kernel ends every process that it started.
"""

from __future__ import annotations

import errno
import os
import platform
import shutil
import stat
import struct
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from reyn.sandbox.process import FOLDERS, NOBODY, Backend, environment, limited, readable
from reyn.sandbox.supervision import Access, ProgramLimits, Running, start_piped

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

_TEMPORARY = "/tmp"  # noqa: S108 - inside the sandbox, where it is a file system of its own
_SHARED_MEMORY_BYTES = 16_000_000


class Bubblewrap(Backend):
    """Runs programs with `bwrap`."""

    name = "bubblewrap"

    def __init__(self, program: str = "bwrap") -> None:
        self.program = program

    @cached_property
    def _path(self) -> str | None:
        return shutil.which(self.program)

    def missing(self) -> str:
        if not is_supported():
            return f"there is no system-call filter for {os.uname().machine}"
        return f"`{self.program}` is not installed" if self._path is None else ""

    def spawn(self, argv: tuple[str, ...], access: Access, limits: ProgramLimits) -> Running:
        assert self._path is not None
        filter_ = compile_filter(network=access.network, subprocesses=access.subprocesses)
        process = _popen(self._path, filter_, access, limits, argv)
        return _ProcessTree(process) if access.subprocesses else Running(process)


def _popen(
    program: str, filter_: bytes, access: Access, limits: ProgramLimits, argv: tuple[str, ...]
) -> subprocess.Popen[bytes]:
    with _readable(filter_) as number:
        arguments = [*_namespaces(access), *_mounts(access, limits), "--seccomp", str(number)]
        # Other users can read the command line of a process, and the environment has credentials.
        with _readable(b"".join(os.fsencode(argument) + b"\0" for argument in arguments)) as options:
            command = [program, "--args", str(options), "--", *limited(argv, limits)]
            return start_piped(command, env={}, cwd="/", pass_fds=(number, options))


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


def _mounts(access: Access, limits: ProgramLimits) -> Iterator[str]:
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


class _ProcessTree(Running):
    """A program that may start others. Ending `bwrap` ends its namespace with every process in it."""

    def overuse(self, limits: ProgramLimits) -> str:
        # The kernel limits each process; how many there are, and what they use together, is counted here.
        return tree_overuse(self.pid, limits)


def tree_overuse(pid: int, limits: ProgramLimits) -> str:
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


# -- the system-call filter -----------------------------------------------------------------------------------
# It denies what namespaces do not cover: kernel interfaces with a history of escapes, sockets without the network
# permission, and new processes without the permission to start them.

_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_ERRNO = 0x00050000

_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENT_0, _ARGUMENT_1 = 0, 4, 16, 24  # offsets in `struct seccomp_data`

_CLONE_THREAD = 0x00010000
_NEW_NAMESPACES = 0x7E020000
_FAMILIES = (1, 2, 10, 16)
"""Address families with the network permission: Unix, IPv4, IPv6, netlink."""
_TERMINAL_INJECTION = (0x5412, 0x541C)
"""The ioctls TIOCSTI and TIOCLINUX, which type into a terminal."""
_X32 = 0x40000000


class _Architecture(NamedTuple):
    """The numbers of system calls on one architecture. `forks` always start a process."""

    token: int
    denied: tuple[int, ...]
    clone: int
    clone3: int
    socket: int
    ioctl: int
    forks: tuple[int, ...] = ()


# io_uring, the mount API and pidfd_getfd have the same numbers everywhere.
_COMMON = (425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 442)

# In this order: ptrace, process_vm_readv, process_vm_writev, mount, umount2, pivot_root, chroot, swapon, swapoff,
# reboot, kexec_load, kexec_file_load, init_module, finit_module, delete_module, bpf, perf_event_open, userfaultfd,
# keyctl, add_key, request_key, unshare, setns, open_by_handle_at, personality, acct, settimeofday, clock_settime,
# adjtimex, clock_adjtime, syslog, kcmp, vhangup.
_ARCHITECTURES = {
    "x86_64": _Architecture(
        0xC000003E,
        (
            *(101, 310, 311, 165, 166, 155, 161, 167, 168, 169, 246, 320, 175, 313, 176, 321, 298, 323),
            *(250, 248, 249, 272, 308, 304, 135, 163, 164, 227, 159, 305, 103, 312, 153),
            *(172, 173),  # iopl, ioperm
        ),
        clone=56,
        clone3=435,
        socket=41,
        ioctl=16,
        forks=(57, 58),
    ),
    "aarch64": _Architecture(
        0xC00000B7,
        (
            *(117, 270, 271, 40, 39, 41, 51, 224, 225, 142, 104, 294, 105, 273, 106, 280, 241, 282),
            *(219, 217, 218, 97, 268, 265, 92, 89, 170, 112, 171, 266, 116, 272, 58),
        ),
        clone=220,
        clone3=435,
        socket=198,
        ioctl=29,
    ),
}


def is_supported(machine: str | None = None) -> bool:
    """Return whether there is a filter for an architecture; by default, this machine's."""
    return (machine or platform.machine()) in _ARCHITECTURES


def compile_filter(*, network: bool, subprocesses: bool, machine: str | None = None) -> bytes:
    """Return the filter as an array of `struct sock_filter`."""
    architecture = _ARCHITECTURES[machine or platform.machine()]
    refuse = _ERRNO | errno.EPERM
    denied = (*architecture.denied, *_COMMON, *(() if subprocesses else architecture.forks))
    socket = _when(_JUMP_EQUAL, architecture.socket, refuse)
    if network:
        families = [(_JUMP_EQUAL, family, _ALLOW) for family in _FAMILIES]
        socket = _on(architecture.socket, _ARGUMENT_0, families, refuse)
    clone = [(_JUMP_ANY_BIT, _NEW_NAMESPACES, refuse)]
    clone += [] if subprocesses else [(_JUMP_ANY_BIT, _CLONE_THREAD, _ALLOW)]
    injections = [(_JUMP_EQUAL, request, refuse) for request in _TERMINAL_INJECTION]
    program = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_JUMP_EQUAL, architecture.token, 1, 0) + _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _NUMBER),
        _when(_JUMP_GREATER_EQUAL, _X32, refuse),
        *(_when(_JUMP_EQUAL, number, refuse) for number in denied),
        # A filter cannot read the arguments of clone3; the C library falls back to clone.
        _when(_JUMP_EQUAL, architecture.clone3, _ERRNO | errno.ENOSYS),
        socket,
        _on(architecture.clone, _ARGUMENT_0, clone, _ALLOW if subprocesses else refuse),
        _on(architecture.ioctl, _ARGUMENT_1, injections, _ALLOW),
        _instruction(_RETURN, _ALLOW),
    ]
    return b"".join(program)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _when(test: int, value: int, verdict: int) -> bytes:
    """Return at once if a test succeeds, so that all jumps are short."""
    return _instruction(test, value, 0, 1) + _instruction(_RETURN, verdict)


def _on(number: int, offset: int, tests: list[tuple[int, int, int]], otherwise: int) -> bytes:
    """For one system call, test an argument; the rest of the program still has its number."""
    tested = b"".join(_when(*test) for test in tests)
    load = _instruction(_JUMP_EQUAL, number, 0, 2 + 2 * len(tests)) + _instruction(_LOAD, offset)
    return load + tested + _instruction(_RETURN, otherwise)
