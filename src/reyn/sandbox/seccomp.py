"""Compile the system-call filter of the bubblewrap backend to BPF.

The filter denies what namespaces do not cover: kernel interfaces with a history of escapes, sockets without the network
permission, and new processes without the permission to start them.
"""

from __future__ import annotations

import errno
import platform
import struct
from typing import NamedTuple

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
    program = _Program()
    program.load(_ARCHITECTURE)
    program.unless(_JUMP_EQUAL, architecture.token, _KILL)
    program.load(_NUMBER)
    program.when(_JUMP_GREATER_EQUAL, _X32, _ERRNO | errno.EPERM)
    for number in (*architecture.denied, *_COMMON, *(() if subprocesses else architecture.forks)):
        program.when(_JUMP_EQUAL, number, _ERRNO | errno.EPERM)
    # A filter cannot read the arguments of clone3; the C library falls back to clone.
    program.when(_JUMP_EQUAL, architecture.clone3, _ERRNO | errno.ENOSYS)
    if not network:
        program.when(_JUMP_EQUAL, architecture.socket, _ERRNO | errno.EPERM)
    else:
        program.on(
            architecture.socket,
            _ARGUMENT_0,
            [(_JUMP_EQUAL, family, _ALLOW) for family in _FAMILIES],
            _ERRNO | errno.EPERM,
        )
    refuse = _ERRNO | errno.EPERM
    clone = [(_JUMP_ANY_BIT, _NEW_NAMESPACES, refuse)]
    clone += [] if subprocesses else [(_JUMP_ANY_BIT, _CLONE_THREAD, _ALLOW)]
    program.on(architecture.clone, _ARGUMENT_0, clone, _ALLOW if subprocesses else refuse)
    program.on(
        architecture.ioctl,
        _ARGUMENT_1,
        [(_JUMP_EQUAL, request, refuse) for request in _TERMINAL_INJECTION],
        _ALLOW,
    )
    program.end(_ALLOW)
    return program.content


class _Program:
    """Assembles instructions. Every test that succeeds returns at once, so all jumps are short."""

    def __init__(self) -> None:
        self.content = b""

    def _add(self, code: int, value: int, if_true: int = 0, if_false: int = 0) -> None:
        self.content += struct.pack("=HBBI", code, if_true, if_false, value)

    def load(self, offset: int) -> None:
        self._add(_LOAD, offset)

    def when(self, test: int, value: int, verdict: int) -> None:
        self._add(test, value, 0, 1)
        self._add(_RETURN, verdict)

    def unless(self, test: int, value: int, verdict: int) -> None:
        self._add(test, value, 1, 0)
        self._add(_RETURN, verdict)

    def on(self, number: int, offset: int, tests: list[tuple[int, int, int]], otherwise: int) -> None:
        """For one system call, test an argument; the rest of the program still has its number."""
        self._add(_JUMP_EQUAL, number, 0, 2 + 2 * len(tests))
        self.load(offset)
        for test, value, verdict in tests:
            self.when(test, value, verdict)
        self._add(_RETURN, otherwise)

    def end(self, verdict: int) -> None:
        self._add(_RETURN, verdict)
