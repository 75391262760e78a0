"""The files of recorded runs: recreate a workspace for a fork or an import, undo changes.

`fork` and `undo` derive from events what is to be done; this module applies it to the file system.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from reyn.journal import kinds
from reyn.kernel.changes import timestamped_changes
from reyn.kernel.loading import load_head
from reyn.kernel.op_performer import roots_of
from reyn.kernel.run_state import fold
from reyn.runs.family import descendants
from reyn.runs.fork import workspace_files, write_files
from reyn.runs.undo import UndoReport, changed_files, created_files, own_events, reverted_changes
from reyn.workspace.restore import Files, preview_restore, restore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from reyn.journal import Event, Journal
    from reyn.kernel.ports import Clock


class RunFiles:
    def __init__(self, root: Path, state: Path, journal: Journal, clock: Clock, file_bytes: int) -> None:
        self._root = root
        self._state = state
        self._journal = journal
        self._clock = clock
        self._file_bytes = file_bytes

    def recreate_workspace(self, run_id: str, origin: str, until: Event) -> None:
        """Write the workspace files of `origin`, as they were at an event, into the workspace of a run.

        Includes the changes of sub-runs that share the workspace. Existing files are left as they are.
        """
        events = [(event.ts, event.seq, event) for event in self._journal.read(origin) if event.seq <= until.seq]
        for row in descendants(self._journal, origin):
            shared = list(self._journal.read(row.run_id))
            if fold(shared).workspace == origin:
                events += [(event.ts, event.seq, event) for event in shared if event.ts <= until.ts]
        ordered = [event for _, _, event in sorted(events, key=lambda entry: entry[:2])]
        write_files(workspace_files(ordered), roots_of(self._root, self._state, run_id), self._journal.blob, run_id)

    def changed_files(self, runs: Sequence[str]) -> dict[str, str]:
        """Return the files that some runs changed: `new`, `changed` or `deleted` by path."""
        return changed_files(change for _, change in reversed(self._changes(runs)))

    def undo(self, runs: Sequence[str], *, dry_run: bool) -> UndoReport:
        """Restore the files that some runs changed, newest change first; leave files that were changed since."""
        with ExitStack() as claims:
            for name in runs:
                claims.enter_context(self._journal.claim(name))
            changes = self._changes(runs)
            if dry_run or not changes:
                return self._preview(runs[0], changes)
            return self._undo(runs[0], changes)

    def _changes(self, runs: Sequence[str]) -> list[tuple[str, kinds.Change]]:
        """Return the unreverted changes, newest first, each with the run whose workspace it applies to."""
        entries, reverted = [], list[tuple[tuple[int, int], kinds.Change]]()
        for name in runs:
            events = list(own_events(name, self._journal.read))
            workspace = fold(self._journal.read(name)).workspace
            entries += [(at, workspace, change) for at, change in timestamped_changes(events)]
            reverted += reverted_changes(events)
        entries = [entry for entry in entries if not any(entry[2] == old and entry[0] < at for at, old in reverted)]
        return [
            (workspace, change) for _, workspace, change in sorted(entries, key=lambda entry: entry[0], reverse=True)
        ]

    def _preview(self, run_id: str, changes: list[tuple[str, kinds.Change]]) -> UndoReport:
        restored: list[str] = []
        left: list[str] = []
        for workspace, own in _by_workspace(changes):
            restorable, skipped = preview_restore(own, self._in(workspace))
            restored, left = [*restored, *restorable], [*left, *skipped]
        return _report(run_id, changes, restored, left, is_dry=True)

    def _undo(self, run_id: str, changes: list[tuple[str, kinds.Change]]) -> UndoReport:
        """Restore the files; record intent and outcome in the journal of the run."""
        _, tape = load_head(self._journal, run_id)
        tape.record(kinds.UndoStarted(tuple(change for _, change in changes)), self._clock.now())
        tape.flush_now(self._journal)
        restored: list[str] = []
        left: list[str] = []
        for workspace, own in _by_workspace(changes):
            # An undo that is repeated after a crash uses the same token, so it finds its own temporary files.
            done, skipped = restore(own, f"{run_id}/undo/{workspace}", self._in(workspace))
            restored, left = [*restored, *done], [*left, *skipped]
        report = _report(run_id, changes, restored, left)
        tape.record(kinds.UndoCompleted(report.restored, report.left), self._clock.now())
        tape.flush_now(self._journal)
        return report

    def _in(self, workspace: str) -> Files:
        return Files(roots_of(self._root, self._state, workspace), self._journal.blob, self._file_bytes)


def _report(
    run_id: str, changes: list[tuple[str, kinds.Change]], restored: list[str], left: list[str], *, is_dry: bool = False
) -> UndoReport:
    new = created_files(change for _, change in changes)
    unique = tuple(dict.fromkeys(restored))
    deleted = tuple(path for path in unique if path in new)
    return UndoReport(run_id, unique, tuple(dict.fromkeys(left)), is_dry=is_dry, deleted=deleted)


def _by_workspace(changes: list[tuple[str, kinds.Change]]) -> list[tuple[str, tuple[kinds.Change, ...]]]:
    """Group changes by workspace. Project files are one group, whichever run changed them."""
    groups: dict[str, list[kinds.Change]] = {}
    for workspace, change in changes:
        own = workspace if change.path.startswith("workspace:") else ""
        groups.setdefault(own, []).append(change)
    first = changes[0][0] if changes else ""
    return [(name or first, tuple(group)) for name, group in groups.items()]
