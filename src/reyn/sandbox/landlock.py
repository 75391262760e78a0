"""The Landlock backend: the kernel's rules for files, sockets and signals, below a reaper that ends every process.

It needs no program and no namespaces, but a recent kernel (Linux 6.12). Landlock does not cover the metadata of files:
names and sizes of files outside the access can be seen, and changing metadata is denied everywhere. It cannot exclude
anything below a folder: a folder that a program sees in part is not listed, and only what it may see has rules.
"""

from __future__ import annotations

import ctypes
import os
import tempfile
from collections.abc import Iterator

from reyn.errors import SandboxStartFailed
from reyn.folders import remove_temporary
from reyn.sandbox.process import FOLDERS, Backend, existing, launched, private_below, readable
from reyn.sandbox.reaping import Reaped
from reyn.sandbox.supervision import Access, ProgramLimits, Running, memory_overuse
from reyn.sandbox.tasks import count_tasks, unused_user

_VERSION = 6
_SPARE_TASKS = 16
_CREATE_RULESET, _QUERY_VERSION = 444, 1
_HANDLED = 0xFFFF
_READ = 0b1101  # execute, read a file, list a folder
_WRITE = _READ | 0b0111_0001_1011_0010  # write, remove, make folders, files and links, rename, truncate
_BIND, _CONNECT = 1, 2
_SCOPED = 3  # no abstract sockets and no signals of other processes
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


class Landlock(Backend):
    """Runs programs below Landlock rules."""

    name = "landlock"
    program = "landlock"

    def missing(self) -> str:
        version = ctypes.CDLL(None, use_errno=True).syscall(_CREATE_RULESET, None, 0, _QUERY_VERSION)
        if version < _VERSION:
            return f"the kernel has Landlock {max(version, 0)}, but {_VERSION} is needed (Linux 6.12)"
        return ""

    def refusal(self, access: Access) -> str:
        excluded = (*access.hidden, *access.read_only)
        if excluded:
            return f"Landlock cannot exclude `{os.path.basename(excluded[0])}` in a folder that a program writes"  # noqa: PTH119 - text in, text out
        return ""

    def spawn(self, argv: tuple[str, ...], access: Access, limits: ProgramLimits) -> Running:
        temporary = os.path.realpath(tempfile.mkdtemp(prefix="reyn-sandbox-"))
        rules = (_handled(access), [*_rules(access), (temporary, _WRITE)])
        user = unused_user()
        # Without a user of its own, the kernel also counts the reaper and what the user has, or starts meanwhile.
        others = 0 if user else count_tasks() + _SPARE_TASKS
        try:
            with launched(argv, access, limits, temporary=temporary, user=user, landlock=rules, other_tasks=others) as (
                command,
                descriptor,
            ):
                return _Confined(command, descriptor, temporary, sums_memory=access.subprocesses)
        except BaseException:
            remove_temporary(temporary)
            raise


def _handled(access: Access) -> tuple[int, int, int]:
    network = 0 if access.network else _CONNECT
    network |= 0 if access.network and "listen" in access.groups else _BIND
    return _HANDLED, network, _SCOPED


def _rules(access: Access) -> list[tuple[str, int]]:
    """Return paths without links, and the rights below them."""
    names = (*existing(*FOLDERS, *_DEVICES), *readable(access))
    system = {path for name in names for path in _without(os.path.realpath(name), access.private)}
    shown = [f"{folder.path}/{name}" for folder in access.folders for name in folder.shown]
    rules = dict.fromkeys(sorted(system), _READ)
    rules |= dict.fromkeys((name for name in (*access.read, *shown) if not os.path.islink(name)), _READ)  # noqa: PTH114 - text in
    rules |= {"/dev/null": _WRITE} | dict.fromkeys(access.write, _WRITE)
    return list(rules.items())


def _without(folder: str, private: tuple[str, ...]) -> Iterator[str]:
    """Yield a folder of the system, or what is in it besides the private paths."""
    inner = private_below(folder, private)
    if not inner:
        yield folder
        return
    for name in sorted(os.listdir(folder)):  # noqa: PTH208 - names alone
        path = f"{folder}/{name}"
        if path not in inner and not os.path.islink(path):  # noqa: PTH114 - text in
            yield from _without(path, private)


class _Confined(Reaped):
    """A process under Landlock; its temporary folder is removed after it."""

    def __init__(self, command: list[str], descriptor: int, temporary: str, *, sums_memory: bool) -> None:
        super().__init__(command, "/", {}, (descriptor,))
        self._temporary = temporary
        self._sums_memory = sums_memory

    def overuse(self, limits: ProgramLimits) -> str:
        return memory_overuse(self.pid, limits) if self._sums_memory else ""

    def wait(self) -> int:
        code = super().wait()
        try:
            remove_temporary(self._temporary)
        except OSError as error:
            raise SandboxStartFailed(f"`{self._temporary}` cannot be removed: {error.strerror}") from error
        return code
