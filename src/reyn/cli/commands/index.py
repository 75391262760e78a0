"""The command `index`: search indexes of documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from reyn.cli.groups import group
from reyn.cli.options import json_option
from reyn.cli.output import short, table_lines, text_lines, time_of
from reyn.cli.project import open_existing_project, open_project, print_assumed_project
from reyn.cli.writer import Report
from reyn.texts import counted

if TYPE_CHECKING:
    from reyn.retrieval import WriteReport

_MAX_LINES = 8
"""The lines of a passage that `search` prints."""


@group(for_names="search", epilog="Example: reyn index write docs docs")
def index_command() -> None:
    """Write, list, search and drop search indexes of documents.

    An index has the passages of Markdown, text and HTML below folders. Skills search it with the op `recall`.
    """


@index_command.command(epilog="Example: reyn index write docs docs README.md")
@click.argument("name")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--replace", is_flag=True, help="Remove all documents that are not below PATH.")
@json_option
def write(name: str, paths: tuple[str, ...], replace: bool) -> Report:
    """Bring the index NAME up to date with PATH.

    PATH are documents, and folders with documents below them. Only passages that are new or have changed are embedded;
    documents that are gone are removed.
    """
    print_assumed_project()
    report = open_project().project.write_index(name, *paths, replaces=replace)
    return Report(msgspec.to_builtins(report), _written_lines(name, report))


def _written_lines(name: str, report: WriteReport) -> list[str]:
    done = f"embedded {counted(report.embedded, 'passage')} ({counted(report.tokens, 'token')})"
    lines = [
        f"index {name}: {counted(report.documents, 'document')}, {counted(report.passages, 'passage')}",
        f"{done}; {counted(report.unchanged, 'document')} unchanged, {report.removed} removed",
    ]
    return [*lines, *(f"skipped {path}: {reason}" for path, reason in report.skipped)]


@index_command.command("list", epilog="Example: reyn index list --json")
@json_option
def list_indexes() -> Report:
    """List the indexes of the project."""
    found = open_existing_project().project.indexes()
    rows = [
        (
            one.name,
            str(one.documents),
            str(one.passages),
            ", ".join(one.embedders) or "words alone",
            time_of(one.changed),
            "complete" if one.is_complete else "not complete; write it again",
        )
        for one in found
    ]
    lines = list(table_lines(("NAME", "DOCUMENTS", "PASSAGES", "EMBEDDER", "CHANGED", "STATE"), rows))
    none = ["no indexes; `reyn index write NAME FOLDER` writes one"]
    return Report(msgspec.to_builtins(found), lines if rows else none)


@index_command.command(epilog="Example: reyn index search docs 'How do I resume a run?'")
@click.argument("name")
@click.argument("question")
@click.option("--limit", type=click.IntRange(1, 50), default=5, show_default=True, help="Passages at most.")
@json_option
def search(name: str, question: str, limit: int) -> Report:
    """Search the index NAME for QUESTION.

    Prints the passages that match best, by words and by vectors.
    """
    result = open_existing_project().project.search_index(name, question, limit)
    lines: list[str] = []
    for one in result.found:
        passage = one.passage
        place = f":{passage.line}" if passage.line else f" passage {one.number}"
        lines.append(f"{one.path}{place}  {short(passage.heading, 80)}".rstrip())
        text = text_lines(passage.text)
        lines += [f"    {line}" for line in text[:_MAX_LINES]]
        lines += [f"    ... {len(text) - _MAX_LINES} more lines"] if len(text) > _MAX_LINES else []
    data: dict[str, Any] = msgspec.to_builtins(result)
    data["found"] = [
        {"path": one.path, "passage": one.number, "score": one.score} | _fields(one.passage) for one in result.found
    ]
    notes = [f"note: {result.note}"] if result.note else []
    return Report(data, [*(lines or ["nothing found"]), *notes])


def _fields(passage: Any) -> dict[str, Any]:
    return {name: getattr(passage, name) for name in passage.__struct_fields__}


@index_command.command(epilog="Example: reyn index drop docs")
@click.argument("name")
@json_option
def drop(name: str) -> Report:
    """Remove the index NAME. Its documents stay."""
    removed = open_existing_project().project.drop_index(name)
    return Report({"removed": removed}, [f"dropped index {name} with {counted(removed, 'document')}"])
