"""Import runs from an archive: check everything, then store all runs in one transaction.

The author of an archive chose every byte of it, so nothing in it is trusted. Each run must stay
readable: known events in an order that a run produces, paths that an op can write, content of the right shape. A
sub-run must be the one that its parent started. Imported runs are marked outside of their events, and are never
executed: `fork` and `rerun` continue them as new runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.config import RunSettings
from reyn.documents import JsonError, check_values
from reyn.errors import ArchiveInvalid, ArchiveTooLarge, JournalError, ReynError, RunIdTaken
from reyn.journal import Batch, Body, Event, Journal, MemoryJournal, check_json, decode, kinds
from reyn.journal.port import MAX_TS, is_run_id
from reyn.journal.registry import content_hashes
from reyn.jsonschema import compile_schema
from reyn.kernel.core.run_state import EMPTY
from reyn.kernel.versions import SUPPORTED_RULES
from reyn.kernel.world.loading import unpin_ops
from reyn.kernel.world.run_scope import call_name
from reyn.models.thoughts import decode_thoughts
from reyn.runs.reader import read_run
from reyn.skills import check_pinned, unpin
from reyn.workspace.paths import is_recorded_path

if TYPE_CHECKING:
    from reyn.kernel.core.snapshot import RunState
    from reyn.runs.archive import Archive, ImportLimits


class ImportReport(msgspec.Struct, frozen=True):
    """The runs that were imported, and those that existed already and are identical."""

    imported: tuple[str, ...]
    known: tuple[str, ...]


class CheckedArchive(NamedTuple):
    """An archive whose runs are valid.

    Attributes:
        runs: The runs, in the order of the archive.
        batches: The events and contents of each run, after those of its parent and of the run that it was forked from.
        parents: The parents of sub-runs, by run.
    """

    runs: list[str]
    batches: dict[str, Batch]
    parents: dict[str, str]


def check_archive(archive: Archive, limits: ImportLimits) -> CheckedArchive:
    """Check every run of an archive.

    Raises:
        ArchiveTooLarge: Checking the runs would take too long.
        ArchiveInvalid: A run cannot be one of Reyn's, or misses content or a run that it needs.
    """
    inherited = sum(events[-1].seq for events in archive.events.values())
    if inherited > limits.events:
        raise ArchiveTooLarge(f"the runs have more than {limits.events:,} events, those of their origins included")
    order: dict[str, Body] = {}
    for run in archive.runs:
        _add_in_order(run, archive, order, [])
    batches = {run: _batch(run, opening, archive) for run, opening in order.items()}
    staged = MemoryJournal()
    try:
        staged.import_runs(list(batches.values()), "")
    except JournalError as error:
        raise ArchiveInvalid(error.message) from error
    checks = _Checks(staged, archive)
    for run, opening in order.items():
        checks.check(run, opening)
    return CheckedArchive(archive.runs, batches, checks.parents)


def _add_in_order(run: str, archive: Archive, order: dict[str, Body], above: list[str]) -> None:
    """Add a run and its first event, after the runs that it needs."""
    if run in order:
        return
    if run in above or len(above) > _MAX_ORIGINS:
        raise ArchiveInvalid(f"run `{run}` needs itself, or too many other runs")
    opening = _decode(archive.events[run][0])
    if not isinstance(opening, kinds.RunStarted | kinds.RunForked) or opening.run_id != run:
        raise ArchiveInvalid(f"`{run[:200]}` is not a valid run id, or its first event names another run")
    needed, relation = "", "is a sub-run of"
    if isinstance(opening, kinds.RunForked):
        needed, relation = opening.point.run, "was forked from"
    elif (parent := _parent_of(opening, archive)) is not None:
        needed = parent.run
    if needed and needed not in archive.events:
        raise ArchiveInvalid(
            f"run `{run}` {relation} `{needed[:200]}`, which the archive does not contain",
            hint="Export the run with its whole family.",
        )
    if needed:
        _add_in_order(needed, archive, order, [*above, run])
    order[run] = opening


def _decode(event: Event) -> Body:
    try:
        return decode(event)
    except JournalError as error:
        raise ArchiveInvalid(f"run `{event.run_id[:200]}`: {error.message}") from error


def _parent_of(opening: Body, archive: Archive) -> kinds.ParentRef | None:
    """Return the parent of a sub-run.

    A background run is a run of its own; its archive need not contain the conversation that started it.
    """
    parent = opening.parent if isinstance(opening, kinds.RunStarted) else None
    return None if parent is None or (parent.background and parent.run not in archive.events) else parent


def _batch(run: str, opening: Body, archive: Archive) -> Batch:
    """Return what the journal stores of a run."""
    events, last = archive.events[run], 0
    needed: set[str] = set()
    for event in events:
        if event.ts < last:
            raise ArchiveInvalid(f"run `{run}`, event {event.seq} has the impossible time {event.ts}")
        last = event.ts
        needed.update(content_hashes(_decode(event)))
    missing = next((name for name in needed if name not in archive.blobs), None)
    if missing is not None:
        what = f"content `{missing[:12]}…`, which the archive does not contain"
        raise ArchiveInvalid(f"run `{run}` refers to {what}")
    before = opening.point.seq if isinstance(opening, kinds.RunForked) else 0
    return Batch(run, before, events, [archive.blobs[name] for name in sorted(needed)])


def import_runs(journal: Journal, checked: CheckedArchive, origin: str) -> ImportReport:
    """Store the runs of an archive that do not exist yet: all of them or none.

    Args:
        journal: Where to store them.
        checked: The archive.
        origin: Where it comes from; it is recorded with each run.

    Raises:
        RunIdTaken: A different run with the same id exists, or one to which a run of the archive would belong.
        ArchiveInvalid: The journal refuses a run.
    """
    known = {run for run, batch in checked.batches.items() if _is_known(journal, run, batch.events[-1])}
    new = [run for run in checked.batches if run not in known]
    for run in new:
        _check_place(journal, run, checked.parents, known)
    try:
        journal.import_runs([checked.batches[run] for run in new], origin)
    except JournalError as error:
        raise ArchiveInvalid(f"the runs cannot be stored: {error.message}") from error
    return ImportReport(
        tuple(run for run in checked.runs if run not in known), tuple(run for run in checked.runs if run in known)
    )


# -- names --------------------------------------------------------------------------------------------


def _is_known(journal: Journal, run: str, last: Event) -> bool:
    row = journal.find(run)
    if row is None:
        return False
    if (row.seq, row.hash) != (last.seq, last.hash):
        raise RunIdTaken(f"a different run `{run}` exists already", hint="Import the archive into another project.")
    return True


def _check_place(journal: Journal, run: str, parents: dict[str, str], known: set[str]) -> None:
    """Check that a new run does not become part of a family that exists here."""
    parent = parents.get(run)
    if parent in known:
        raise RunIdTaken(
            f"run `{parent}` exists already, without the sub-run `{run}` of the archive",
            hint="Import the archive into another project.",
        )
    parts = run.split(".")
    above = (".".join(parts[:length]) for length in range(1, len(parts)))
    taken = next((name for name in above if journal.find(name) is not None), None)
    if parent is None and taken is not None:
        raise RunIdTaken(
            f"the id of run `{run}` could belong to a sub-run of `{taken}`, which exists already",
            hint="Import the archive into another project.",
        )


# -- runs ---------------------------------------------------------------------------------------------


class _Checks:
    """Checks of the runs of an archive, which are stored in a journal of their own; parents before sub-runs."""

    def __init__(self, staged: Journal, archive: Archive) -> None:
        self._staged = staged
        self._archive = archive
        self._shapes: dict[str, str] = {}
        self._workspaces: dict[str, str] = {}
        self._intents: dict[tuple[str, str, str], kinds.ChildStarted] = {}
        """The events with which a run started another one, by run, call and the other run."""
        self._ops: set[tuple[str, str]] = set()
        """The ops that runs performed, by run and call."""
        self._heads: dict[str, set[str]] = {}
        """The last events of sub-runs when their parents took a result."""
        self.parents: dict[str, str] = {}
        """The parents of sub-runs, by run."""

    def check(self, run: str, opening: Body) -> None:
        """Check the events of a run, its copies, and its place in its family."""
        seq, state = 0, EMPTY
        try:
            for read in read_run(self._staged.read(run)):
                seq, state = read.event.seq, read.after
                if read.event.run_id == run:
                    self._check_values(read.body, f"run `{run}`, event {seq}")
                    self._note_child(run, read.body)
            self._check_copies(run, state)
        except ArchiveInvalid:
            raise
        except ReynError as error:
            raise ArchiveInvalid(f"run `{run}`, after event {seq}: {error.message}") from error
        self._workspaces[run] = state.workspace
        if isinstance(opening, kinds.RunStarted):
            self._check_parent(run, opening)

    def _note_child(self, run: str, body: Body) -> None:
        match body:
            case kinds.ChildStarted():
                self._intents.setdefault((run, body.call, body.run), body)
            case kinds.OpStarted(call=call):
                self._ops.add((run, call))
            case kinds.ChildEnded(head=str(head)):
                self._heads.setdefault(body.run, set()).add(head)

    def _check_values(self, value: msgspec.Struct, where: str) -> None:
        """Check the parts of an event that other code relies on."""
        _check_fields(value, where)
        if isinstance(value, kinds.ArtifactRef):
            shape = self._shape(value.hash)
            if shape != f"artifact {value.type}":
                raise ArchiveInvalid(f"{where}: content `{value.hash[:12]}…` is not an artifact of its type")
        base = value.base if isinstance(value, Body) else type(value)
        for field, expected in _CONTENTS.get(base, {}).items():
            name = getattr(value, field)
            if name is not None and not self._shape(name).startswith(_SHAPES[expected]):
                raise ArchiveInvalid(f"{where}: content `{name[:12]}…` is not {expected}")
        self._check_thoughts(getattr(value, "thoughts", None), where)
        for part in _parts(value):
            self._check_values(part, where)

    def _check_thoughts(self, name: Any, where: str) -> None:
        """Check the thoughts of an answer, or of a message that repeats it, if it has any."""
        if isinstance(name, str):
            try:
                decode_thoughts(self._archive.blobs[name].content)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise ArchiveInvalid(f"{where}: content `{name[:12]}…` has no thoughts: {error}") from error

    def _shape(self, name: str) -> str:
        """Return the type of a content: `artifact` with its type, `object`, `json`, `json list`, `text` or `bytes`."""
        if name not in self._shapes:
            self._shapes[name] = _shape(self._archive.blobs[name].content)
        return self._shapes[name]

    # -- families and copies ----------------------------------------------------------------------------

    def _check_copies(self, run: str, state: RunState) -> None:
        """Check that the copies of skill, settings and op specifications can be read, if the run's rules are ours."""
        started = state.started
        if started.rules not in SUPPORTED_RULES:
            return
        check_pinned(unpin(self._archive.blobs[started.skill_hash].content))
        if started.ops is not None:
            unpin_ops(self._archive.blobs[started.ops].content)
        try:
            msgspec.json.decode(self._archive.blobs[started.settings].content, type=RunSettings)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ArchiveInvalid(f"run `{run}`: its settings cannot be read: {error}") from error

    def _check_parent(self, run: str, opening: kinds.RunStarted) -> None:
        """Check that a sub-run is the one that its parent started: the same id, skill, input and workspace."""
        parent = _parent_of(opening, self._archive)
        if parent is None:
            if opening.workspace is not None:
                raise ArchiveInvalid(f"run `{run}` uses the workspace of `{opening.workspace[:200]}`")
            return
        self.parents[run] = parent.run
        intent = self._intents.get((parent.run, parent.call, run)) if run == f"{parent.run}.{parent.call}" else None
        type_ = "agent" if opening.ask is not None else "background" if parent.background else "skill"
        asked_by = (opening.ask.run, opening.ask.call) if opening.ask is not None else (parent.run, parent.call)
        if intent is None:
            is_started = self._is_call(run, opening, parent)
        else:
            is_started = intent.type == type_ and asked_by == (parent.run, parent.call)
        if not is_started:
            raise ArchiveInvalid(f"run `{parent.run}` did not start its sub-run `{run}`")
        if intent is not None:
            workspace = self._workspaces[parent.run] if intent.shares_workspace else None
            recorded = (intent.skill_hash, intent.input, workspace, intent.history, intent.rollback)
            own = (opening.skill_hash, opening.input, opening.workspace, opening.history, opening.rollback)
            if own != recorded:
                what = f"another skill, input or workspace than run `{parent.run}` started"
                raise ArchiveInvalid(f"run `{run}` has {what}")
        if self._heads.get(run, set()) - {event.hash for event in self._staged.read(run)}:
            raise ArchiveInvalid(f"run `{run}` is not the one whose result run `{parent.run}` took")

    def _is_call(self, run: str, opening: kinds.RunStarted, parent: kinds.ParentRef) -> bool:
        """Return whether a sub-run is one of a function that an op of the run above called: its id names the call."""
        op, _, name = parent.call.rpartition(".")
        expected = call_name(opening.skill_hash, opening.input.hash, opening.history, opening.images)
        is_named = run == f"{parent.run}.{parent.call}" and name.partition("-")[0] == expected
        is_plain = opening.workspace is None and opening.ask is None and not parent.background
        return is_named and is_plain and (parent.run, op) in self._ops


_CALL = re.compile(r"[0-9]{1,9}(\.[a-z0-9]{1,20}(-[0-9]{1,9})?)*", re.ASCII)
_MAX_CALL = 200
_MAX_ORIGINS = 200
"""Maximum length of a chain of runs that need each other, because checking is recursive."""


_CONTENTS: dict[type[msgspec.Struct], dict[str, str]] = {
    kinds.Part: {"blob": "text"},
    kinds.RunRequest: {"input": "JSON"},
    kinds.MessageRequest: {"text": "text"},
    kinds.ChildStarted: {"text": "text"},
    kinds.ChildEnded: {"text": "text"},
    kinds.LlmRequested: {"contract": "JSON", "tools": "a JSON list"},
    kinds.LlmResponded: {"text": "text"},
    kinds.ValidationError: {"text": "text", "result": "a JSON object"},
    kinds.ContentTruncated: {"part": "text"},
    kinds.StepCompleted: {"result": "JSON"},
    kinds.WaitAnswered: {"value": "JSON"},
    kinds.OpStarted: {"args": "a JSON object", "result": "a JSON object"},
    kinds.OpCompleted: {"result": "a JSON object"},
    kinds.PermissionDenied: {"result": "a JSON object"},
    kinds.ApprovalRequired: {"args": "a JSON object", "preview": "text"},
    kinds.DecisionProposed: {"preview": "text"},
    kinds.ApprovalDecided: {"args": "a JSON object", "result": "a JSON object"},
}
"""The types of contents, by event field. File contents may be any bytes."""
_SHAPES = {
    "text": ("text", "json", "object", "artifact"),
    "JSON": ("json", "object", "artifact"),
    "a JSON object": ("object", "artifact"),
    "a JSON list": ("json list",),
}


def _shape(content: bytes) -> str:
    try:
        content.decode()
    except UnicodeDecodeError:
        return "bytes"
    try:
        check_values(content)
    except JsonError as error:
        raise ArchiveTooLarge(f"a content is too large: {error}") from error
    try:
        value = msgspec.json.decode(content)
        check_json(value)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return "text"
    if isinstance(value, list):
        return "json list"
    if not isinstance(value, dict):
        return "json"
    is_artifact = value.keys() == {"type", "data"} and isinstance(value["type"], str)
    return f"artifact {value['type']}" if is_artifact else "object"


def _check_fields(value: msgspec.Struct, where: str) -> None:
    call = msgspec.structs.asdict(value).get("call")  # most kinds have one
    if isinstance(call, str) and (len(call) > _MAX_CALL or not _CALL.fullmatch(call)):
        raise ArchiveInvalid(f"{where}: {call[:200]!r} is not the id of a call")
    match value:
        case kinds.Change(path=path, made=made):
            for name in (path, *made):
                if not is_recorded_path(name):
                    raise ArchiveInvalid(f"{where}: {name[:200]!r} is not the path of a file that an op can change")
        case kinds.Question(expires_at=expires, run=run):
            if expires is not None and not 0 <= expires <= MAX_TS:
                raise ArchiveInvalid(f"{where}: the question expires at the impossible time {expires}")
            if run is not None and not is_run_id(run):
                raise ArchiveInvalid(f"{where}: {run[:200]!r} is not a run id")
            _check_schema(value.response_schema, where)
        case kinds.AskRequest(response_schema=schema):
            _check_schema(schema, where)
        case kinds.ChildStarted(run=run) | kinds.ChildEnded(run=run) | kinds.ChildStopped(run=run):
            if run and not is_run_id(run):
                raise ArchiveInvalid(f"{where}: {run[:200]!r} is not a run id")


def _parts(value: msgspec.Struct) -> Iterator[msgspec.Struct]:
    for name in value.__struct_fields__:
        field = getattr(value, name)
        for item in field if isinstance(field, tuple) else (field,):
            if isinstance(item, msgspec.Struct):
                yield item


def _check_schema(schema: dict[str, Any], where: str) -> None:
    try:
        check_json(schema)
        compile_schema(schema)
    except ValueError as error:  # `SchemaInvalid` is one
        raise ArchiveInvalid(f"{where}: the schema of its question is invalid: {error}") from error
