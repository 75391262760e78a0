"""What a process did to files, programs and the network, according to a tracer outside of the product.

`strace` follows a process and all that it starts. Where it is not installed, an audit hook of the interpreter reports
the same kinds of touches; it does not see programs and libraries, which the snapshots of the folders cover.
"""

from __future__ import annotations

import codecs
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
STRACE = shutil.which("strace")

_CALL = re.compile(r"^(\w+)\((.*)\)\s+= (-?\d+|0x[0-9a-f]+)(?:<(.*)>(?:\(deleted\))?)?(?: ([A-Z]+) \(.*\))?$")
_NAME = re.compile(r'(?:(?:AT_FDCWD|-?\d+)<((?:[^>\\]|\\.)*)>(?:\(deleted\))?, )?"((?:[^"\\]|\\.)*)"')
_FOLDER = re.compile(r"^\d+<((?:[^>\\]|\\.)*)>")
_ADDRESS = re.compile(r'sa_family=AF_(INET6?), \w+=htons\((\d+)\).*?"([^"]*)"')
_CHANGES = (
    "mkdir", "mkdirat", "mknod", "mknodat", "rmdir", "unlink", "unlinkat", "rename", "renameat", "renameat2", "link",
    "linkat", "symlink", "symlinkat", "chmod", "fchmodat", "fchmodat2", "chown", "lchown", "fchownat", "truncate",
    "utime",
    "utimes", "utimensat", "futimesat", "setxattr", "lsetxattr", "removexattr", "lremovexattr", "chroot", "mount",
    "umount2",
)  # fmt: skip
_FOLLOWING = ("chmod", "fchmodat", "fchmodat2", "chown", "truncate", "utime", "utimes", "setxattr", "removexattr")
_WRITING = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC")
_NETWORK = ("connect", "bind", "sendto", "sendmsg", "sendmmsg")


class Touch(NamedTuple):
    """One thing that a process read, changed, executed or contacted: a resolved path, or an address."""

    kind: str
    target: str


def unescaped(text: str) -> str:
    return os.fsdecode(codecs.escape_decode(text.encode("latin-1", "replace"))[0])


def resolved(folder: str, name: str, *, follow: bool) -> str:
    """Return the path that the kernel used: links of the folders are followed, one at the end only if the call does."""
    path = os.path.join(folder, name)  # noqa: PTH118 - a name may be anything
    if follow:
        return os.path.realpath(path)
    head, tail = os.path.split(path.rstrip("/"))
    return os.path.join(os.path.realpath(head), tail)  # noqa: PTH118 - text in, text out


def touches_of(line: str, cwd: str) -> Iterator[Touch]:
    """Yield what one line of `strace` shows. A call that failed touched nothing, unless it sent something."""
    found = _CALL.match(line)
    if found is None:
        return
    call, arguments, result, opened, _ = found.groups()
    if call in _NETWORK and (address := _ADDRESS.search(arguments)):
        yield Touch("contact", f"{address[3]}:{address[2]}")
    elif result.startswith("-"):
        return
    elif call in ("open", "openat", "openat2", "creat"):
        flags = arguments.rpartition('"')[2]
        if "O_PATH" not in flags and opened is not None:
            kind = (
                "write" if call == "creat" or _WRITING.search(flags) else "list" if "O_DIRECTORY" in flags else "read"
            )
            if kind != "list":  # reading a folder is `getdents64`
                yield Touch(kind, unescaped(opened))
    elif call == "getdents64" and (folder := _FOLDER.match(arguments)):
        yield Touch("read", unescaped(folder[1]))
    elif call in ("execve", "execveat") and (program := _NAME.search(arguments)):
        yield Touch("execute", resolved(unescaped(program[1] or "") or cwd, unescaped(program[2]), follow=True))
    elif call in _CHANGES:
        names = _NAME.findall(arguments)
        for folder, name in names[-1:] if call.startswith("symlink") else names:
            base = unescaped(folder) or cwd
            yield Touch(
                "write", resolved(base, unescaped(name), follow=call in _FOLLOWING and "NOFOLLOW" not in arguments)
            )


class Driver:
    """The process that runs commands under a tracer, and what each of them touched."""

    def __init__(self, folder: Path, environ: dict[str, str], *, kind: str = "reyn", use_strace: bool) -> None:
        self.folder = folder
        self._traces = folder / "traces"
        self._traces.mkdir(parents=True)
        self._by_command: list[tuple[str, set[str]]] = []
        self._seen: set[str] = set()
        calls = "trace=file,network,process,getdents64"
        strace = [str(STRACE), "-ff", "--seccomp-bpf", "-qq", "-y", "-e", "signal=none", "-e", calls]
        tracer = [*strace, "-o", str(self._traces / "t")] if use_strace else []
        argument = [] if use_strace else [str(self._traces)]
        self._process = subprocess.Popen(
            [*tracer, sys.executable, str(HERE / "clone_driver.py"), kind, *argument],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environ | ({} if use_strace else {"PYTHONPATH": str(HERE)}),
            cwd=folder,
            text=True,
        )
        assert self._process.stdout is not None
        self._process.stdout.readline()
        self._new_traces()  # the driver's own

    def run(self, words: tuple[str, ...], folder: Path, environ: dict[str, str], text: str, output: Path) -> int:
        """Run a command and return its status. Its touches are known when the driver is closed."""
        given = self.folder / "stdin"
        given.write_text(text)
        request = {
            "words": words,
            "folder": str(folder),
            "environ": environ,
            "input": str(given),
            "output": str(output),
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        status = int(self._process.stdout.readline())
        self._by_command.append((str(folder), self._new_traces()))
        return status

    def _new_traces(self) -> set[str]:
        names = {entry.name for entry in os.scandir(self._traces)} - self._seen
        self._seen |= names
        return names

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def touches(self) -> list[set[Touch]]:
        """Return the touches of every command, in order."""
        return [{touch for name in names for touch in self._read(name, cwd)} for cwd, names in self._by_command]

    def _read(self, name: str, cwd: str) -> Iterator[Touch]:
        with (self._traces / name).open(encoding="latin-1") as lines:
            for line in lines:
                if name.startswith("audit"):
                    yield Touch(*json.loads(line))
                else:
                    yield from touches_of(line.rstrip("\n"), cwd)
