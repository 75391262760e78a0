"""Derive from events which file changes were reverted, and which files a run changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.journal import decode, kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from reyn.journal import Event


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


def reverted_changes(events: Iterable[Event]) -> Iterator[tuple[tuple[int, int], kinds.Change]]:
    """Yield the changes of a run and its sub-runs that were reverted, with time and sequence number."""
    restoring: tuple[kinds.Change, ...] = ()
    for event in events:
        match decode(event):
            case kinds.RestoreStarted(changes=changes) | kinds.UndoStarted(changes=changes):
                restoring = changes
            case kinds.WorkspaceRestored(restored=restored) | kinds.UndoCompleted(restored=restored):
                yield from (((event.ts, event.seq), change) for change in restoring if change.path in restored)


def own_events(run_id: str, history: Iterable[Event]) -> list[Event]:
    """Return the events of a run without those that it shares with the origin of a fork."""
    return [event for event in history if event.run_id == run_id]


def created_files(changes: Iterable[kinds.Change]) -> set[str]:
    """Return the files that did not exist before these changes, which come newest first."""
    oldest = {change.path: change.before for change in changes}
    return {path for path, before in oldest.items() if before is None}


def changed_files(changes: Iterable[kinds.Change]) -> dict[str, str]:
    """Return `new`, `changed` or `deleted` by path, from changes in the order in which they were made."""
    files: dict[str, tuple[str | None, str | None]] = {}
    for change in changes:
        first = files[change.path][0] if change.path in files else change.before
        files[change.path] = (first, change.after)
    return {
        path: "new" if before is None else "deleted" if after is None else "changed"
        for path, (before, after) in files.items()
        if before != after
    }


def untracked_ops(events: Iterable[Event], content: Callable[[str], bytes]) -> Iterator[UntrackedOp]:
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
