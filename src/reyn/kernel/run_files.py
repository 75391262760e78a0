"""The files of runs, beside driving them: made again where a fork or an import needs them, put back by an undo."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.journal import kinds
from reyn.kernel.forking import files_at, rebuild
from reyn.kernel.loading import load_head
from reyn.kernel.op_performer import foresee, put_back, roots_of
from reyn.kernel.undoing import UndoReport, changes_of, own_events
from reyn.ops import Env
from reyn.permissions import Gate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from reyn.journal import Journal
    from reyn.kernel.ports import Clock


class RunFiles:
    def __init__(self, root: Path, state: Path, journal: Journal, clock: Clock, file_bytes: int) -> None:
        self._root = root
        self._state = state
        self._journal = journal
        self._clock = clock
        self._file_bytes = file_bytes

    def make_again(self, run_id: str, origin: str, until: int) -> None:
        """A run's own files, as they were at an event of the run that it goes on from, or at its own last."""
        files = files_at(self._journal.read(origin), until)
        rebuild(files, roots_of(self._root, self._state, run_id), self._journal.blob, run_id)

    def undo(self, runs: Sequence[str], *, dry_run: bool) -> UndoReport:
        """Put back what runs changed, the last of them first; what somebody else changed since is left alone."""
        reports = [self._undo(name, dry_run=dry_run) for name in reversed(runs)]
        restored = tuple(dict.fromkeys(path for report in reports for path in report.restored))
        left = tuple(dict.fromkeys(path for report in reports for path in report.left))
        return UndoReport(runs[0], restored, left, dry_run)

    def _undo(self, run_id: str, *, dry_run: bool) -> UndoReport:
        with self._journal.claim(run_id):
            changes = tuple(reversed(list(changes_of(own_events(run_id, self._journal.read)))))
            state, tape = load_head(self._journal, run_id)
            roots = roots_of(self._root, self._state, state.workspace)
            env = Env(roots, Gate(roots), self._journal.blob, {}, self._file_bytes)
            if dry_run or not changes:
                return UndoReport(run_id, *foresee(changes, env), dry_run)
            tape.record(kinds.UndoStarted(changes), self._clock.now())
            tape.flush_now(self._journal)
            restored, left = put_back(changes, f"{run_id}.undo.{tape.seq}", env)
            tape.record(kinds.UndoCompleted(restored, left), self._clock.now())
            tape.flush_now(self._journal)
            return UndoReport(run_id, restored, left)
