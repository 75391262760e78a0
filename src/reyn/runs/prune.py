"""Delete recorded runs, by age and status or by id: their events, messages, unshared content and workspace folders.

A family (a root run and its sub-runs) is deleted as a whole or not at all. The journal deletes in one transaction;
workspace folders follow, and a prune that is interrupted in between is completed by the next one.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from reyn.config import RunSettings
from reyn.errors import BlobMissing, JournalError, RunBusy, RunInUse
from reyn.journal import ENDED
from reyn.kernel.core.run_state import fold

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from datetime import timedelta
    from pathlib import Path

    from reyn.journal import Journal, RunRow, Status


class PruneReport(msgspec.Struct, frozen=True):
    """The result of a prune, or of its dry run."""

    runs: tuple[str, ...] = ()
    events: int = 0
    blobs: int = 0
    bytes: int = 0
    """The size of the deleted events, contents and workspace files."""
    needed: tuple[str, ...] = ()
    """Runs of the requested age and status that other runs still need."""
    left: tuple[str, ...] = ()
    """Workspace folders that could not be removed; the next prune tries again."""
    is_dry: bool = False


def prune(
    journal: Journal,
    workspaces: Path,
    *,
    now: int,
    older_than: timedelta,
    statuses: Collection[Status] = ENDED,
    dry_run: bool = False,
) -> PruneReport:
    """Delete the families whose root run has one of the statuses and that have not changed for some time.

    A run that another run was forked from stays as long as the fork does. A run that an unfinished run uses as its
    model (`recorded:RUN`) stays until that run has ended. A background run stays until its conversation has taken the
    report of its end. A run that was only rerun does not stay.

    Args:
        journal: The journal of the runs.
        workspaces: The folder of the workspaces, one folder per run.
        now: The time, in microseconds since 1970.
        older_than: The minimum time since the last event of a family.
        statuses: The statuses of the root runs to delete.
        dry_run: Report only.

    Raises:
        RunBusy: Another process began to execute one of the runs meanwhile; nothing was deleted.
    """
    before = now - int(older_than.total_seconds() * 1_000_000)
    families = _families(journal.runs())
    matching = {
        root: family
        for root, family in families.items()
        if _matches(family, root, statuses, before) and not any(journal.is_claimed(row.run_id) for row in family)
    }
    deletable = _without_needed(journal, matching, families)
    runs = tuple(sorted(row.run_id for root in deletable for row in matching[root]))
    needed = tuple(sorted(row.run_id for root in matching.keys() - deletable for row in matching[root]))
    deletion = journal.delete(runs, dry_run=dry_run)
    size, left = _remove_workspaces(journal, workspaces, set(runs), dry_run=dry_run)
    return PruneReport(
        runs, deletion.events, deletion.blobs, deletion.bytes + size, needed, tuple(left), is_dry=dry_run
    )


def delete_runs(journal: Journal, workspaces: Path, runs: Collection[str], *, dry_run: bool = False) -> PruneReport:
    """Delete the families of runs, and the background runs that they started, whatever their status.

    Args:
        journal: The journal of the runs.
        workspaces: The folder of the workspaces, one folder per run.
        runs: The ids of the runs.
        dry_run: Report only.

    Raises:
        RunInUse: A run that stays was forked from one of them, or needs one of them to continue.
        RunBusy: A process executes one of them.
    """
    families = _families(journal.runs())
    roots = {row.run_id: root for root, family in families.items() for row in family}
    matching = _with_background(journal, {roots[run] for run in runs}, families, roots)
    for row in (row for family in matching.values() for row in family):
        if journal.is_claimed(row.run_id):
            raise RunBusy(f"a process executes `{row.run_id}`", hint="Leave or cancel it there first.")
    deletable = _without_needed(journal, matching, families)
    if deletable != matching.keys():
        raise RunInUse(_dependency(journal, matching, families, roots))
    names = tuple(sorted(row.run_id for family in matching.values() for row in family))
    deletion = journal.delete(names, dry_run=dry_run)
    size, left = _remove_workspaces(journal, workspaces, set(names), dry_run=dry_run)
    return PruneReport(names, deletion.events, deletion.blobs, deletion.bytes + size, (), tuple(left), is_dry=dry_run)


def _dependency(
    journal: Journal, matching: dict[str, list[RunRow]], families: dict[str, list[RunRow]], roots: dict[str, str]
) -> str:
    """Return the message that names a run to delete, and a run to keep that needs it."""
    needed, dependent = next(
        (run, row.run_id)
        for root in sorted(families.keys() - matching.keys())
        for row in families[root]
        for run in sorted(_links(journal, [row]))
        if roots.get(run) in matching
    )
    return f"run `{needed}` is needed by run `{dependent}`, which was forked from it or needs it to continue"


def _with_background(
    journal: Journal, chosen: set[str], families: dict[str, list[RunRow]], roots: dict[str, str]
) -> dict[str, list[RunRow]]:
    """Return the chosen families with those of the background runs that they started, and theirs in turn."""
    groups: dict[str, list[RunRow]] = {}
    while chosen:
        root = chosen.pop()
        groups[root] = families[root]
        started = {run for row in families[root] for run in _background_runs(journal, row.run_id)}
        chosen |= {roots[run] for run in started if run in roots} - groups.keys()
    return groups


def _background_runs(journal: Journal, run_id: str) -> set[str]:
    """Return the background runs that a run started itself; those of a fork's origin belong to the origin."""
    try:
        background = fold(journal.read(run_id)).inbox.background
    except JournalError:
        return set()
    return {run for run in background if run.startswith(f"{run_id}.")}


def _families(rows: list[RunRow]) -> dict[str, list[RunRow]]:
    """Group runs by their root run."""
    parents = {row.run_id: row.parent for row in rows}
    families: dict[str, list[RunRow]] = {}
    for row in rows:
        root, seen = row.run_id, {row.run_id}
        while (parent := parents[root]) in parents and parent not in seen:
            root = parent
            seen.add(root)
        families.setdefault(root, []).append(row)
    return families


def _matches(family: list[RunRow], root: str, statuses: Collection[Status], before: int) -> bool:
    """Return whether a family has the requested age and status.

    The status of the root run decides: once it has ended, its sub-runs never continue.
    """
    status = next(row.status for row in family if row.run_id == root)
    return status in statuses and all(row.updated <= before for row in family)


def _without_needed(journal: Journal, matching: dict[str, list[RunRow]], families: dict[str, list[RunRow]]) -> set[str]:
    """Return the matching families that no remaining run continues from or uses as its model."""
    deletable = set(matching)
    if not deletable:
        return deletable
    roots = {row.run_id: root for root, family in families.items() for row in family}
    links = {root: _links(journal, family) for root, family in families.items()}
    while True:
        linked = {run for root in families if root not in deletable for run in links[root]}
        needed = {roots[run] for run in linked if run in roots} & deletable
        if not needed:
            return deletable
        deletable -= needed


def _links(journal: Journal, family: list[RunRow]) -> set[str]:
    """Return the runs that the runs of a family were forked from, and those that its unfinished runs need."""
    links = {row.fork_of for row in family}
    for row in family:
        if row.status not in ENDED:
            links |= _needed_by(journal, row.run_id)
    return links


def _needed_by(journal: Journal, run_id: str) -> set[str]:
    """Return the runs that a run uses as models, and its background runs whose end it does not know yet.

    A damaged run needs none: it cannot continue.
    """
    try:
        state = fold(journal.read(run_id))
        settings = msgspec.json.decode(journal.blob(state.started.settings), type=RunSettings)
    except (BlobMissing, JournalError, msgspec.MsgspecError):
        return set()
    models = (model.partition(":") for model in (state.models.name, *settings.classes.values()))
    recorded = {run for adapter, _, run in models if adapter == "recorded"}
    return recorded | {run for run, report in state.inbox.background.items() if report is None}


def _remove_workspaces(journal: Journal, workspaces: Path, runs: set[str], *, dry_run: bool) -> tuple[int, list[str]]:
    """Remove the workspace folders of deleted runs, and those that an interrupted prune left behind.

    Returns:
        The size of the files, and the folders that could not be removed.
    """
    size, left = 0, list[str]()
    for folder in sorted(workspaces.iterdir()) if workspaces.is_dir() else ():
        if dry_run:
            is_orphan = folder.name in runs or (journal.find(folder.name) is None)
            size += _size(folder) if is_orphan and not journal.is_claimed(folder.name) else 0
            continue
        # Under the claim, no new run of the same id can begin to use the folder.
        with suppress(RunBusy), journal.claim(folder.name):
            if journal.find(folder.name) is None:
                freed = _size(folder)
                shutil.rmtree(folder, ignore_errors=True)
                if folder.exists():
                    left.append(folder.name)
                else:
                    size += freed
    return size, left


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in _files(folder))


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_symlink() or path.is_file())
