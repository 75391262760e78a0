"""Hold a conversation at a terminal: a prompt with history and completion, and a line about what happens.

What the prompt draws passes the rules of the writer, and prints go above it.
"""

from __future__ import annotations

import os
import shutil
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import copy_context
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from itertools import chain
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout.screen import Char
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.patch_stdout import StdoutProxy
from prompt_toolkit.utils import get_cwidth

from reyn.characters import escape
from reyn.chat.services.auto_resume_handler import interrupted_runs
from reyn.chat.services.intervention_handler import HeldText, InterventionHandler
from reyn.chat.services.snapshot_journal import find_conversation
from reyn.cli.chat.commands import CHAT_COMMANDS, ChatCommands
from reyn.cli.chat.printing import message_lines
from reyn.cli.chat.session import in_daemon_thread
from reyn.cli.output import charge_text, short
from reyn.cli.writer import out
from reyn.errors import ReynError
from reyn.folders import OpenFolder
from reyn.journal import ENDED
from reyn.journal.kinds import AGENT_PREFIX
from reyn.journal.state_folder import open_private, open_state
from reyn.kernel.visit.waits import printable
from reyn.texts import counted, one_line

if TYPE_CHECKING:
    from pathlib import Path

    from prompt_toolkit.document import Document

    from reyn.chat import Conversation
    from reyn.runtime import OSRuntime


_REFRESH_SECONDS = 0.5
"""How often the status line is drawn again while the user types nothing."""
_MAX_PROGRESS = 3
_MAX_RECALLED = 1_000
"""The characters of each message that are shown when a conversation continues."""
_MAX_ENTRIES = 200
_HISTORY = "chat_history"
_MAX_HISTORY = 1_000_000
"""The bytes of the history that are read."""


def _print_opening(conversation: Conversation, runtime: OSRuntime) -> None:
    """Print who answers and how to leave; if the conversation continues, also its last messages."""
    out.line(f"{conversation.agent.name} answers. /help lists the commands, Ctrl-D leaves.")
    if others := _interrupted(conversation, runtime):
        out.line(f"interrupted: {short(', '.join(others), 200)}; `reyn resume --all` continues them")
    if not runtime.runs.is_recorded(conversation.run_id):
        return
    recorded = find_conversation(runtime.runs, conversation.run_id)
    title, count = recorded.overview.title or conversation.run_id, recorded.overview.messages
    out.line(f"{title}: {counted(count, 'message')} so far; the last:")
    for message in recorded.messages[-2:]:
        for line in message_lines(message, _MAX_RECALLED):
            out.line(line)


def _interrupted(conversation: Conversation, runtime: OSRuntime) -> list[str]:
    """Return the runs that an earlier process left, without those that continue with the conversation."""
    rows = interrupted_runs(runtime)
    return [row.run_id for row in rows if not f"{row.run_id}.".startswith(f"{conversation.run_id}.")]


async def talk_at_terminal(conversation: Conversation, runtime: OSRuntime) -> None:
    """Read messages at a prompt with history and completion. Ctrl-C stops the reply, Ctrl-D or a second Ctrl-C leaves.

    What runs can be continued afterwards.
    """
    _print_opening(conversation, runtime)
    with prompt_at_terminal():
        await _talk(_session(conversation, runtime), conversation, runtime)


def _session(conversation: Conversation, runtime: OSRuntime) -> PromptSession[str]:
    bindings = KeyBindings()

    @bindings.add("escape", "enter")
    def _(event: object) -> None:
        event.current_buffer.insert_text("\n")  # type: ignore[attr-defined]  # an event of the library

    return PromptSession(
        history=ChatHistory(runtime.services.state_folder),
        completer=ChatCompleter(runtime, CHAT_COMMANDS, conversation.agent.name),
        complete_while_typing=False,
        key_bindings=bindings,
        bottom_toolbar=lambda: status_text(conversation, runtime, shutil.get_terminal_size().columns),
        refresh_interval=_REFRESH_SECONDS,
    )


async def _talk(session: PromptSession[str], conversation: Conversation, runtime: OSRuntime) -> None:
    handler = InterventionHandler(conversation)
    commands = ChatCommands(conversation, runtime, out.line, handler)
    named = conversation.agent.model
    loading = SdkLoading(lambda: runtime.project.preload_model(named.name if named else None))
    is_second = False
    while True:
        try:
            text = await session.prompt_async(lambda: prompt_text(conversation, handler))
        except KeyboardInterrupt:
            if is_second:
                return
            is_second = True
            if handler.held is not None:
                commands.execute("/back")
            else:
                _interrupt(conversation, runtime)
            continue
        except EOFError:
            return
        is_second = False
        if text.startswith("/"):
            if commands.execute(text):
                return
            continue
        await loading.wait()
        try:
            _take(text, handler)
        except ReynError as error:
            out.line(f"  ! {error.code}: {error.message}. {error.hint}")


def _interrupt(conversation: Conversation, runtime: OSRuntime) -> None:
    """Stop the reply, unless that would cancel a run for good: then only say how to leave, and how to stop it."""
    if awaited := _awaited(conversation, runtime):
        out.line(f"  {', '.join(awaited)} goes on. Ctrl-C again leaves, and it can be continued; /stop cancels it")
    elif conversation.is_busy:
        conversation.abort("Ctrl-C")
    else:
        out.line("  press Ctrl-D to leave, or Ctrl-C again")


def _awaited(conversation: Conversation, runtime: OSRuntime) -> list[str]:
    """Return the skills that the reply in progress waits for."""
    if not (conversation.is_busy and runtime.runs.is_recorded(conversation.run_id)):
        return []
    rows = runtime.runs.descendants(conversation.run_id)
    return [
        row.skill
        for row in rows
        if row.status not in ENDED
        and not row.skill.startswith(AGENT_PREFIX)
        and not conversation.runs.is_executing(row.run_id)
    ]


def _take(text: str, handler: InterventionHandler) -> None:
    """Send the text that is held, if the line is empty; else hold the text, or send it if no question is open."""
    if text.strip():
        handler.hold(text)
    elif handler.held is not None and (fault := handler.send()):
        out.line(f"  ! not replied: {short(fault, 200)}")


def prompt_text(conversation: Conversation, handler: InterventionHandler) -> str:
    """Return the prompt, which shows the text that is held, else the oldest open question, and whose it is."""
    held, columns = handler.held, shutil.get_terminal_size().columns
    asked = next((one for one in conversation.questions if not one.question.must_be_named), None)
    asked = asked or conversation.questions.first
    if held is not None:
        lines = _held_lines(held, conversation.agent.name)
    elif asked is None:
        return "> "
    else:
        first, _, _ = asked.question.message.partition("\n")
        lines = [f"{asked.number}. {asked.skill} asks: {one_line(first)}"]
    rows = (row for line in lines for row in textwrap.wrap(line, max(20, columns - 1), max_lines=2, placeholder="…"))
    return "".join(f"{row}\n" for row in rows) + "> "


def _held_lines(held: HeldText, agent: str) -> list[str]:
    """Return what a held text means, and how it is sent or taken back."""
    meaning, text = held.meaning, one_line(held.text)
    asked = meaning.question
    assert asked is not None
    if meaning.kind == "answer":
        value = meaning.value if isinstance(meaning.value, str) else printable(meaning.value)
        return [
            f"answer to {asked.skill}: {one_line(value)}",
            f"Enter sends it, /say sends it to {agent} instead, /back takes it back",
        ]
    return [
        f"message to {agent}: {text}",
        f"({one_line(meaning.reason)})",
        f"Enter sends it, /answer answers {asked.skill} with it, /back takes it back",
    ]


def status_text(conversation: Conversation, runtime: OSRuntime, columns: int = 80) -> str:
    """Return the line below the prompt: time, agent, tokens, cost, what runs, and what waits for the user.

    If it does not fit the columns, it leaves out what runs, then the cost, the tokens and the agent.
    """
    row = runtime.services.journal.find(conversation.run_id) if runtime.runs.is_recorded(conversation.run_id) else None
    cost = [charge_text(row.charge)] if row is not None and row.charge.currency else []
    running = [f"{short(one.skill, 40)}: {short(one.phase, 40)}" for one in conversation.progress[:_MAX_PROGRESS]]
    if (count := len(conversation.runs.in_progress)) > _MAX_PROGRESS:
        running.append(f"{count} running")
    waiting = []
    if questions := len(conversation.questions):
        waiting.append(f"{counted(questions, 'question')} open")
    is_asking = any(not conversation.runs.is_executing(question.run) for question in conversation.questions)
    if conversation.is_busy and not is_asking:
        received = f" ({conversation.received:,} characters)" if conversation.received else ""
        waiting.append(f"replying{received}; Ctrl-C stops")
    kinds = [[conversation.agent.name], [f"{conversation.usage.total:,} tokens"], cost, running]
    while get_cwidth(text := " · ".join([time.strftime("%H:%M"), *chain(*kinds), *waiting])) >= columns and any(kinds):
        next(one for one in reversed(kinds) if one).pop()
    return text


class ChatHistory(History):
    """The messages that the user wrote in this project, in a file that only the user can read.

    Args:
        state: The state folder of the project, which is created if needed.

    Raises:
        StateFolderUnsafe: The folder or the file is a link, or belongs to another user.
    """

    def __init__(self, state: Path) -> None:
        super().__init__()
        folder = open_state(state, create=True)
        assert folder is not None
        with folder as handle:
            self._file = OpenFolder(f"{folder.path}/{_HISTORY}", open_private(handle, _HISTORY, folder.path))

    def load_history_strings(self) -> list[str]:
        """Return the newest messages, the newest first."""
        size = os.fstat(self._file.handle).st_size
        text = os.pread(self._file.handle, _MAX_HISTORY, max(0, size - _MAX_HISTORY)).decode("utf-8", "replace")
        messages = [
            "\n".join(line[1:] for line in part.split("\n") if line.startswith("+")) for part in text.split("\n# ")
        ]
        return [message for message in reversed(messages) if message]

    def store_string(self, string: str) -> None:
        """Add a message to the end of the file."""
        lines = "".join(f"+{line}\n" for line in string.split("\n"))
        os.write(self._file.handle, f"\n# {datetime.now(UTC):%Y-%m-%d %H:%M:%S}\n{lines}".encode())


class SdkLoading:
    """Imports the SDK of the model in a thread, while the user writes the first message.

    Args:
        load: Imports it. Leaving the conversation does not wait for it.
    """

    def __init__(self, load: Callable[[], None]) -> None:
        self._loading = in_daemon_thread(load)

    async def wait(self) -> None:
        """Wait until the SDK is imported; if it is not yet, print a line first."""
        if not self._loading.done():
            out.line("  connecting to the model ...")
            await self._loading


class ChatCompleter(Completer):
    """Completes the word before the cursor.

    At the beginning of a line, `/command`; a word with a slash, a path; else a skill that the agent may run or an agent
    that it may ask. After `/skills` and `/agents`, only the one or the other.

    Args:
        runtime: The runtime of the project.
        commands: The commands.
        agent: The agent that answers.
    """

    def __init__(self, runtime: OSRuntime, commands: Iterable[str], agent: str) -> None:
        self._runtime = runtime
        self._commands = tuple(commands)
        self._agent = agent

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        word = document.get_word_before_cursor(WORD=True)
        first, blank, _ = document.text_before_cursor.partition(" ")
        if first.startswith("/") and not blank:
            names: Iterable[str] = self._commands
        elif "/" in word:
            names = self._files(word)
        elif first == "/skills":
            names = self._skills()
        elif first == "/agents":
            names = self._agents()
        else:
            names = [*self._skills(), *self._agents()] if word else ()
        for name in names:
            if name.startswith(word):
                yield Completion(name, start_position=-len(word))

    def _skills(self) -> list[str]:
        """Return the skills that the agent may run."""
        try:
            patterns = self._runtime.project.agents.load(self._agent).skills
        except ReynError:  # the file was deleted, or is being edited
            return []
        names = [name for name, _, _ in self._runtime.project.library]
        return names if patterns is None else _matching(names, patterns)

    def _agents(self) -> list[str]:
        """Return the agents that the agent may ask."""
        try:
            patterns = self._runtime.project.agents.load(self._agent).agents
        except ReynError:
            return []
        return _matching([name for name in self._runtime.project.agents if name != self._agent], patterns)

    def _files(self, word: str) -> list[str]:
        """Return the entries of the project's folder that a word begins to name."""
        folder, _, _ = word.rpartition("/")
        base = (self._runtime.project.root / folder).resolve()
        if not base.is_relative_to(self._runtime.project.root) or not base.is_dir():
            return []
        entries = sorted(entry for entry in base.iterdir() if not entry.name.startswith("."))[:_MAX_ENTRIES]
        return [f"{folder}/{entry.name}{'/' if entry.is_dir() else ''}" for entry in entries]


def _matching(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    return [name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)]


_EMOJI = "☺"
"""A character after which a joiner is not escaped: the prompt draws character by character."""


class _Displayed(dict[str, str]):
    """How the prompt shows a character, with the width that this has."""

    def __contains__(self, char: object) -> bool:
        return super().__contains__(char) or (isinstance(char, str) and len(char) == 1 and self[char] != char)

    def __missing__(self, char: str) -> str:
        return escape(_EMOJI + char)[1:]


class PromptOutput(Vt100_Output):
    """The output of the prompt. Its text is escaped; its own sequences are written with `write_raw`."""

    def write(self, data: str) -> None:
        super().write(escape(data) if data.strip("\r\n") else data)


class _AbovePrompt(StdoutProxy):
    """Prints above the prompt. A thread has no context of its own accord, and without it, the prompt is not found."""

    def _start_write_thread(self) -> threading.Thread:
        thread = threading.Thread(target=copy_context().run, args=(self._write_thread,), daemon=True)
        thread.start()
        return thread


@contextmanager
def prompt_at_terminal() -> Iterator[None]:
    """Draw prompts on the terminal, and print above them."""
    Char.display_mappings = _Displayed(Char.display_mappings)
    output = PromptOutput.from_pty(out.terminal, term=os.environ.get("TERM"))
    with create_app_session(output=output), _AbovePrompt(raw=True) as above, out.above(above):
        yield
