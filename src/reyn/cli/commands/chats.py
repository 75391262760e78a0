"""`reyn chats`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from reyn.cli.groups import CommandGroup
from reyn.cli.output import clean, json_option, print_json, print_table, reyn_command, short, time_of
from reyn.cli.people import user_name
from reyn.cli.project import open_existing_project, open_project
from reyn.errors import ConversationInvalid, UsageError
from reyn.skills.agents import PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.journal import RunRow
    from reyn.runs.prune import PruneReport
    from reyn.runtime import SyncRuntime

_HEADER = ("CONVERSATION", "UPDATED", "AGENT", "STATUS", "MESSAGES", "TITLE")
_EXCERPT = 60
_MAX_FIRST = 500
"""The characters of the first message in `--json`; `reyn chats show` has all of it."""
_limit_option = click.option(
    "--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Maximum number to list."
)


@click.group(cls=CommandGroup, invoke_without_command=True, epilog="Example: reyn chats search tea --json")
@_limit_option
@json_option
@click.pass_context
def chats_command(context: click.Context, limit: int, as_json: bool) -> None:
    """List, search, show, rename and delete conversations. Without a subcommand, list them.

    A conversation is a run: `reyn show`, `reyn verify`, `reyn replay`, `reyn fork` and `reyn export` take its id.
    """
    if context.invoked_subcommand is None:
        _list(limit, as_json=as_json)
    elif context.get_parameter_source("limit") != click.core.ParameterSource.DEFAULT or as_json:
        raise click.UsageError("options of a subcommand follow its name", context)


@chats_command.command("list", epilog="Example: reyn chats list --limit 5")
@_limit_option
@json_option
def list_(limit: int, as_json: bool) -> None:
    """List conversations, the latest first.

    --json has the first 500 characters of each first message, and its length.
    """
    _list(limit, as_json=as_json)


def _list(limit: int, *, as_json: bool) -> None:
    with open_existing_project() as runtime:
        entries = [_entry(runtime, row) for row in _conversations(runtime)[:limit]]
    if as_json:
        print_json(entries)
        return
    if not entries:
        click.echo("no conversations; start one with `reyn chat`")
        return
    print_table(_HEADER, [_cells(entry) for entry in entries])


@chats_command.command(epilog="Example: reyn chats search green tea")
@click.argument("words", nargs=-1, required=True)
@_limit_option
@json_option
def search(words: tuple[str, ...], limit: int, as_json: bool) -> None:
    """List conversations that contain all WORDS.

    The words may be in the title and in messages; upper and lower case do not matter. Each conversation is shown with
    the latest message that contains the first word.
    """
    with open_existing_project() as runtime:
        entries = list(_matching(runtime, [word.casefold() for word in words], limit))
    if as_json:
        print_json(entries)
        return
    for entry in entries:
        click.echo(f"{clean(entry['run_id'])}  {short(_label(entry), _EXCERPT)}")
        if match := entry["match"]:
            click.echo(f"    {match['number']}{'>' if match['role'] == 'user' else ':'} {clean(match['excerpt'])}")
    if not entries:
        click.echo(f"no conversation contains {clean(' '.join(words))}")


@chats_command.command(epilog="Example: reyn chats show tea")
@click.argument("run")
@json_option
def show(run: str, as_json: bool) -> None:
    """Print the messages of conversation RUN with their numbers.

    `reyn chat --fork RUN@NUMBER` takes the number of a message.

    Arrows mark what the agent asked other agents, and their replies.
    """
    from reyn.chat.services.chain_manager import ChainManager
    from reyn.chat.services.snapshot_journal import read_messages
    from reyn.cli.chat.printing import message_line

    with open_existing_project() as runtime:
        row = _find(runtime, run)
        messages = read_messages(runtime.runs.events(row.run_id), runtime.runs.content)
        chains = ChainManager(runtime.services.journal)
        links, origin = chains.links(row.run_id), chains.origin(row.run_id)
    if as_json:
        asks = [[link for link in links if link.number == one.number and one.role != "agent"] for one in messages]
        pairs = zip(messages, asks, strict=True)
        print_json([msgspec.to_builtins(one) | {"asks": msgspec.to_builtins(asked)} for one, asked in pairs])
        return
    for ask in origin[:1]:
        click.echo(f"asked by {clean(ask.agent)} in conversation {clean(ask.run)}")
    for message in messages:
        click.echo(message_line(message))
        for link in links if message.role != "agent" else ():
            if link.number == message.number:
                where = f" ({clean(link.conversation)})" if link.conversation else ""
                click.echo(f"   → {clean(link.agent)}{where}: {short(link.text, _EXCERPT)}")
                click.echo(f"   ← {link.state}: {short(link.reply, _EXCERPT)}")


@chats_command.command(epilog='Example: reyn chats rename tea "Which tea to buy"')
@click.argument("run")
@click.argument("title")
def rename(run: str, title: str) -> None:
    """Give conversation RUN a TITLE. An empty one removes the title.

    The title is recorded as an event of the conversation. The id stays.
    """
    with open_project() as runtime:
        row = _find(runtime, run)
        runtime.conversations.rename(row.run_id, title, by=user_name())
    click.echo(f"renamed {clean(row.run_id)}" if title.strip() else f"removed the title of {clean(row.run_id)}")


@chats_command.command(epilog="Example: reyn chats delete tea --yes")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Print the runs without deleting them.")
@json_option
def delete(runs: tuple[str, ...], yes: bool, dry_run: bool, as_json: bool) -> int:
    """Delete conversations and the runs that they started.

    Runs in the background and workspace folders are deleted as well.

    A conversation stays if a process executes it or one of its runs, or if another run needs it: a fork continues from
    it, or an unfinished run uses it as its model. Deleted conversations cannot be restored; export those that you need
    with `reyn export` first. Files that they changed stay; `reyn undo` restores them before.
    """
    with open_project() as runtime:
        names = [_deletable(runtime, run) for run in runs]
        if not yes and not dry_run:
            _confirm(runtime.runs.delete(names, dry_run=True), as_json=as_json)
        report = runtime.runs.delete(names, dry_run=dry_run)
    if as_json:
        print_json(report)
    else:
        _print_deleted(report)
    return 1 if report.left else 0


def _deletable(runtime: SyncRuntime, run: str) -> str:
    """Return the id of a conversation that can be deleted without the one that it is a part of."""
    row = _find(runtime, run)
    root = runtime.runs.root_run(row).run_id
    if root != row.run_id:
        raise ConversationInvalid(
            f"conversation `{row.run_id}` is a part of run `{root}`, whose agent asked it, and stays with it",
            hint=f"Delete `{root}` with everything that it started, or keep both.",
        )
    return row.run_id


def _confirm(report: PruneReport, *, as_json: bool) -> None:
    if as_json or sys.stdin is None or not sys.stdin.isatty():
        raise UsageError("deleting conversations needs a confirmation", hint="Pass `--yes`, or `--dry-run` to look.")
    for run in report.runs:
        click.echo(f"will delete {clean(run)}", err=True)
    click.confirm(f"Delete {len(report.runs)} run{'' if len(report.runs) == 1 else 's'}?", abort=True, err=True)


def _print_deleted(report: PruneReport) -> None:
    for run in report.runs:
        click.echo(f"{'would delete' if report.is_dry else 'deleted'} {clean(run)}")
    for folder in report.left:
        click.echo(f"could not remove the workspace of {clean(folder)}; {reyn_command('prune')} tries again")


def _conversations(runtime: SyncRuntime) -> list[RunRow]:
    """Return the conversations, the latest first."""
    rows = (row for row in runtime.runs.all() if row.skill.startswith(PREFIX) and not row.parent)
    return sorted(rows, key=lambda row: row.updated, reverse=True)


def _find(runtime: SyncRuntime, run: str) -> RunRow:
    from reyn.chat.opening import check_conversation

    row = runtime.runs.find(run)
    check_conversation(row, None)
    return row


def _entry(runtime: SyncRuntime, row: RunRow) -> dict[str, Any]:
    from reyn.chat.services.snapshot_journal import read_overview

    overview = read_overview(runtime.runs.events(row.run_id), runtime.runs.content, runtime.runs.inbox(row.run_id))
    return {
        "run_id": row.run_id,
        "agent": row.skill.removeprefix(PREFIX),
        "status": runtime.runs.display_status(row),
        "updated": row.updated,
        "messages": overview.messages,
        "title": overview.title,
        "first_message": overview.first[:_MAX_FIRST],
        "first_message_chars": len(overview.first),
        "fork_of": row.fork_of,
    }


def _matching(runtime: SyncRuntime, words: list[str], limit: int) -> Iterator[dict[str, Any]]:
    from reyn.chat.services.snapshot_journal import read_messages

    for row in _conversations(runtime):
        entry = _entry(runtime, row)
        messages = read_messages(runtime.runs.events(row.run_id), runtime.runs.content)
        texts = [message.text.casefold() for message in messages]
        if not all(word in entry["title"].casefold() or any(word in text for text in texts) for word in words):
            continue
        hits = [message for message, text in zip(messages, texts, strict=True) if words[0] in text]
        match = hits[-1] if hits else None
        entry["match"] = match and {
            "number": match.number,
            "role": match.role,
            "excerpt": _excerpt(match.text, words[0]),
        }
        yield entry
        limit -= 1
        if not limit:
            return


def _excerpt(text: str, word: str) -> str:
    """Return the part of a text around a word, in one line."""
    line = " ".join(text.split())
    at = max(0, line.casefold().find(word) - _EXCERPT // 2)
    return f"{'…' if at else ''}{line[at : at + 2 * _EXCERPT]}{'…' if len(line) > at + 2 * _EXCERPT else ''}"


def _label(entry: dict[str, Any]) -> str:
    return str(entry["title"] or entry["first_message"])


def _cells(entry: dict[str, Any]) -> tuple[str, ...]:
    return (
        clean(entry["run_id"]),
        time_of(entry["updated"]),
        clean(entry["agent"]),
        entry["status"],
        str(entry["messages"]),
        short(_label(entry), _EXCERPT),
    )
