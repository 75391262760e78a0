"""The ops of memory: `remember`, `forget` and `recall`, in the conversation or in files, and `compact` the transcript.

What a conversation remembers is part of the run's state: the op requests the change, and the kernel records it. What an
agent remembers beyond a conversation is a file: the op plans its change, as any op that writes one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

from msgspec.structs import replace

from reyn.journal.kinds import MemoryRequest
from reyn.ops.budget import Deadline, OpFailed
from reyn.ops.file.op import plan_file, plan_write
from reyn.ops.file.reading import is_readable_below, text_at
from reyn.ops.file.searching import TOO_LONG, Pattern, files_below
from reyn.ops.memory_files import (
    MAX_MEMORY_DESCRIPTION,
    MEMORY_RANKING,
    SLUG,
    MemoryFile,
    format_memory,
    memory_path,
    memory_scope_of,
    read_memories,
    read_memory,
    search_memories,
)
from reyn.ops.op import Call, Env, MemoryOutcome, OpSetup, Plan, ProjectOp, RecordedChanges, Result
from reyn.ops.overviews import MAX_LISTING_AGE, Overview, fitting
from reyn.ops.retrieval import FOUND, INDEX_NAME, found_fields, may_be_found
from reyn.permissions import Denied, NeedsApproval, refusal
from reyn.permissions.owners import SHARED, any_memory
from reyn.ranking import best_matches
from reyn.skills.agents import agent_of
from reyn.vocabulary.schemas import STRING, array, integer, single_form, text
from reyn.workspace import FileError, Guard, Location, locate

MAX_EXPERIENCE_CHARS = 2_000
MAX_INDEX_CHARS = 4_000
"""The size of the list of memories in a prompt, about 1,000 tokens."""
_MAX_RANKED = MAX_INDEX_CHARS // 10
"""Not more lines fit into the list."""
_MAX_FILES = 2_000
_MAX_SEARCHED = 20_000_000
"""The characters of all files that one op ranks: their index is in memory."""
_MAX_SHOWN = 2_000
_CONVERSATION = "default: change the memory of the conversation"
_NAME = {"type": "string", "pattern": SLUG, "maxLength": 64, "description": "lower case words joined by `-`"}
_SHARED = {"type": "boolean", "default": False, "description": "true: for all agents"}


def _memories(env: Env, scopes: Sequence[str], max_age: float = 0) -> tuple[MemoryFile, ...]:
    """Return the memories of scopes that the run may read, or that a person has approved.

    Files for which a rule denies or asks are left out, unless that rule asks about their whole scope.

    Args:
        env: What the op may use.
        scopes: The scopes.
        max_age: As `read_memories`.
    """
    memories = read_memories(env.roots.project, scopes, max_age)
    if not env.gate.policy.rules or not env.gate.policy.has_restrictions("file.read"):
        return memories
    are_readable = {scope: is_readable_below(any_memory(scope), env) for scope in scopes}
    located = ((one, Location.at("project", tuple(one.path.split("/")))) for one in memories)
    return tuple(one for one, location in located if are_readable[one.scope](location))


class _MemoryOp:
    """Base of an op whose change of the conversation's memory the kernel records."""

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        outcome: MemoryOutcome = plan.answer
        if outcome.error:
            return call.error(outcome.error)
        return call.ok(id=outcome.id) if outcome.id else call.ok()


class RememberOp(_MemoryOp):
    """Remembers a text: without `name` for the rest of the conversation, with one in a file."""

    spec = single_form(
        "remember",
        "Remember a text: for the rest of the conversation, or, with a name, also in later ones.",
        "idempotent",
        {"text": text(MAX_EXPERIENCE_CHARS, min_length=1)},
        {"name": _NAME, "description": text(MAX_MEMORY_DESCRIPTION), "shared": _SHARED},
        results={"id": STRING, "path": STRING},
        example={"text": "The user prefers short answers."},
        optional_permissions=("memory",),
        is_step=False,
        is_for_conversations=True,
    )

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        args = call.args
        if "name" not in args:
            return Plan(_CONVERSATION, request=MemoryRequest("remember", args["text"]))
        scope = SHARED if args.get("shared") else agent_of(env.gate.skill) or SHARED
        memory = MemoryFile(args["name"], scope, _summary(args), args["text"], call.key)
        return plan_write(call, env, memory.path, format_memory(memory), id=memory.name, path=memory.path)

    def changes_error(self, call: Call, recorded: RecordedChanges) -> str:
        """Return why recorded changes are not those of this call; the scope of the memory is part of the path."""
        name = call.args.get("name")
        if name is None:
            return "it changes the memory of the conversation, and no files" if recorded.changes else ""
        for change in recorded.changes:
            scope = memory_scope_of(change.path, name)
            if scope is None or change.after is None:
                return f"it does not change `{change.path}`"
            written = recorded.content(change.after).decode(errors="replace")
            step = call.key.rpartition("/")[2]
            # The run in the source is that of a fork's origin, if the fork inherited the change.
            source = next((line[8:] for line in written.split("\n") if line.startswith("source: ")), "").strip("'\"")
            memory = MemoryFile(name, scope, _summary(call.args), call.args["text"], source)
            if source.rpartition("/")[2] != step or format_memory(memory) != written:
                return f"it writes something else to `{change.path}`"
        return "" if len(recorded.changes) < 2 else "it changes one file"


def _summary(args: dict[str, Any]) -> str:
    """Return what a memory is about, in one line."""
    return " ".join(str(args.get("description") or args["text"]).split())[:MAX_MEMORY_DESCRIPTION]


def _is_memory(env: Env, name: str, scope: str) -> bool:
    """Return whether there is a memory of a name. One that may not be read is not looked for."""
    is_denied = isinstance(env.gate.read(any_memory(scope)), Denied)
    return not is_denied and read_memory(env.roots.project, name, scope) is not None


class ForgetOp(_MemoryOp):
    """Forgets what the conversation remembers, by its id, or a memory in a file, by its name."""

    spec = single_form(
        "forget",
        "Forget something that is remembered, by its id or name.",
        "idempotent",
        {"id": text(64, min_length=1)},
        {"shared": _SHARED},
        results={"id": STRING, "path": STRING},
        example={"id": "exp_1"},
        optional_permissions=("memory",),
        is_step=False,
        is_for_conversations=True,
    )

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        name = call.args["id"]
        scopes = (SHARED,) if call.args.get("shared") else env.gate.memory_scopes
        scope = next((one for one in scopes if _is_memory(env, name, one)), None)
        if scope is None:
            return Plan(_CONVERSATION, request=MemoryRequest("forget", name))
        path = memory_path(name, scope)
        return plan_file(call, env, {"op": "delete", "path": path}, id=name, path=path)

    def changes_error(self, call: Call, recorded: RecordedChanges) -> str:
        """Return why recorded changes are not those of this call."""
        for change in recorded.changes:
            if memory_scope_of(change.path, call.args["id"]) is None or change.after is not None:
                return f"it does not change `{change.path}`"
        return "" if len(recorded.changes) < 2 else "it changes one file"


class CompactOp(_MemoryOp):
    """Asks for a compaction of the transcript before the next turn."""

    spec = single_form(
        "compact",
        "Replace older messages of the conversation by a summary.",
        "idempotent",
        {},
        results={"id": STRING},
        example={},
        is_step=False,
        is_for_conversations=True,
    )

    def plan(self, call: Call, env: Env) -> Plan:
        return Plan(_CONVERSATION, request=MemoryRequest("compact", ""))


# -- recall ---------------------------------------------------------------------------------------------------

_ANY = Pattern(("**", "*"))
_SUFFIXES = (".md", ".txt", ".rst")


class RecallOp(ProjectOp):
    """Ranks memories and text files by BM25, and the passages of an index also by vectors. It reads, and finds, what
    the gate allows to read."""

    spec = single_form(
        "recall",
        "Search what is remembered, and text files in folders, or a search index, for what matches a question.",
        "pure",
        {"query": text(1_000, min_length=1)},
        {
            "folders": array(text(400, min_length=1), 10),
            "limit": integer(1, 20, default=5),
            "index": text(64, min_length=1, pattern=INDEX_NAME),
        },
        results={"found": array(FOUND, 20), "mode": STRING},
        example={"query": "what the user likes"},
        optional_permissions=("file.read", "memory"),
        has_overview=True,
    )

    def __init__(self, setup: OpSetup | None = None) -> None:
        super().__init__(setup)
        self._listed: tuple[tuple[MemoryFile, ...], list[str], int] | None = None

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        args = self.spec.complete(call.args)
        if "index" in args:
            if "folders" in args:
                raise OpFailed("give either `index` or `folders`")
            return Plan("default: search what may be read")
        bases, scopes = [locate(folder, env.roots) for folder in args.get("folders", ())], env.gate.memory_scopes
        verdicts = [*map(env.gate.search, bases), *(env.gate.read(any_memory(scope)) for scope in scopes)]
        denied = [verdict for verdict in verdicts if isinstance(verdict, Denied)]
        if denied and (len(denied) == len(verdicts) or any(one in denied for one in verdicts[: len(bases)])):
            return denied[0]
        asking = " and ".join(dict.fromkeys(one.rule for one in verdicts if isinstance(one, NeedsApproval)))
        plan = Plan("default: search what may be read", approval=asking or None)
        return plan if bases else replace(plan, result=call.ok(found=_remembered(args, env, asking)))

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        """Search files, and what is remembered, in a thread: other runs go on meanwhile."""
        import asyncio

        args = self.spec.complete(call.args)
        if "index" in args:
            allows = may_be_found(env, plan.approved)
            found_there = await self.project.indexes.search(args["index"], args["query"], args["limit"], allows)
            return call.ok(**found_fields(found_there))
        bases = {base.display_path: base for base in (locate(folder, env.roots) for folder in args["folders"])}
        for base in bases.values():
            if refused := refusal(env.gate.search(base), approved=plan.approved):
                return call.denied(refused)
        remembered = _remembered(args, env, plan.approved)
        try:
            found = await asyncio.to_thread(_search_files, args, list(bases.values()), env)
        except TimeoutError:
            return call.timeout(TOO_LONG)
        best = sorted(remembered + found, key=lambda one: one["score"], reverse=True)
        return call.ok(found=best[: args["limit"]])

    def _lines(self, memories: tuple[MemoryFile, ...]) -> tuple[list[str], int]:
        """Return a line for each memory, and their size. They are the same as long as the memories are."""
        if self._listed is None or self._listed[0] is not memories:
            lines = [
                f"{memory.name} ({memory.scope}): {memory.description or memory.error}"[:300] for memory in memories
            ]
            self._listed = (memories, lines, sum(map(len, lines)))
        return self._listed[1:]

    def overview(self, query: str, env: Env) -> Overview:
        """List the memories by name; if they do not all fit, those that match the message, then the latest."""
        memories = _memories(env, env.gate.readable_memories, MAX_LISTING_AGE)
        lines, total = self._lines(memories)
        order: Iterable[int] = range(len(memories))
        if total > MAX_INDEX_CHARS:
            best = MEMORY_RANKING.best_matches(query, memories, _MAX_RANKED, only_telling=True)
            ranked = dict.fromkeys(number for number, _ in best)
            order = chain(ranked, (number for number in range(len(memories)) if number not in ranked))
        shown = [lines[number] for number in fitting(lines, order, MAX_INDEX_CHARS)]
        if left := len(memories) - len(shown):
            shown.append(f"and {left} more; search them with `recall`")
        return Overview("Memories", tuple(shown))


def _remembered(args: dict[str, Any], env: Env, approved: str) -> list[dict[str, Any]]:
    """Return the memories that match best."""
    scopes = env.gate.memory_scopes
    seen = [scope for scope in scopes if refusal(env.gate.read(any_memory(scope)), approved=approved) is None]
    memories = [memory for memory in _memories(env, seen) if not memory.error]
    best = search_memories(args["query"], memories, args["limit"])
    return [_match(one.path, one.name, score, one.text) for one, score in best]


def _search_files(args: dict[str, Any], folders: list[Location], env: Env) -> list[dict[str, Any]]:
    """Return the best matching passages of files. Raises `TimeoutError` at the deadline of a search."""
    query = args["query"]
    with env.budget.search() as deadline:
        files = list(_files(folders, env, deadline).items())
        texts = [f"{path} {content}" for path, content in files]
        found = []
        for number, score in best_matches(query, texts, args["limit"], deadline.remaining):
            path, content = files[number]
            found.append(_match(path, path.rpartition("/")[2], score, _passage(content, query, deadline)))
        return found


def _files(folders: list[Location], env: Env, deadline: Deadline) -> dict[str, str]:
    """Return the texts of the text files below folders that may be read, by their paths."""
    texts: dict[str, str] = {}
    size, guard = 0, Guard(env.roots)
    for location in chain.from_iterable(files_below(base, _ANY, env, deadline, guard) for base in folders):
        path = location.display_path
        if path in texts or not path.endswith(_SUFFIXES):
            continue
        with suppress(FileError):  # one that is too large or no text
            texts[path] = text_at(location, env, guard) or ""
            size += len(texts[path])
        if size > _MAX_SEARCHED:
            raise OpFailed(f"the folders have more than {_MAX_SEARCHED} characters of text; give narrower ones")
        if len(texts) >= _MAX_FILES:
            break
    return texts


def _match(path: str, name: str, score: float, text: str) -> dict[str, Any]:
    return {"path": path, "name": name, "score": float(f"{score:.3g}"), "text": text[:_MAX_SHOWN]}


def _passage(content: str, query: str, deadline: Deadline) -> str:
    """Return the part of a text that matches a query best. Of many parts, the best group of them is found first."""
    parts = [part for part in content.split("\n\n") if part.strip()]
    while True:
        size = -(-len(parts) // _MAX_FILES) or 1
        groups = ["\n\n".join(parts[start : start + size]) for start in range(0, len(parts), size)]
        best = best_matches(query, groups, 1, deadline.remaining)
        if not best:
            return content
        [(number, _)] = best
        if size == 1:
            return groups[number]
        parts = parts[number * size : (number + 1) * size]
