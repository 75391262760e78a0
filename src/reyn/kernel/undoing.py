"""Which files a run changed, and how they were before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.journal import decode, kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from reyn.journal import Event


class UndoReport(msgspec.Struct, frozen=True):
    """What an undo did, or would do."""

    run_id: str
    restored: tuple[str, ...]
    left: tuple[str, ...]
    is_dry: bool = False


def changes_of(events: Iterable[Event], *, with_sub_runs: bool = False) -> Iterator[kinds.Change]:
    """What the ops of a run changed and nothing put back, oldest first."""
    return (change for _, change in dated_changes(events, with_sub_runs=with_sub_runs))


def dated_changes(
    events: Iterable[Event], *, with_sub_runs: bool = False
) -> Iterator[tuple[tuple[int, int], kinds.Change]]:
    """The same, each with its time. An intent without an outcome may have taken place: it counts, for whoever puts it
    back looks first."""
    standing: list[tuple[tuple[int, int], kinds.Change]] = []
    restoring: tuple[kinds.Change, ...] = ()
    opened: dict[str, tuple[tuple[int, int], tuple[kinds.Change, ...]]] = {}
    for event in events:
        at = (event.ts, event.seq)
        match decode(event):
            case kinds.FileStarted(call=call, changes=changes):
                opened[call] = (at, changes)
            case kinds.FileCompleted(call=call):
                opened.pop(call, None)
            case kinds.WorkspaceUpdated(change=change):
                standing.append((at, change))
            case kinds.RunSkillCompleted(changes=changes) if with_sub_runs:
                standing += [(at, change) for change in changes]
            case kinds.RestoreStarted(changes=changes) | kinds.UndoStarted(changes=changes):
                restoring = changes
            case kinds.WorkspaceRestored(restored=restored) | kinds.UndoCompleted(restored=restored):
                gone = [change for change in restoring if change.path in restored]
                standing = [dated for dated in standing if dated[1] not in gone]
                opened.clear()
    yield from standing
    yield from ((at, change) for at, changes in opened.values() for change in changes)


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
