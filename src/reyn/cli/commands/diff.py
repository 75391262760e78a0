"""`reyn diff`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from reyn.cli.output import clean, json_option, print_json, short
from reyn.cli.project import open_existing_project
from reyn.errors import JournalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.runs.diff import Decision

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
def command(a: str, b: str, as_json: bool) -> int:
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
