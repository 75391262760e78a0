"""Hold a conversation: print what happens, and take lines of standard input as messages. `terminal` has the prompt."""

from __future__ import annotations

import asyncio
import io
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

from reyn.chat import Conversation, QuestionAsked, Reply
from reyn.chat.services.intervention_handler import InterventionHandler
from reyn.cli.chat.commands import ChatCommands
from reyn.cli.output import next_lines
from reyn.cli.writer import out
from reyn.errors import ChatStopped, InputInvalid, RunNotResumable
from reyn.kernel.runtime_types import EXIT_CODES
from reyn.kernel.visit.visit_input import MAX_MESSAGE_CHARS

if TYPE_CHECKING:
    from reyn.cli.chat.printing import Printer
    from reyn.runtime import OSRuntime

    Hold = Callable[[Conversation, OSRuntime], Coroutine[Any, Any, None]]

T = TypeVar("T")
_MAX_LINE_BYTES = 4 * MAX_MESSAGE_CHARS
"""No character of UTF-8 has more than four bytes."""


async def talk(conversation: Conversation, runtime: OSRuntime, printer: Printer, hold: Hold) -> int:
    """Talk until the user leaves or the conversation ends; return the exit code. `hold` reads what the user types.

    A program that pipes messages gets an exit code for each turn without a usable answer; a user has read the notice.
    """
    async with conversation:
        printing = asyncio.ensure_future(_print(conversation, printer))
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
            is_unanswered = await printing
    row = runtime.services.journal.find(conversation.run_id) if runtime.runs.is_recorded(conversation.run_id) else None
    if row is None or row.status not in ("failed", "limited"):
        return EXIT_CODES["failed"] if is_unanswered and hold is talk_in_lines else 0
    for line in next_lines(runtime.runs.next_action(row)):
        out.line(line)
    return EXIT_CODES[row.status]


async def _print(conversation: Conversation, printer: Printer) -> bool:
    """Print what happens; return whether a message got no usable answer."""
    is_unanswered = False
    async for item in conversation.items():
        printer.show(item)
        is_unanswered = is_unanswered or (isinstance(item, Reply) and item.status == "unanswered")
    return is_unanswered


async def talk_in_lines(conversation: Conversation, runtime: OSRuntime) -> None:
    """Take each line of standard input as a message, or as the answer to an open question, without holding it."""
    replies: list[asyncio.Future[Reply]] = []

    def say(text: str) -> None:
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        conversation.post(text, reply)
        replies.append(reply)

    handler = InterventionHandler(conversation, say)
    commands = ChatCommands(conversation, runtime, out.note, handler)
    await conversation.ready()  # a question that is still open takes the first line
    async for line in read_lines():
        if line.startswith("/"):
            if commands.is_reply(line):
                await _await_question(conversation)
            if commands.execute(line):
                break
        elif line.strip():
            handler.handle(line)
        await conversation.ready()  # after a reply, the next question takes the next line
        await _await_replies(conversation, replies, lambda _: True)  # any question takes the next line
    # A question of a background run does not hold the turn.
    await _await_replies(conversation, replies, lambda one: not conversation.runs.is_executing(one.run))


async def _await_question(conversation: Conversation) -> None:
    """Wait until a question is open, or no run in the background can ask one."""
    ends = [asyncio.ensure_future(conversation.questions.wait()), asyncio.ensure_future(conversation.runs.settle())]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for end in ends:
            end.cancel()
        await asyncio.wait(ends)


async def _await_replies(
    conversation: Conversation, replies: list[asyncio.Future[Reply]], holds: Callable[[QuestionAsked], bool]
) -> None:
    """Wait until every message has its reply, or a question for which `holds` is true is open."""
    asked: asyncio.Future[Any] = asyncio.ensure_future(conversation.questions.wait(holds))
    try:
        while (pending := [reply for reply in replies if not reply.done()]) and not asked.done():
            await asyncio.wait([asked, *pending], return_when=asyncio.FIRST_COMPLETED)
    finally:
        asked.cancel()
        await asyncio.wait([asked])
    for reply in replies:
        error = reply.exception() if reply.done() else None
        # A conversation that stopped has said so.
        if error is not None and not isinstance(error, ChatStopped | RunNotResumable):
            raise error


# -- standard input -----------------------------------------------------------------------------------


async def read_lines() -> AsyncIterator[str]:
    """Yield the lines of standard input without their line ends. A line is read when it is asked for.

    Raises:
        InputInvalid: A line is not UTF-8 text, or too long.
    """
    read, number = _reader(), 0
    while line := await in_daemon_thread(read):
        number += 1
        try:
            yield line.decode().rstrip("\r\n")
        except UnicodeDecodeError as error:
            message = f"line {number} of standard input is not UTF-8 text: {error.reason}"
            raise InputInvalid(message, hint="Convert the input to UTF-8, for example with `iconv`.") from error


def in_daemon_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Return what a function in a thread returns. It delays neither Ctrl-C nor the end of the process."""
    found: Future[T] = Future()

    def execute() -> None:
        found.set_running_or_notify_cancel()
        try:
            found.set_result(work())
        except Exception as error:  # noqa: BLE001 - raised where the result is awaited
            found.set_exception(error)

    threading.Thread(target=execute, daemon=True).start()
    return asyncio.wrap_future(found)


def _reader() -> Callable[[], bytes]:
    """Return a function that reads one line; it returns an empty one at the end."""
    try:
        descriptor = sys.stdin.fileno()
    except (io.UnsupportedOperation, ValueError):  # a program replaced it
        stream = sys.stdin
        return lambda: stream.readline().encode(errors="surrogateescape")
    return _DescriptorLines(descriptor).read


class _DescriptorLines:
    """Reads lines from a file descriptor. No lock of a stream is held meanwhile, so the interpreter can exit."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._buffer = bytearray()
        self._searched = 0

    def read(self) -> bytes:
        while (end := self._buffer.find(b"\n", self._searched)) < 0:
            self._searched = len(self._buffer)
            if self._searched > _MAX_LINE_BYTES:
                raise InputInvalid(
                    f"a line of standard input is longer than {_MAX_LINE_BYTES} bytes", hint="Shorten the message."
                )
            chunk = os.read(self._descriptor, 1 << 16)
            if not chunk:
                end = len(self._buffer) - 1
                break
            self._buffer += chunk
        line = bytes(self._buffer[: end + 1])
        del self._buffer[: end + 1]
        self._searched = 0
        return line
