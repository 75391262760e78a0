"""The commands that a user can type in a conversation: `/help`, `/runs`, `/cancel` and so on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.chat.services.budget_gateway import BudgetGateway
from reyn.chat.services.memory_service import MemoryService
from reyn.cli.output import clean, short
from reyn.errors import ReynError

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.chat import Conversation
    from reyn.runtime import OSRuntime

COMMANDS = {
    "/help": "list the commands",
    "/runs": "list the runs in the background",
    "/cancel": "RUN: cancel a run in the background",
    "/skills": "list the skills that the agent can run",
    "/memory": "list what the agent remembers",
    "/usage": "show the tokens of the conversation",
    "/rename": "TITLE: give the conversation a title",
    "/questions": "list the open questions",
    "/id": "show the id of the conversation",
    "/quit": "leave; the conversation can be continued",
}


class ChatCommands:
    """Executes the commands of one conversation."""

    def __init__(self, conversation: Conversation, runtime: OSRuntime, echo: Callable[[str], None]) -> None:
        self._conversation = conversation
        self._runtime = runtime
        self._echo = echo

    def execute(self, line: str) -> bool:
        """Execute a command; return whether to leave the conversation."""
        name, _, argument = line.strip().partition(" ")
        if name in ("/quit", "/exit"):
            return True
        found = [command for command in COMMANDS if command.startswith(name)]
        if name != "/" and len(found) == 1:
            try:
                getattr(self, f"_{found[0][1:]}")(argument.strip())
            except ReynError as error:
                self._echo(f"  ! {error.code}: {clean(error.message)}")
        else:
            self._echo(f"  ! unknown command {clean(name)}; /help lists them. Begin a message with a blank to send it.")
        return False

    def _help(self, _: str) -> None:
        for name, summary in COMMANDS.items():
            self._echo(f"  {name:<12} {summary}")

    def _runs(self, _: str) -> None:
        rows = self._conversation.runs.rows() if self._is_recorded else []
        for row in rows:
            self._echo(f"  {row.run_id}  {clean(row.skill)}  {self._runtime.display_status(row)}")
        if not rows:
            self._echo("  no runs in the background")

    def _cancel(self, run: str) -> None:
        runs = [row.run_id for row in self._conversation.runs.rows()] if self._is_recorded else []
        matching = [one for one in runs if one == run or one.endswith(f".{run}")]
        if len(matching) != 1:
            self._echo(f"  ! no run `{clean(run)}` in the background; /runs lists them")
            return
        self._conversation.runs.cancel(matching[0], "cancelled in the conversation")

    def _skills(self, _: str) -> None:
        from reyn.skills.catalogue import Catalogue

        for one in Catalogue(self._runtime.library, self._runtime.load):
            self._echo(f"  {one.name}: {short(one.description, 100)}")

    def _memory(self, _: str) -> None:
        memories = MemoryService(self._runtime.root).all()
        for one in memories:
            self._echo(f"  {one.path}: {short(one.description or one.error, 100)}")
        if self._is_recorded:
            for experience in self._runtime.memory(self._conversation.run_id):
                self._echo(f"  {experience.id}: {short(experience.text, 100)}")

    def _usage(self, _: str) -> None:
        if not self._is_recorded:
            self._echo("  0 tokens")
            return
        spending = BudgetGateway(self._runtime, self._conversation.run_id).spending()
        limit = "" if spending.limit is None else f" of {spending.limit:,}"
        self._echo(f"  {spending.usage.total:,}{limit} tokens")

    def _rename(self, title: str) -> None:
        if not self._is_recorded:
            self._echo("  ! the conversation begins with the first message; rename it after that")
            return
        self._conversation.rename(title)
        self._echo("  renamed" if title else "  title removed")

    def _questions(self, _: str) -> None:
        for question in self._conversation.questions:
            self._echo(f"  {question.run} {question.question.id}: {short(question.question.message, 200)}")

    def _id(self, _: str) -> None:
        self._echo(f"  {self._conversation.run_id}")

    @property
    def _is_recorded(self) -> bool:
        return self._runtime.is_recorded(self._conversation.run_id)
