"""The system-call filter of every process sandbox: an allow list, compiled to the kernel's filter program.

A call that is not listed fails with `EPERM`. Mounts, namespaces and Landlock decide which files and sockets exist.
"""

from __future__ import annotations

import errno
import platform
import struct
from typing import NamedTuple

from reyn.sandbox import syscalls

_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_KILL = 0x80000000
_X32 = 0x40000000

_CLONE_THREAD = 0x00010000
_NEW_NAMESPACES = 0x7E020000

TOKENS = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
"""The architectures that have a filter, by the number that the kernel passes to it."""


class FilterRules(NamedTuple):
    """What a filter allows besides the calls that every program needs.

    Attributes:
        network: TCP and UDP sockets.
        processes: New processes; threads are always allowed. Their number is bounded elsewhere.
        metadata: Modes, owners, times and attributes. Landlock does not restrict them, so it needs this denied.
        groups: Names of `GROUPS`.
    """

    network: bool = False
    processes: bool = False
    metadata: bool = False
    groups: tuple[str, ...] = ()


class ArgumentCheck(NamedTuple):
    """A test of an argument: some of its bits have one of these values. `half` is 1 for the upper 32 bits."""

    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF
    half: int = 0


class CallRule(NamedTuple):
    """What happens with a call: it is allowed if all checks of an alternative hold, and fails otherwise."""

    alternatives: tuple[tuple[ArgumentCheck, ...], ...] = ((),)
    error: int = errno.EPERM


_PLAIN = CallRule()
_UNIX, _IPV4, _IPV6 = 1, 2, 10
_STREAM, _DATAGRAM, _TYPE = 1, 2, 0xF
_SOCKET_OPTIONS = ((
    (ArgumentCheck(1, (0,)), ArgumentCheck(2, (1, 2, 10, 11))),  # IP: service, lifetime, path MTU, errors
    (ArgumentCheck(1, (1,)), ArgumentCheck(2, (2, 3, 4, 6, 9, 10, 13, 15, 20, 21, 66, 67))),  # no buffer sizes
    (ArgumentCheck(1, (6,)), ArgumentCheck(2, (*range(1, 13), 18, 25))),  # TCP, without Fast Open
    (ArgumentCheck(1, (41,)), ArgumentCheck(2, (16, 25, 26, 67))),  # IPv6
))  # fmt: skip
_NO_FAST_OPEN = 0x20000000
_OWN_PROCESS = CallRule(((ArgumentCheck(0, (0,)),),))
_NO_ATTRIBUTES = CallRule((), error=errno.ENOTSUP)
_SET_ID = 0o6000
_CREATES = 0o100 | 0o20000000
"""`O_CREAT` and `O_TMPFILE`: without them, a call has no mode."""


def _mode_at(argument: int, flags: int | None = None) -> CallRule:
    """Return a rule against modes with set-user-id or set-group-id, which would be a program of the user for others."""
    plain = (ArgumentCheck(argument, (0,), _SET_ID),)
    return CallRule((plain,) if flags is None else (plain, (ArgumentCheck(flags, (0,), _CREATES),)))


_CHECKED: dict[str, CallRule] = {
    "open": _mode_at(2, flags=1),
    "openat": _mode_at(3, flags=2),
    "openat2": CallRule((), error=errno.ENOSYS),  # as clone3; programs fall back to openat
    "creat": _mode_at(1),
    "clone3": CallRule((), error=errno.ENOSYS),  # a filter cannot read its arguments; the C library falls back to clone
    "fcntl": CallRule(((ArgumentCheck(1, (*range(8), 36, 37, 38, 1030, 1031, 1032)),),)),  # no owners, leases, seals
    "ioctl": CallRule(  # terminal queries and the modes of a descriptor
        ((ArgumentCheck(1, (0x5401, 0x540F, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)),),), error=errno.ENOTTY
    ),
    # The name of a thread or of memory, the signal at the end of the parent, and queries.
    "prctl": CallRule(((ArgumentCheck(0, (1, 3, 15, 16, 21, 23, 38, 39, 0x53564D41)),),)),
    "arch_prctl": CallRule(((ArgumentCheck(0, (0x1001, 0x1002, 0x1003, 0x1004)),),)),
    "prlimit64": _OWN_PROCESS,
    "socket": CallRule(()),
    # Only streams: a datagram socket of a pair can send to every other Unix socket.
    "socketpair": CallRule(
        ((ArgumentCheck(0, (_UNIX,)), ArgumentCheck(1, (_STREAM,), _TYPE), ArgumentCheck(2, (0,))),)
    ),
    "setsockopt": CallRule(_SOCKET_OPTIONS),
    "sendto": CallRule(
        ((ArgumentCheck(3, (0,), _NO_FAST_OPEN), ArgumentCheck(4, (0,)), ArgumentCheck(4, (0,), half=1)),)
    ),
    "sendmsg": CallRule(((ArgumentCheck(2, (0,), _NO_FAST_OPEN),),)),
    "sendmmsg": CallRule(((ArgumentCheck(3, (0,), _NO_FAST_OPEN),),)),
    # Attributes of files in memory are memory that no limit counts.
    **dict.fromkeys(("setxattr", "lsetxattr", "fsetxattr"), _NO_ATTRIBUTES),
    **dict.fromkeys(("getxattr", "lgetxattr", "listxattr", "llistxattr"), _NO_ATTRIBUTES),
}
_METADATA = dict.fromkeys(syscalls.METADATA, _PLAIN) | {
    "chmod": _mode_at(1),
    "fchmod": _mode_at(1),
    "fchmodat": _mode_at(2),
    "fchmodat2": _mode_at(2),
}
_THREADS = {"clone": CallRule(((ArgumentCheck(0, (_CLONE_THREAD,), _NEW_NAMESPACES | _CLONE_THREAD),),))}
_PROCESSES = {"clone": CallRule(((ArgumentCheck(0, (0,), _NEW_NAMESPACES),),)), "fork": _PLAIN, "vfork": _PLAIN}
_NETWORK: dict[str, CallRule] = {
    "socket": CallRule((
        (ArgumentCheck(0, (_IPV4, _IPV6)), ArgumentCheck(1, (_STREAM,), _TYPE), ArgumentCheck(2, (0, 6))),
        (ArgumentCheck(0, (_IPV4, _IPV6)), ArgumentCheck(1, (_DATAGRAM,), _TYPE), ArgumentCheck(2, (0, 17))),
    )),
    "connect": _PLAIN,
    "sendto": CallRule(((ArgumentCheck(3, (0,), _NO_FAST_OPEN),),)),
}  # fmt: skip

GROUPS: dict[str, dict[str, CallRule]] = {
    "listen": dict.fromkeys(syscalls.LISTEN, _PLAIN),
    "memory": dict.fromkeys(syscalls.MEMORY, _PLAIN),
    "scheduling": dict.fromkeys(syscalls.SCHEDULING, _OWN_PROCESS)
    | {"setpriority": CallRule(((ArgumentCheck(0, (0,)), ArgumentCheck(1, (0,))),))},
    "watch": dict.fromkeys(syscalls.WATCH, _PLAIN),
}
"""Further calls, for programs that name them: accept connections, lock memory, change priorities, watch files."""


def is_supported(machine: str | None = None) -> bool:
    """Return whether there is a filter for an architecture; by default, this machine's."""
    return (machine or platform.machine()) in TOKENS


def rules_of(wanted: FilterRules) -> dict[str, CallRule]:
    """Return the rule of every call that a program may use."""
    plain = (syscalls.FILES, syscalls.WAITING, syscalls.PROCESS, syscalls.STREAMS)
    rules = {name: _PLAIN for table in plain for name in table} | _CHECKED
    rules |= _PROCESSES if wanted.processes else _THREADS
    if wanted.network:
        rules |= _NETWORK
    if wanted.metadata:
        rules |= _METADATA
    for group in wanted.groups:
        rules |= GROUPS[group]
    return rules


def numbers(machine: str) -> dict[str, int]:
    """Return the numbers of the calls that an architecture has."""
    column = tuple(TOKENS).index(machine)
    return {name: number for name, row in syscalls.ALL.items() if (number := row[column]) is not None}


# -- the program ----------------------------------------------------------------------------------------------

_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_JUMP, _JUMP_EQUAL, _JUMP_GREATER_EQUAL = 0x05, 0x15, 0x35
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Offsets in `struct seccomp_data`."""


def compile_filter(wanted: FilterRules, machine: str | None = None) -> bytes:
    """Return the filter as an array of `struct sock_filter`."""
    machine = machine or platform.machine()
    known = numbers(machine)
    program = [
        _instruction(_LOAD, _ARCHITECTURE),
        _instruction(_JUMP_EQUAL, TOKENS[machine], 1, 0),
        _instruction(_RETURN, _KILL),
        _instruction(_LOAD, _NUMBER),
        _instruction(_JUMP_GREATER_EQUAL, _X32, 0, 1),
        _instruction(_RETURN, _ERRNO | errno.EPERM),
    ]
    for name, rule in rules_of(wanted).items():
        if name in known:
            block = _block(rule)
            program += [_instruction(_JUMP_EQUAL, known[name], 0, len(block)), *block]
    program.append(_instruction(_RETURN, _ERRNO | errno.EPERM))
    return b"".join(program)


def _block(rule: CallRule) -> list[bytes]:
    """Return the instructions for one call. Each alternative jumps to the next one when a check fails."""
    block: list[bytes] = []
    for checks in rule.alternatives:
        tested: list[bytes] = [_instruction(_RETURN, _ALLOW)]
        for check in reversed(checks):
            tested = _test(check, len(tested)) + tested
        block += tested
    return block if rule.alternatives == ((),) else [*block, _instruction(_RETURN, _ERRNO | rule.error)]


def _test(check: ArgumentCheck, rest: int) -> list[bytes]:
    """Return the instructions of one check: on success they continue, otherwise they skip `rest` instructions."""
    offset = _ARGUMENTS + 8 * check.argument + 4 * check.half
    count = len(check.values)
    # After the last comparison comes the jump over the rest; a match jumps behind it.
    compared = [
        _instruction(_JUMP_EQUAL, value & check.mask, count - index, 0) for index, value in enumerate(check.values)
    ]
    return [
        _instruction(_LOAD, offset),
        _instruction(_AND, check.mask),
        *compared,
        _instruction(_JUMP, rest),
    ]


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
