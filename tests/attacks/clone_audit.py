"""The tracer without `strace`: an audit hook that writes the touches of the interpreter to a file per process."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

_CHANGES = {
    "os.chmod": 1, "os.chown": 1, "os.link": 2, "os.mkdir": 1, "os.remove": 1, "os.rename": 2, "os.rmdir": 1,
    "os.symlink": 2, "os.truncate": 1, "os.utime": 1, "os.setxattr": 1, "os.removexattr": 1, "shutil.rmtree": 1,
}  # fmt: skip
_READS = ("os.listdir", "os.scandir")
_PROGRAMS = ("subprocess.Popen", "os.exec", "os.posix_spawn")
_NETWORK = ("socket.connect", "socket.bind", "socket.sendto")


def touches_of(event: str, arguments: tuple[Any, ...]) -> list[tuple[str, str]]:
    """Return what an event of the interpreter touches. A name relative to a descriptor counts as one of this folder."""
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        path, mode, flags = arguments
        writes = bool((flags or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)) or bool(set(mode or "") & set("wax+"))
        is_there = os.path.exists(path) and not os.path.isdir(path)  # noqa: PTH110, PTH112 - `Path` would be audited, too
        return [("write" if writes else "read", _path(path))] if writes or is_there else []
    if event == "sqlite3.connect":
        return [("write", _path(str(arguments[0]).removeprefix("file:").partition("?")[0]))]
    if event in _CHANGES:
        return [("write", _path(name)) for name in arguments[: _CHANGES[event]] if isinstance(name, (str, bytes))]
    if event in _READS and isinstance(arguments[0], (str, bytes)):
        return [("read", _path(arguments[0]))]
    if event in _PROGRAMS:
        return [("execute", _path(os.fspath(arguments[0] or arguments[1][0])))]
    if event == "socket.getaddrinfo":
        return [("contact", f"{arguments[0]}:{arguments[1]}")]
    if event in _NETWORK and isinstance(arguments[1], tuple):
        return [("contact", f"{arguments[1][0]}:{arguments[1][1]}")]
    return []


def _path(name: str | bytes) -> str:
    return os.path.realpath(os.fsdecode(name))


def watch(folder: str) -> None:
    """Report what this process and its forks touch from now on."""
    busy: list[str] = []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if busy:
            return
        busy.append(event)
        try:
            found = touches_of(event, arguments)
            if found:
                log = os.open(f"{folder}/audit.{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
                os.write(log, "".join(json.dumps(touch) + "\n" for touch in found).encode())
                os.close(log)
        finally:
            busy.clear()

    sys.addaudithook(hook)
