"""The op `recall`: search the memories of the agent, and files of the project, for what matches a question best."""

from __future__ import annotations

from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

from reyn.ops.budget import OpFailed
from reyn.ops.file.finding import files_below
from reyn.ops.file.patterns import Pattern
from reyn.ops.file.reading import text_at
from reyn.ops.memory import scopes_of
from reyn.ops.memory_files import MEMORY_RANKING, read_memories, search_memories
from reyn.ops.op import Complete, Overview
from reyn.permissions import Denied, refusal
from reyn.ranking import best_matches
from reyn.vocabulary import OpForm, OpSpec
from reyn.vocabulary.schemas import arguments, array, result, text
from reyn.workspace import FileError, Guard, PathInvalid, locate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reyn.ops.memory_files import Memory
    from reyn.ops.op import Call, Env, Result

MAX_INDEX_CHARS = 4_000
"""The size of the list of memories in a prompt, about 1,000 tokens."""
_MAX_RANKED = MAX_INDEX_CHARS // 10
"""Not more lines fit into the list."""
_MAX_FILES = 2_000
_MAX_SHOWN = 2_000
_ANY = Pattern(("**", "*"))
_SUFFIXES = (".md", ".txt", ".rst")
_FORM = OpForm(
    op=None,
    summary="Search what is remembered, and text files in folders, for what matches a question.",
    arguments=arguments(
        "recall",
        None,
        {"query": text(1_000, min_length=1)},
        optional={
            "folders": array(text(400, min_length=1), 10),
            "limit": {"type": "integer", "minimum": 1, "maximum": 20, "default": 5},
        },
    ),
    effect="pure",
    result=result(
        "recall",
        None,
        {
            "found": array(
                {
                    "type": "object",
                    "properties": {
                        "path": {"type": "string"},
                        "name": {"type": "string"},
                        "score": {"type": "number"},
                        "text": {"type": "string"},
                    },
                },
                20,
            )
        },
    ),
    example={"kind": "recall", "query": "what the user likes"},
)


class RecallOp:
    """Ranks memories and text files by BM25. It reads what the gate allows to read."""

    spec = OpSpec("recall", _FORM.summary, "pure", forms=(_FORM,), has_overview=True)

    def __init__(self) -> None:
        self._listed: tuple[tuple[Memory, ...], list[str], int] | None = None

    def plan(self, call: Call, env: Env) -> Complete | Denied:
        return Complete("default: search what may be read", result=self._found(call, env))

    def _found(self, call: Call, env: Env) -> Result:
        query, limit = call.args["query"], call.args.get("limit", 5)
        memories = [memory for memory in read_memories(env.roots.project, scopes_of(env)) if not memory.error]
        found: list[dict[str, Any]] = [
            {"path": one.path, "name": one.name, "score": round(score, 3), "text": one.text[:_MAX_SHOWN]}
            for one, score in search_memories(query, memories, limit)
        ]
        if folders := call.args.get("folders"):
            files = self._files(folders, env)
            texts = [f"{path} {content}" for path, content in files]
            found += [
                {
                    "path": files[number][0],
                    "name": files[number][0].rpartition("/")[2],
                    "score": round(score, 3),
                    "text": _passage(files[number][1], query),
                }
                for number, score in best_matches(query, texts, limit)
            ]
        found.sort(key=lambda one: one["score"], reverse=True)
        return call.ok(found=found[:limit])

    def _files(self, folders: list[str], env: Env) -> list[tuple[str, str]]:
        """Return path and text of the text files below folders that may be read."""
        found: list[tuple[str, str]] = []
        guard = Guard(env.roots)
        with env.budget.search() as deadline:
            for folder in folders:
                try:
                    base = locate(folder, env.roots)
                except PathInvalid as error:
                    raise OpFailed(str(error)) from error
                if (refused := refusal(env.gate.read(base))) is not None:
                    raise OpFailed(refused.reason)
                for location in files_below(base, _ANY, env, deadline, guard):
                    if not location.parts[-1].endswith(_SUFFIXES):
                        continue
                    with suppress(FileError):  # one that is too large or no text
                        found.append((location.display_path, text_at(location, env, guard) or ""))
                    if len(found) >= _MAX_FILES:
                        return found
        return found

    def _lines(self, memories: tuple[Memory, ...]) -> tuple[list[str], int]:
        """Return a line for each memory, and their size. They are the same as long as the memories are."""
        if self._listed is None or self._listed[0] != memories:
            lines = [
                f"{memory.name} ({memory.scope}): {memory.description or memory.error}"[:300] for memory in memories
            ]
            self._listed = (memories, lines, sum(map(len, lines)))
        return self._listed[1:]

    def overview(self, query: str, env: Env) -> Overview:
        """List the memories by name; if they do not all fit, those that match the message, then the latest."""
        memories = read_memories(env.roots.project, scopes_of(env))
        lines, total = self._lines(memories)
        order: Iterable[int] = range(len(memories))
        if total > MAX_INDEX_CHARS:
            ranked = dict.fromkeys(number for number, _ in MEMORY_RANKING.best_matches(query, memories, _MAX_RANKED))
            order = chain(ranked, (number for number in range(len(memories)) if number not in ranked))
        shown: list[str] = []
        size = 0
        for number in order:
            size += len(lines[number])
            if size > MAX_INDEX_CHARS:
                shown.append(f"and {len(memories) - len(shown)} more; search them with `recall`")
                break
            shown.append(lines[number])
        return Overview("Memories", tuple(shown))


def _passage(content: str, query: str) -> str:
    """Return the part of a text that matches a query best."""
    parts = [part for part in content.split("\n\n") if part.strip()]
    best = best_matches(query, parts, 1)
    return (parts[best[0][0]] if best else content)[:_MAX_SHOWN]
