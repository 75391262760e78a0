"""`reyn diff`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from reyn.cli.output import clean, json_option, print_json, short
from reyn.cli.project import look_at_project
from reyn.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.runs.diff import Decision

_CAUSES = {
    "input": "their inputs differ",
    "skill": "their skills differ",
    "settings": "their settings differ",
    "rules": "they follow different rules",
    "model": "the model differs",
    "frame": "the models were shown different things",
    "answer": "the same model answered otherwise",
    "end": "one of them ends here",
    "outside": "something outside the runs differed",
}
_NAME = re.compile(r"\b[0-9a-f]{64}\b")


@click.command(epilog="Example: reyn diff 20260704T120000-k3m9qxdt 20260705T091500-p2w7hv4c")
@click.argument("a")
@click.argument("b")
@json_option
def command(a: str, b: str, as_json: bool) -> int:
    """Show the first decision in which the runs A and B differ, and its cause.

    The exit code is 1 if they differ.
    """
    with look_at_project() as runtime:
        report = runtime.diff(a, b)
        told = [_readable(decision, runtime.content) for decision in (report.in_a, report.in_b)]
    if as_json:
        print_json(report)
        return 0 if report.is_same else 1
    count = f"{report.decisions} decision{'' if report.decisions == 1 else 's'}"
    if report.cause is None:
        click.echo(f"{report.a} and {report.b} are the same: {count}")
        return 0
    click.echo(f"{count} the same, then they part" if report.in_a or report.in_b else f"{count}, all the same")
    for run, words in zip((report.a, report.b), told, strict=True):
        if words:
            click.echo(f"  {run}: {words}")
    click.echo(f"cause: {_CAUSES[report.cause]}: {clean(report.detail)}")
    if report.part:
        click.echo(f"frame part: {clean(report.part)}")
    return 1


def _readable(decision: Decision | None, content: Callable[[str], bytes]) -> str:
    """A decision as text, with contents in place of their hashes."""
    if decision is None:
        return ""

    def shown(name: re.Match[str]) -> str:
        try:
            return content(name[0]).decode(errors="replace")
        except JournalError:
            return name[0]

    where = f"event {decision.seq}, phase {decision.phase}" if decision.phase else f"event {decision.seq}"
    what = f"{decision.what}: {decision.text}" if decision.what.startswith("rejected") else decision.what
    return short(f"{where}: {_NAME.sub(shown, what)}", 500)
