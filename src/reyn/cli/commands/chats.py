"""`reyn chats`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
import msgspec

from reyn.cli.groups import group
from reyn.cli.options import dry_run_option, json_option, number_option
from reyn.cli.output import reyn_command, short, table_lines, time_of
from reyn.cli.project import open_existing_project, open_project
from reyn.cli.writer import Report, out, wants_json
from reyn.errors import ConversationInvalid, UsageError

if TYPE_CHECKING:
    from reyn.chat.services.chain_manager import ChainLink
    from reyn.chat.services.snapshot_journal import RecordedMessage
    from reyn.journal import RunRow
    from reyn.runs.prune import PruneReport
    from reyn.runtime.sync_runtime import SyncRuns

_HEADER = ("CONVERSATION", "UPDATED", "AGENT", "STATUS", "MESSAGES", "TITLE")
_EXCERPT = 60
_MAX_FIRST = 500
"""The characters of the first message in `--json`; `reyn chats show` has all of it."""
_limit_option = number_option("--limit", "Maximum number to list.", default=20, show_default=True)


@group(invoke_without_command=True, epilog="Example: reyn chats search tea --json")
@_limit_option
@json_option
@click.pass_context
def chats_command(context: click.Context, limit: int) -> Report | None:
    """List, search, show, rename and delete conversations. Without a subcommand, list them.

    A conversation is a run: `reyn show`, `reyn verify`, `reyn replay`, `reyn fork` and `reyn export` take its id.
    """
    if context.invoked_subcommand is None:
        return _list(limit)
    if context.get_parameter_source("limit") != click.core.ParameterSource.DEFAULT or wants_json():
        raise click.UsageError("options of a subcommand follow its name", context)
    return None


@chats_command.command("list", epilog="Example: reyn chats list --limit 5")
@_limit_option
@json_option
def list_(limit: int) -> Report:
    """List conversations, the latest first.

    --json has the first 500 characters of each first message, and its length.
    """
    return _list(limit)


def _list(limit: int) -> Report:
    from reyn.chat.services.snapshot_journal import latest_conversations

    runtime = open_existing_project()
    runs = runtime.runs
    latest = latest_conversations(runs.page, runtime.project.agents, limit)
    entries = [_entry(runs, row) for row in latest[:limit]]
    table = table_lines(_HEADER, [_cells(entry) for entry in entries])
    return Report(entries, table if entries else ["no conversations; start one with `reyn chat`"])


@chats_command.command(epilog="Example: reyn chats search green tea")
@click.argument("words", nargs=-1, required=True)
@_limit_option
@json_option
def search(words: tuple[str, ...], limit: int) -> Report:
    """List conversations that contain all WORDS.

    The words may be in the title and in messages; upper and lower case do not matter. Each conversation is shown with
    the latest message that contains the first word.
    """
    entries = list(_matching(open_existing_project().runs, [word.casefold() for word in words], limit))
    lines = [line for entry in entries for line in _match_lines(entry)]
    return Report(entries, lines or [f"no conversation contains {' '.join(words)}"])


def _match_lines(entry: dict[str, Any]) -> Iterator[str]:
    yield f"{entry['run_id']}  {short(_label(entry), _EXCERPT)}"
    if match := entry["match"]:
        yield f"    {match['number']}{'>' if match['role'] == 'user' else ':'} {match['excerpt']}"


@chats_command.command(epilog="Example: reyn chats show tea")
@click.argument("run")
@json_option
def show(run: str) -> Report:
    """Print the messages of conversation RUN with their numbers.

    `reyn chat --fork RUN@NUMBER` takes the number of a message.

    Arrows mark what the agent asked other agents, and their replies.
    """
    from reyn.chat.services.chain_manager import read_links, read_origin
    from reyn.chat.services.snapshot_journal import read_messages

    runtime = open_existing_project()
    row = _find(runtime.runs, run)
    messages = read_messages(runtime.runs.events(row.run_id), runtime.runs.content)
    journal = runtime.services.journal
    links, origin = read_links(journal, row.run_id), read_origin(journal, row.run_id)
    pairs = [(one, [link for link in links if link.number == one.number and one.role != "agent"]) for one in messages]
    value = [msgspec.to_builtins(one) | {"asks": msgspec.to_builtins(asked)} for one, asked in pairs]
    first = [f"asked by {ask.agent} in conversation {ask.run}" for ask in origin[:1]]
    return Report(value, [*first, *(line for one, asked in pairs for line in _message_lines(one, asked))])


def _message_lines(message: RecordedMessage, asked: list[ChainLink]) -> Iterator[str]:
    from reyn.cli.chat.printing import message_lines

    yield from message_lines(message)
    for link in asked:
        where = f" ({link.conversation})" if link.conversation else ""
        yield f"   → {link.agent}{where}: {short(link.text, _EXCERPT)}"
        yield f"   ← {link.state}: {short(link.reply, _EXCERPT)}"


@chats_command.command(epilog='Example: reyn chats rename tea "Which tea to buy"')
@click.argument("run")
@click.argument("title")
def rename(run: str, title: str) -> Report:
    """Give conversation RUN a TITLE. An empty one removes the title.

    The title is recorded as an event of the conversation. The id stays.
    """
    from reyn.cli.people import user_name

    runtime = open_project()
    row = _find(runtime.runs, run)
    runtime.conversations.rename(row.run_id, title, by=user_name())
    return Report(None, [f"renamed {row.run_id}" if title.strip() else f"removed the title of {row.run_id}"])


@chats_command.command(epilog="Example: reyn chats delete tea --yes")
@click.argument("runs", metavar="RUN...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@dry_run_option
@json_option
def delete(runs: tuple[str, ...], yes: bool, dry_run: bool) -> Report:
    """Delete conversations and the runs that they started.

    Runs in the background and workspace folders are deleted as well.

    A conversation stays if a process executes it or one of its runs, or if another run needs it: a fork continues from
    it, or an unfinished run uses it as its model. Deleted conversations cannot be restored; export those that you need
    with `reyn export` first. Files that they changed stay; `reyn undo` restores them before.
    """
    recorded = open_project().runs
    names = [_deletable(recorded, run) for run in runs]
    if not yes and not dry_run:
        _confirm(recorded.delete(names, dry_run=True))
    report = recorded.delete(names, dry_run=dry_run)
    lines = [f"{'would delete' if dry_run else 'deleted'} {run}" for run in report.runs]
    again = f"{reyn_command('prune')} tries again"
    lines += [f"could not remove the workspace of {folder}; {again}" for folder in report.left]
    return Report(report, lines, 1 if report.left else 0)


def _deletable(runs: SyncRuns, run: str) -> str:
    """Return the id of a conversation that can be deleted without the one that it is a part of."""
    row = _find(runs, run)
    root = runs.root_run(row).run_id
    if root != row.run_id:
        raise ConversationInvalid(
            f"conversation `{row.run_id}` is a part of run `{root}`, whose agent asked it, and stays with it",
            hint=f"Delete `{root}` with everything that it started, or keep both.",
        )
    return row.run_id


def _confirm(report: PruneReport) -> None:
    if wants_json() or sys.stdin is None or not sys.stdin.isatty():
        raise UsageError("deleting conversations needs a confirmation", hint="Pass `--yes`, or `--dry-run` to look.")
    for run in report.runs:
        out.note(f"will delete {run}")
    out.confirm(f"Delete {len(report.runs)} run{'' if len(report.runs) == 1 else 's'}?", abort=True)


def _conversations(runs: SyncRuns) -> list[RunRow]:
    """Return the conversations, the latest first."""
    from reyn.journal.kinds import AGENT_PREFIX

    rows = (row for row in runs.all() if row.skill.startswith(AGENT_PREFIX) and not row.parent)
    return sorted(rows, key=lambda row: row.updated, reverse=True)


def _find(runs: SyncRuns, run: str) -> RunRow:
    from reyn.chat.opening import check_conversation

    row = runs.find(run)
    check_conversation(row, None)
    return row


def _entry(runs: SyncRuns, row: RunRow) -> dict[str, Any]:
    from reyn.chat.services.snapshot_journal import read_overview
    from reyn.journal.kinds import AGENT_PREFIX

    overview = read_overview(runs.events(row.run_id), runs.content, runs.inbox(row.run_id))
    return {
        "run_id": row.run_id,
        "agent": row.skill.removeprefix(AGENT_PREFIX),
        "status": runs.display_status(row),
        "updated": row.updated,
        "messages": overview.messages,
        "title": overview.title,
        "first_message": overview.first[:_MAX_FIRST],
        "first_message_chars": len(overview.first),
        "fork_of": row.fork_of,
    }


def _matching(runs: SyncRuns, words: list[str], limit: int) -> Iterator[dict[str, Any]]:
    from reyn.chat.services.snapshot_journal import read_messages

    for row in _conversations(runs):
        entry = _entry(runs, row)
        messages = read_messages(runs.events(row.run_id), runs.content)
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
        entry["run_id"],
        time_of(entry["updated"]),
        entry["agent"],
        entry["status"],
        str(entry["messages"]),
        short(_label(entry), _EXCERPT),
    )
