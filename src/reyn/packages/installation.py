"""Find out what belongs to a Python environment, without running anything: its interpreter, its packages, its base.

The interpreter of a virtual environment is a chain of links to a Python elsewhere, and reads `pyvenv.cfg` when it
starts. A sandbox has to show all of that, or the interpreter ends before it runs any code.
"""

from __future__ import annotations

import os
import re
from collections import deque
from pathlib import Path
from typing import NamedTuple

import msgspec

from reyn.errors import EnvironmentUnavailable
from reyn.sandbox.process import FOLDERS, installed_parts, lies_in

_CONFIG, _SYSTEM_PACKAGES = "pyvenv.cfg", "include-system-site-packages"
_MAX_CONFIG_BYTES = 100_000
_MAX_LINKS = 40
_NAMED_VERSION = re.compile(r"python(\d+\.\d+)t?")
_PROGRAM = re.compile(r"python(\d+(\.\d+)?)?[a-z]*")
_MIN_VERSION = (3, 11)
"""The oldest Python that the program which calls a python step supports."""


class Installation(msgspec.Struct, frozen=True):
    """A Python environment on this machine, with paths that have no links.

    Attributes:
        root: Its folder.
        program: Its interpreter, by the name that makes it use the packages of the environment.
        version: Its version, such as `3.11`.
        packages: The folders of its packages.
        shown: The files and folders that a sandbox has to show besides those of the system.
    """

    root: str
    program: str
    version: str
    packages: tuple[str, ...]
    shown: tuple[str, ...]

    @property
    def programs(self) -> str:
        """The folder of its programs."""
        return os.path.dirname(self.program)  # noqa: PTH120 - text in, text out


class _Resolved(NamedTuple):
    """Where a path leads, and the links on the way, each by a path without links above it."""

    path: str
    links: tuple[str, ...]


def find_installation(folder: str | os.PathLike[str]) -> Installation:
    """Return what belongs to the environment in a folder: a virtual environment, or the prefix of a Python.

    Raises:
        EnvironmentUnavailable: There is none, it is incomplete, or its Python is gone or another one.
    """
    root = os.path.realpath(folder)
    program = next((name for name in ("python3", "python") if os.path.lexists(f"{root}/bin/{name}")), "")
    if not program:
        found = "has no `bin/python3`" if os.path.isdir(root) else "does not exist"  # noqa: PTH112
        raise EnvironmentUnavailable(f"`{folder}` is not a Python environment: it {found}")
    program = f"{root}/bin/{program}"
    target = _resolve(program)
    if target is None or not os.access(target.path, os.X_OK):
        raise EnvironmentUnavailable(f"the interpreter of `{folder}` is gone: `{program}` leads to no program")
    if not os.path.isfile(target.path) or not _PROGRAM.fullmatch(os.path.basename(target.path)):  # noqa: PTH113, PTH119
        raise EnvironmentUnavailable(f"`{program}` leads to `{target.path}`, which is no Python")
    settings = _settings(f"{root}/{_CONFIG}")
    bases = (root,) if settings is None else _bases(folder, target.path, settings)
    version = _version(folder, target.path, bases, settings)
    # Another folder that is named as the home of the Python is not shown: `pyvenv.cfg` may name any.
    bases = tuple(base for base in bases if _has_library(base, version))
    is_open = settings is not None and settings.get(_SYSTEM_PACKAGES, "").lower() == "true"
    places = (f"{prefix}/{name}" for prefix in (root, *(bases if is_open else ())) for name in _places(version))
    packages = tuple(dict.fromkeys(os.path.realpath(one) for one in places if os.path.isdir(one)))  # noqa: PTH112
    if not packages:
        raise EnvironmentUnavailable(
            f"`{folder}` is for another Python: it has no packages for Python {version}, which it is started with"
        )
    parts = [
        part for base in bases for part in installed_parts(base, version) if base == root or not _is_of_system(part)
    ]
    # A link among the folders of the system is there already; the environment itself may be hidden among them.
    shown = dict.fromkeys(part for part in (*installed_parts(root, version), *parts) if not _is_system_link(part))
    seen = (*FOLDERS, *shown)
    shown |= dict.fromkeys(link for link in target.links if not any(lies_in(link, one) for one in seen))
    if not any(lies_in(target.path, one) for one in seen):
        shown[target.path] = None
    return Installation(root, program, version, packages, tuple(shown))


def installation_of_program(program: str) -> Installation | None:
    """Return the virtual environment that a program belongs to; `None` if there is none.

    Args:
        program: An absolute path, or a name, which belongs to none: it is looked for among those of the system.

    Raises:
        EnvironmentUnavailable: It is incomplete.
    """
    above, name = os.path.split(os.path.dirname(program))  # noqa: PTH120 - text in, text out
    if name != "bin" or not os.path.isabs(program) or not os.path.isfile(f"{above}/{_CONFIG}"):  # noqa: PTH113, PTH117
        return None
    return find_installation(above)


def _places(version: str) -> tuple[str, ...]:
    """Return the folders of packages in a prefix; the last two are those of Debian."""
    libraries = (f"lib/python{version}", f"lib64/python{version}")
    return (
        *(f"{one}/site-packages" for one in libraries),
        "lib/python3/dist-packages",
        f"local/lib/python{version}/dist-packages",
    )


def _has_library(base: str, version: str) -> bool:
    """Return whether a folder is the prefix of a Python: it has the standard library."""
    return any(os.path.isfile(f"{base}/{lib}/python{version}/os.py") for lib in ("lib", "lib64"))  # noqa: PTH113


def _is_of_system(path: str) -> bool:
    return any(lies_in(path, folder) for folder in FOLDERS)


def _is_system_link(path: str) -> bool:
    return _is_of_system(path) and os.path.islink(path)  # noqa: PTH114 - text in


def _resolve(path: str) -> _Resolved | None:
    """Return where a path leads; `None` if it leads nowhere."""
    links: list[str] = []
    at, waiting = "", deque(path.split("/"))
    while waiting:
        name = waiting.popleft()
        if name in ("", "."):
            continue
        if name == "..":
            at = os.path.dirname(at)  # noqa: PTH120 - text in, text out
            continue
        here = f"{at}/{name}".replace("//", "/")
        try:
            target = os.readlink(here)  # noqa: PTH115 - text in, text out
        except FileNotFoundError:
            return None
        except OSError:  # it is no link
            at = here
            continue
        links.append(here)
        if len(links) > _MAX_LINKS:
            return None
        at = "" if target.startswith("/") else at
        waiting.extendleft(reversed(target.split("/")))
    return _Resolved(at or "/", tuple(links))


def _settings(path: str) -> dict[str, str] | None:
    """Return the settings of a virtual environment; `None` if there is no such file."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - text in
            text = file.read(_MAX_CONFIG_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _bases(folder: object, target: str, settings: dict[str, str]) -> tuple[str, ...]:
    """Return the prefixes of the Python that a virtual environment was made from."""
    home = settings.get("home", "")
    if not os.path.isabs(home) or not os.path.isdir(home):  # noqa: PTH112, PTH117
        raise EnvironmentUnavailable(f"the Python that `{folder}` was made from is gone: no folder {home!r}")
    above = (os.path.dirname(os.path.realpath(home)), os.path.dirname(os.path.dirname(target)))  # noqa: PTH120
    return tuple(dict.fromkeys(above))


def _version(folder: object, target: str, bases: tuple[str, ...], settings: dict[str, str] | None) -> str:
    """Return the version of an environment, which is that of the Python it is started with."""
    text = "" if settings is None else settings.get("version") or settings.get("version_info", "")
    made_for = ".".join(text.split(".")[:2])
    present = sorted(
        {
            one.parent.name
            for base in bases
            for lib in ("lib", "lib64")
            for one in Path(base, lib).glob("python3.*/os.py")
        }
    )
    versions = [found[1] for name in present if (found := _NAMED_VERSION.fullmatch(name))]
    named = _NAMED_VERSION.fullmatch(os.path.basename(target))  # noqa: PTH119
    version = named[1] if named else made_for if made_for in versions else (versions or [""])[-1]
    if made_for and made_for != version:
        now = f"Python {version}" if version else "of an unknown version"
        raise EnvironmentUnavailable(f"`{folder}` was made for Python {made_for}, but its interpreter is {now}")
    if version not in versions:
        raise EnvironmentUnavailable(f"the Python of `{folder}` has no standard library of version {version or '3'}")
    if tuple(map(int, version.split("."))) < _MIN_VERSION:
        raise EnvironmentUnavailable(
            f"`{folder}` is for Python {version}; steps and scripts need {'.'.join(map(str, _MIN_VERSION))} or later"
        )
    return version
