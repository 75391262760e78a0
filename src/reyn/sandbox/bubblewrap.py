"""The bubblewrap backend: namespaces, read-only mounts, a system-call filter, and limits.

The program sees a file system that has only the system's programs and libraries and the paths of its access. It runs
as an unprivileged user in namespaces of its own; when it ends, the kernel ends every process that it started.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Literal, Self

from reyn.folders import open_beneath
from reyn.sandbox.process import FOLDERS, Backend, launched, lies_in, private_below, readable, readable_descriptor
from reyn.sandbox.supervision import Access, PartialFolder, ProgramLimits, Running, memory_overuse, start_piped
from reyn.sandbox.tasks import count_tasks, counts_namespaces, unused_user

_TEMPORARY = "/tmp"  # noqa: S108 - inside the sandbox, where it is a file system of its own
_SHARED_MEMORY_BYTES = 16_000_000
_NOBODY = 65_534
_SYS_ADMIN = 21
_MAX_SHOWN = 200
_ANYTHING = os.O_NOFOLLOW
"""Opens a file, a folder or a link itself, and not for reading."""
if sys.platform == "linux":
    _ANYTHING |= os.O_PATH
_MAX_MOUNTS = 1_000


class Bubblewrap(Backend):
    """Runs programs with `bwrap`."""

    name = "bubblewrap"

    def __init__(self, program: str = "bwrap") -> None:
        self.program = program

    @cached_property
    def _path(self) -> str | None:
        return shutil.which(self.program)

    def missing(self) -> str:
        return f"`{self.program}` is not installed" if self._path is None else ""

    def refusal(self, access: Access) -> str:
        if sum(_mount_count(folder) for folder in access.folders) + len(access.hidden + access.private) > _MAX_MOUNTS:
            return f"more than {_MAX_MOUNTS} files must be hidden or shown one by one; name smaller folders"
        return ""

    def spawn(self, argv: tuple[str, ...], access: Access, limits: ProgramLimits) -> Running:
        assert self._path is not None
        user = unused_user() if _is_administrator() else 0
        # In a namespace for users, the kernel counts bubblewrap's own init; an older one counts all tasks of the user.
        others = 0 if user else 1 if counts_namespaces() else count_tasks() + 3
        # Other users can read the command line of a process.
        with (
            _Sources(by_descriptor=_binds_descriptors(self._path)) as sources,
            readable_descriptor(
                _encoded(*_namespaces(access, has_user=bool(user)), *_mounts(access, limits, sources))
            ) as options,
            launched(
                argv,
                access,
                limits,
                temporary=_TEMPORARY,
                user=user,
                devices="/dev" if user else "",
                other_tasks=others,
            ) as (program, descriptor),
        ):
            command = [self._path, "--args", str(options), "--", *program]
            process = start_piped(command, env={}, cwd="/", pass_fds=(options, descriptor, *sources.descriptors))
            return _Contained(process, sums_memory=access.subprocesses)


@cache
def _binds_descriptors(program: str) -> bool:
    """Return whether `bwrap` mounts what a descriptor refers to, and closes it."""
    return b"--ro-bind-fd" in subprocess.run([program, "--help"], capture_output=True, check=False).stdout  # noqa: S603 - a program that was found


def _encoded(*arguments: str) -> bytes:
    return b"".join(os.fsencode(argument) + b"\0" for argument in arguments)


class _Sources:
    """Opens what is mounted. The gate has checked the paths; a part of one that became a link since is an error.

    Without `by_descriptor`, `bwrap` mounts by path, and a link could appear after the check.
    """

    def __init__(self, *, by_descriptor: bool) -> None:
        self.descriptors: list[int] = []
        """Those that `bwrap` mounts and closes."""
        self._by_descriptor = by_descriptor
        self._root = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in (self._root, *self.descriptors):
            os.close(descriptor)
        self.descriptors = []

    def bind(self, name: str, option: Literal["--bind", "--ro-bind"] = "--ro-bind") -> tuple[str, ...]:
        """Return the option that mounts a file or a folder at its own path; a link is created as it is.

        Raises:
            OSError: It is gone, or a part of its path is a link.
        """
        handle = open_beneath(self._root, name.strip("/"), _ANYTHING) if name != "/" else os.dup(self._root)
        link = os.readlink("", dir_fd=handle) if stat.S_ISLNK(os.fstat(handle).st_mode) else None
        if link is None and self._by_descriptor:
            self.descriptors.append(handle)
            return f"{option}-fd", str(handle), name
        os.close(handle)  # `bwrap` would leave it to the program
        return (option, name, name) if link is None else ("--symlink", link, name)


def _is_administrator() -> bool:
    """Whether this process may create namespaces without one for users."""
    status = Path("/proc/self/status").read_text()
    return bool(int(status.partition("CapEff:")[2].split()[0], 16) >> _SYS_ADMIN & 1)


def _namespaces(access: Access, *, has_user: bool) -> Iterator[str]:
    """Yield the namespaces: one for users as well, where the launcher cannot become a user of its own."""
    yield from () if has_user else ("--unshare-user", "--uid", str(_NOBODY), "--gid", str(_NOBODY))
    yield from ("--unshare-ipc", "--unshare-pid", "--unshare-uts", "--unshare-cgroup-try")
    if not access.network:
        yield "--unshare-net"
    yield from ("--hostname", "sandbox", "--die-with-parent", "--new-session", "--clearenv")


def _mounts(access: Access, limits: ProgramLimits, sources: _Sources) -> Iterator[str]:
    covers: list[str] = []
    for folder in FOLDERS:
        path = Path(folder)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), folder)
        elif path.is_dir():
            yield from _bind_system(folder, access, covers)
    system = readable(access)
    for name in system:
        yield from _bind_system(name, access, covers)
    # Files of /proc/sys belong to root by number: a sandbox that root starts could write them, also `core_pattern`.
    yield from ("--proc", "/proc", "--remount-ro", "/proc", "--dev", "/dev")
    for name in _private_kernel_files():
        yield from ("--ro-bind", "/dev/null", name)
    yield from ("--size", str(_SHARED_MEMORY_BYTES), "--tmpfs", "/dev/shm", "--remount-ro", "/dev")  # noqa: S108 - in the sandbox
    yield from ("--size", str(limits.file_bytes), "--tmpfs", _TEMPORARY)
    # A path may be shown in a folder that hides what is around it: upper ones come first.
    partial = {folder.path: folder for folder in access.folders}
    links = {name for name in system if os.path.islink(name)}  # noqa: PTH114 - text in; two cannot be made at one place
    for name in sorted({*access.read, *partial} - links):
        yield from _show(partial[name], sources, covers) if name in partial else sources.bind(name)
    for name in access.write:
        yield from sources.bind(name, "--bind")
    covers = [name for name in covers if not any(lies_in(f"{name}/", place) for place in access.write)]
    for name in access.read_only:
        yield from sources.bind(name)
    for name in access.hidden:
        yield from _cover(name, covers)
    for name in access.read:
        yield from sources.bind(name) if any(lies_in(name, place) for place in access.hidden) else ()
    yield from ("--dir", access.cwd) if access.cwd != "/" else ()
    for name in covers:
        yield from ("--remount-ro", name)
    yield from ("--remount-ro", "/", "--chdir", access.cwd)


@cache
def _private_kernel_files() -> tuple[str, ...]:
    """Return the files of `/proc` about the user who runs Reyn, and those that only root reads, as a program could."""
    with os.scandir("/proc") as entries:
        files = [entry for entry in entries if entry.is_file(follow_symlinks=False)]
    names = ("keys", "key-users")
    is_root = os.geteuid() == 0
    return tuple(one.path for one in files if one.name in names or (is_root and not one.stat().st_mode & stat.S_IROTH))


def _bind_system(folder: str, access: Access, covers: list[str]) -> Iterator[str]:
    """Mount a folder of the system without what is private."""
    yield from ("--ro-bind", folder, folder)
    for name in private_below(folder, access.private):
        yield from _cover(name, covers)


def _is_rebuilt(folder: PartialFolder) -> bool:
    """Whether a folder is an empty one with the shown entries, or the folder itself with the hidden ones covered."""
    return len(folder.shown) <= _MAX_SHOWN or len(folder.shown) <= len(folder.hidden)


def _mount_count(folder: PartialFolder) -> int:
    return 1 + len(folder.shown if _is_rebuilt(folder) else folder.hidden)


def _show(folder: PartialFolder, sources: _Sources, covers: list[str]) -> Iterator[str]:
    """Mount the part of a folder that the program sees."""
    if not _is_rebuilt(folder):
        yield from sources.bind(folder.path)
        for name in folder.hidden:
            yield from _cover(f"{folder.path}/{name}", covers)
        return
    covers.append(folder.path)
    yield from ("--tmpfs", folder.path)
    for name in folder.shown:
        with suppress(FileNotFoundError):  # a file that is gone is not an error
            yield from sources.bind(f"{folder.path}/{name}")


def _cover(name: str, covers: list[str]) -> Iterator[str]:
    """Cover a file with an empty one, and a folder with an empty one, which becomes read-only at the end.

    What the program may see of the folder is mounted in it before.
    """
    try:
        is_folder = stat.S_ISDIR(os.lstat(name).st_mode)
    except OSError:  # it is gone
        return
    if is_folder:
        covers.append(name)
        yield from ("--tmpfs", name)
    else:
        yield from ("--ro-bind", "/dev/null", name)


class _Contained(Running):
    """A program in its namespaces. Ending `bwrap` ends every process in them."""

    def __init__(self, process: object, *, sums_memory: bool) -> None:
        super().__init__(process)
        self._sums_memory = sums_memory

    def overuse(self, limits: ProgramLimits) -> str:
        return memory_overuse(self.pid, limits) if self._sums_memory else ""
