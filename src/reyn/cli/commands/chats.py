"""`reyn chats`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from reyn.cli.output import clean, json_option, print_json, print_table, short, time_of
from reyn.cli.project import open_existing_project
from reyn.errors import ConversationInvalid
from reyn.skills.agents import PREFIX

if TYPE_CHECKING:
    from reyn.journal import RunRow
    from reyn.runtime import SyncRuntime


@click.command(epilog="Example: reyn chats tea --json")
@click.argument("words", nargs=-1)
@click.option("--messages", metavar="RUN", help="Print the messages of one conversation.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Maximum number to list.")
@json_option
def command(words: tuple[str, ...], messages: str | None, limit: int, as_json: bool) -> None:
    """List conversations, the latest first. With WORDS, those whose messages contain all of them.

    A conversation is a run: delete old ones with `reyn prune`.
    """
    with open_existing_project() as runtime:
        if messages is not None:
            _print_messages(runtime, messages, as_json=as_json)
            return
        rows = sorted(
            (row for row in runtime.runs() if row.skill.startswith(PREFIX) and not row.parent),
            key=lambda row: row.updated,
            reverse=True,
        )
        found: list[dict[str, Any]] = []
        for row in rows:
            entry = _entry(runtime, row, words)
            if entry is not None:
                found.append(entry)
            if len(found) == limit:
                break
        if as_json:
            print_json(found)
            return
        if found:
            print_table(
                ("CONVERSATION", "UPDATED", "AGENT", "STATUS", "MESSAGES", "FIRST MESSAGE"),
                [
                    (
                        entry["run_id"],
                        time_of(entry["updated"]),
                        clean(entry["agent"]),
                        entry["status"],
                        str(entry["messages"]),
                        short(entry["title"], 60),
                    )
                    for entry in found
                ],
            )
        if not found:
            click.echo("no conversations" if not words else f"no conversation contains {clean(' '.join(words))}")


def _entry(runtime: SyncRuntime, row: RunRow, words: tuple[str, ...]) -> dict[str, Any] | None:
    from reyn.chat.services.snapshot_journal import read_messages

    said = read_messages(runtime.events(row.run_id), runtime.content)
    text = "\n".join(message.text for message in said).lower()
    if not all(word.lower() in text for word in words):
        return None
    title = next((message.text for message in said if message.role == "user"), "")
    return {
        "run_id": row.run_id,
        "agent": row.skill.removeprefix(PREFIX),
        "status": runtime.display_status(row),
        "updated": row.updated,
        "messages": sum(message.role != "agent" for message in said),
        "title": title,
    }


def _print_messages(runtime: SyncRuntime, run: str, *, as_json: bool) -> None:
    from reyn.chat.services.snapshot_journal import read_messages
    from reyn.cli.chat.printing import printable

    row = runtime.find(run)
    if not row.skill.startswith(PREFIX):
        raise ConversationInvalid(f"run `{row.run_id}` is a run of `{row.skill}`, not a conversation with an agent")
    said = read_messages(runtime.events(row.run_id), runtime.content)
    if as_json:
        print_json(said)
        return
    for message in said:
        mark = {"user": f"{message.number}>", "run": f"{message.number}*", "agent": "  "}[message.role]
        click.echo(f"{mark} {printable(message.text) or '(aborted)'}")
