"""Delete recorded runs, by age and status or by id: their events, messages, unshared content and workspace folders.

A family (a root run and its sub-runs) is deleted as a whole or not at all. The journal deletes in one transaction;
workspace folders follow. The journal names those that are still to be removed, so a prune that is interrupted in
between is completed by the next one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

import msgspec

from reyn.config import RunSettings
from reyn.errors import BlobMissing, JournalError, RunBusy, RunInUse
from reyn.folders import OpenFolder, measure_tree, open_beneath, remove_tree
from reyn.journal import ENDED, Journal, RunRow, Status
from reyn.journal.state_folder import WORKSPACES, open_state
from reyn.kernel.world.loading import load_state

if TYPE_CHECKING:
    from datetime import timedelta
    from pathlib import Path


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
    state: Path,
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
        state: The state folder, which has the workspaces of the runs.
        now: The time, in microseconds since 1970.
        older_than: The minimum time since the last event of a family.
        statuses: The statuses of the root runs to delete.
        dry_run: Report only.

    Raises:
        RunBusy: Another process began to execute one of the runs meanwhile; nothing was deleted.
    """
    before = now - int(older_than.total_seconds() * 1_000_000)
    families = _Families(journal)
    matching = {
        root
        for root, family in families.rows.items()
        if _matches(family, root, statuses, before) and not any(journal.is_claimed(row.run_id) for row in family)
    }
    deletable = families.without_needed(matching)
    return _delete(
        journal, state, families.runs(deletable), needed=families.runs(matching - deletable), dry_run=dry_run
    )


def delete_runs(journal: Journal, state: Path, runs: Collection[str], *, dry_run: bool = False) -> PruneReport:
    """Delete the families of runs, and the background runs that they started, whatever their status.

    Args:
        journal: The journal of the runs.
        state: The state folder, which has the workspaces of the runs.
        runs: The ids of the runs.
        dry_run: Report only.

    Raises:
        RunInUse: A run that stays was forked from one of them, or needs one of them to continue.
        RunBusy: A process executes one of them.
    """
    families = _Families(journal)
    matching = families.with_background({families.roots[run] for run in runs})
    names = families.runs(matching)
    for name in names:
        if journal.is_claimed(name):
            raise RunBusy(f"a process executes `{name}`", hint="Leave or cancel it there first.")
    if families.without_needed(matching) != matching:
        needed, dependent = families.dependency(matching)
        raise RunInUse(
            f"run `{needed}` is needed by run `{dependent}`, which was forked from it or needs it to continue"
        )
    return _delete(journal, state, names, dry_run=dry_run)


def _delete(
    journal: Journal, state: Path, runs: tuple[str, ...], *, needed: tuple[str, ...] = (), dry_run: bool
) -> PruneReport:
    deletion = journal.delete(runs, dry_run=dry_run)
    size, left = _remove_workspaces(journal, state, runs, dry_run=dry_run)
    return PruneReport(
        runs, deletion.events, deletion.blobs, deletion.bytes + size, needed, tuple(left), is_dry=dry_run
    )


class _Families:
    """The families of a journal.

    Attributes:
        rows: The runs of each family, by root run.
        roots: The root run of each run.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.rows: dict[str, list[RunRow]] = {}
        self.roots: dict[str, str] = {}
        rows = journal.runs()
        parents = {row.run_id: row.parent for row in rows}
        for row in rows:
            root, seen = row.run_id, {row.run_id}
            while (parent := parents[root]) in parents and parent not in seen:
                root = parent
                seen.add(root)
            self.rows.setdefault(root, []).append(row)
            self.roots[row.run_id] = root

    def runs(self, roots: Collection[str]) -> tuple[str, ...]:
        """Return the runs of families."""
        return tuple(sorted(row.run_id for root in roots for row in self.rows[root]))

    def with_background(self, roots: set[str]) -> set[str]:
        """Return families with those of the background runs that they started, and theirs in turn."""
        found, new = set[str](), roots
        while new:
            found |= new
            started = {run for root in new for row in self.rows[root] for run in self._background_runs(row.run_id)}
            new = {self.roots[run] for run in started if run in self.roots} - found
        return found

    def without_needed(self, roots: set[str]) -> set[str]:
        """Return the families that no run outside of them was forked from or needs to continue."""
        links, deletable = list(self._links()) if roots else [], roots
        while (
            needed := {self.roots[run] for run, dependent in links if self.roots[dependent] not in deletable}
            & deletable
        ):
            deletable = deletable - needed
        return deletable

    def dependency(self, roots: set[str]) -> tuple[str, str]:
        """Return a run of some families, and a run outside of them that needs it."""
        return next(
            (run, dependent)
            for run, dependent in sorted(self._links())
            if self.roots[run] in roots and self.roots[dependent] not in roots
        )

    def _links(self) -> Iterator[tuple[str, str]]:
        """Yield pairs of runs: the second was forked from the first, or needs it to continue."""
        for row in (row for family in self.rows.values() for row in family):
            needed = {row.fork_of} if row.status in ENDED else {row.fork_of, *self._needed_by(row.run_id)}
            yield from ((run, row.run_id) for run in needed if run in self.roots)

    def _background_runs(self, run_id: str) -> set[str]:
        """Return the background runs that a run started itself; those of a fork's origin belong to the origin."""
        try:
            background = load_state(self._journal, run_id).inbox.background
        except JournalError:
            return set()
        return {run for run in background if run.startswith(f"{run_id}.")}

    def _needed_by(self, run_id: str) -> set[str]:
        """Return the runs that a run uses as models, and its background runs whose end it does not know yet.

        A damaged run needs none: it cannot continue.
        """
        try:
            state = load_state(self._journal, run_id)
            settings = msgspec.json.decode(self._journal.blob(state.started.settings), type=RunSettings)
        except (BlobMissing, JournalError, msgspec.MsgspecError):
            return set()
        models = (model.partition(":") for model in (state.models.name, *settings.classes.values()))
        recorded = {run for adapter, _, run in models if adapter == "recorded"}
        return recorded | {run for run, report in state.inbox.background.items() if report is None}


def _matches(family: list[RunRow], root: str, statuses: Collection[Status], before: int) -> bool:
    """Return whether a family has the requested age and status.

    The status of the root run decides: once it has ended, its sub-runs never continue.
    """
    status = next(row.status for row in family if row.run_id == root)
    return status in statuses and all(row.updated <= before for row in family)


def _remove_workspaces(journal: Journal, state: Path, runs: tuple[str, ...], *, dry_run: bool) -> tuple[int, list[str]]:
    """Remove the workspace folders of deleted runs, and those that an interrupted prune left behind.

    The journal names each of them. Nothing else is removed, whatever is in the folder of the workspaces.

    Returns:
        The size of the files, and the folders that could not be removed.
    """
    size, left, removed = 0, list[str](), list[str]()
    names = sorted({*journal.removals(), *runs}) if dry_run else journal.removals()
    if not names:
        return 0, []
    try:
        workspaces = _open_workspaces(state)
    except OSError:  # something else is in its place, such as a link
        return 0, list(names)
    with workspaces or nullcontext() as folder:
        for name in names:
            if folder is None:
                removed.append(name)
                continue
            if dry_run:
                size += measure_tree(folder, name)
                continue
            # Under the claim, no new run of the same id can begin to use the folder.
            with suppress(RunBusy), journal.claim(name):
                freed, is_gone = remove_tree(folder, name) if journal.find(name) is None else (0, True)
                size += freed
                (removed if is_gone else left).append(name)
    if not dry_run:
        journal.forget_removals(removed)
    return size, left


def _open_workspaces(state: Path) -> OpenFolder | None:
    """Open the folder of the workspaces; `None` if there is none. Raises `OSError` if it is not a folder."""
    opened = open_state(state)
    if opened is None:
        return None
    with opened as folder, suppress(FileNotFoundError):
        return OpenFolder(f"{opened.path}/{WORKSPACES}", open_beneath(folder, WORKSPACES))
    return None
