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
        metadata: Changes of modes, owners and times. Landlock does not restrict them, so it needs this denied.
        groups: Names of `GROUPS`.
    """

    network: bool = False
    processes: bool = False
    metadata: bool = False
    groups: tuple[str, ...] = ()


class Check(NamedTuple):
    """A test of an argument: some of its bits have one of these values. `half` is 1 for the upper 32 bits."""

    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF
    half: int = 0


class Rule(NamedTuple):
    """What happens with a call: it is allowed if all checks of an alternative hold, and fails otherwise."""

    alternatives: tuple[tuple[Check, ...], ...] = ((),)
    error: int = errno.EPERM


_PLAIN = Rule()
_UNIX, _IPV4, _IPV6 = 1, 2, 10
_STREAM, _DATAGRAM, _TYPE = 1, 2, 0xF
_SOCKET_OPTIONS = ((
    (Check(1, (0,)), Check(2, (1, 2, 10, 11))),  # IP: service, lifetime, path MTU, errors
    (Check(1, (1,)), Check(2, (2, 3, 4, 6, 7, 8, 9, 10, 13, 15, 20, 21, 66, 67))),  # sizes, timeouts, keep-alive, …
    (Check(1, (6,)), Check(2, (*range(1, 13), 18, 25))),  # TCP, without Fast Open
    (Check(1, (41,)), Check(2, (16, 25, 26, 67))),  # IPv6
))  # fmt: skip
_NO_FAST_OPEN = 0x20000000
_OWN_PROCESS = Rule(((Check(0, (0,)),),))

_CHECKED: dict[str, Rule] = {
    "clone3": Rule((), error=errno.ENOSYS),  # a filter cannot read its arguments; the C library falls back to clone
    "fcntl": Rule(((Check(1, (*range(8), 36, 37, 38, 1030, 1031, 1032)),),)),  # no owners, leases, seals
    "ioctl": Rule(  # terminal queries and the modes of a descriptor
        ((Check(1, (0x5401, 0x540F, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)),),), error=errno.ENOTTY
    ),
    # The name of a thread or of memory, the signal at the end of the parent, and queries.
    "prctl": Rule(((Check(0, (1, 3, 15, 16, 21, 23, 38, 39, 0x53564D41)),),)),
    "arch_prctl": Rule(((Check(0, (0x1001, 0x1002, 0x1003, 0x1004)),),)),
    "prlimit64": _OWN_PROCESS,
    "socket": Rule(()),
    # Only streams: a datagram socket of a pair can send to every other Unix socket.
    "socketpair": Rule(((Check(0, (_UNIX,)), Check(1, (_STREAM,), _TYPE), Check(2, (0,))),)),
    "setsockopt": Rule(_SOCKET_OPTIONS),
    "sendto": Rule(((Check(3, (0,), _NO_FAST_OPEN), Check(4, (0,)), Check(4, (0,), half=1)),)),
    "sendmsg": Rule(((Check(2, (0,), _NO_FAST_OPEN),),)),
    "sendmmsg": Rule(((Check(3, (0,), _NO_FAST_OPEN),),)),
}
_THREADS = {"clone": Rule(((Check(0, (_CLONE_THREAD,), _NEW_NAMESPACES | _CLONE_THREAD),),))}
_PROCESSES = {"clone": Rule(((Check(0, (0,), _NEW_NAMESPACES),),)), "fork": _PLAIN, "vfork": _PLAIN}
_NETWORK: dict[str, Rule] = {
    "socket": Rule((
        (Check(0, (_IPV4, _IPV6)), Check(1, (_STREAM,), _TYPE), Check(2, (0, 6))),
        (Check(0, (_IPV4, _IPV6)), Check(1, (_DATAGRAM,), _TYPE), Check(2, (0, 17))),
    )),
    "connect": _PLAIN,
    "sendto": Rule(((Check(3, (0,), _NO_FAST_OPEN),),)),
}  # fmt: skip

GROUPS: dict[str, dict[str, Rule]] = {
    "listen": dict.fromkeys(syscalls.LISTEN, _PLAIN),
    "memory": dict.fromkeys(syscalls.MEMORY, _PLAIN),
    "scheduling": dict.fromkeys(syscalls.SCHEDULING, _OWN_PROCESS)
    | {"setpriority": Rule(((Check(0, (0,)), Check(1, (0,))),))},
    "watch": dict.fromkeys(syscalls.WATCH, _PLAIN),
}
"""Further calls, for programs that name them: accept connections, lock memory, change priorities, watch files."""


def is_supported(machine: str | None = None) -> bool:
    """Return whether there is a filter for an architecture; by default, this machine's."""
    return (machine or platform.machine()) in TOKENS


def rules_of(wanted: FilterRules) -> dict[str, Rule]:
    """Return the rule of every call that a program may use."""
    plain = (syscalls.FILES, syscalls.WAITING, syscalls.PROCESS, syscalls.STREAMS)
    rules = {name: _PLAIN for table in plain for name in table} | _CHECKED
    rules |= _PROCESSES if wanted.processes else _THREADS
    if wanted.network:
        rules |= _NETWORK
    if wanted.metadata:
        rules |= dict.fromkeys(syscalls.METADATA, _PLAIN)
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


def _block(rule: Rule) -> list[bytes]:
    """Return the instructions for one call. Each alternative jumps to the next one when a check fails."""
    block: list[bytes] = []
    for checks in rule.alternatives:
        tested: list[bytes] = [_instruction(_RETURN, _ALLOW)]
        for check in reversed(checks):
            tested = _test(check, len(tested)) + tested
        block += tested
    return block if rule.alternatives == ((),) else [*block, _instruction(_RETURN, _ERRNO | rule.error)]


def _test(check: Check, rest: int) -> list[bytes]:
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
