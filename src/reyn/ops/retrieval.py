"""The ops of search indexes: `index_write`, `index_query`, `index_drop` and `embed`. `recall` searches an index, too.

What is indexed passes the gate as any file that is read, and so does each document that is found: an index shows no
skill what it may not read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from reyn.errors import DocumentUnreadable, IndexFault
from reyn.journal import digest
from reyn.ops.budget import OpBudgetExceeded, OpFailed
from reyn.ops.file.reading import is_folder, look_at
from reyn.ops.file.searching import TOO_LONG, Pattern, files_below
from reyn.ops.op import Call, Env, HoldsSecret, Plan, ProjectOp, Result, approval_of
from reyn.permissions import Denied, NeedsApproval, Verdict, refusal
from reyn.vocabulary.schemas import INTEGER, STRING, array, integer, path, single_form, text
from reyn.workspace import FileError, Guard, Location, decode_text, kind_of, locate

if TYPE_CHECKING:
    from reyn.retrieval import Found, Indexes, Passage, SearchResult, SourceDocument, WriteReport

INDEX_NAME = "^[a-z][a-z0-9_-]{0,63}$"
GIVEN = "given:"
"""Begins the path of a document that a run gave as texts: it is no file, does not pass for one, and names its skill."""
_INDEX = text(64, min_length=1, pattern=INDEX_NAME)
_MAX_VECTOR = 8_192
_MAX_SKIPPED = 50
_ANY = Pattern(("**", "*"))
FOUND = {
    "type": "object",
    "properties": {
        "path": STRING,
        "name": STRING,
        "score": {"type": "number"},
        "text": STRING,
        "passage": INTEGER,
        "line": INTEGER,
        "end_line": INTEGER,
    },
}
"""A passage in a result: its document, its headings, and where it is."""


def found_fields(result: SearchResult) -> dict[str, Any]:
    """Return the fields of a result for what a search found."""
    return {"found": list(map(_found, result.found)), "mode": result.mode} | (
        {"note": result.note} if result.note else {}
    )


def _found(one: Found) -> dict[str, Any]:
    fields = {
        "path": one.path,
        "name": one.passage.heading or one.path.rpartition("/")[2],
        "score": float(f"{one.score:.3g}"),
        "text": one.passage.text,
        "passage": one.number,
    }
    if one.passage.line:
        fields |= {"line": one.passage.line, "end_line": one.passage.end_line}
    return fields


def may_be_found(env: Env, approved: str = "") -> Callable[[str], bool]:
    """Return a function that says whether a run may read a document of an index."""

    def allows(document: str) -> bool:
        if document.startswith(GIVEN):
            return True
        location = locate(document, env.roots)
        # A path of a workspace is one of the run that searches, not of the run that wrote it.
        if location.zone != "project":
            return False
        return refusal(env.gate.read_listed(location), approved=approved) is None

    return allows


# -- index_write ----------------------------------------------------------------------------------------------


class IndexWriteOp(ProjectOp):
    """Brings an index up to date with files, or adds texts to it."""

    spec = single_form(
        "index_write",
        "Bring a search index up to date: with the documents below folders, or with texts.",
        "idempotent",
        {"index": _INDEX},
        {
            "paths": array(path(), 50),
            "chunks": array(
                {
                    "type": "object",
                    "properties": {"text": text(20_000, min_length=1), "source": text(400)},
                    "required": ["text"],
                },
                500,
            ),
            "mode": {"enum": ["append", "replace"], "default": "append"},
        },
        results={
            "index": STRING,
            "documents": INTEGER,
            "passages": INTEGER,
            "embedded": INTEGER,
            "unchanged": INTEGER,
            "removed": INTEGER,
            "tokens": INTEGER,
            "skipped": array(
                {"type": "object", "properties": {"path": STRING, "error": STRING}, "required": ["path", "error"]},
                _MAX_SKIPPED,
            ),
        },
        example={"index": "docs", "paths": ["docs"]},
        optional_permissions=("file.read", "index_drop"),
        advice="`mode: replace` also removes what others indexed, and needs the permission `index_drop`.",
        takes_time=True,
    )

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        args = self.spec.complete(call.args)
        if ("paths" in args) == ("chunks" in args):
            raise OpFailed("give either `paths` or `chunks`")
        if not all(chunk.get("source", "").isprintable() for chunk in args.get("chunks", ())):
            raise OpFailed("a `source` is a name: it has printable characters only")
        verdicts = _write_verdicts(args, env)
        if denied := next((one for one in verdicts if isinstance(one, Denied)), None):
            return denied
        asking = " and ".join(dict.fromkeys(one.rule for one in verdicts if isinstance(one, NeedsApproval)))
        return Plan("default: index what may be read", approval=asking or None)

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        args, indexes = self.spec.complete(call.args), self.project.indexes
        name, replaces = args["index"], args["mode"] == "replace"
        for verdict in _write_verdicts(args, env):
            if refused := refusal(verdict, approved=plan.approved):
                return call.denied(refused)
        if "chunks" in args:
            # The documents of files stay: to remove them all, whatever the run may read, is `index_drop`.
            documents = _given(args["chunks"], env.gate.skill)
            report = await indexes.write(name, _each(documents), lambda one: replaces and one.startswith(GIVEN))
            return call.ok(**_report_fields(name, report))
        bases = _locations(args, env)
        try:
            report = await write_files(indexes, name, bases, env, replaces=replaces, approved=plan.approved)
        except TimeoutError:
            return call.timeout(TOO_LONG)
        return call.ok(**_report_fields(name, report))


def _write_verdicts(args: dict[str, Any], env: Env) -> list[Verdict]:
    """Return the verdicts on what a write reads, and on what it removes besides that."""
    verdicts = [env.gate.search(location) for location in _locations(args, env)]
    if args["mode"] == "replace":
        verdicts.append(env.gate.capability("index_drop", args["index"]))
    return verdicts


async def write_files(
    indexes: Indexes, name: str, bases: list[Location], env: Env, *, replaces: bool = False, approved: str = ""
) -> WriteReport:
    """Bring an index up to date with the documents below folders that may be read.

    Args:
        indexes: The indexes.
        name: The index.
        bases: The folders and documents.
        env: What may be read, and how much of it.
        replaces: Whether the index keeps no other documents.
        approved: The rules for which a person has approved the reading.

    Raises:
        TimeoutError: There are too many files.
        DocumentUnreadable: Only one document was to be indexed, and it cannot be; or a name is that of nothing, or of
            a file that is not the project's.
    """
    if own := next((base for base in bases if base.zone != "project"), None):
        reason = "other runs search an index, too, and this path is of one run: give its texts as `chunks`"
        raise DocumentUnreadable(f"`{own.display_path}` cannot be indexed: {reason}")
    files = DocumentFiles(bases, env)
    await files.find()
    allows = may_be_found(env, approved)

    def is_gone(document: str) -> bool:
        """Whether a document that is no longer there is removed: one that the run may read, so that it knows."""
        return not document.startswith(GIVEN) and (replaces or files.covers(document)) and allows(document)

    report = await indexes.write(name, files.documents(), is_gone)
    skipped = (*files.skipped, *report.skipped)
    if files.is_one and skipped:
        raise DocumentUnreadable(skipped[0][1].removeprefix(f"{DocumentUnreadable.code}: "))
    return replace(report, skipped=skipped)


def _report_fields(name: str, report: WriteReport) -> dict[str, Any]:
    left = [{"path": one, "error": error} for one, error in report.skipped]
    fields = {
        "index": name,
        "documents": report.documents,
        "passages": report.passages,
        "embedded": report.embedded,
        "unchanged": report.unchanged,
        "removed": report.removed,
        "tokens": report.tokens,
    }
    more = {"note": f"and {len(left) - _MAX_SKIPPED} more were skipped"} if len(left) > _MAX_SKIPPED else {}
    return fields | ({"skipped": left[:_MAX_SKIPPED]} if left else {}) | more


def _locations(args: dict[str, Any], env: Env) -> list[Location]:
    return [locate(one, env.roots) for one in args.get("paths", ())]


async def _each(documents: Iterable[SourceDocument]) -> AsyncIterator[SourceDocument]:
    for document in documents:
        yield document


def _given(chunks: list[dict[str, str]], skill: str) -> list[SourceDocument]:
    """Return texts as documents: one of all texts that a skill gives for a source."""
    from reyn.retrieval import Passage, SourceDocument

    by_source: dict[str, list[str]] = {}
    for chunk in chunks:
        source = chunk.get("source", "")
        by_source.setdefault(f"{GIVEN}{skill}{f'/{source}' if source else ''}", []).append(chunk["text"])

    def reader(texts: list[str]) -> Callable[[], Any]:
        async def read() -> list[Passage]:
            return [Passage(one) for one in texts]

        return read

    return [
        SourceDocument(source, digest("\0".join(texts).encode("utf-8", "replace")), reader(texts))
        for source, texts in by_source.items()
    ]


class DocumentFiles:
    """The documents below folders, each read through the gate when its turn comes."""

    def __init__(self, bases: list[Location], env: Env) -> None:
        self._bases = bases
        self._env = env
        self._guard = Guard(env.roots)
        self._found: dict[str, Location] = {}
        self.skipped: list[tuple[str, str]] = []
        self.is_one = len(bases) == 1 and not is_folder(bases[0], env)

    async def find(self) -> None:
        """Look for the documents. Raises `TimeoutError` if there are too many files."""
        import asyncio

        await asyncio.to_thread(self._find)

    def _find(self) -> None:
        from reyn.retrieval import is_document

        with self._env.budget.search() as deadline:
            for base in self._bases:
                if not is_folder(base, self._env):
                    if kind_of(base, self._env.roots) is None:
                        raise DocumentUnreadable(
                            f"there is no file or folder `{base.display_path}`", hint="Name one of the project."
                        )
                    self._found[base.display_path] = base
                    continue
                for one in files_below(base, _ANY, self._env, deadline, self._guard):
                    if is_document(one.display_path):
                        self._found[one.display_path] = one

    def covers(self, document: str) -> bool:
        """Return whether a document is at or below one of the folders."""
        prefixes = (base.display_path.rstrip("/") for base in self._bases)
        return any(one in ("", ".", document) or document.startswith(f"{one}/") for one in prefixes)

    async def documents(self) -> AsyncIterator[SourceDocument]:
        """Yield the documents that can be read; the others are in `skipped`."""
        import asyncio

        from reyn.retrieval import SourceDocument

        for name, location in sorted(self._found.items()):
            try:
                content = await asyncio.to_thread(self._content, location)
            except OpBudgetExceeded:
                raise
            except (FileError, DocumentUnreadable, OpFailed) as error:
                self.skipped.append((name, _reason(error)))
                continue
            yield SourceDocument(name, digest(content), self._reader(name, location, content))

    def _content(self, location: Location) -> bytes:
        name = location.display_path
        if name.startswith(GIVEN):
            raise DocumentUnreadable(f"`{name}` has the name of a text that a run gave")
        image, _ = look_at(location, self._env, self._guard)
        if image is None:
            raise DocumentUnreadable(f"there is no file `{name}`")
        if not image.content.strip():
            raise DocumentUnreadable(f"`{name}` is empty")
        return image.content

    def _reader(self, name: str, location: Location, content: bytes) -> Callable[[], Any]:
        async def read() -> list[Passage]:
            import asyncio

            from reyn.retrieval import convert_html, is_html, read_passages

            try:
                text = decode_text(content, location)
            except FileError as error:
                raise DocumentUnreadable(str(error)) from error
            if is_html(name):
                text = await convert_html(text, name)
            found = await asyncio.to_thread(read_passages, text, name)
            if not found:
                raise DocumentUnreadable(f"`{name}` has no text")
            return found

        return read


def _reason(error: Exception) -> str:
    if isinstance(error, IndexFault):
        return f"{error.code}: {error.message}"
    if isinstance(error, HoldsSecret):
        return str(error)
    return f"{DocumentUnreadable.code}: {error}"


# -- index_query, index_drop, embed ---------------------------------------------------------------------------


class IndexQueryOp(ProjectOp):
    """Finds the passages whose vectors are most similar to a vector. `recall` takes a question instead."""

    spec = single_form(
        "index_query",
        "Find the passages of a search index that are most similar to a vector of `embed`.",
        "pure",
        {"index": _INDEX, "query_vector": array({"type": "number"}, _MAX_VECTOR)},
        {"top_k": integer(1, 50, default=5)},
        results={"found": array(FOUND, 50), "mode": STRING},
        example={"index": "docs", "query_vector": [0.6, 0.8]},
        takes_time=True,
    )

    def plan(self, call: Call, env: Env) -> Plan:
        return Plan("default: search what may be read")

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        args = self.spec.complete(call.args)
        result = await self.project.indexes.search_vector(
            args["index"], args["query_vector"], args["top_k"], may_be_found(env)
        )
        return call.ok(**found_fields(result))


class IndexDropOp(ProjectOp):
    """Removes an index."""

    spec = single_form(
        "index_drop",
        "Remove a search index with all its passages.",
        "idempotent",
        {"index": _INDEX},
        results={"index": STRING, "removed": INTEGER},
        example={"index": "docs"},
        permission="index_drop",
    )

    def target(self, call: Call) -> str:
        return str(call.args["index"])

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        return Plan(approval=approval_of(env.gate.capability("index_drop", self.target(call))))

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        import asyncio

        name = call.args["index"]
        removed = await asyncio.to_thread(self.project.indexes.drop, name)
        return call.ok(index=name, removed=removed)


class EmbedOp(ProjectOp):
    """Returns the vectors of texts."""

    spec = single_form(
        "embed",
        "Compute the vectors of texts with the embedder of the project.",
        "idempotent",
        {"texts": array(text(20_000), 200)},
        results={
            "vectors": array(array({"type": "number"}, _MAX_VECTOR), 200),
            "model": STRING,
            "total_tokens": INTEGER,
        },
        example={"texts": ["How do I get my money back?"]},
        takes_time=True,
    )

    def plan(self, call: Call, env: Env) -> Plan:
        return Plan("default: embed with the embedder of the project")

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        embedder = self.project.indexes.embedders.current
        if embedder is None:
            raise OpFailed("the project has no embedder: `retrieval.embedder` is `none`")
        made = await embedder.embed(call.args["texts"])
        vectors = [[float(f"{number:.5g}") for number in row] for row in made.vectors.tolist()]
        return call.ok(vectors=vectors, model=embedder.name, total_tokens=made.tokens)
