"""The content of a Python environment: a hash of its packages that is the same on every machine, and cheap stamps.

What an interpreter or an installer writes by itself does not count: bytecode, and records with paths of this machine.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from reyn.errors import EnvironmentUnavailable

if TYPE_CHECKING:
    from reyn.packages.installation import Installation

_MAX_FILES = 200_000
_IGNORED = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")
_METADATA = re.compile(r"(?P<name>.+)-(?P<version>[^-]+)\.(dist|egg)-info")
_CHUNK = 1 << 20


class Package(msgspec.Struct, frozen=True, order=True):
    """An installed distribution."""

    name: str
    version: str


class _File(NamedTuple):
    """A file or link of an environment: its name in its folder of packages, its path, and its status."""

    name: str
    path: str
    status: os.stat_result


def stamps_of(installation: Installation) -> str:
    """Return a digest of the names, sizes and times of the files. It changes whenever a program writes one.

    Raises:
        EnvironmentUnavailable: There are too many, or a folder cannot be read.
    """
    found: list[tuple[str, int, int, int]] = []
    waiting = list(installation.packages)
    try:
        while waiting:
            with os.scandir(waiting.pop()) as scan:
                for entry in scan:
                    if not entry.is_dir(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        found.append((entry.path, status.st_ino, status.st_size, status.st_mtime_ns))
                    elif entry.name != "__pycache__":
                        waiting.append(entry.path)
            _check_count(len(found), installation)
    except OSError as error:
        raise EnvironmentUnavailable(f"`{error.filename}` cannot be read: {error.strerror}") from error
    found.sort()
    return hashlib.sha256(repr((installation.version, found)).encode("utf-8", "surrogateescape")).hexdigest()


def _check_count(count: int, installation: Installation) -> None:
    if count > _MAX_FILES:
        message = f"`{installation.root}` has more than {_MAX_FILES} files, too many for an environment"
        raise EnvironmentUnavailable(message)


def content_of(installation: Installation) -> str:
    """Return the hash of an environment: of its Python's version, and of the names and contents of its files.

    Raises:
        EnvironmentUnavailable: A file cannot be read.
    """
    lines = []
    for file in _files(installation):
        try:
            lines.append(f"{file.name}\0{_content(file)}\n".encode("utf-8", "surrogateescape"))
        except OSError as error:
            raise EnvironmentUnavailable(f"`{file.path}` cannot be read: {error.strerror}") from error
    digest = hashlib.sha256(f"python {installation.version}\n".encode())
    for line in sorted(lines):
        digest.update(line)
    return digest.hexdigest()


def packages_of(installation: Installation) -> tuple[Package, ...]:
    """Return the installed distributions, by name."""
    found = (_METADATA.fullmatch(name) for folder in installation.packages for name in os.listdir(folder))  # noqa: PTH208
    return tuple(sorted(Package(one["name"].lower().replace("_", "-"), one["version"]) for one in found if one))


def _content(file: _File) -> str:
    if stat.S_ISLNK(file.status.st_mode):
        return f"link {os.readlink(file.path)}"  # noqa: PTH115 - text in, text out
    digest = hashlib.sha256()
    with open(file.path, "rb") as opened:  # noqa: PTH123 - text in
        while chunk := opened.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _files(installation: Installation) -> Iterator[_File]:
    """Yield the files of the packages, in no particular order for the content, and in that of their names.

    Raises:
        EnvironmentUnavailable: There are too many, or a folder cannot be read.
    """
    count = 0
    try:
        for folder in installation.packages:
            for file in _below(folder, ""):
                count += 1
                _check_count(count, installation)
                yield file
    except OSError as error:
        raise EnvironmentUnavailable(f"`{error.filename}` cannot be read: {error.strerror}") from error


def _below(folder: str, above: str) -> Iterable[_File]:
    with os.scandir(folder) as scan:
        entries = sorted(scan, key=lambda entry: entry.name)
    for entry in entries:
        name = f"{above}{entry.name}"
        if entry.is_dir(follow_symlinks=False):
            if entry.name != "__pycache__":
                yield from _below(entry.path, f"{name}/")
        elif not (entry.name in _IGNORED and above.endswith(".dist-info/")):
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) or stat.S_ISLNK(status.st_mode):
                yield _File(name, entry.path, status)
