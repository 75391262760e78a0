"""Print the items of a conversation: replies as Markdown on a terminal, as plain text or as JSON otherwise."""

from __future__ import annotations

import re
import shutil
from typing import TYPE_CHECKING, Protocol

import msgspec

from reyn.chat import (
    ChatItem,
    MessageReceived,
    OpFinished,
    OpRequested,
    QuestionAsked,
    Redirected,
    Reply,
    ReplyDelta,
    Restarted,
    SkillEnded,
    SkillStarted,
    Stopped,
)
from reyn.cli.output import short, text_lines
from reyn.cli.people import question_lines
from reyn.cli.writer import out, styled
from reyn.journal.family import edited_field, offered_replies
from reyn.texts import one_line

if TYPE_CHECKING:
    from reyn.chat.services.snapshot_journal import RecordedMessage
    from reyn.journal.kinds import Question

_PARAGRAPH = re.compile(r"\n\n|```")


class Printer(Protocol):
    """Shows items as they arrive."""

    def show(self, item: ChatItem) -> None: ...


class JsonPrinter:
    """Prints one JSON object a line."""

    def show(self, item: ChatItem) -> None:
        out.json(msgspec.to_builtins(item))


class PlainPrinter:
    """Prints replies to standard output, and everything else to standard error."""

    def show(self, item: ChatItem) -> None:
        if isinstance(item, Reply):
            write = out.note if item.status == "unanswered" else out.line
            for line in text_lines("(aborted)" if item.status == "aborted" else item.text):
                write(line)
        else:
            for line in describe(item):
                out.note(line)


class TerminalPrinter:
    """Prints replies as Markdown while they arrive, paragraph by paragraph."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        self._pieces: list[str] = []
        """What is not printed yet."""
        self._length = 0
        self._tail = ""
        """Its end, which may be the beginning of a fence, or of the blank line after a paragraph."""
        self._is_code = False
        self._has_printed = False

    def show(self, item: ChatItem) -> None:
        match item:
            case ReplyDelta(text=text):
                self._add(text)
            case Restarted():
                self._print_rest()
                self._describe(item)
            case Reply(status="aborted"):
                self._print_rest()
                out.line(styled("(stopped)", dim=True))
            case Reply(text=text):
                self._pieces = self._pieces if self._has_printed else [text]
                self._print_rest()
            case OpRequested() | OpFinished():
                self._print_rest()  # the text before the calls
                self._describe(item)
            case _:
                self._describe(item)

    def _describe(self, item: ChatItem) -> None:
        for line in describe(item):
            out.line(styled(line, dim=True))

    def _add(self, text: str) -> None:
        """Add a piece, and print the paragraphs that are complete; one that is inside a code block is not."""
        self._pieces.append(text)
        text, start = self._tail + text, self._length - len(self._tail)
        self._length = start + len(text)
        searched = end = 0
        while found := _PARAGRAPH.search(text, searched):
            searched = found.end()
            if found[0] == "```":
                self._is_code = not self._is_code
            elif not self._is_code:
                end = start + found.start()
        self._tail = text[max(searched, len(text) - 2) :]
        if end:
            whole = "".join(self._pieces)
            self._pieces, self._length = [whole[end:]], len(whole) - end
            self._has_printed = True
            self._print(whole[:end])

    def _print_rest(self) -> None:
        rest = "".join(self._pieces)
        self._start()
        if rest.strip():
            self._print(rest)

    def _print(self, text: str) -> None:
        from reyn.cli.chat.markdown import markdown_lines

        for line in markdown_lines(text.strip("\n"), shutil.get_terminal_size().columns):
            out.line(line)


def message_lines(message: RecordedMessage, length: int | None = None) -> list[str]:
    """Return a recorded message with its number: `2>` from the user, `2*` from a run. A reply has no number."""
    mark = {"user": f"{message.number}>", "run": f"{message.number}*", "agent": "  "}[message.role]
    text = message.text if length is None or len(message.text) <= length else f"{message.text[:length]}…"
    return text_lines(f"{mark} {text or '(aborted)'}")


def describe(item: ChatItem) -> list[str]:
    """Describe an item, a question with all of its lines and anything else in one or two; none if it is not shown."""
    match item:
        case MessageReceived(run=run) if run:
            return [f"  · {run} reported"]
        case OpRequested(kind="run_skill" | "start_skill"):
            return []  # the run is announced
        case OpRequested(kind=kind, arguments=arguments):
            return [f"  · {kind} {short(msgspec.json.encode(arguments).decode(), 100)}"]
        case OpFinished(kind=kind, status=status, result=result) if status != "ok":
            return [f"  ! {kind}: {status}: {short(one_line(str(result.get('error', ''))), 400)}"]
        case SkillStarted(run=run, skill=skill, background=background):
            return [f"  ▸ {skill} {'runs in the background as' if background else 'runs as'} {run}"]
        case SkillEnded(run=run, status=status, reason=reason):
            return [f"  ▪ {run} {status}{f': {short(one_line(reason), 200)}' if reason else ''}"]
        case QuestionAsked():
            return _describe_question(item)
        case Redirected():
            return _describe_redirected(item)
        case Restarted(reason=reason):
            return [f"  ! asking again: {short(one_line(reason), 200)}"]
        case Stopped(status=status, reason=reason, hint=hint) if status != "finished":
            fix = [f"  fix: {short(one_line(hint))}"] if hint else []
            return [f"  ! {status}: {short(one_line(reason))}", *fix]
    return []


def _describe_question(item: QuestionAsked) -> list[str]:
    """Describe a question. One that must be named has no numbered replies: a number typed alone is no reply to it."""
    wait = item.question
    first, *others = question_lines(wait)
    lines = [f"  ? {first}", *(f"    {line}" for line in others)]
    if wait.must_be_named:
        return [*lines, f"    {_how_to_name(wait, item.number)}"]
    return lines + [f"      {number}. {short(one)}" for number, one in enumerate(offered_replies(wait), start=1)]


def _how_to_name(wait: Question, number: int) -> str:
    """Return the commands that reply to a question that must be named."""
    if wait.is_approval:
        edit = f"/edit {number}, " if edited_field(wait) else ""
        return f"/approve {number}, {edit}/reject {number} REMARK, or /answer {number} VALUE"
    return " or ".join(f"/answer {number} {one}" for one in wait.suggestions)


def _describe_redirected(item: Redirected) -> list[str]:
    later = ", which answers when this turn is over" if item.is_delayed else ""
    line = f"  → sent to the agent{later}: {short(one_line(item.reason), 200)}"
    if not item.is_open:
        return [line]
    how = _how_to_name(item.question, item.number) if item.question.must_be_named else "/answer TEXT answers it"
    return [line, f"    still open: {short(one_line(item.question.message), 100)} ({how})"]
