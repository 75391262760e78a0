"""`reyn chats`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from reyn.cli.groups import group
from reyn.cli.options import dry_run_option, json_option, number_option
from reyn.cli.output import reyn_command, short, table_lines, time_of
from reyn.cli.project import open_existing_project, open_project
from reyn.cli.writer import Report, out, wants_json
from reyn.errors import ConversationInvalid, UsageError
from reyn.texts import counted, one_line

if TYPE_CHECKING:
    from reyn.chat.recorded_work import ConversationSkill, RecordedQuestion
    from reyn.chat.services.chain_manager import ChainLink
    from reyn.chat.services.snapshot_journal import RecordedConversation, RecordedMessage
    from reyn.runs.prune import PruneReport
    from reyn.runtime import SyncRuntime

T = TypeVar("T", bound="ChainLink | ConversationSkill | RecordedQuestion")
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

    runtime = open_existing_project().async_form
    entries = [_entry(one) for one in latest_conversations(runtime.runs, runtime.project.agents, limit)[:limit]]
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
    from reyn.chat.services.snapshot_journal import all_conversations

    conversations = all_conversations(open_existing_project().async_form.runs)
    entries = list(islice(_matching(conversations, words), limit))
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

    Below a message are the skills that ran for it, their questions with the answers, and what the agent asked other
    agents.
    """
    from reyn.chat.recorded_work import read_work
    from reyn.chat.services.chain_manager import read_links, read_origin

    runtime = open_existing_project()
    conversation = _find(runtime, run)
    journal, run_id = runtime.services.journal, conversation.row.run_id
    links, origin = read_links(journal, run_id), read_origin(journal, run_id)
    work = read_work(journal, conversation.row)
    shown = [(one, _of(one, links), _of(one, work.runs), _of(one, work.questions)) for one in conversation.messages]
    value = [
        msgspec.to_builtins(one) | msgspec.to_builtins({"asks": asks, "runs": runs, "questions": questions})
        for one, asks, runs, questions in shown
    ]
    first = [f"asked by {ask.agent} in conversation {ask.run}" for ask in origin[:1]]
    return Report(value, [*first, *(line for parts in shown for line in _message_lines(*parts))])


def _of(message: RecordedMessage, found: Sequence[T]) -> list[T]:
    """Return what happened after a message and before the reply to it."""
    return [one for one in found if one.number == message.number and message.role != "agent"]


def _message_lines(
    message: RecordedMessage, asked: list[ChainLink], runs: list[ConversationSkill], questions: list[RecordedQuestion]
) -> Iterator[str]:
    from reyn.cli.chat.printing import message_lines

    yield from message_lines(message)
    for run in runs:
        yield f"   ▸ {run.skill} ({run.run}){', in the background' if run.background else ''}"
        yield from _question_lines(one for one in questions if f"{one.run}.".startswith(f"{run.run}."))
        yield f"   ▪ {run.status}{f': {short(one_line(run.reason), 200)}' if run.reason else ''}"
    yield from _question_lines(
        one for one in questions if not any(f"{one.run}.".startswith(f"{run.run}.") for run in runs)
    )
    for link in asked:
        where = f" ({link.conversation})" if link.conversation else ""
        yield f"   → {link.agent}{where}: {short(link.text, _EXCERPT)}"
        yield f"   ← {link.state}: {short(link.reply, _EXCERPT)}"


def _question_lines(questions: Iterable[RecordedQuestion]) -> Iterator[str]:
    from reyn.kernel.visit.waits import printable

    for one in questions:
        first, _, more = one.message.partition("\n")
        yield f"   ? {one.reason}: {short(first, 200)}{' …' if more.strip() else ''}"
        answer = one.answer if isinstance(one.answer, str) else printable(one.answer)
        by = f" ({one.by})" if one.by else ""
        yield f"   = {short(one_line(answer), 200)}{by}" if one.is_answered else "   = no answer"


@chats_command.command(epilog='Example: reyn chats rename tea "Which tea to buy"')
@click.argument("run")
@click.argument("title")
def rename(run: str, title: str) -> Report:
    """Give conversation RUN a TITLE. An empty one removes the title.

    The title is recorded as an event of the conversation. The id stays.
    """
    from reyn.cli.people import user_name

    runtime = open_project()
    row = _find(runtime, run).row
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
    runtime = open_project()
    recorded = runtime.runs
    names = [_deletable(runtime, run) for run in runs]
    if not yes and not dry_run:
        _confirm(recorded.delete(names, dry_run=True))
    report = recorded.delete(names, dry_run=dry_run)
    lines = [f"{'would delete' if dry_run else 'deleted'} {run}" for run in report.runs]
    again = f"{reyn_command('prune')} tries again"
    lines += [f"could not remove the workspace of {folder}; {again}" for folder in report.left]
    return Report(report, lines, 1 if report.left else 0)


def _deletable(runtime: SyncRuntime, run: str) -> str:
    """Return the id of a conversation that can be deleted without the one that it is a part of."""
    row = _find(runtime, run).row
    root = runtime.runs.root_run(row).run_id
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
    out.confirm(f"Delete {counted(len(report.runs), 'run')}?", abort=True)


def _find(runtime: SyncRuntime, run: str) -> RecordedConversation:
    from reyn.chat.services.snapshot_journal import find_conversation

    return find_conversation(runtime.async_form.runs, run)


def _entry(conversation: RecordedConversation) -> dict[str, Any]:
    row, overview = conversation.row, conversation.overview
    return {
        "run_id": row.run_id,
        "agent": conversation.agent,
        "status": conversation.display_status,
        "updated": row.updated,
        "messages": overview.messages,
        "title": overview.title,
        "first_message": overview.first[:_MAX_FIRST],
        "first_message_chars": len(overview.first),
        "fork_of": row.fork_of,
    }


def _matching(conversations: Iterable[RecordedConversation], words: Sequence[str]) -> Iterator[dict[str, Any]]:
    for conversation in conversations:
        if conversation.has_words(words):
            message = conversation.latest_with(words[0])
            match = message and {
                "number": message.number,
                "role": message.role,
                "excerpt": _excerpt(message.text, words[0].casefold()),
            }
            yield _entry(conversation) | {"match": match}


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
