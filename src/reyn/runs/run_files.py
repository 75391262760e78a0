"""The files of runs, beside driving them: made again where a fork or an import needs them, put back by an undo."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from reyn.journal import kinds
from reyn.kernel.changes import dated_changes
from reyn.kernel.loading import load_head
from reyn.kernel.op_performer import roots_of
from reyn.kernel.run_state import fold
from reyn.runs.family import descendants
from reyn.runs.fork import files_at, rebuild
from reyn.runs.undo import UndoReport, created, own_events, touched, undone_changes
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

    def make_again(self, run_id: str, origin: str, until: Event) -> None:
        """A run's own files, as they were at an event of the run that it goes on from, or at its own last; with what
        sub-runs wrote that share them."""
        events = [(event.ts, event.seq, event) for event in self._journal.read(origin) if event.seq <= until.seq]
        for row in descendants(self._journal, origin):
            shared = list(self._journal.read(row.run_id))
            if fold(shared).workspace == origin:
                events += [(event.ts, event.seq, event) for event in shared if event.ts <= until.ts]
        ordered = [event for _, _, event in sorted(events, key=lambda entry: entry[:2])]
        rebuild(files_at(ordered), roots_of(self._root, self._state, run_id), self._journal.blob, run_id)

    def touched(self, runs: Sequence[str]) -> dict[str, str]:
        """The files that a run and its sub-runs changed, with what became of each."""
        return touched(change for _, change in reversed(self._changes(runs)))

    def undo(self, runs: Sequence[str], *, dry_run: bool) -> UndoReport:
        """Put back what a run and its sub-runs changed, newest first; what somebody else changed since is left."""
        with ExitStack() as claims:
            for name in runs:
                claims.enter_context(self._journal.claim(name))
            changes = self._changes(runs)
            if dry_run or not changes:
                return self._foreseen(runs[0], changes)
            return self._undone(runs[0], changes)

    def _changes(self, runs: Sequence[str]) -> list[tuple[str, kinds.Change]]:
        """Every change that stands, newest first, with the run whose files it was made in."""
        dated, undone = [], list[tuple[tuple[int, int], kinds.Change]]()
        for name in runs:
            events = list(own_events(name, self._journal.read))
            workspace = fold(self._journal.read(name)).workspace
            dated += [(at, workspace, change) for at, change in dated_changes(events)]
            undone += undone_changes(events)
        dated = [entry for entry in dated if not any(entry[2] == gone and entry[0] < at for at, gone in undone)]
        return [(workspace, change) for _, workspace, change in sorted(dated, key=lambda entry: entry[0], reverse=True)]

    def _foreseen(self, run_id: str, changes: list[tuple[str, kinds.Change]]) -> UndoReport:
        restored: list[str] = []
        left: list[str] = []
        for workspace, own in _by_workspace(changes):
            would, would_not = preview_restore(own, self._in(workspace))
            restored, left = [*restored, *would], [*left, *would_not]
        return _report(run_id, changes, restored, left, is_dry=True)

    def _undone(self, run_id: str, changes: list[tuple[str, kinds.Change]]) -> UndoReport:
        """Recorded in the run that was named: what is about to be put back, then what was."""
        _, tape = load_head(self._journal, run_id)
        tape.record(kinds.UndoStarted(tuple(change for _, change in changes)), self._clock.now())
        tape.flush_now(self._journal)
        restored: list[str] = []
        left: list[str] = []
        for workspace, own in _by_workspace(changes):
            # The same token when an undo that was cut short is done again: it finds what it left half written.
            done, not_done = restore(own, f"{run_id}/undo/{workspace}", self._in(workspace))
            restored, left = [*restored, *done], [*left, *not_done]
        report = _report(run_id, changes, restored, left)
        tape.record(kinds.UndoCompleted(report.restored, report.left), self._clock.now())
        tape.flush_now(self._journal)
        return report

    def _in(self, workspace: str) -> Files:
        return Files(roots_of(self._root, self._state, workspace), self._journal.blob, self._file_bytes)


def _report(
    run_id: str, changes: list[tuple[str, kinds.Change]], restored: list[str], left: list[str], *, is_dry: bool = False
) -> UndoReport:
    new = created(change for _, change in changes)
    unique = tuple(dict.fromkeys(restored))
    deleted = tuple(path for path in unique if path in new)
    return UndoReport(run_id, unique, tuple(dict.fromkeys(left)), is_dry=is_dry, deleted=deleted)


def _by_workspace(changes: list[tuple[str, kinds.Change]]) -> list[tuple[str, tuple[kinds.Change, ...]]]:
    """Files of the project in one go, whoever changed them; each run's own files apart."""
    groups: dict[str, list[kinds.Change]] = {}
    for workspace, change in changes:
        own = workspace if change.path.startswith("workspace:") else ""
        groups.setdefault(own, []).append(change)
    first = changes[0][0] if changes else ""
    return [(name or first, tuple(group)) for name, group in groups.items()]
