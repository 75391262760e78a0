"""The commands that a user can type in a conversation: `/help`, `/runs`, `/cancel` and so on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from reyn.chat.services.budget_gateway import spending_of
from reyn.chat.services.compaction_controller import compactions
from reyn.chat.services.memory_service import MemoryService
from reyn.chat.services.router_host_adapter import RouterView, router_view
from reyn.cli.output import charge_text, short
from reyn.errors import ReynError
from reyn.journal.results import tokens_text
from reyn.kernel.visit.waits import printable
from reyn.runs.usage import budget_text
from reyn.texts import counted, one_line

if TYPE_CHECKING:
    from reyn.chat import Conversation
    from reyn.chat.services.intervention_handler import InterventionHandler
    from reyn.runtime import OSRuntime

CHAT_COMMANDS = {
    "/help": "list the commands",
    "/answer": "[NUMBER] TEXT: answer the oldest open question, or the one with this number",
    "/reply": "TEXT: answer the oldest open question with exactly this text",
    "/say": "TEXT: talk to the agent while a question is open",
    "/back": "take back the text that is not sent yet",
    "/stop": "stop the reply, and cancel the skill that it waits for",
    "/approve": "NUMBER [always]: approve what the question with this number shows",
    "/reject": "NUMBER [REMARK]: reject it",
    "/edit": "NUMBER JSON: replace the op or the artifact that it shows; without JSON, print it",
    "/deny": "NUMBER [REMARK]: the same as /reject",
    "/runs": "list the runs in the background",
    "/cancel": "RUN: cancel a run in the background",
    "/skills": "list the skills that the agent can run",
    "/agents": "list the agents that the agent can ask",
    "/memory": "list what the agent remembers",
    "/pin": "FACT: keep a fact in every prompt, whatever is summarised",
    "/unpin": "ID: remove a pinned fact; /memory shows the ids",
    "/compact": "replace older messages by a summary before the next reply",
    "/usage": "show tokens, cost, and the budgets that hold",
    "/rename": "TITLE: give the conversation a title",
    "/questions": "list the open questions",
    "/id": "show the id of the conversation",
    "/quit": "leave; the conversation can be continued",
}

_REPLIES = ("/answer", "/reply", "/approve", "/edit", "/reject", "/deny")


class ChatCommands:
    """Executes the commands of one conversation."""

    def __init__(
        self,
        conversation: Conversation,
        runtime: OSRuntime,
        echo: Callable[[str], None],
        handler: InterventionHandler,
    ) -> None:
        """Execute commands.

        Args:
            conversation: The conversation.
            runtime: The runtime that it belongs to.
            echo: Prints a line.
            handler: Takes what the user types; it holds the text that is not sent yet.
        """
        self._handler = handler
        self._conversation = conversation
        self._runtime = runtime
        self._echo = echo

    def is_reply(self, line: str) -> bool:
        """Return whether a command replies to a question."""
        matching = _commands(line.split(maxsplit=1)[0])
        return len(matching) == 1 and matching[0] in _REPLIES

    def execute(self, line: str) -> bool:
        """Execute a command; return whether to leave the conversation."""
        name, argument = [*line.split(maxsplit=1), ""][:2]
        if name in ("/quit", "/exit"):
            return True
        matching = _commands(name)
        if len(matching) == 1:
            try:
                getattr(self, f"_{matching[0][1:]}")(argument.strip())
            except ReynError as error:
                self._echo(f"  ! {error.code}: {error.message}. {error.hint}")
        else:
            self._echo(f"  ! unknown command {name}; /help lists them. Begin a message with a blank to send it.")
        return False

    def _help(self, _: str) -> None:
        for name, summary in CHAT_COMMANDS.items():
            self._echo(f"  {name:<12} {summary}")

    def _say(self, text: str) -> None:
        if fault := self._handler.say(text):
            self._echo(f"  ! not sent: {fault}")

    def _back(self, _: str) -> None:
        text = self._handler.take_back()
        self._echo(f"  taken back: {short(one_line(text), 100)}" if text else "  ! there is nothing to take back")

    def _stop(self, _: str) -> None:
        if self._conversation.is_busy:
            self._conversation.abort("stopped by the user")
        else:
            self._echo("  ! no reply is in progress")

    def _reply(self, text: str) -> None:
        if fault := self._handler.reply(text):
            self._echo(f"  ! not replied: {short(fault, 200)}")

    def _answer(self, argument: str) -> None:
        self._print_fault(self._handler.answer(argument))

    def _answer_named(self, name: str, text: str) -> None:
        self._print_fault(self._handler.reply_to(name, text))

    def _print_fault(self, fault: str) -> None:
        if fault:
            self._echo(f"  ! not replied: {short(fault, 200)}; /questions lists the open questions")

    def _approve(self, argument: str) -> None:
        name, _, rest = argument.partition(" ")
        if rest.strip() not in ("", "always"):
            self._echo("  ! use `/approve NUMBER`, or `/approve NUMBER always`")
            return
        self._answer_named(name, '{"decision": "approve", "always": true}' if rest else "approve")

    def _reject(self, argument: str) -> None:
        name, _, remark = argument.partition(" ")
        self._answer_named(name, f"reject {remark}")

    _deny = _reject

    def _edit(self, argument: str) -> None:
        name, _, edited = argument.partition(" ")
        asked = self._conversation.questions.named(name)
        runs = self._runtime.runs
        found = runs.open_question(runs.find(asked.run)) if asked is not None and not edited.strip() else None
        draft = runs.edit_draft(found) if found is not None else None
        if draft is None:
            self._answer_named(name, f"edit {edited}")
        else:
            [proposed] = (value for field, value in draft.items() if field != "decision")
            self._echo(f"  /edit {name} {printable(proposed)}")

    def _runs(self, _: str) -> None:
        rows = self._conversation.runs.rows() if self._is_recorded else []
        for row in rows:
            self._echo(f"  {row.run_id}  {row.skill}  {self._runtime.runs.display_status(row)}")
        if not rows:
            self._echo("  no runs in the background")

    def _cancel(self, run: str) -> None:
        runs = [row.run_id for row in self._conversation.runs.rows()] if self._is_recorded else []
        matching = [one for one in runs if one == run or one.endswith(f".{run}")]
        if len(matching) != 1:
            self._echo(f"  ! no run `{run}` in the background; /runs lists them")
            return
        self._runtime.cancel(matching[0], "cancelled in the conversation")

    def _skills(self, _: str) -> None:
        for line in self._view().skills:
            self._echo(f"  {short(line, 120)}")

    def _agents(self, _: str) -> None:
        for line in self._view().agents or ("none; `agents` in the agent's file names those that it can ask",):
            self._echo(f"  {short(line, 120)}")

    def _view(self) -> RouterView:
        return router_view(self._runtime, self._conversation.agent.name)

    def _pin(self, fact: str) -> None:
        if not self._is_recorded:
            self._echo("  ! say something first: the conversation begins with your first message")
            return
        self._runtime.conversations.remember(self._conversation.run_id, fact)
        self._echo("  pinned; /memory lists the pinned facts")

    def _unpin(self, entry: str) -> None:
        if not self._is_recorded:
            self._echo("  ! there are no pinned facts yet")
            return
        self._runtime.conversations.forget(self._conversation.run_id, entry)
        self._echo("  removed before the next reply")

    def _compact(self, _: str) -> None:
        if not self._is_recorded:
            self._echo("  ! there is nothing to summarise yet")
            return
        self._runtime.conversations.compact(self._conversation.run_id)
        size = self._runtime.runs.conversation_size(self._conversation.run_id)
        self._echo(f"  the {size.tokens:,} tokens of messages are summarised before the next reply")

    def _memory(self, _: str) -> None:
        memories = MemoryService(self._runtime.project.root).all()
        for memory in memories:
            self._echo(f"  {memory.path}: {short(memory.description or memory.error, 100)}")
        if self._is_recorded:
            for experience in self._runtime.runs.memory(self._conversation.run_id):
                self._echo(f"  {experience.id}: {short(experience.text, 100)}")

    def _usage(self, _: str) -> None:
        runs, run_id = self._runtime.runs, self._conversation.run_id
        spending = spending_of(runs, run_id)
        cost = f", {charge_text(spending.charge)}" if spending.charge.calls else ""
        self._echo(f"  {tokens_text(spending.usage)}{cost}")
        for status in spending.budgets:
            self._echo(f"  {budget_text(status)}")
        if not self._is_recorded:
            return
        size, past = runs.conversation_size(run_id), len(compactions(runs, run_id))
        times = f", summarised {counted(past, 'time')}" if past else ""
        self._echo(f"  messages: {size.tokens:,} of {size.max_tokens:,} tokens{times}")
        if size.pinned:
            self._echo(f"  pinned facts: {size.pinned:,} of {size.max_pinned:,} tokens")

    def _rename(self, title: str) -> None:
        if not self._is_recorded:
            self._echo("  ! the conversation begins with the first message; rename it after that")
            return
        self._conversation.rename(title)
        self._echo("  renamed" if title else "  title removed")

    def _questions(self, _: str) -> None:
        for question in self._conversation.questions:
            message = short(question.question.message, 200)
            self._echo(f"  {question.number}. {question.run} {question.question.id}: {message}")
        if not self._conversation.questions:
            self._echo("  no open questions")

    def _id(self, _: str) -> None:
        self._echo(f"  {self._conversation.run_id}")

    @property
    def _is_recorded(self) -> bool:
        return self._runtime.runs.is_recorded(self._conversation.run_id)


def _commands(name: str) -> list[str]:
    """Return the commands that begin with a name."""
    return [command for command in CHAT_COMMANDS if command.startswith(name)]
