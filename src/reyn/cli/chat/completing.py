"""Complete commands, names of skills, and files at the prompt of `reyn chat`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prompt_toolkit.completion import Completer, Completion

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document

    from reyn.runtime import OSRuntime

_MAX_ENTRIES = 200


class ChatCompleter(Completer):
    """Completes the word before the cursor: `/command` at the beginning, a path with a slash, else a skill."""

    def __init__(self, runtime: OSRuntime, commands: Iterable[str]) -> None:
        self._runtime = runtime
        self._commands = tuple(commands)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        word = document.get_word_before_cursor(WORD=True)
        if document.text_before_cursor.startswith("/") and " " not in document.text_before_cursor:
            names: Iterable[str] = self._commands
        elif "/" in word:
            names = self._files(word)
        else:
            names = [name for name, _, _ in self._runtime.library] if word else ()
        for name in names:
            if name.startswith(word):
                yield Completion(name, start_position=-len(word))

    def _files(self, word: str) -> list[str]:
        """Return the entries of the project's folder that a word begins to name."""
        folder, _, _ = word.rpartition("/")
        base = (self._runtime.root / folder).resolve()
        if not base.is_relative_to(self._runtime.root) or not base.is_dir():
            return []
        entries = sorted(entry for entry in base.iterdir() if not entry.name.startswith("."))[:_MAX_ENTRIES]
        return [f"{folder}/{entry.name}{'/' if entry.is_dir() else ''}" for entry in entries]
