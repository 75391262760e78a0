"""The changes of files that runs recorded, derived from events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.workspace.restore import RecordedChange, recorded_changes, without_reverted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from reyn.journal import Event, Journal, kinds


def own_events(run_id: str, history: Iterable[Event]) -> list[Event]:
    """Return the events of a run without those that it shares with the origin of a fork."""
    return [event for event in history if event.run_id == run_id]


def changes_of_runs(journal: Journal, runs: Sequence[str]) -> list[tuple[str, kinds.Change]]:
    """Return the changes of some runs that nothing has reverted, newest first, each with its run."""
    entries, reverted = [], list[RecordedChange]()
    for name in runs:
        changes = list(recorded_changes(own_events(name, journal.read(name))))
        entries += [(one.at, name, one.change) for one in without_reverted(changes)]
        reverted += [one for one in changes if one.outcome == "reverted"]
    entries = [entry for entry in entries if not any(entry[2] == old.change and entry[0] < old.at for old in reverted)]
    return [entry[1:] for entry in sorted(entries, key=lambda entry: entry[0], reverse=True)]


def changed_files(journal: Journal, runs: Sequence[str]) -> dict[str, str]:
    """Return the files that some runs changed: `new`, `changed` or `deleted` by path."""
    files: dict[str, tuple[str | None, str | None]] = {}
    for _, change in reversed(changes_of_runs(journal, runs)):
        first = files[change.path][0] if change.path in files else change.before
        files[change.path] = (first, change.after)
    return {
        path: "new" if before is None else "deleted" if after is None else "changed"
        for path, (before, after) in files.items()
        if before != after
    }
