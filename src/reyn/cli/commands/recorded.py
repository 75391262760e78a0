"""Commands about recorded runs: `events`, `replay`, `diff`, `verify`, `undo`, `prune`, `export`, `import`."""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, cast, get_args

import click

from reyn.cli.files import write_atomically
from reyn.cli.output import Age, clean, json_option, now, print_json, short, time_of
from reyn.cli.project import open_existing_project, open_project
from reyn.documents import nearest_hint, read_error
from reyn.errors import ArchiveInvalid, JournalError, RunNotFound
from reyn.journal import ENDED, Status, registry
from reyn.runs.archive import ImportLimits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import BinaryIO

    from reyn.runs.diff import Decision
    from reyn.runs.prune import PruneReport
    from reyn.runs.run_files import UntrackedOp
    from reyn.runtime import SyncRuntime

_MAX_SEQ = 2**62


@click.command(epilog="Example: reyn events order-17 --kind llm_responded --json")
@click.argument("run")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only events of this kind. May be repeated.")
@click.option("--after", type=click.IntRange(min=0), default=0, metavar="SEQ", help="Only events after event SEQ.")
@json_option
def events_command(run: str, kinds: tuple[str, ...], after: int, as_json: bool) -> None:
    """Print the events of RUN, one per line. RUN is an id or a unique prefix."""
    if after > _MAX_SEQ:
        raise click.BadParameter("no run has that many events", param_hint="--after")
    width = max(len(kind) for kind, _ in registry.kinds())
    with open_existing_project() as runtime:
        _check_kinds(runtime, run, kinds)
        for event in runtime.runs.events(run, after):
            if kinds and event.kind not in kinds:
                continue
            if as_json:
                print_json(event.as_json())
            else:
                data = clean(event.raw.decode(errors="backslashreplace"))
                click.echo(f"{event.seq:>6}  {time_of(event.ts)}  {event.kind:<{width}}  {data}")


def _check_kinds(runtime: SyncRuntime, run: str, kinds: tuple[str, ...]) -> None:
    """Reject a kind that is neither built in, nor of an installed op, nor in this run."""
    from reyn.ops import standard_ops

    ops = {f"{op}_{suffix}" for op in standard_ops().vocabulary.op_kinds for suffix in ("started", "completed")}
    known = {kind for kind, _ in registry.kinds()} | ops
    if known.issuperset(kinds):
        return
    with suppress(RunNotFound):  # an older kind, or of an op that is not installed
        known |= {event.kind for event in runtime.runs.events(run)}
    for kind in kinds:
        if kind not in known:
            raise click.BadParameter(
                f"no event kind `{kind}`. {nearest_hint(kind, known)}".strip(), param_hint="--kind"
            )


@click.command(epilog="Example: reyn replay order-17")
@click.argument("run")
@json_option
def replay_command(run: str, as_json: bool) -> None:
    """Re-execute RUN from its recorded inputs and compare the hash of every event.

    Calls no model and writes nothing. The exit code is 1 if an event differs; the error names the first one.
    """
    with open_existing_project() as runtime:
        report = runtime.runs.replay(run)
    if as_json:
        print_json(report)
        return
    derived = report.events - report.inherited
    click.echo(f"{report.run_id}: replayed {derived} of {report.events} events, no differences")
    if report.inherited:
        click.echo(f"  {report.inherited} inherited events use an unsupported rules version; verified only")
    if report.reworded:
        events = "1 event has" if report.reworded == 1 else f"{report.reworded} events have"
        click.echo(f"  {events} another wording; derived texts were not compared")
    for kind in report.missing_ops:
        click.echo(f"  op `{kind}` is not installed; its recorded results were used")


_CAUSES = {
    "input": "their inputs differ",
    "skill": "their skills differ",
    "settings": "their settings differ",
    "rules": "their rules versions differ",
    "model": "the same prompt was sent to different models",
    "message": "the user's messages differ",
    "frame": "their prompts differ",
    "answer": "the same model answered the same prompt differently",
    "end": "one run makes no further decisions",
    "outside": "prompt, model and answer are the same; something else differs, for example the result of an op",
}
_HASH = re.compile(r"\b[0-9a-f]{64}\b")


@click.command(epilog="Example: reyn diff order-17 order-18")
@click.argument("a")
@click.argument("b")
@json_option
def diff_command(a: str, b: str, as_json: bool) -> int:
    """Show the first decision where the runs A and B diverge, and the cause.

    The exit code is 1 if they differ.
    """
    with open_existing_project() as runtime:
        report = runtime.runs.diff(a, b)
        decisions = [_decision_text(decision, runtime.runs.content) for decision in (report.in_a, report.in_b)]
    if as_json:
        print_json(report)
        return 0 if report.is_same else 1
    count = f"{report.decisions} decision{'' if report.decisions == 1 else 's'}"
    if report.cause is None:
        click.echo(f"{report.a} and {report.b} are identical: {count}")
        return 0
    click.echo(f"{count} in common, then they diverge" if report.in_a or report.in_b else f"{count}, all identical")
    for run, text in zip((report.a, report.b), decisions, strict=True):
        if text:
            click.echo(f"  {run}: {text}")
    detail = f": {clean(report.detail)}" if report.detail else ""
    label = "cause" if report.in_a or report.in_b else "difference"
    click.echo(f"{label}: {_CAUSES[report.cause]}{detail}")
    if report.part:
        click.echo(f"frame section: {clean(report.part)}")
    return 1


def _decision_text(decision: Decision | None, content: Callable[[str], bytes]) -> str:
    """Return a decision as text, with content in place of hashes."""
    if decision is None:
        return ""

    def to_content(match: re.Match[str]) -> str:
        try:
            return content(match[0]).decode(errors="replace")
        except JournalError:
            return match[0]

    where = f"event {decision.seq}, phase {decision.phase}" if decision.phase else f"event {decision.seq}"
    what = f"{decision.what}: {decision.text}" if decision.what.startswith("rejected") else decision.what
    return short(f"{where}: {_HASH.sub(to_content, what)}", 500)


@click.command(epilog="Example: reyn verify order-17")
@click.argument("run")
@click.option("--head", metavar="HASH", help="Hash of an event of RUN, noted elsewhere, to compare with.")
@json_option
def verify_command(run: str, head: str | None, as_json: bool) -> None:
    """Check the hash chain of RUN and of its sub-runs, and every blob that their events refer to.

    The exit code is 1 if an event or a blob is damaged or missing; the error names the first one. A user who can
    write the journal can compute its hashes: to detect that, store the printed head on another machine and pass it with
    --head later.
    """
    if head is not None and not re.fullmatch(r"[0-9a-f]{64}", head):
        raise click.UsageError(f"--head takes the 64 hexadecimal digits of a hash, not `{head[:80]}`")
    with open_existing_project() as runtime:
        report = runtime.runs.verify(run, head=head)
    if as_json:
        print_json(report)
    else:
        sub_runs = f", {report.sub_runs} sub-run{'s' * (report.sub_runs != 1)}" if report.sub_runs else ""
        click.echo(f"{report.run_id}: OK ({report.events} events, {report.blobs} blobs{sub_runs})")
        click.echo(f"head {report.head}")
        if report.noted_at is not None:
            since = report.events - report.noted_at
            click.echo(
                f"matches the noted hash at event {report.noted_at}" + (f", {since} more since" if since else "")
            )


@click.command(epilog="Example: reyn undo order-17 --dry-run")
@click.argument("run")
@click.option("--dry-run", is_flag=True, help="Print the changes without making them.")
@json_option
def undo_command(run: str, dry_run: bool, as_json: bool) -> int:
    """Restore the files that RUN and its sub-runs changed, and delete those they created.

    RUN is an id or a unique prefix. Files that another program changed since, and files that the run may not write by
    today's permissions, are skipped, and the exit code is 1. Changes that Reyn does not record (of shell commands,
    tools and unsafe Python) stay; the ops that may have made some are listed.
    """
    with open_existing_project() as runtime:
        report = runtime.runs.undo(run, dry_run=dry_run)
    if as_json:
        print_json(report)
        return 1 if report.left or report.denied else 0
    restored, deleted, skipped = ("would restore", "would delete", "would skip") if dry_run else _DONE
    for path in report.restored:
        click.echo(f"{deleted if path in report.deleted else restored} {clean(path)}")
    for path in report.left:
        click.echo(f"{skipped} {clean(path)}: changed since the run")
    for verdict in report.denied:
        click.echo(f"{skipped} {clean(verdict.path)}: denied ({clean(verdict.rule)}): {clean(verdict.reason)}")
    for op in report.untracked:
        click.echo(f"not undone: {_described(op)}")
    if not report.restored and not report.left and not report.denied:
        click.echo(f"{report.run_id}: nothing to undo")
    return 1 if report.left or report.denied else 0


_DONE = ("restored", "deleted", "skipped")
_MAX_ARGUMENTS = 200


def _described(op: UntrackedOp) -> str:
    """Return the files that an op changed, or what it was called with."""
    if op.paths:
        return f"{clean(', '.join(op.paths))}: changed by `{clean(op.op)}`, content not recorded"
    args = op.args if len(op.args) <= _MAX_ARGUMENTS else f"{op.args[:_MAX_ARGUMENTS]}…"
    return f"`{clean(op.op)}` {clean(args)}: Reyn does not record what it changes"


_DELETABLE = [status for status in get_args(Status) if status != "running"]


@click.command(epilog="Example: reyn prune --older-than 30d --status failed --dry-run")
@click.option("--older-than", type=Age(), metavar="AGE", required=True, help="30m, 2h, 3d, 1w, or a date.")
@click.option(
    "--status",
    "statuses",
    multiple=True,
    type=click.Choice(_DELETABLE),
    metavar="STATUS",
    help=f"Delete runs with this status. May be repeated. One of {', '.join(_DELETABLE)}. Default: {', '.join(ENDED)}.",
)
@click.option("--dry-run", is_flag=True, help="Print the runs without deleting them.")
@json_option
def prune_command(older_than: int, statuses: tuple[str, ...], dry_run: bool, as_json: bool) -> int:
    """Delete runs whose last event is older than AGE, with their sub-runs and workspace folders.

    A run is skipped if a fork continues from it or an unfinished run uses it as its model (`recorded:RUN`). Deleted
    runs cannot be restored; export those that you need with `reyn export` first. The exit code is 1 if a workspace
    folder could not be removed.
    """
    age = timedelta(microseconds=now() - older_than)
    if age < timedelta():
        raise click.BadParameter("the date is in the future", param_hint="--older-than")
    wanted = cast("tuple[Status, ...]", statuses) or ENDED
    # `open_existing_project` reads an empty journal if there is none: every workspace folder would look unused.
    with open_project() as runtime:
        report = runtime.runs.prune(older_than=age, statuses=wanted, dry_run=dry_run)
    if as_json:
        print_json(report)
    else:
        _print(report)
    return 1 if report.left else 0


def _print(report: PruneReport) -> None:
    for run in report.runs:
        click.echo(f"{'would delete' if report.is_dry else 'deleted'} {clean(run)}")
    for run in report.needed:
        click.echo(f"skipped {clean(run)}: another run needs it")
    for folder in report.left:
        click.echo(f"could not remove {clean(folder)}; the next prune tries again")
    verb = "would free" if report.is_dry else "freed"
    runs = f"{len(report.runs)} run{'' if len(report.runs) == 1 else 's'}"
    counts = f"{runs}, {report.events:,} events, {report.blobs:,} blobs"
    click.echo(f"{counts}; {verb} {report.bytes:,} bytes")


@click.command(epilog="Example: reyn export order-17 run.jsonl")
@click.argument("run")
@click.argument("file", required=False)
@json_option
def export_command(run: str, file: str | None, as_json: bool) -> None:
    """Write RUN, its sub-runs and parents, and the runs it was forked from to FILE, or to standard output.

    The format is JSON Lines: events and the content they refer to. `reyn import` reads it on any machine. With --json,
    print the size of FILE.
    """
    file = None if file == "-" else file
    if file is not None and os.path.isdir(file):  # noqa: PTH112 - `Path.is_dir` raises for a name that is too long
        raise click.UsageError(f"`{file}` is a folder; pass a file name")
    if as_json and file is None:
        raise click.UsageError("an export is JSON already; --json requires FILE")
    with open_existing_project() as runtime:
        run_id = runtime.runs.find(run).run_id
        lines = runtime.runs.export(run_id)
        if file is None:
            for line in lines:
                sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()
            return
        size = write_atomically(Path(file), lines)
    if as_json:
        print_json({"run_id": run_id, "file": file, "bytes": size})
    else:
        click.echo(f"{run_id}: wrote {size:,} bytes to {file}")


@click.command("import", epilog="Example: reyn import run.jsonl")
@click.argument("file")
@click.option(
    "--max-bytes",
    type=click.IntRange(min=1),
    default=ImportLimits().bytes,
    metavar="N",
    show_default=True,
    help="Largest archive to read; it has to fit into memory.",
)
@json_option
def import_command(file: str, max_bytes: int, as_json: bool) -> None:
    """Import the runs in FILE, which `reyn export` wrote. `-` reads standard input.

    The whole file is checked before anything is stored. A run that already exists must be identical. An imported run
    can be read, verified and replayed; `reyn fork` and `reyn rerun` continue it with the settings of this project.
    """
    origin = "standard input" if file == "-" else Path(file).name
    with _opened(file) as lines, open_project() as runtime:
        report = runtime.runs.import_(lines, origin=origin, limits=ImportLimits(bytes=max_bytes))
    if as_json:
        print_json(report)
        return
    for run in report.imported:
        click.echo(f"imported {clean(run)}")
    for run in report.known:
        click.echo(f"skipped {clean(run)}: already exists")


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
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
