"""Find the recorded changes of files, and revert them: the rollback of a failed visit, and `undo`.

A record may be forged, so every file passes the permission gate, which the caller brings, when it is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import msgspec

from reyn.journal import Event, Journal, decode, digest, kinds
from reyn.journal.kinds import Change, RestoreVerdict
from reyn.journal.registry import kinds as registered
from reyn.workspace.changes import revert
from reyn.workspace.files import FileError, read
from reyn.workspace.paths import Location, PathInvalid, Roots, locate

Decide = Callable[[Location], tuple[str, str]]
"""Asks the permission gate about writing a file: the rule that decided, and the reason if it is denied."""
Timestamp = tuple[int, int]


class Files(msgspec.Struct, frozen=True):
    """The files to restore: their roots, their recorded contents, the maximum size of a file, the permission gate."""

    roots: Roots
    content: Callable[[str], bytes]
    max_bytes: int
    decide: Decide


class Restored(msgspec.Struct, frozen=True):
    """The outcome of a restore: files that were restored, files that were left alone, and the gate's verdicts."""

    restored: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    """Files that another program changed since, or that cannot be written; also those that were restored in part."""
    verdicts: tuple[RestoreVerdict, ...] = ()
    """One per file. A file with a reason was denied and is in neither list."""


def preview_restore(changes: tuple[Change, ...], files: Files) -> Restored:
    """Return what `restore` would do."""
    restored: dict[str, str | None] = {}
    left: dict[str, None] = {}
    verdicts: dict[str, RestoreVerdict] = {}
    for steps in _chains(changes):
        path = steps[0].path
        if _verdict(path, files, verdicts).reason:
            continue
        if _is_from(steps, restored[path] if path in restored else content_at(path, files.roots, files.max_bytes)):
            restored[path] = steps[-1].before
        else:
            left[path] = None
    return Restored(tuple(path for path in restored if path not in left), tuple(left), tuple(verdicts.values()))


def restore(changes: tuple[Change, ...], token: str, files: Files) -> Restored:
    """Revert changes, newest first, each if the permission gate allows to write its file now.

    A file whose content is neither that before nor that after a change is left alone, because another program changed
    it.
    """
    restored: dict[str, None] = {}
    left: dict[str, None] = {}
    verdicts: dict[str, RestoreVerdict] = {}
    for number, steps in enumerate(_chains(changes)):
        if _verdict(steps[0].path, files, verdicts).reason:
            continue
        change = _as_one(steps, files)
        try:
            outcome = revert(change, files.roots, files.content, f"{token}.{number}")
        except FileError:
            outcome = "conflict"
        (left if outcome == "conflict" else restored)[change.path] = None
    return Restored(tuple(path for path in restored if path not in left), tuple(left), tuple(verdicts.values()))


def _verdict(path: str, files: Files, verdicts: dict[str, RestoreVerdict]) -> RestoreVerdict:
    """Ask the gate about the file that a recorded path leads to now."""
    if path not in verdicts:
        try:
            verdicts[path] = RestoreVerdict(path, *files.decide(locate(path, files.roots)))
        except PathInvalid as error:
            verdicts[path] = RestoreVerdict(path, "invalid path", str(error))
    return verdicts[path]


def _chains(changes: tuple[Change, ...]) -> list[list[Change]]:
    """Group successive changes of one file, newest first. A group takes the position of its oldest change.

    A group is reverted in one step: after a crash, a file that was reverted in several steps would look as if another
    program had changed it.
    """
    chains: dict[int, list[Change]] = {}
    newest: dict[str, int] = {}
    for number, change in enumerate(changes):
        key = newest.get(change.path)
        follows = key is not None and chains[key][-1].before == change.after
        chains[number] = chains.pop(key) if key is not None and follows else []
        chains[number].append(change)
        newest[change.path] = number
    return list(chains.values())


def _as_one(steps: list[Change], files: Files) -> Change:
    """Merge a group into one change. If its newest is an intent that took no effect, it ends at the current file."""
    oldest, now = steps[-1], content_at(steps[0].path, files.roots, files.max_bytes)
    # Only the folders above the file, as `missing_folders` recorded them: nothing else was created for it.
    made = tuple(
        dict.fromkeys(
            path for step in reversed(steps) for path in step.made if oldest.path.startswith(f"{path.rstrip('/')}/")
        )
    )
    after = now if _is_from(steps, now) else steps[0].after
    return Change(oldest.path, oldest.before, after, oldest.mode, made)


def _is_from(steps: list[Change], now: str | None) -> bool:
    return now == steps[0].after or any(now == step.before for step in steps)


def content_at(path: str, roots: Roots, max_bytes: int) -> str | None:
    """Return the hash of a file's content, `None` if there is no file, an empty string if it cannot be read."""
    try:
        image = read(locate(path, roots), roots, max_bytes)
    except (FileError, PathInvalid):
        return ""
    return digest(image.content) if image else None


# -- recorded changes -----------------------------------------------------------------------------------------


_CHANGES = (
    kinds.OpStarted,
    kinds.OpCompleted,
    kinds.WorkspaceUpdated,
    kinds.ChildEnded,
    kinds.RestoreStarted,
    kinds.UndoStarted,
    kinds.WorkspaceRestored,
    kinds.UndoCompleted,
)
_WITHOUT_CHANGES = frozenset(kind for (kind, _), cls in registered().items() if cls not in _CHANGES)
"""The kinds of events that say nothing about files; most events of a run have one of these."""


class RecordedChange(NamedTuple):
    """A change of a file that events record: made, reverted, or intended by an op whose outcome is not recorded."""

    at: Timestamp
    change: Change
    outcome: Literal["made", "reverted", "intended"]


def recorded_changes(events: Iterable[Event], *, with_sub_runs: bool = False) -> Iterator[RecordedChange]:
    """Yield the changes of a run in order, and after them what was intended since the last restore."""
    restoring: tuple[Change, ...] = ()
    intents: dict[str, tuple[Timestamp, tuple[Change, ...]]] = {}
    for event in events:
        if event.kind in _WITHOUT_CHANGES:
            continue
        at = (event.ts, event.seq)
        match decode(event):
            case kinds.OpStarted(call=call, changes=changes):
                intents[call] = (at, changes)
            case kinds.OpCompleted(call=call):
                intents.pop(call, None)
            case kinds.WorkspaceUpdated(change=change):
                yield RecordedChange(at, change, "made")
            case kinds.ChildEnded(changes=changes) if with_sub_runs:
                yield from (RecordedChange(at, change, "made") for change in changes)
            case kinds.RestoreStarted(changes=changes) | kinds.UndoStarted(changes=changes):
                restoring = changes
            case kinds.WorkspaceRestored(restored=restored) | kinds.UndoCompleted(restored=restored):
                yield from (RecordedChange(at, change, "reverted") for change in restoring if change.path in restored)
                intents.clear()
    yield from (RecordedChange(at, change, "intended") for at, changes in intents.values() for change in changes)


def unreverted_changes(events: Iterable[Event], *, with_sub_runs: bool = False) -> Iterator[Change]:
    """Yield the changes that the ops of a run made and nothing reverted, oldest first.

    An intent without an outcome counts, because it may have taken effect. A restore checks each file first.
    """
    return (one.change for one in without_reverted(recorded_changes(events, with_sub_runs=with_sub_runs)))


def without_reverted(changes: Iterable[RecordedChange]) -> list[RecordedChange]:
    """Return the changes of a run that nothing reverted."""
    current: list[RecordedChange] = []
    for one in changes:
        if one.outcome == "reverted":
            current = [other for other in current if other.change != one.change]
        else:
            current.append(one)
    return current


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


def changed_images(journal: Journal, runs: Sequence[str]) -> dict[str, tuple[str | None, str | None]]:
    """Return the hashes of the content before and after what some runs changed, by path; `None` is no file."""
    files: dict[str, tuple[str | None, str | None]] = {}
    for _, change in reversed(changes_of_runs(journal, runs)):
        first = files[change.path][0] if change.path in files else change.before
        files[change.path] = (first, change.after)
    return {path: (before, after) for path, (before, after) in files.items() if before != after}


def changed_files(journal: Journal, runs: Sequence[str]) -> dict[str, str]:
    """Return the files that some runs changed: `new`, `changed` or `deleted` by path."""
    return {
        path: "new" if before is None else "deleted" if after is None else "changed"
        for path, (before, after) in changed_images(journal, runs).items()
    }
