"""Hold a conversation: read messages, print what happens. One way for pipes, one for terminals."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click

from reyn.chat.services.auto_resume_handler import AutoResumeHandler
from reyn.chat.services.intervention_handler import InterventionHandler
from reyn.chat.services.snapshot_journal import read_messages
from reyn.cli.chat.commands import COMMANDS, ChatCommands
from reyn.cli.chat.lines import read_lines
from reyn.cli.chat.printing import message_line
from reyn.cli.output import charge_text, clean, print_next, short
from reyn.errors import ChatStopped, ReynError, RunNotResumable
from reyn.kernel.runtime_types import EXIT_CODES

if TYPE_CHECKING:
    from reyn.chat import Conversation, Reply
    from reyn.cli.chat.printing import Printer
    from reyn.runtime import OSRuntime


_REFRESH_SECONDS = 0.5
"""How often the status line is drawn again while the user types nothing."""
_MAX_PROGRESS = 3
_MAX_RECALLED = 1_000
"""The characters of each message that are shown when a conversation continues."""


async def talk(conversation: Conversation, runtime: OSRuntime, printer: Printer, *, is_terminal: bool) -> int:
    """Talk until the user leaves or the conversation ends; return the exit code."""
    async with conversation:
        printing = asyncio.ensure_future(_print(conversation, printer))
        if is_terminal:
            _print_opening(conversation, runtime)
        hold = _talk_at_terminal if is_terminal else _talk_in_lines
        talking = asyncio.ensure_future(hold(conversation, runtime))
        try:
            # Printing ends first if the output was closed. No further message is sent then.
            await asyncio.wait([talking, printing], return_when=asyncio.FIRST_COMPLETED)
            if talking.done():
                talking.result()
        finally:
            talking.cancel()
            await asyncio.wait([talking])
            await conversation.close()
            await printing
    row = runtime.project.journal.find(conversation.run_id) if runtime.runs.is_recorded(conversation.run_id) else None
    if row is None or row.status not in ("failed", "limited"):
        return 0
    print_next(runtime.runs.next_action(row))
    return EXIT_CODES[row.status]


async def _print(conversation: Conversation, printer: Printer) -> None:
    async for item in conversation.items():
        printer.show(item)


# -- pipes --------------------------------------------------------------------------------------------


async def _talk_in_lines(conversation: Conversation, runtime: OSRuntime) -> None:
    """Take each line of standard input as a message, or as the reply to an open question."""
    replies: list[asyncio.Future[Reply]] = []

    def say(text: str) -> None:
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        conversation.post(text, reply)
        replies.append(reply)

    commands = ChatCommands(conversation, runtime, lambda line: click.echo(line, err=True), say)
    handler = InterventionHandler(conversation, say)
    await conversation.ready()  # a question that is still open takes the first line
    async for line in read_lines():
        if line.startswith("/"):
            if commands.execute(line):
                break
        elif line.strip():
            handler.handle(line)
        await conversation.ready()  # after a reply, the next question takes the next line
        await _pause(conversation, replies)
    await _await_replies(conversation, replies)


async def _pause(conversation: Conversation, replies: list[asyncio.Future[Reply]]) -> None:
    """Wait until every message has its reply, or a question is open."""
    asked = asyncio.ensure_future(conversation.questions.wait())
    try:
        while pending := [reply for reply in replies if not reply.done()]:
            waiting: list[asyncio.Future[Any]] = [asked, *pending]
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return
    finally:
        asked.cancel()
        await asyncio.wait([asked])
    _raise_failures(replies)


async def _await_replies(conversation: Conversation, replies: list[asyncio.Future[Reply]]) -> None:
    """Wait until every message has its reply, or a question holds the turn. Those of background runs do not."""
    while pending := [reply for reply in replies if not reply.done()]:
        if any(not conversation.runs.is_executing(question.run) for question in conversation.questions):
            break
        opened = asyncio.ensure_future(conversation.questions.opened())
        waiting: list[asyncio.Future[Any]] = [opened, *pending]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            opened.cancel()
            await asyncio.wait([opened])
    _raise_failures([reply for reply in replies if reply.done()])


def _raise_failures(replies: list[asyncio.Future[Reply]]) -> None:
    """Raise why a message has no reply, unless the conversation stopped and said so."""
    for reply in replies:
        if reply.exception() is not None and not isinstance(reply.exception(), ChatStopped | RunNotResumable):
            raise reply.exception()  # type: ignore[misc]  # it is not None


# -- terminals ----------------------------------------------------------------------------------------


def _print_opening(conversation: Conversation, runtime: OSRuntime) -> None:
    """Print who answers and how to leave; if the conversation continues, also its last messages."""
    click.echo(f"{clean(conversation.agent.name)} answers. /help lists the commands, Ctrl-D leaves.")
    if others := _interrupted(conversation, runtime):
        click.echo(f"interrupted: {short(', '.join(others), 200)}; `reyn resume --all` continues them")
    if not runtime.runs.is_recorded(conversation.run_id):
        return
    messages = read_messages(runtime.runs.events(conversation.run_id), runtime.runs.content)
    title = runtime.runs.state(conversation.run_id).title or conversation.run_id
    count = sum(one.role != "agent" for one in messages)
    click.echo(f"{clean(title)}: {count} message{'' if count == 1 else 's'} so far; the last:")
    for message in messages[-2:]:
        click.echo(message_line(message, _MAX_RECALLED))


def _interrupted(conversation: Conversation, runtime: OSRuntime) -> list[str]:
    """Return the runs that an earlier process left, without those that continue with the conversation."""
    rows = AutoResumeHandler(runtime).interrupted()
    return [row.run_id for row in rows if not f"{row.run_id}.".startswith(f"{conversation.run_id}.")]


async def _talk_at_terminal(conversation: Conversation, runtime: OSRuntime) -> None:
    """Read messages at a prompt with history and completion. Ctrl-C stops the reply, Ctrl-D leaves."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.patch_stdout import patch_stdout

    from reyn.cli.chat.completing import ChatCompleter
    from reyn.cli.chat.loading import SdkLoading

    bindings = KeyBindings()

    @bindings.add("escape", "enter")
    def _(event: object) -> None:
        event.current_buffer.insert_text("\n")  # type: ignore[attr-defined]  # an event of the library

    state = runtime.project.root / ".reyn"
    state.mkdir(mode=0o700, exist_ok=True)
    session: PromptSession[str] = PromptSession(
        history=FileHistory(str(state / "chat_history")),
        completer=ChatCompleter(runtime, COMMANDS, conversation.agent.name),
        complete_while_typing=False,
        key_bindings=bindings,
        bottom_toolbar=lambda: status_text(conversation, runtime),
        refresh_interval=_REFRESH_SECONDS,
    )
    commands = ChatCommands(conversation, runtime, click.echo)
    handler = InterventionHandler(conversation)
    loading = SdkLoading(lambda: runtime.project.preload_model(conversation.agent.model))
    with patch_stdout(raw=True):
        while True:
            try:
                text = await session.prompt_async("> ")
            except KeyboardInterrupt:
                if conversation.is_busy:
                    conversation.abort("Ctrl-C")
                else:
                    click.echo("  press Ctrl-D to leave")
                continue
            except EOFError:
                return
            if not text.strip():
                continue
            if text.startswith("/"):
                if commands.execute(text):
                    return
                continue
            await loading.wait()
            try:
                handler.handle(text)
            except ReynError as error:
                click.echo(f"  ! {error.code}: {clean(error.message)}. {clean(error.hint)}")


def status_text(conversation: Conversation, runtime: OSRuntime) -> str:
    """Return the line below the prompt: agent, tokens, cost, what runs, and what waits for the user."""
    parts = [conversation.agent.name, f"{conversation.usage.total:,} tokens"]
    row = runtime.project.journal.find(conversation.run_id) if runtime.runs.is_recorded(conversation.run_id) else None
    if row is not None and row.charge.currency:
        parts.append(charge_text(row.charge))
    parts += [f"{short(one.skill, 40)}: {short(one.phase, 40)}" for one in conversation.progress[:_MAX_PROGRESS]]
    if (running := len(conversation.runs.in_progress)) > _MAX_PROGRESS:
        parts.append(f"{running} running")
    if questions := len(conversation.questions):
        parts.append(f"{questions} question{'s' if questions > 1 else ''} open")
    is_asking = any(not conversation.runs.is_executing(question.run) for question in conversation.questions)
    if conversation.is_busy and not is_asking:
        received = f" ({conversation.received:,} characters)" if conversation.received else ""
        parts.append(f"replying{received}; Ctrl-C stops")
    return " · ".join(parts)
