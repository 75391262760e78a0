"""Commands about recorded runs: `events`, `replay`, `diff`, `verify`, `undo`, `prune`, `export`, `import`."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, cast

import click

from reyn.cli.groups import command
from reyn.cli.options import ENDED, MAX_ARCHIVE_BYTES, STATUSES, Age, dry_run_option, json_option, number_option
from reyn.cli.output import now, time_of
from reyn.cli.project import open_existing_project, open_project, open_runs
from reyn.cli.writer import Report, out, wants_json
from reyn.errors import ArchiveInvalid, RunNotFound
from reyn.texts import counted, truncated

if TYPE_CHECKING:
    from reyn.journal import Event, Status
    from reyn.kernel.runtime_types import ReplayReport, VerifyReport
    from reyn.runs.prune import PruneReport
    from reyn.runs.reading import RecordedRuns
    from reyn.runs.run_files import UndoReport, UntrackedOp

_MAX_SEQ = 2**62


@command(epilog="Example: reyn events order-17 --kind llm_responded --json")
@click.argument("run")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only events of this kind. May be repeated.")
@number_option("--after", "Only events after event SEQ.", least=0, default=0, metavar="SEQ")
@json_option
def events_command(run: str, kinds: tuple[str, ...], after: int) -> Report:
    """Print the events of RUN, one per line. RUN is an id or a unique prefix."""
    from reyn.journal import registry

    if after > _MAX_SEQ:
        raise click.BadParameter("no run has that many events", param_hint="--after")
    width = max(len(kind) for kind, _ in registry.kinds())
    runs = open_runs()
    _check_kinds(runs, run, kinds)

    def line(event: Event) -> str:
        data = event.raw.decode(errors="backslashreplace")
        return f"{event.seq:>6}  {time_of(event.ts)}  {event.kind:<{width}}  {data}"

    events = (event for event in runs.events(run, after) if not kinds or event.kind in kinds)
    return Report((event.as_json() for event in events), map(line, events), each=True)


def _check_kinds(runs: RecordedRuns, run: str, kinds: tuple[str, ...]) -> None:
    """Reject a kind that is neither built in, nor of an installed op, nor in this run."""
    from reyn.documents import nearest_hint
    from reyn.journal import registry

    known = {kind for kind, _ in registry.kinds()}
    if known.issuperset(kinds):
        return
    from reyn.ops import standard_ops

    known |= {f"{op}_{suffix}" for op in standard_ops().vocabulary.op_kinds for suffix in ("started", "completed")}
    if known.issuperset(kinds):
        return
    with suppress(RunNotFound):  # an older kind, or of an op that is not installed
        known |= {event.kind for event in runs.events(run)}
    for kind in kinds:
        if kind not in known:
            raise click.BadParameter(
                f"no event kind `{kind}`. {nearest_hint(kind, known)}".strip(), param_hint="--kind"
            )


@command(epilog="Example: reyn replay order-17")
@click.argument("run")
@json_option
def replay_command(run: str) -> Report:
    """Re-execute RUN from its recorded inputs and compare the hash of every event.

    Calls no model and writes nothing. The exit code is 1 if an event differs; the error names the first one.
    """
    report = open_existing_project().runs.replay(run)
    return Report(report, _replay_lines(report))


def _replay_lines(report: ReplayReport) -> Iterator[str]:
    yield f"{report.run_id}: replayed {report.events - report.inherited} of {report.events} events, no differences"
    if report.inherited:
        yield f"  {report.inherited} inherited events use an unsupported rules version; verified only"
    if report.reworded:
        events = "1 event has" if report.reworded == 1 else f"{report.reworded} events have"
        yield f"  {events} another wording; derived texts were not compared"
    yield from (f"  op `{kind}` is not installed; its recorded results were used" for kind in report.missing_ops)
    yield from (f"  {note}; recorded results were used" for note in report.notes)


@command(epilog="Example: reyn diff order-17 order-18")
@click.argument("a")
@click.argument("b")
@json_option
def diff_command(a: str, b: str) -> Report:
    """Show the first decision where the runs A and B diverge, and the cause.

    The exit code is 1 if they differ.
    """
    runs = open_existing_project().runs
    from reyn.runs.diff import diff_lines

    report = runs.diff(a, b)
    return Report(report, diff_lines(report, runs.content), 0 if report.is_same else 1)


@command(epilog="Example: reyn verify order-17")
@click.argument("run")
@click.option("--head", metavar="HASH", help="Hash of an event of RUN, noted elsewhere, to compare with.")
@json_option
def verify_command(run: str, head: str | None) -> Report:
    """Check the hash chain of RUN and of its sub-runs, and every blob that their events refer to.

    The exit code is 1 if an event or a blob is damaged or missing; the error names the first one. A user who can
    write the journal can compute its hashes: to detect that, store the printed head on another machine and pass it with
    --head later.
    """
    if head is not None and not re.fullmatch(r"[0-9a-f]{64}", head):
        raise click.UsageError(f"--head takes the 64 hexadecimal digits of a hash, not `{head[:80]}`")
    report = open_existing_project().runs.verify(run, head=head)
    return Report(report, _verify_lines(report))


def _verify_lines(report: VerifyReport) -> Iterator[str]:
    sub_runs = f", {counted(report.sub_runs, 'sub-run')}" if report.sub_runs else ""
    yield f"{report.run_id}: OK ({report.events} events, {report.blobs} blobs{sub_runs})"
    yield f"head {report.head}"
    yield from (f"cannot be checked: {text}" for text in report.unchecked)
    if report.noted_at is not None:
        since = report.events - report.noted_at
        yield f"matches the noted hash at event {report.noted_at}" + (f", {since} more since" if since else "")


@command(epilog="Example: reyn undo order-17 --dry-run")
@click.argument("run")
@click.option("--dry-run", is_flag=True, help="Print the changes without making them.")
@json_option
def undo_command(run: str, dry_run: bool) -> Report:
    """Restore the files that RUN and its sub-runs changed, and delete those they created.

    RUN is an id or a unique prefix. Files that another program changed since, and files that the run may not write by
    today's permissions, are skipped, and the exit code is 1. Changes that Reyn does not record (of shell commands,
    tools and unsafe Python) stay; the ops that may have made some are listed.
    """
    report = open_existing_project().runs.undo(run, dry_run=dry_run)
    return Report(report, _undo_lines(report, dry_run=dry_run), 1 if report.left or report.denied else 0)


def _undo_lines(report: UndoReport, *, dry_run: bool) -> Iterator[str]:
    restored, deleted, skipped = ("would restore", "would delete", "would skip") if dry_run else _DONE
    for path in report.restored:
        yield f"{deleted if path in report.deleted else restored} {path}"
    yield from (f"{skipped} {path}: changed since the run" for path in report.left)
    for verdict in report.denied:
        yield f"{skipped} {verdict.path}: denied ({verdict.rule}): {verdict.reason}"
    yield from (f"not undone: {_described(op)}" for op in report.untracked)
    if not report.restored and not report.left and not report.denied:
        yield f"{report.run_id}: nothing to undo"


_DONE = ("restored", "deleted", "skipped")
_MAX_ARGUMENTS = 200


def _described(op: UntrackedOp) -> str:
    """Return the files that an op changed, or what it was called with."""
    if op.paths:
        return f"{', '.join(op.paths)}: changed by `{op.op}`, content not recorded"
    return f"`{op.op}` {truncated(op.args, _MAX_ARGUMENTS)}: Reyn does not record what it changes"


_DELETABLE = [status for status in STATUSES if status != "running"]


@command(epilog="Example: reyn prune --older-than 30d --status failed --dry-run")
@click.option("--older-than", type=Age(), metavar="AGE", required=True, help="30m, 2h, 3d, 1w, or a date.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(_DELETABLE),
    metavar="STATUS",
    help=f"Delete runs with this status. May be repeated. One of {', '.join(_DELETABLE)}. Default: {', '.join(ENDED)}.",
)
@dry_run_option
@json_option
def prune_command(older_than: int, statuses: tuple[str, ...], dry_run: bool) -> Report:
    """Delete runs whose last event is older than AGE, with their sub-runs and workspace folders.

    A run is skipped if a fork continues from it or an unfinished run uses it as its model (`recorded:RUN`). Deleted
    runs cannot be restored; export those that you need with `reyn export` first. The exit code is 1 if a workspace
    folder could not be removed.
    """
    age = timedelta(microseconds=now() - older_than)
    if age < timedelta():
        raise click.BadParameter("the date is in the future", param_hint="--older-than")
    wanted = cast("tuple[Status, ...]", statuses or ENDED)
    # `open_existing_project` reads an empty journal if there is none: every workspace folder would look unused.
    report = open_project().runs.prune(older_than=age, statuses=wanted, dry_run=dry_run)
    return Report(report, _prune_lines(report), 1 if report.left else 0)


def _prune_lines(report: PruneReport) -> Iterator[str]:
    yield from (f"{'would delete' if report.is_dry else 'deleted'} {run}" for run in report.runs)
    yield from (f"skipped {run}: another run needs it" for run in report.needed)
    yield from (f"could not remove {folder}; the next prune tries again" for folder in report.left)
    freed = f"{'would free' if report.is_dry else 'freed'} {report.bytes:,} bytes"
    yield f"{counted(len(report.runs), 'run')}, {report.events:,} events, {report.blobs:,} blobs; {freed}"


@command(epilog="Example: reyn export order-17 run.jsonl")
@click.argument("run")
@click.argument("file", required=False)
@json_option
def export_command(run: str, file: str | None) -> Report | None:
    """Write RUN, its sub-runs and parents, and the runs it was forked from to FILE, or to standard output.

    The format is JSON Lines: events and the content they refer to. `reyn import` reads it on any machine. With --json,
    print the size of FILE.
    """
    from reyn.cli.files import write_atomically

    file = None if file == "-" else file
    if file is not None and os.path.isdir(file):  # noqa: PTH112 - `Path.is_dir` raises for a name that is too long
        raise click.UsageError(f"`{file}` is a folder; pass a file name")
    if wants_json() and file is None:
        raise click.UsageError("an export is JSON already; --json requires FILE")
    runs = open_existing_project().runs
    run_id = runs.find(run).run_id
    lines = runs.export(run_id)
    if file is None:
        out.content(lines)
        return None
    size = write_atomically(Path(file), lines)
    return Report({"run_id": run_id, "file": file, "bytes": size}, [f"{run_id}: wrote {size:,} bytes to {file}"])


@command("import", epilog="Example: reyn import run.jsonl")
@click.argument("file")
@number_option(
    "--max-bytes",
    "Largest archive to read; it has to fit into memory.",
    default=MAX_ARCHIVE_BYTES,
    metavar="N",
    show_default=True,
)
@json_option
def import_command(file: str, max_bytes: int) -> Report:
    """Import the runs in FILE, which `reyn export` wrote. `-` reads standard input.

    The whole file is checked before anything is stored. A run that already exists must be identical. An imported run
    can be read, verified and replayed; `reyn fork` and `reyn rerun` continue it with the settings of this project.
    """
    from reyn.runs.archive import ImportLimits

    origin = "standard input" if file == "-" else Path(file).name
    with _opened(file) as lines:
        report = open_project().runs.import_(lines, origin=origin, limits=ImportLimits(bytes=max_bytes))
    imported = [f"imported {run}" for run in report.imported]
    return Report(report, [*imported, *(f"skipped {run}: already exists" for run in report.known)])


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    from reyn.documents import read_error

    if file == "-":
        if sys.stdin is None:
            raise ArchiveInvalid("standard input is closed")
        yield sys.stdin.buffer
        return
    try:
        opened = Path(file).open("rb")  # noqa: SIM115 - closed below; errors of its user are not caught here
    except (OSError, ValueError) as error:
        hint = "Pass a file that `reyn export` wrote."
        raise ArchiveInvalid(f"cannot read `{file[:200]}`: {read_error(error)}", hint=hint) from error
    with opened:
        yield opened
