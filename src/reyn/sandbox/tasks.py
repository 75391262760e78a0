"""The processes and threads of a sandbox: the user that they belong to, how many there may be, what they use.

The kernel bounds the tasks of a user, but not those of root: a sandbox that root starts has a user of its own.
"""

from __future__ import annotations

import os
import platform
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path

from reyn.errors import SandboxUnavailable

_UNUSED_USERS, _UNUSED_COUNT = 0x70000000, 0x0F000000
"""Numbers of users that no system assigns."""
_numbers = count()


def open_process(pid: int) -> int:
    """Return a descriptor that becomes readable when a process ends."""
    if sys.platform == "linux":
        return os.pidfd_open(pid)
    raise SandboxUnavailable(f"processes can be supervised on Linux only, not on {platform.system()}")


def memory_file() -> int:
    """Return the descriptor of a file without a name, in memory."""
    if sys.platform == "linux":
        return os.memfd_create("reyn")
    raise SandboxUnavailable(f"processes can be isolated on Linux only, not on {platform.system()}")


def unused_user() -> int:
    """Return the number of a user that no other sandbox has, if root runs this process; otherwise 0."""
    if os.geteuid() != 0:
        return 0
    unique = os.getpid() * 1_000 + next(_numbers) % 1_000
    # In a container, the numbers may end earlier.
    end = min(_end_of(name) for name in ("uid_map", "gid_map"))
    if end > _UNUSED_USERS + _UNUSED_COUNT:
        return _UNUSED_USERS + unique % _UNUSED_COUNT
    return end - 3 - unique % max(1, end // 4)


def _end_of(name: str) -> int:
    """Return the end of the numbers of users or groups that this process can use."""
    ranges = [line.split() for line in Path(f"/proc/self/{name}").read_text().splitlines()]
    return max(int(first) + int(size) for first, _, size in ranges)


def counts_namespaces() -> bool:
    """Whether the kernel counts the tasks of a user in each user namespace (Linux 5.14)."""
    major, minor = (int(number) for number in platform.release().split("-")[0].split(".")[:2])
    return (major, minor) >= (5, 14)


def count_tasks() -> int:
    """Return how many processes and threads the user of this process has."""
    user, tasks = os.getuid(), 0
    with os.scandir("/proc") as entries:
        for entry in entries:
            with suppress(OSError, ValueError, IndexError):  # it has ended in the meantime
                if entry.name.isdigit() and entry.stat().st_uid == user:
                    with open(f"/proc/{entry.name}/stat", "rb") as file:  # noqa: PTH123 - a third of the cost
                        tasks += int(file.read().rpartition(b")")[2].split()[17])
    return tasks


def tree_bytes(pid: int) -> int:
    """Return how much memory a process and its descendants use."""
    waiting, pages = [pid], 0
    while waiting:
        one = waiting.pop()
        with suppress(OSError, ValueError, IndexError):  # it has ended in the meantime
            waiting += _children_of(one)
            pages += _pages(str(one)) or _pages_of_threads(one)
    return pages * os.sysconf("SC_PAGE_SIZE")


def _pages(task: str) -> int:
    with open(f"/proc/{task}/statm", "rb") as file:  # noqa: PTH123 - a third of the cost
        return int(file.read().split()[1])


def _pages_of_threads(pid: int) -> int:
    """Return the pages of a process whose first thread has ended: its other threads share them."""
    for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - names alone
        with suppress(OSError):  # it has ended in the meantime
            if pages := _pages(f"{pid}/task/{thread}"):
                return pages
    return 0


def _children_of(pid: int) -> list[int]:
    """Return the children of all threads of a process."""
    children: list[int] = []
    for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - names alone
        with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123 - a third of the cost
            children += map(int, file.read().split())
    return children
