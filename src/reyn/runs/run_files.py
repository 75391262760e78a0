"""The files of recorded runs: recreate a workspace for a fork or an import, undo changes.

The changes are derived from events. `fork` writes the files of a workspace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec.structs import replace

from reyn.errors import RunBlocked
from reyn.journal import ENDED, Event, Journal, decode, kinds
from reyn.journal.family import descendants
from reyn.journal.outside import append_outside
from reyn.kernel.world.environments import decide_restore, roots_of
from reyn.kernel.world.loading import load_state
from reyn.permissions import Denied, Gate, Policy
from reyn.workspace import Change, FileError, Location, PathInvalid, apply_change, locate
from reyn.workspace.paths import WORKSPACE
from reyn.workspace.restore import (
    Files,
    Restored,
    changes_of_runs,
    content_at,
    own_events,
    preview_restore,
    recorded_changes,
    restore,
)

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.journal import RunRow
    from reyn.journal.registry import Body
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.runtime_types import Clock

    GateOf = Callable[[RunState, Callable[[str], bytes]], Gate]


class UntrackedOp(msgspec.Struct, frozen=True):
    """An op that may have changed files that no event records, so that an undo cannot restore them.

    `op` is its kind, `args` are its arguments, and `paths` the files, if they are known.
    """

    run: str
    call: str
    op: str
    args: str
    paths: tuple[str, ...] = ()


class UndoReport(msgspec.Struct, frozen=True):
    """The result of an undo, or of its dry run."""

    run_id: str
    restored: tuple[str, ...]
    left: tuple[str, ...]
    """Files that another program changed since; they were not restored."""
    is_dry: bool = False
    deleted: tuple[str, ...] = ()
    """The restored files that the run had created; the undo deleted them."""
    verdicts: tuple[kinds.RestoreVerdict, ...] = ()
    """The decisions of the permission gate, one per file. A file with a `reason` was denied and stays as it is."""

    untracked: tuple[UntrackedOp, ...] = ()
    """Ops whose changes of files are not recorded, or not all of them. Nothing of them was restored."""

    @property
    def denied(self) -> tuple[kinds.RestoreVerdict, ...]:
        return tuple(verdict for verdict in self.verdicts if verdict.reason)


class _Made(NamedTuple):
    """A change, the run whose workspace it applies to, and the gate of the run that made it."""

    workspace: str
    change: kinds.Change
    gate: Gate


_MAX_WORKSPACES = 8_192
"""The runs whose workspaces a process remembers to be current."""


class RunFiles:
    def __init__(
        self,
        root: Path,
        state: Path,
        journal: Journal,
        clock: Clock,
        file_bytes: int,
        read_policy: Callable[[], Policy],
        gate_of: GateOf,
    ) -> None:
        self._root = root
        self._state = state
        self._journal = journal
        self._clock = clock
        self._file_bytes = file_bytes
        self._read_policy = read_policy
        self._gate_of = gate_of
        self._workspaces: dict[str, int] = {}
        """The last event of each run whose workspace files this process has written."""

    def recreate_workspace(self, run_id: str, origin: str, seq: int, ts: int) -> None:
        """Write the workspace files of `origin`, as of event `seq` at time `ts`, into the workspace of a run.

        Includes the changes of sub-runs that share the workspace. Existing files are left as they are.
        """
        gate = replace(self._gate(origin), roots=roots_of(self._root, self._state, run_id))
        for changes in self._changes_of_workspace(origin, seq, ts).values():
            if changes[-1].after is not None:
                _write_file(replace(changes[-1], before=None), gate, self._journal.blob, run_id)

    def bring_workspaces(self, row: RunRow) -> None:
        """Make the workspace files of a run and of its open sub-runs what their events say: another worker may have
        executed them.

        A file with content that was not recorded is left as it is. Does nothing if this process has had the run since.
        """
        if self._workspaces.get(row.run_id) == row.seq:
            return
        self._bring(row)
        for below in descendants(self._journal, row.run_id):
            if below.status not in ENDED and load_state(self._journal, below.run_id).workspace == below.run_id:
                self._bring(below)
        self.note_workspace(row.run_id, row.seq)

    def _bring(self, row: RunRow) -> None:
        gate = self._gate(row.run_id)
        for path, changes in self._changes_of_workspace(row.run_id).items():
            known = {None, *(content for one in changes for content in (one.before, one.after))}
            now = content_at(path, gate.roots, self._file_bytes)
            if now in known and now != changes[-1].after:
                _write_file(replace(changes[-1], before=now), gate, self._journal.blob, f"{row.run_id}.{row.seq}")

    def note_workspace(self, run_id: str, seq: int) -> None:
        """Note that the workspace files of a run are those of its event `seq`."""
        self._workspaces.pop(run_id, None)
        self._workspaces[run_id] = seq
        while len(self._workspaces) > _MAX_WORKSPACES:
            self._workspaces.pop(next(iter(self._workspaces)))

    def _changes_of_workspace(
        self, run_id: str, seq: int | None = None, ts: int | None = None
    ) -> dict[str, list[kinds.Change]]:
        """Return the changes of the workspace files of a run, by path, oldest first; reverted ones are turned round.

        Includes those of sub-runs that share the workspace. `seq` and `ts` limit the events.
        """
        changes = list(recorded_changes(islice(self._journal.read(run_id), seq)))
        for row in descendants(self._journal, run_id):
            if load_state(self._journal, row.run_id).workspace == run_id:
                events = self._journal.read(row.run_id)
                changes += recorded_changes(event for event in events if ts is None or event.ts <= ts)
        found: dict[str, list[kinds.Change]] = {}
        for one in sorted((one for one in changes if one.outcome != "intended"), key=lambda one: one.at):
            change = one.change
            if change.path.startswith(WORKSPACE):
                turned = replace(change, before=change.after, after=change.before)
                found.setdefault(change.path, []).append(turned if one.outcome == "reverted" else change)
        return found

    def _gate(self, run_id: str) -> Gate:
        """Return the current gate of a run. If its copies are missing, return the gate of a skill without requests."""
        state = load_state(self._journal, run_id)
        try:
            return self._gate_of(state, self._journal.blob)
        except RunBlocked:
            return Gate(roots_of(self._root, self._state, state.workspace), self._read_policy())

    def undo(self, runs: Sequence[str], *, dry_run: bool) -> UndoReport:
        """Restore the files that some runs changed, newest change first; leave files that were changed since.

        Each file passes the gates of the runs that changed it, with today's rules.
        """
        with ExitStack() as claims:
            for name in runs:
                claims.enter_context(self._journal.claim(name))
            gates = {name: self._gate(name) for name in runs}
            changes = [_Made(workspace, change, gates[name]) for name, workspace, change in self._changes(runs)]
            report = self._preview(runs[0], changes) if dry_run or not changes else self._undo(runs[0], changes)
            return replace(report, untracked=tuple(self._untracked(runs)))

    def _untracked(self, runs: Sequence[str]) -> Iterator[UntrackedOp]:
        """Yield the ops of some runs whose changes of files are not recorded."""
        for name in runs:
            yield from _untracked_ops(own_events(name, self._journal.read(name)), self._journal.blob)

    def _changes(self, runs: Sequence[str]) -> list[tuple[str, str, kinds.Change]]:
        """Return the unreverted changes, newest first, each with its run and the run whose workspace it applies to."""
        workspaces = {name: load_state(self._journal, name).workspace for name in runs}
        return [(name, workspaces[name], change) for name, change in changes_of_runs(self._journal, runs)]

    def _preview(self, run_id: str, changes: list[_Made]) -> UndoReport:
        done = [preview_restore(own, files) for _, own, files in self._by_workspace(changes)]
        return _report(run_id, changes, done, is_dry=True)

    def _undo(self, run_id: str, changes: list[_Made]) -> UndoReport:
        """Restore the files; record intent and outcome in the journal of the run."""
        self._record(run_id, kinds.UndoStarted(tuple(made.change for made in changes)))
        # An undo that is repeated after a crash uses the same token, so it finds its own temporary files.
        done = [restore(own, f"{run_id}/undo/{name}", files) for name, own, files in self._by_workspace(changes)]
        report = _report(run_id, changes, done)
        self._record(run_id, kinds.UndoCompleted(report.restored, report.left, report.verdicts))
        return report

    def _record(self, run_id: str, body: Body) -> None:
        append_outside(self._journal, run_id, self._clock.now(), [(body, ())])

    def _by_workspace(self, changes: list[_Made]) -> list[tuple[str, tuple[kinds.Change, ...], Files]]:
        """Group changes by workspace. Project files are one group, whichever run changed them."""
        groups: dict[str, list[_Made]] = {}
        for made in changes:
            own = made.workspace if made.change.path.startswith("workspace:") else ""
            groups.setdefault(own, []).append(made)
        first = changes[0].workspace if changes else ""
        return [
            (name or first, tuple(made.change for made in group), self._files(name or first, group))
            for name, group in groups.items()
        ]

    def _files(self, workspace: str, group: list[_Made]) -> Files:
        gates, every = dict[str, list[Gate]](), [made.gate for made in group]
        for made in group:
            gates.setdefault(made.change.path, []).append(made.gate)

        def decide(location: Location) -> tuple[str, str]:
            return decide_restore(gates.get(location.display_path, every), location)

        roots = roots_of(self._root, self._state, workspace)
        return Files(roots, self._journal.blob, self._file_bytes, decide)


def _report(run_id: str, changes: list[_Made], done: list[Restored], *, is_dry: bool = False) -> UndoReport:
    new = _created_files(made.change for made in changes)
    restored = tuple(dict.fromkeys(path for one in done for path in one.restored))
    left = tuple(dict.fromkeys(path for one in done for path in one.left))
    deleted = tuple(path for path in restored if path in new)
    verdicts = tuple(verdict for one in done for verdict in one.verdicts)
    return UndoReport(run_id, restored, left, is_dry=is_dry, deleted=deleted, verdicts=verdicts)


# -- changes, derived from events ---------------------------------------------------------------------


def _write_file(change: Change, gate: Gate, content: Callable[[str], bytes], token: str) -> None:
    """Write or remove a workspace file, if the gate allows it and it is as before the change."""
    # A forged record may name any path; a file that cannot be recreated is left out.
    with suppress(FileError, PathInvalid):
        location = locate(change.path, gate.roots)
        if location.zone == "workspace" and not isinstance(gate.write(location), Denied):
            apply_change(change, gate.roots, content, f"{token}.{change.path}", location)


def _created_files(changes: Iterable[kinds.Change]) -> set[str]:
    """Return the files that did not exist before these changes, which come newest first."""
    oldest = {change.path: change.before for change in changes}
    return {path for path, before in oldest.items() if before is None}


def _untracked_ops(events: Iterable[Event], content: Callable[[str], bytes]) -> Iterator[UntrackedOp]:
    """Yield the ops that may have changed files without a record: programs, tools, unsafe steps."""
    started: dict[str, tuple[str, kinds.OpStarted]] = {}
    for event in events:
        match decode(event):
            case kinds.OpStarted(is_untracked=True) as body:
                started[body.call] = (event.run_id, body)
            case kinds.OpCompleted(call=call) as body if call in started:
                run, intent = started.pop(call)
                if body.unrecorded or (body.changes is None and body.status != "denied"):
                    yield _untracked(run, intent, content, body.unrecorded)
    yield from (_untracked(run, intent, content) for run, intent in started.values())


def _untracked(
    run: str, started: kinds.OpStarted, content: Callable[[str], bytes], paths: tuple[str, ...] = ()
) -> UntrackedOp:
    return UntrackedOp(run, started.call, started.op_kind, content(started.args).decode(), paths)
