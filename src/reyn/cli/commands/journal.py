"""`reyn journal`: copy a project from one journal to another."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from reyn.cli.groups import group
from reyn.cli.options import json_option
from reyn.cli.project import project_root
from reyn.cli.writer import Report, out
from reyn.errors import UsageError

if TYPE_CHECKING:
    from reyn.journal import Journal
    from reyn.journal.copying import CopyReport

_PROGRESS_SECONDS = 5.0


@group(epilog="Example: reyn journal copy .reyn secret://JOURNAL")
def journal_command() -> None:
    """Copy a project from one journal to another, such as from SQLite to PostgreSQL."""


@journal_command.command(epilog="Example: reyn journal copy .reyn secret://JOURNAL")
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@json_option
def copy(source: str, target: str) -> Report:
    """Copy everything from the journal FROM to TO.

    That is all runs, with messages, approvals, access tokens and what was spent. Every hash is checked. A journal is a
    state folder with a SQLite journal, such as `.reyn`, or the address of a PostgreSQL journal: `secret://NAME`,
    `env://NAME` or `postgresql://…`. TO is empty, or has a part of FROM: an interrupted copy is continued. No process
    may execute runs meanwhile. FROM stays as it is. A state folder that another user created needs trust first.
    """
    from reyn.journal.copying import copy_journal

    if _identity(source) == _identity(target):
        raise UsageError("FROM and TO are the same journal", hint="Name another folder or another address as TO.")
    with closing(_open(source, must_exist=True)) as origin, closing(_open(target, must_exist=False)) as copied:
        report = copy_journal(origin, copied, _Progress())
    runs, added = f"{report.runs:,} runs with {report.events:,} events", f"{report.added_events:,} events"
    lines = [f"{target if '://' not in target else 'the target'}: {runs}, all verified"]
    lines.append(f"copied now: {report.added_runs:,} runs, {added}, {report.added_contents:,} contents")
    lines.append("next: name the new journal as `journal` in reyn.yaml; without that key, it is in `.reyn`")
    return Report(report._asdict(), lines)


def _identity(name: str) -> str:
    return name if "://" in name else str(Path(name).resolve())


def _open(name: str, *, must_exist: bool) -> Journal:
    from reyn.journal.opening import JournalPlace
    from reyn.journal.port import DATABASE

    if "://" in name:
        return JournalPlace.of(project_root().resolve(), name).open()
    folder = Path(name)
    if must_exist and not (folder / DATABASE).is_file():
        raise UsageError(f"`{name}` has no journal", hint="Name the folder with `journal.db`, such as `.reyn`.")
    journal = JournalPlace(folder).open_file()
    try:
        journal.check_own()  # a copy is the user's own, with all approvals and tokens
    except BaseException:
        journal.close()
        raise
    return journal


class _Progress:
    """Prints how far a copy is, every few seconds."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __call__(self, report: CopyReport) -> None:
        if (now := time.monotonic()) - self._last > _PROGRESS_SECONDS:
            self._last = now
            out.note(f"{report.runs:,} runs, {report.events:,} events")
