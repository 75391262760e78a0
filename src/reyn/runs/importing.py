"""Import runs from an archive: check everything, then store all runs in one transaction.

The author of an archive chose every byte of it, so nothing in it is trusted. Each run must stay
readable: known events in an order that a run produces, paths that an op can write, content of the right shape. A
sub-run must be the one that its parent started. Imported runs are marked outside of their events, and are never
executed: `fork` and `rerun` continue them as new runs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec

from reyn.config import RunSettings
from reyn.errors import ArchiveInvalid, ArchiveTooLarge, JournalError, NextAction, ReynError, RunIdTaken, RunImported
from reyn.journal import Batch, Body, check_json, decode, kinds
from reyn.journal.port import MAX_TS, is_run_id
from reyn.journal.registry import content_hashes
from reyn.jsonschema import compile_schema
from reyn.kernel.core.run_state import EMPTY, apply
from reyn.kernel.versions import SUPPORTED_RULES
from reyn.kernel.world.loading import unpin_ops
from reyn.skills import check_pinned, unpin
from reyn.workspace.paths import is_recorded_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.journal import Event, Journal, RunRow
    from reyn.kernel.core.snapshot import RunState
    from reyn.runs.archive import Archive, ImportLimits

I = TypeVar("I", kinds.SubRunStarted, kinds.AgentAsked)  # noqa: E741 - an intent


class ImportReport(msgspec.Struct, frozen=True):
    """The runs that were imported, and those that existed already and are identical."""

    imported: tuple[str, ...]
    known: tuple[str, ...]


class CheckedArchive(NamedTuple):
    """An archive whose runs are valid."""

    archive: Archive
    in_order: list[str]
    """The runs, each after its parent and after the run that it was forked from."""
    parents: dict[str, str]
    """The parents of sub-runs, by run."""


def check_not_imported(row: RunRow, what: str) -> None:
    """Refuse an operation that would execute an imported run, append to it, or apply its changes.

    Raises:
        RunImported: The run was imported.
    """
    if row.imported:
        raise RunImported(
            f"run `{row.run_id}` was imported from {row.imported} and cannot be {what}",
            action=NextAction("fork", row.run_id),
        )


def check_archive(archive: Archive, limits: ImportLimits) -> CheckedArchive:
    """Check every run of an archive.

    Raises:
        ArchiveTooLarge: Checking the runs would take too long.
        ArchiveInvalid: A run cannot be one of Reyn's, or misses content or a run that it needs.
    """
    inherited = sum(events[-1].seq for events in archive.events.values())
    if inherited > limits.events:
        raise ArchiveTooLarge(f"the runs have more than {limits.events:,} events, those of their origins included")
    runs = _Runs(archive)
    for run in archive.runs:
        runs.check(run)
    return CheckedArchive(archive, list(runs.histories), runs.parents)


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
    archive = checked.archive
    known = {run for run in archive.runs if _is_known(journal, run, archive.events[run])}
    new = [run for run in checked.in_order if run not in known]
    for run in new:
        _check_place(journal, run, checked.parents, known)
    try:
        journal.import_runs([_batch(run, archive) for run in new], origin)
    except JournalError as error:
        raise ArchiveInvalid(f"the runs cannot be stored: {error.message}") from error
    return ImportReport(
        tuple(run for run in archive.runs if run not in known), tuple(run for run in archive.runs if run in known)
    )


def _batch(run: str, archive: Archive) -> Batch:
    events = archive.events[run]
    needed = {name for event in events for name in content_hashes(decode(event))}
    return Batch(run, events[0].seq - 1, events, [archive.blobs[name] for name in sorted(needed)])


# -- names --------------------------------------------------------------------------------------------


def _is_known(journal: Journal, run: str, events: list[Event]) -> bool:
    row = journal.find(run)
    if row is None:
        return False
    if (row.seq, row.hash) != (events[-1].seq, events[-1].hash):
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


class _History(NamedTuple):
    """One checked run: its events, those of its origin included, and the state after the last."""

    bodies: list[Body]
    times: list[int]
    hashes: list[str]
    state: RunState = EMPTY

    def until(self, seq: int) -> _History:
        bodies, times = self.bodies[:seq], self.times[:seq]
        state = EMPTY
        for body, ts in zip(bodies, times, strict=True):
            state = apply(state, body, ts)
        return _History(bodies, times, self.hashes[:seq], state)


class _Runs:
    """The runs of an archive, each checked after the runs that it needs."""

    def __init__(self, archive: Archive) -> None:
        self._archive = archive
        self.histories: dict[str, _History] = {}
        """The checked runs, each after its parent and after the run that it was forked from."""
        self._open: list[str] = []
        self._shapes: dict[str, str] = {}
        self.parents: dict[str, str] = {}
        """The parents of sub-runs, by run."""

    def check(self, run: str) -> _History:
        """Check a run and return its history."""
        if run in self.histories:
            return self.histories[run]
        if run in self._open or len(self._open) > _MAX_ORIGINS:
            raise ArchiveInvalid(f"run `{run}` needs itself, or too many other runs")
        self._open.append(run)
        try:
            history = self._check(run)
        except ArchiveInvalid:
            raise
        except ReynError as error:
            raise ArchiveInvalid(f"run `{run[:200]}`: {error.message}") from error
        self._open.pop()
        self.histories[run] = history
        return history

    def _check(self, run: str) -> _History:
        events = self._archive.events[run]
        bodies = [decode(event) for event in events]
        opening = bodies[0]
        named = opening.run_id if isinstance(opening, kinds.RunStarted | kinds.RunForked) else None
        if named != run or not is_run_id(run):
            raise ArchiveInvalid(f"`{run[:200]}` is not a valid run id, or its first event names another run")
        before = self._before(run, events[0], opening)
        self._check_events(run, events, bodies)
        state = before.state
        for event, body in zip(events, bodies, strict=True):
            try:
                state = apply(state, body, event.ts)
            except ReynError as error:
                raise ArchiveInvalid(f"run `{run}`, event {event.seq}: {error.message}") from error
        history = _History(
            [*before.bodies, *bodies],
            [*before.times, *(event.ts for event in events)],
            [*before.hashes, *(event.hash for event in events)],
            state,
        )
        self._check_copies(run, state)
        self._check_parent(run, opening, history)
        return history

    def _before(self, run: str, first: Event, opening: Body) -> _History:
        """Return the history that a fork continues; an empty one if the run is not a fork."""
        if isinstance(opening, kinds.RunStarted):
            if first.seq != 1:
                raise ArchiveInvalid(f"run `{run}`: the first event has the number {first.seq}")
            return _History([], [], [])
        assert isinstance(opening, kinds.RunForked)
        point = opening.point
        origin = self._needed(run, point.run, "was forked from")
        if not 0 < point.seq <= len(origin.hashes) or origin.hashes[point.seq - 1] != point.hash:
            raise ArchiveInvalid(f"run `{run}` continues event {point.seq} of run `{point.run}`, but the hashes differ")
        if first.seq != point.seq + 1:
            raise ArchiveInvalid(f"run `{run}`: the first event has the number {first.seq}")
        return origin.until(point.seq)

    def _needed(self, run: str, other: str, relation: str) -> _History:
        if other not in self._archive.events:
            raise ArchiveInvalid(
                f"run `{run}` {relation} `{other[:200]}`, which the archive does not contain",
                hint="Export the run with its whole family.",
            )
        return self.check(other)

    # -- events ---------------------------------------------------------------------------------------

    def _check_events(self, run: str, events: list[Event], bodies: list[Body]) -> None:
        last = 0
        for number, (event, body) in enumerate(zip(events, bodies, strict=True)):
            where = f"run `{run}`, event {event.seq}"
            if event.seq != events[0].seq + number:
                raise ArchiveInvalid(f"{where} follows event {events[0].seq + number - 1}")
            if not last <= event.ts <= MAX_TS:
                raise ArchiveInvalid(f"{where} has the impossible time {event.ts}")
            last = event.ts
            missing = next((name for name in content_hashes(body) if name not in self._archive.blobs), None)
            if missing is not None:
                what = f"content `{missing[:12]}…`, which the archive does not contain"
                raise ArchiveInvalid(f"run `{run}` refers to {what}")
            self._check_values(body, where)

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
        for part in _parts(value):
            self._check_values(part, where)

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

    def _check_parent(self, run: str, opening: Body, history: _History) -> None:
        """Check that a sub-run is the one that its parent started: the same id, skill, input and workspace.

        A background run is a run of its own; its archive need not contain the conversation that started it.
        """
        if not isinstance(opening, kinds.RunStarted):
            return
        parent = opening.parent
        if parent is None or (parent.background and parent.run not in self._archive.events):
            if opening.workspace is not None:
                raise ArchiveInvalid(f"run `{run}` uses the workspace of `{opening.workspace[:200]}`")
            return
        above = self._needed(run, parent.run, "is a sub-run of")
        self.parents[run] = parent.run
        if opening.ask is not None:
            what, taken = self._check_asked(run, opening, parent, above), "reply"
        else:
            what, taken = self._check_started(run, opening, parent, above), "result"
        if what:
            raise ArchiveInvalid(what)
        ends = (one for one in above.bodies if isinstance(one, kinds.SubRunCompleted | kinds.AgentReplied))
        if any(one.run == run and one.head and one.head not in history.hashes for one in ends):
            raise ArchiveInvalid(f"run `{run}` is not the one whose {taken} run `{parent.run}` took")

    def _check_started(self, run: str, opening: kinds.RunStarted, parent: kinds.ParentRef, above: _History) -> str:
        """Return why a sub-run is not the one that the run above started; empty if it is."""
        intent = _intent(above, kinds.SubRunStarted, parent.call, run)
        if intent is None or run != f"{parent.run}.{parent.call}" or intent.background != parent.background:
            return f"run `{parent.run}` did not start its sub-run `{run}`"
        workspace = above.state.workspace if intent.shares_workspace else None
        recorded = (intent.skill_hash, intent.input, workspace)
        if (opening.skill_hash, opening.input, opening.workspace) != recorded:
            return f"run `{run}` has another skill, input or workspace than run `{parent.run}` started"
        return ""

    def _check_asked(self, run: str, opening: kinds.RunStarted, parent: kinds.ParentRef, above: _History) -> str:
        """Return why a conversation is not the one that an agent opened in the run above; empty if it is."""
        intent = _intent(above, kinds.AgentAsked, parent.call, run)
        asked_by = (opening.ask.run, opening.ask.call) if opening.ask is not None else ("", "")
        if intent is None or run != f"{parent.run}.{parent.call}" or asked_by != (parent.run, parent.call):
            return f"run `{parent.run}` did not open the conversation `{run}`"
        recorded = (intent.skill_hash, intent.input, intent.history, None)
        if (opening.skill_hash, opening.input, opening.history, opening.workspace) != recorded:
            return f"run `{run}` has another agent or message than run `{parent.run}` opened it with"
        return ""


def _intent(above: _History, kind: type[I], call: str, run: str) -> I | None:
    """Return the event with which a run started another one."""
    return next((one for one in above.bodies if isinstance(one, kind) and (one.call, one.run) == (call, run)), None)


_CALL = re.compile(r"[0-9]{1,9}(\.[a-z0-9]{1,20})*", re.ASCII)
_MAX_CALL = 200
_MAX_ORIGINS = 200
"""Maximum length of a chain of runs that need each other, because checking is recursive."""


_CONTENTS: dict[type[msgspec.Struct], dict[str, str]] = {
    kinds.Part: {"blob": "text"},
    kinds.RunRequest: {"input": "JSON"},
    kinds.MessageRequest: {"text": "text"},
    kinds.AgentAsked: {"text": "text"},
    kinds.AgentReplied: {"text": "text"},
    kinds.LlmRequested: {"contract": "JSON", "tools": "a JSON list"},
    kinds.LlmResponded: {"text": "text", "asked": "a list of roles and texts"},
    kinds.ValidationError: {"text": "text"},
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
    "a list of roles and texts": ("json list of texts",),
}


def _shape(content: bytes) -> str:
    try:
        content.decode()
    except UnicodeDecodeError:
        return "bytes"
    try:
        value = msgspec.json.decode(content)
        check_json(value)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return "text"
    if isinstance(value, list):
        return "json list of texts" if all(_is_role_and_text(one) for one in value) else "json list"
    if not isinstance(value, dict):
        return "json"
    is_artifact = value.keys() == {"type", "data"} and isinstance(value["type"], str)
    return f"artifact {value['type']}" if is_artifact else "object"


def _is_role_and_text(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(one, str) for one in value)


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
        case (
            kinds.SubRunStarted(run=run)
            | kinds.SubRunCompleted(run=run)
            | kinds.SubRunStopped(run=run)
            | kinds.AgentAsked(run=run)
            | kinds.AgentReplied(run=run)
        ):
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
