"""The access, the limits and the outcome of a program, as values that every backend understands."""

from __future__ import annotations

from typing import Literal

import msgspec


class Limits(msgspec.Struct, frozen=True):
    """The most that one program may use.

    Attributes:
        seconds: Wall-clock time.
        memory_bytes: Memory: of each process, and of all processes together.
        output_bytes: How much of each output stream is returned; the rest is discarded.
        processes: Processes at the same time, if it may start any.
        file_bytes: The size of a file that it writes, and of its temporary folder where the backend has its own.
    """

    seconds: float = 60.0
    memory_bytes: int = 512_000_000
    output_bytes: int = 1_000_000
    processes: int = 64
    file_bytes: int = 64_000_000


class Access(msgspec.Struct, frozen=True):
    """The access of a program, besides the programs and libraries of the system.

    Attributes:
        read: Files and folders that it can read, as absolute paths without links.
        write: Files and folders that it can read and write.
        hidden: Files and folders below those that it cannot see or open.
        network: Whether it can open sockets.
        subprocesses: Whether it can start other processes.
        env: Its whole environment, besides `PATH`, `HOME`, `TMPDIR` and `LANG`.
        cwd: The folder in which it starts.
    """

    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()
    network: bool = False
    subprocesses: bool = False
    env: dict[str, str] = {}
    cwd: str = "/"


class Outcome(msgspec.Struct, frozen=True):
    """The outcome of a program.

    Attributes:
        status: `exited` by itself, `timeout` if its time was up, `killed` if it used too much of something else.
        returncode: Its exit code; negative for the signal that ended it.
        stdout: The beginning of its standard output.
        stderr: The beginning of its standard error.
        truncated: Whether some of the output was discarded.
        reason: Why it was killed.
    """

    status: Literal["exited", "timeout", "killed"]
    returncode: int
    stdout: bytes = b""
    stderr: bytes = b""
    truncated: bool = False
    reason: str = ""
