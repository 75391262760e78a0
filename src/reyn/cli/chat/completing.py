"""Complete commands, names of skills and agents, and files at the prompt of `reyn chat`."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from prompt_toolkit.completion import Completer, Completion

from reyn.errors import ReynError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    from reyn.runtime import OSRuntime

_MAX_ENTRIES = 200


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
