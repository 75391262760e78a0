"""The part of the system that every sandboxed program may read: programs, libraries, this Python."""

from __future__ import annotations

import os
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reyn.sandbox.values import Access, Limits

FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_LOADER = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime")
_NETWORK = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl", "/etc/ca-certificates")
NOBODY = 65_534

LIMITED = 'ulimit -c 0; ulimit -v "$1"; ulimit -f "$2"; ulimit -n 256; shift 2; exec "$@"'
"""A shell script that sets the limits that one process can set for itself, and becomes the program."""


def limited(argv: tuple[str, ...], limits: Limits) -> list[str]:
    """Return the command that runs a program with the limits of memory, files and open files."""
    kilobytes, blocks = limits.memory_bytes // 1024, limits.file_bytes // 512
    return ["/bin/sh", "-c", LIMITED, "sh", str(kilobytes), str(blocks), *argv]


def readable(access: Access) -> list[str]:
    """Return existing files and folders of the system that a program may read."""
    names = (*_LOADER, *(_NETWORK if access.network else ()), *python_folders())
    return [name for name in names if os.path.exists(name)]  # noqa: PTH110 - text in, text out


@cache
def python_folders() -> tuple[str, ...]:
    """Return the folders of this Python outside of the system's: the installation, and the environment."""
    prefixes = {os.path.realpath(prefix) for prefix in (sys.base_prefix, sys.prefix)}
    is_system = ("/usr/", "/lib/", "/bin/")
    return tuple(sorted(folder for folder in prefixes if not f"{folder}/".startswith(is_system) and folder != "/"))


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
