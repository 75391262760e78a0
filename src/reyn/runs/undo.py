"""Which files a run changed, and how they were before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.journal import decode, kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from reyn.journal import Event


class UndoReport(msgspec.Struct, frozen=True):
    """The files that an undo restored or would restore, and those it leaves alone.

    Attributes:
        run_id: The run.
        restored: Files that are as they were before the run.
        left: Files that another program changed since.
        is_dry: Whether nothing was changed.
        deleted: Those of `restored` that the run had created.
    """

    run_id: str
    restored: tuple[str, ...]
    left: tuple[str, ...]
    is_dry: bool = False
    deleted: tuple[str, ...] = ()


def undone_changes(events: Iterable[Event]) -> Iterator[tuple[tuple[int, int], kinds.Change]]:
    """What was put back, as it is recorded here, and when: a run's own changes, and those of its sub-runs."""
    restoring: tuple[kinds.Change, ...] = ()
    for event in events:
        match decode(event):
            case kinds.RestoreStarted(changes=changes) | kinds.UndoStarted(changes=changes):
                restoring = changes
            case kinds.WorkspaceRestored(restored=restored) | kinds.UndoCompleted(restored=restored):
                yield from (((event.ts, event.seq), change) for change in restoring if change.path in restored)


def own_events(run_id: str, read: Callable[[str], Iterable[Event]]) -> Iterator[Event]:
    """The events of a run without those of the run that it was forked from."""
    return (event for event in read(run_id) if event.run_id == run_id)


def created(changes: Iterable[kinds.Change]) -> set[str]:
    """Return the files that did not exist before these changes, which are given newest first."""
    oldest = {change.path: change.before for change in changes}
    return {path for path, before in oldest.items() if before is None}


def touched(changes: Iterable[kinds.Change]) -> dict[str, str]:
    """Every file that was changed, with what became of it: `new`, `changed`, `deleted`."""
    files: dict[str, tuple[str | None, str | None]] = {}
    for change in changes:
        first = files[change.path][0] if change.path in files else change.before
        files[change.path] = (first, change.after)
    return {
        path: "new" if before is None else "deleted" if after is None else "changed"
        for path, (before, after) in files.items()
        if before != after
    }
