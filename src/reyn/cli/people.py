"""Ask the questions of a run at the terminal, without blocking the event loop.

The kernel validates replies; this module only prints questions and reads lines.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import termios
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.cli.output import short
from reyn.cli.writer import Line, out, styled
from reyn.errors import ReplyInvalid
from reyn.journal.family import edited_field, offered_replies, parse_reply
from reyn.kernel.runtime_types import LATER
from reyn.kernel.world.inbox import answer_error

if TYPE_CHECKING:
    from reyn.journal.kinds import Question

_STDIN = 0
_LABELS = {"question": "question", "approval": "approval", "decision": "approval", "unsafe": "unknown outcome"}
"""Names the kind of a question, so that a question of a model cannot pass for an approval."""


def user_name() -> str:
    """Return the name of the account that executes the command, which variables cannot change."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


class TerminalPeople:
    """Asks at the terminal.

    Attributes:
        before_output: Called before a question is printed.
        draft_of: Returns the reply `edit` to the open question of a run, with what was proposed.
        asked: Run and question ids that were printed.
        answered: Run and question ids that have a reply from here.
    """

    def __init__(self) -> None:
        self.before_output: Callable[[], None] = lambda: None
        self.draft_of: Callable[[str], dict[str, Any] | None] = lambda _: None
        self.asked: set[tuple[str, str]] = set()
        self.answered: set[tuple[str, str]] = set()
        self._turn = asyncio.Lock()

    @property
    def name(self) -> str:
        """The name of the user at this terminal; it is recorded with the replies."""
        return user_name()

    async def ask(self, run_id: str, question: Question) -> Any:
        """Ask one question at a time: sub-runs may execute together."""
        async with self._turn:
            self.asked.add((run_id, question.id))
            self.before_output()
            _print_question(question)
            answer = await self._answer(run_id, question)
            self.answered.add((run_id, question.id))
            return answer

    async def _answer(self, run_id: str, question: Question) -> Any:
        edited = ""
        while True:
            line, is_last = await _ask_line()
            if line is None or (not line and not _is_optional(question)):
                return LATER
            if question.must_be_named and not is_last:
                out.note("    not replied: other output followed the question, which is asked again:")
                _print_question(question)
                continue
            try:
                if line == "edit" and edited_field(question):
                    edited = await asyncio.to_thread(edit_in_editor, self.draft_of(run_id), edited)
                    line = f"edit {edited}"
                value = parse_reply(question, line)
                fault = answer_error(question, question.id, value)
            except ReplyInvalid as error:
                fault = f"{error.message}. {error.hint}"
            if not fault:
                return value
            out.note(f"    {fault}")


def edit_in_editor(draft: dict[str, Any] | None, text: str = "") -> str:
    """Return what the user makes of a proposed op or artifact in the editor that $EDITOR names, as JSON.

    Args:
        draft: The reply `edit` with what was proposed.
        text: What the user made of it before, which was refused.

    Raises:
        ReplyInvalid: There is no editor, or the user saved nothing.
    """
    import click

    proposed = next((value for name, value in (draft or {}).items() if name != "decision"), None)
    before = text or msgspec.json.format(msgspec.json.encode(proposed), indent=2).decode()
    try:
        after = click.edit(before, extension=".json")
    except click.ClickException as error:
        raise ReplyInvalid(error.message, hint="Set $EDITOR, or type `edit` and JSON.") from error
    if after is None:
        raise ReplyInvalid("not replied: nothing was saved", hint="Reply again.")
    return after.strip()


def question_lines(question: Question) -> list[str]:
    """Return the lines of a question, labelled, so that no text of a model looks like an approval."""
    first, *others = question.message.removesuffix("\n").split("\n")
    label = _LABELS.get(question.reason, question.reason)
    return [f"{label}: {first}", *(f"| {line}" for line in others)]


def _print_question(question: Question) -> None:
    """Print a question. Every line of it is indented, so that none can look like output of Reyn."""
    first, *others = question_lines(question)
    out.note(Line("  ", styled("?", "magenta", bold=True), f" {first}"))
    for line in others:
        out.note(f"    {line}")
    replies = offered_replies(question)
    for number, reply in enumerate(replies, start=1):
        out.note(f"      {number}. {short(reply)}")
    empty = "to skip" if _is_optional(question) else "to reply later"
    own = " or your own reply" if question.suggestions else " or a reply"
    number_hint = f"type a number{own}; " if replies else ""
    if question.is_approval:
        number_hint = f"type a number{', `edit`' if edited_field(question) else ''}, or `reject` and a remark; "
    out.note(styled(f"    ({number_hint}press Enter {empty})", dim=True))


def _is_optional(question: Question) -> bool:
    """Return whether a question accepts `null`, so that it may go unanswered."""
    return not answer_error(question, question.id, None)


async def _ask_line() -> tuple[str | None, bool]:
    """Return a line from the terminal, stripped, and whether nothing was printed meanwhile; `None` at end of input."""
    with suppress(termios.error):  # discard what was typed before the question
        termios.tcflush(_STDIN, termios.TCIFLUSH)
    out.text("  > ", err=True)
    written = out.written
    try:
        raw = await _read_line()
    except asyncio.CancelledError:
        out.note()
        raise
    is_last = out.written == written
    if raw is None:
        out.note()
        return None, is_last
    return raw.decode(errors="replace").strip(), is_last


async def _read_line() -> bytes | None:
    loop = asyncio.get_running_loop()
    line: asyncio.Future[bytes | None] = loop.create_future()
    buffer = bytearray()

    def read_chunk() -> None:
        try:
            chunk = os.read(_STDIN, 4096)
        except OSError:
            chunk = b""
        buffer.extend(chunk)
        if not line.done() and (not chunk or buffer.endswith(b"\n")):
            line.set_result(bytes(buffer) if chunk else None)

    loop.add_reader(_STDIN, read_chunk)
    try:
        return await line
    finally:
        loop.remove_reader(_STDIN)
