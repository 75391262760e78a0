"""Name the resource of the machine that a sandbox could not get: tasks, open files, memory, disk space."""

from __future__ import annotations

import errno
import os
import resource
import threading
from contextlib import suppress

from reyn.errors import SandboxStartFailed

_PASSING = (errno.EAGAIN, errno.ENOMEM, errno.EMFILE, errno.ENFILE)
_TASKS = 3
"""A start takes two: a process, and a thread that supervises it."""
_DESCRIPTORS = 16
"""A start takes about twelve."""


def start_failed(backend: str, error: Exception) -> SandboxStartFailed:
    """Return the error for a process that a backend could not start, with the cause if it can be found."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else f"{error}, for an unknown reason"
    return SandboxStartFailed(f"{backend} could not start a process: {find_shortage(error) or text}")


def find_shortage(error: Exception) -> str:
    """Return what the machine lacks at the moment, after a failure to start a process; empty if nothing is found."""
    if found := missing_tasks() or missing_descriptors():
        return found
    if isinstance(error, OSError) and error.errno in (*_PASSING, errno.ENOSPC, errno.EDQUOT):
        return error.strerror or os.strerror(error.errno)
    return ""


def is_shortage(stderr: str) -> bool:
    """Return whether a sandbox has printed that the machine lacks something at the moment."""
    return any(os.strerror(number) in stderr for number in _PASSING)


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
        return f"no further processes or threads can be started ({_limit(resource.RLIMIT_NPROC)})"
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
        opened.extend(os.memfd_create("reyn") for _ in range(_DESCRIPTORS))
    except OSError as error:
        return f"{os.strerror(error.errno or errno.EMFILE).lower()} ({_limit(resource.RLIMIT_NOFILE)})"
    finally:
        for descriptor in opened:
            with suppress(OSError):
                os.close(descriptor)
    return ""


def _limit(kind: int) -> str:
    names = {
        resource.RLIMIT_NPROC: ("of the processes of this user", "-u"),
        resource.RLIMIT_NOFILE: ("of this process", "-n"),
    }
    most, (owner, option) = resource.getrlimit(kind)[0], names[kind]
    return f"the limit {owner}, `ulimit {option}`, is {'unlimited' if most == resource.RLIM_INFINITY else most}"
