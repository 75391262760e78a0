"""Find the file changes that a run has made and not reverted, from its events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.journal import decode, kinds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from reyn.journal import Event

    Timestamp = tuple[int, int]


def unreverted_changes(events: Iterable[Event], *, with_sub_runs: bool = False) -> Iterator[kinds.Change]:
    """Yield the changes that the ops of a run made and nothing reverted, oldest first."""
    return (change for _, change in timestamped_changes(events, with_sub_runs=with_sub_runs))


def timestamped_changes(
    events: Iterable[Event], *, with_sub_runs: bool = False
) -> Iterator[tuple[Timestamp, kinds.Change]]:
    """Yield the unreverted changes with time and sequence number.

    An intent without an outcome counts, because it may have taken effect. A restore checks each file first.
    """
    current: list[tuple[Timestamp, kinds.Change]] = []
    restoring: tuple[kinds.Change, ...] = ()
    intents: dict[str, tuple[Timestamp, tuple[kinds.Change, ...]]] = {}
    for event in events:
        at = (event.ts, event.seq)
        match decode(event):
            case kinds.OpStarted(call=call, changes=changes):
                intents[call] = (at, changes)
            case kinds.OpCompleted(call=call):
                intents.pop(call, None)
            case kinds.WorkspaceUpdated(change=change):
                current.append((at, change))
            case kinds.SubRunCompleted(changes=changes) if with_sub_runs:
                current += [(at, change) for change in changes]
            case kinds.RestoreStarted(changes=changes) | kinds.UndoStarted(changes=changes):
                restoring = changes
            case kinds.WorkspaceRestored(restored=restored) | kinds.UndoCompleted(restored=restored):
                reverted = [change for change in restoring if change.path in restored]
                current = [entry for entry in current if entry[1] not in reverted]
                intents.clear()
    yield from current
    yield from ((at, change) for at, changes in intents.values() for change in changes)
