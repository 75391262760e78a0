"""Find the file changes that a run has made and not reverted, from its events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.journal import decode, kinds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reyn.journal import Event


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
            case kinds.OpStarted(call=call, changes=changes):
                opened[call] = (at, changes)
            case kinds.OpCompleted(call=call):
                opened.pop(call, None)
            case kinds.WorkspaceUpdated(change=change):
                standing.append((at, change))
            case kinds.SubRunCompleted(changes=changes) if with_sub_runs:
                standing += [(at, change) for change in changes]
            case kinds.RestoreStarted(changes=changes) | kinds.UndoStarted(changes=changes):
                restoring = changes
            case kinds.WorkspaceRestored(restored=restored) | kinds.UndoCompleted(restored=restored):
                gone = [change for change in restoring if change.path in restored]
                standing = [dated for dated in standing if dated[1] not in gone]
                opened.clear()
    yield from standing
    yield from ((at, change) for at, changes in opened.values() for change in changes)
