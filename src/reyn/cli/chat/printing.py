"""Print the items of a conversation: replies as Markdown on a terminal, as plain text or as JSON otherwise."""

from __future__ import annotations

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
from reyn.cli.output import Safe, clean, out, short
from reyn.cli.people import question_lines
from reyn.context.words import one_line

if TYPE_CHECKING:
    from rich.console import Console

    from reyn.chat.services.snapshot_journal import RecordedMessage
    from reyn.journal.kinds import Question


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
            out.line(Safe("(aborted)" if item.status == "aborted" else printable(item.text)))
        elif line := describe(item):
            out.note(Safe(line))


class TerminalPrinter:
    """Prints replies as Markdown while they arrive, paragraph by paragraph."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._text = ""
        self._printed = 0

    def show(self, item: ChatItem) -> None:
        match item:
            case ReplyDelta(text=text):
                self._text += text
                self._print_complete()
            case Restarted():
                self._print_rest()
                self._console.print(describe(item), style="dim", markup=False, highlight=False)
            case Reply(status="aborted"):
                self._print_rest()
                self._console.print("[dim](stopped)[/]")
            case Reply(text=text):
                self._text = self._text if self._text == text else text if not self._printed else self._text
                self._print_rest()
            case _:
                if line := describe(item):
                    self._console.print(line, style="dim", markup=False, highlight=False)

    def _print_complete(self) -> None:
        """Print the paragraphs that are complete; one that is inside a code block is not."""
        end = self._text.rfind("\n\n")
        while end > self._printed and self._text[:end].count("```") % 2:
            end = self._text.rfind("\n\n", 0, end)
        if end > self._printed:
            self._print(self._text[self._printed : end])
            self._printed = end

    def _print_rest(self) -> None:
        rest = self._text[self._printed :]
        self._text, self._printed = "", 0
        if rest.strip():
            self._print(rest)

    def _print(self, text: str) -> None:
        from rich.markdown import Markdown

        self._console.print(Markdown(printable(text.strip("\n"))))


def printable(text: str) -> str:
    """Return a text of several lines in which nothing controls the terminal."""
    return "\n".join(clean(line).replace("\\t", "    ") for line in text.split("\n"))


def message_line(message: RecordedMessage, length: int | None = None) -> str:
    """Return a recorded message with its number: `2>` from the user, `2*` from a run. A reply has no number."""
    mark = {"user": f"{message.number}>", "run": f"{message.number}*", "agent": "  "}[message.role]
    text = message.text if length is None or len(message.text) <= length else f"{message.text[:length]}…"
    return f"{mark} {printable(text) or '(aborted)'}"


def describe(item: ChatItem) -> str:
    """Describe an item, a question with all of its lines and anything else in one line; empty if it has none."""
    match item:
        case MessageReceived(run=run) if run:
            return f"  · {clean(run)} reported"
        case OpRequested(kind="run_skill" | "start_skill"):
            return ""  # the run is announced
        case OpRequested(kind=kind, arguments=arguments):
            return f"  · {clean(kind)} {short(msgspec.json.encode(arguments).decode(), 100)}"
        case OpFinished(kind=kind, status=status, result=result) if status != "ok":
            return f"  ! {clean(kind)}: {status}: {short(one_line(str(result.get('error', ''))), 200)}"
        case SkillStarted(run=run, skill=skill, background=background):
            return f"  ▸ {clean(skill)} {'runs in the background as' if background else 'runs as'} {clean(run)}"
        case SkillEnded(run=run, status=status, reason=reason):
            return f"  ▪ {clean(run)} {status}{f': {short(one_line(reason), 200)}' if reason else ''}"
        case QuestionAsked():
            return _describe_question(item)
        case Redirected():
            return _describe_redirected(item)
        case Restarted(reason=reason):
            return f"  ! asking again: {short(one_line(reason), 200)}"
        case Stopped(status=status, reason=reason, hint=hint) if status != "finished":
            return f"  ! {status}: {short(one_line(reason))}" + (f"\n  fix: {short(one_line(hint))}" if hint else "")
    return ""


def _describe_question(item: QuestionAsked) -> str:
    """Describe a question. One that must be named has no numbered replies: a number typed alone is no reply to it."""
    wait = item.question
    first, *others = question_lines(wait)
    lines = [f"  ? {first}", *(f"    {line}" for line in others)]
    if wait.must_be_named:
        lines.append(f"    {_how_to_name(wait, item.number)}")
    else:
        lines += [f"      {number}. {short(one)}" for number, one in enumerate(wait.suggestions, start=1)]
    return "\n".join(lines)


def _how_to_name(wait: Question, number: int) -> str:
    """Return the commands that reply to a question that must be named."""
    if wait.is_approval:
        return f"/approve {number}, /reject {number} REMARK, or /answer {number} VALUE"
    return " or ".join(f"/answer {number} {one}" for one in wait.suggestions)


def _describe_redirected(item: Redirected) -> str:
    later = ", which answers when this turn is over" if item.is_delayed else ""
    line = f"  → sent to the agent{later}: {short(one_line(item.reason), 200)}"
    if not item.is_open:
        return line
    how = _how_to_name(item.question, item.number) if item.question.must_be_named else "/reply TEXT replies with TEXT"
    return f"{line}\n    still open: {short(one_line(item.question.message), 100)} ({how})"
