"""Notice changes of files without a look at each file."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


class FolderTimes(NamedTuple):
    """When some folders changed. Creating, removing or replacing a file changes the time of its folder.

    Writing into a file that stays in place does not. Programs write that way, people with some editors.

    Attributes:
        taken_at: When they were looked at, in seconds of a clock that never goes back.
        times: The time of each folder, in nanoseconds; 0 if it does not exist.
    """

    taken_at: float
    times: dict[str, int]

    @classmethod
    def of(cls, folders: Iterable[str]) -> FolderTimes:
        """Look at folders. Do this before their files are read."""
        return cls(time.monotonic(), {folder: _time_of(folder) for folder in folders})

    def is_current(self, max_age: float) -> bool:
        """Return whether the folders are as they were, and it is not longer ago than so many seconds."""
        if time.monotonic() - self.taken_at >= max_age:
            return False
        return all(_time_of(folder) == changed for folder, changed in self.times.items())


def _time_of(folder: str) -> int:
    try:
        return os.stat(folder).st_mtime_ns  # noqa: PTH116 - called for every skill in every turn of a conversation
    except OSError:
        return 0
