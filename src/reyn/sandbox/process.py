"""The base of the backends that isolate processes: the probe, the part of the system that programs may read, shortages.

A shortage is a resource that the machine lacks at the moment: tasks, open files, memory, disk space.
"""

from __future__ import annotations

import errno
import marshal
import os
import platform
import resource
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from pathlib import Path

from reyn.errors import SandboxStartFailed
from reyn.sandbox.filters import FilterRules, compile_filter, is_supported
from reyn.sandbox.supervision import Access, ProgramLimits, Running, supervise
from reyn.sandbox.tasks import memory_file

_PROBE_SECONDS = 20.0


class Backend:
    """A way to start an isolated process.

    Attributes:
        name: As the configuration names it.
        program: The program or package that it uses.
    """

    name: str
    program: str

    def missing(self) -> str:
        """Return what the backend needs and this machine does not have; empty if it has everything."""
        raise NotImplementedError

    def refusal(self, access: Access) -> str:
        """Return why the backend cannot enforce an access; empty if it can."""
        return ""

    def spawn(self, argv: tuple[str, ...], access: Access, limits: ProgramLimits) -> Running:
        """Start a program that can use what `access` has, within `limits`."""
        raise NotImplementedError

    def start(self, argv: tuple[str, ...], access: Access, limits: ProgramLimits) -> Running:
        """Start a program. The caller has checked that there is no `problem`.

        Raises:
            SandboxStartFailed: The machine lacks something at the moment.
        """
        try:
            return self.spawn(argv, access, limits)
        except (OSError, RuntimeError) as error:
            raise self._start_failed(error) from error

    @cached_property
    def problem(self) -> str:
        """The reason why it cannot be used on this machine; empty if it can. Found out by running a program.

        Raises:
            SandboxStartFailed: The machine lacks something at the moment, so the program could not run.
        """
        if platform.system() != "Linux":
            return f"it needs Linux; this is {platform.system()}"
        if not is_supported():
            return f"there is no system-call filter for {os.uname().machine}"
        if missing := self.missing():
            return missing
        limits = ProgramLimits(seconds=_PROBE_SECONDS)
        try:
            outcome = supervise(self.spawn(("/bin/true",), Access(), ProgramLimits()), b"", limits)
        except (OSError, RuntimeError, ValueError) as error:
            if find_shortage(error):
                raise self._start_failed(error) from error
            return f"`{self.program}` does not work here: {error}"
        if outcome.status == "timeout":
            raise SandboxStartFailed(f"{self.name} could not run a program within {_PROBE_SECONDS:g} seconds")
        if outcome.returncode == 0:
            return ""
        words = " ".join(outcome.stderr.decode("utf-8", "replace").split())[:200]
        if any(os.strerror(number) in words for number in _PASSING):
            raise SandboxStartFailed(f"{self.name} could not start a process: {words}")
        return f"`{self.program}` does not work here: {words or f'exit code {outcome.returncode}'}"

    def _start_failed(self, error: Exception) -> SandboxStartFailed:
        """Return the error for a process that could not be started, with the cause if it can be found."""
        text = error.strerror if isinstance(error, OSError) and error.strerror else f"{error}, for an unknown reason"
        return SandboxStartFailed(f"{self.name} could not start a process: {find_shortage(error) or text}")


# -- the system -----------------------------------------------------------------------------------------------

FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_LOADER = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime")
_MIME = tuple(f"/etc/{folder}mime.types" for folder in ("", "httpd/", "httpd/conf/", "apache/", "apache2/"))
"""Public files that Python's `mimetypes` reads if they exist; packages of documents import it."""
_NETWORK = (
    *("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl/certs", "/etc/ssl/cert.pem"),
    *("/etc/ssl/openssl.cnf", "/etc/ca-certificates", "/etc/pki/tls/certs", "/etc/pki/tls/cert.pem"),
    *("/etc/pki/tls/openssl.cnf", "/etc/pki/ca-trust/extracted"),
)
"""Names and certificates; never `/etc/ssl/private`."""
_LAUNCHER = Path(__file__).with_name("launcher.py")
_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_PYTHON_PARTS = ("bin", "include", "pyvenv.cfg", "ssl/cacert.pem", "ssl/cert.pem", "ssl/openssl.cnf")
_OPEN_FILES = 256
_THREADS = 64
"""Threads of a program that may start no processes."""


@contextmanager
def launched(
    argv: tuple[str, ...],
    access: Access,
    limits: ProgramLimits,
    *,
    temporary: str,
    user: int,
    landlock: object = None,
    devices: str = "",
    other_tasks: int = 0,
) -> Iterator[tuple[list[str], int]]:
    """Yield the command that confines itself and becomes a program, and the descriptor that it needs.

    Args:
        argv: The program.
        access: Its access.
        limits: Its limits.
        temporary: Its temporary folder.
        user: The number of the user that it becomes, if root starts it; otherwise 0.
        landlock: Landlock rules; without them, changing the metadata of files is allowed.
        devices: A folder of mounted devices that become read-only, if root starts the program.
        other_tasks: How many processes and threads the kernel counts besides those of the program.
    """
    rules = FilterRules(access.network, access.subprocesses, landlock is None, access.groups)
    wanted = {
        "argv": list(argv),
        "env": environment(access, temporary),
        "cwd": access.cwd,
        "limits": [
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_AS, limits.memory_bytes),
            (resource.RLIMIT_FSIZE, limits.file_bytes),
            (resource.RLIMIT_NOFILE, min(_OPEN_FILES, resource.getrlimit(resource.RLIMIT_NOFILE)[1])),
        ],
        "user": user,
        "tasks": (limits.processes if access.subprocesses else _THREADS) + other_tasks,
        "landlock": landlock,
        "devices": devices,
        "filter": compile_filter(rules),
    }
    with readable_descriptor(marshal.dumps(wanted)) as descriptor:
        yield [python_program(), "-I", "-S", "-B", "-c", _launcher(), str(descriptor)], descriptor


@cache
def _launcher() -> str:
    return _LAUNCHER.read_text()


@contextmanager
def readable_descriptor(content: bytes) -> Iterator[int]:
    """Open a descriptor from which a program can read some content."""
    descriptor = memory_file()
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def readable(access: Access) -> list[str]:
    """Return existing files and folders of the system that a program may read."""
    return existing(*_LOADER, *_MIME, *(_NETWORK if access.network else ()), *python_folders(access.private))


def existing(*names: str) -> list[str]:
    """Return the names of files and folders that exist."""
    return [name for name in names if os.path.exists(name)]  # noqa: PTH110 - text in, text out


@cache
def _python_parts() -> tuple[str, ...]:
    """Return what this Python has put into its folders: those of the installation, and of the environment."""
    prefixes = {os.path.realpath(prefix) for prefix in (sys.base_prefix, sys.prefix)} - {"/"}
    return tuple(sorted({part for prefix in prefixes for part in installed_parts(prefix, _VERSION, sys.platlibdir)}))


def installed_parts(prefix: str, version: str, libraries: str = "lib64") -> list[str]:
    """Return what a Python has put into a folder, which may be the user's `~/.local`, or have other projects in it.

    Folders in it that are links may lead anywhere: what is in them is left out.

    Args:
        prefix: The folder, a path without links.
        version: The version of the Python, such as `3.11`.
        libraries: The folder in it for libraries of this machine, besides `lib`.
    """
    folders = {f"{prefix}/{name}" for name in ("lib", libraries)}
    found = existing(*(f"{prefix}/{name}" for name in _PYTHON_PARTS))
    found += existing(*(f"{folder}/python{version}" for folder in folders if not os.path.islink(folder)))  # noqa: PTH114
    shared = (path for folder in folders for path in Path(folder).glob("*.so*"))
    parts = {*found, *(str(path) for path in shared if path.is_file())}
    return sorted(part for part in parts if os.path.realpath(os.path.dirname(part)) == os.path.dirname(part))  # noqa: PTH120


def python_folders(private: tuple[str, ...]) -> list[str]:
    """Return the files and folders of this Python that the system's folders do not show."""
    return [
        part
        for part in _python_parts()
        if part not in private
        and (not part.startswith(("/usr/", "/lib/", "/bin/")) or any(lies_in(part, place) for place in private))
    ]


def lies_in(path: str, folder: str) -> bool:
    return path.startswith(f"{folder.rstrip('/')}/")


def private_below(folder: str, private: tuple[str, ...]) -> list[str]:
    """Return the uppermost private paths below a folder of the system, by the folder's name."""
    real = os.path.realpath(folder)
    inner = [place for place in private if lies_in(place, real)]
    upper = [place for place in inner if not any(lies_in(place, other) for other in inner)]
    return [folder + place[len(real) :] for place in upper]


def private_places(places: Iterable[str], restricted: Callable[[str], Iterable[str]]) -> tuple[str, ...]:
    """Return what must be private: places and restricted paths that the system's folders would show.

    Args:
        places: Real paths, for example that of the project.
        restricted: Returns the paths below a folder that a rule restricts.
    """
    names = existing(*FOLDERS, *_LOADER, *_NETWORK)
    system = {os.path.realpath(name) for name in names}
    folders = {*system, *_python_parts()}
    found = [
        place
        for place in places
        if place not in system and (place in folders or any(lies_in(place, folder) for folder in folders))
    ]
    upper = [folder for folder in folders if not any(lies_in(folder, other) for other in folders)]
    for folder in upper:
        found += restricted(folder)
    return tuple(dict.fromkeys(found))


@cache
def python_program() -> str:
    """Return the path of the interpreter, without links: an environment's link is not needed to start it."""
    return str(Path(sys.executable).resolve())


def search_path() -> str:
    """Return the `PATH` of programs: that of the environment that runs Reyn, then the system's."""
    return ":".join(dict.fromkeys((f"{sys.prefix}/bin", "/usr/local/bin", "/usr/bin", "/bin")))


def environment(access: Access, temporary: str) -> dict[str, str]:
    """Return the whole environment of a program. Nothing is inherited."""
    return {"PATH": search_path(), "HOME": temporary, "TMPDIR": temporary, "LANG": "C.UTF-8"} | access.env


# -- shortages ------------------------------------------------------------------------------------------------

_PASSING = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
_TASKS = 3
"""A start takes two: a process, and a thread that supervises it."""
_DESCRIPTORS = 16
"""A start takes about twelve."""


def find_shortage(error: Exception) -> str:
    """Return what the machine lacks at the moment, after a failure to start a process; empty if nothing is found."""
    if found := missing_tasks() or missing_descriptors():
        return found
    if isinstance(error, OSError) and error.errno in (*_PASSING, errno.ENOSPC, errno.EDQUOT):
        return error.strerror or os.strerror(error.errno)
    return ""


def missing_tasks() -> str:
    """Return that the user or the machine can start no further threads and processes; empty if it can."""
    done = threading.Event()
    threads: list[threading.Thread] = []
    try:
        for _ in range(_TASKS):
            thread = threading.Thread(target=done.wait, name="reyn-probe")
            thread.start()
            threads.append(thread)
    except RuntimeError:
        limit = _limit(resource.RLIMIT_NPROC, "of the processes of this user", "-u")
        return f"no further processes or threads can be started ({limit})"
    finally:
        done.set()
        for thread in threads:
            thread.join()
            while os.path.exists(f"/proc/self/task/{thread.native_id}"):  # noqa: PTH110 - it counts until it is gone
                os.sched_yield()
    return ""


def missing_descriptors() -> str:
    """Return that this process can open no further files; empty if it can."""
    opened: list[int] = []
    try:
        opened.extend(os.open(os.devnull, os.O_RDONLY) for _ in range(_DESCRIPTORS))
    except OSError as error:
        limit = _limit(resource.RLIMIT_NOFILE, "of this process", "-n")
        return f"{os.strerror(error.errno or errno.EMFILE).lower()} ({limit})"
    finally:
        for descriptor in opened:
            with suppress(OSError):
                os.close(descriptor)
    return ""


def _limit(kind: int, owner: str, option: str) -> str:
    most = resource.getrlimit(kind)[0]
    return f"the limit {owner}, `ulimit {option}`, is {'unlimited' if most == resource.RLIM_INFINITY else most}"
