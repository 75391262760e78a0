"""The Landlock backend, by the package `sandlock`: Landlock rules, system-call filters and a supervisor.

It needs no program and no namespaces, but a recent kernel (Linux 6.12). Landlock does not cover the metadata of files:
names and sizes of files outside the access can be seen, and changing metadata is denied everywhere.
"""

from __future__ import annotations

import errno
import os
import platform
import tempfile
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from reyn.folders import remove_temporary
from reyn.sandbox.process import FOLDERS, NOBODY, Backend, environment, existing, limited, missing_tasks, readable
from reyn.sandbox.supervision import Access, ProgramLimits, Running

if TYPE_CHECKING:
    from sandlock import Process

_X86_ONLY = ("chmod", "chown", "lchown", "utime", "utimes", "futimesat")
"""Calls that newer architectures do not have; `sandlock` refuses names that it cannot resolve."""
_METADATA = [
    *("fchmod", "fchmodat", "fchmodat2", "fchown", "fchownat", "utimensat"),
    *("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr"),
    *(_X86_ONLY if platform.machine() == "x86_64" else ()),
]
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


class Landlock(Backend):
    """Runs programs with `sandlock`."""

    name = "landlock"
    program = "sandlock"

    def missing(self) -> str:
        try:
            from sandlock import landlock_abi_version, min_landlock_abi
        except (ImportError, OSError, RuntimeError):
            return "the package `sandlock` is not installed (extra `sandbox`)"
        version, needed = landlock_abi_version(), min_landlock_abi()
        if version < needed:
            return f"the kernel has Landlock {max(version, 0)}, but {needed} is needed (Linux 6.12)"
        return ""

    def spawn(self, argv: tuple[str, ...], access: Access, limits: ProgramLimits) -> Running:
        _correct_fields()
        with _one_start.lock:
            if missing := missing_tasks():  # `sandlock` would abort this process, as it cannot start its thread
                raise BlockingIOError(errno.EAGAIN, missing)
            return _popen(argv, access, limits)


class _OneStart:
    """Lets one thread start a process at a time, so that no other start takes the tasks that it has found free."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        self.lock = threading.Lock()  # a thread that the forked process does not have may hold the other one


_one_start = _OneStart()


def _popen(argv: tuple[str, ...], access: Access, limits: ProgramLimits) -> _Confined:
    from sandlock import Sandbox, StdioMode

    temporary = tempfile.mkdtemp(prefix="reyn-sandbox-")
    user: dict[str, Any] = {"uid": NOBODY, "gid": NOBODY} if os.geteuid() == 0 else {}
    denied = [name for name in access.hidden if os.path.lexists(name)]
    try:
        sandbox = Sandbox(
            fs_readable=[*existing(*FOLDERS, *_DEVICES), *readable(access), *access.read],
            fs_writable=[temporary, *access.write, "/dev/null"],
            fs_denied=denied,
            net_allow=["tcp://*:*", "udp://*:*"] if access.network else [],
            max_memory=limits.memory_bytes,
            max_processes=limits.processes if access.subprocesses else 1,
            max_open_files=256,
            extra_deny_syscalls=_METADATA,
            no_coredump=True,
            clean_env=True,
            env=environment(access, temporary),
            cwd=access.cwd,
            **user,
        )
        piped = StdioMode.PIPED
        process = sandbox.popen(limited(argv, limits), stdin=piped, stdout=piped, stderr=piped)
        return _Confined(process, temporary)
    except BaseException:
        remove_temporary(temporary)
        raise


def _correct_fields() -> None:
    """Prevent a warning of `sandlock` 0.9, which passes `gid` on but warns that it does not.

    `warnings.catch_warnings` is no alternative: filters belong to the whole program, and steps start in many threads.
    """
    with suppress(ImportError, AttributeError):  # another version
        from sandlock._sdk import _NativePolicy

        _NativePolicy._HANDLED_FIELDS.add("gid")  # noqa: SLF001 - there is no public way


class _Confined(Running):
    """A process in `sandlock`, whose supervisor enforces all limits; its temporary folder is removed after it."""

    def __init__(self, process: Process, temporary: str) -> None:
        super().__init__(process)
        self._temporary = temporary

    def kill(self) -> None:
        with suppress(RuntimeError, OSError):
            super().kill()

    def wait(self) -> int:
        try:
            result = self.process.wait()
        finally:
            remove_temporary(self._temporary)
        return int(-result.signal if result.signal > 0 else result.exit_code)
