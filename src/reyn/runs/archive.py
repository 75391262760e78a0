"""Export runs to an archive and import them again.

An archive is JSON lines: a header, one line per event and per content, and a checksum (`seal`) of all lines before it.
Imported events pass the same checks as appended ones.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.errors import ArchiveInvalid, JournalError, RunKeyTaken
from reyn.journal import Blob, Event, decode, digest, kinds
from reyn.journal.event import link
from reyn.journal.port import is_run_id
from reyn.journal.registry import content_hashes, decode_stored

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from reyn.journal import Journal

FORMAT = 1


class ImportReport(msgspec.Struct, frozen=True):
    """The runs that were imported, and those that existed already and are identical."""

    imported: tuple[str, ...]
    known: tuple[str, ...]


def export_runs(journal: Journal, run_id: str) -> Iterator[bytes]:
    """Yield the lines of an archive: the origins of a fork, the run, its sub-runs."""
    runs = _export_order(journal, run_id)
    checksum = hashlib.sha256()
    header = {"reyn_export": FORMAT, "run": run_id, "runs": runs}
    for line in (_line(header), *_lines(journal, runs)):
        checksum.update(line)
        yield line
    yield _line({"seal": checksum.hexdigest()})


def _export_order(journal: Journal, run_id: str) -> list[str]:
    """Return the ids of a run's origins, the run and its sub-runs, each after the runs that it needs."""
    row = journal.find(run_id)
    assert row is not None
    before = _export_order(journal, row.fork_of) if row.fork_of else []
    below = [child.run_id for child in journal.runs(f"{run_id}.") if child.parent == run_id]
    after = [name for child in sorted(below) for name in _export_order(journal, child)]
    return list(dict.fromkeys([*before, run_id, *after]))


def _lines(journal: Journal, runs: list[str]) -> Iterator[bytes]:
    written: set[str] = set()
    for run in runs:
        for event in journal.read(run):
            if event.run_id != run:
                continue
            for name in content_hashes(decode_stored(event)):
                if name not in written:
                    written.add(name)
                    yield _blob_line(name, journal.blob(name))
            yield _line(
                {"run": run, "seq": event.seq, "ts": event.ts, "kind": event.kind, "v": event.v,
                 "data": msgspec.Raw(event.raw), "hash": event.hash}
            )  # fmt: skip


def _blob_line(name: str, content: bytes) -> bytes:
    try:
        return _line({"blob": name, "text": content.decode()})
    except UnicodeDecodeError:
        return _line({"blob": name, "base64": base64.b64encode(content).decode()})


def _line(value: Any) -> bytes:
    return msgspec.json.encode(value) + b"\n"


# -- import -------------------------------------------------------------------------------------------


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    run: str
    seq: int
    ts: int
    kind: str
    v: int
    data: msgspec.Raw
    hash: str


class _Content(msgspec.Struct, forbid_unknown_fields=True):
    blob: str
    text: str | None = None
    base64: str | None = None


class _Header(msgspec.Struct, forbid_unknown_fields=True):
    reyn_export: int
    run: str
    runs: list[str]


class Archive(NamedTuple):
    """The contents of an archive."""

    runs: list[str]
    events: dict[str, list[Event]]
    blobs: dict[str, Blob]


def import_runs(journal: Journal, archive: Archive) -> ImportReport:
    """Store the runs of an archive. A run that exists already must be the same.

    Raises:
        ArchiveInvalid: A run refers to content that the archive does not have, or the journal refuses it.
        RunKeyTaken: A different run with the same id exists.
    """
    runs, events, blobs = archive
    known = [run for run in runs if _is_known(journal, run, events[run])]
    imported = [run for run in runs if run not in known]
    for run in imported:
        needed = {name for event in events[run] for name in content_hashes(decode_stored(event))}
        missing = needed - blobs.keys()
        if missing:
            raise ArchiveInvalid(
                f"run `{run}` refers to content `{min(missing)[:12]}…`, which the archive does not contain"
            )
    for run in imported:
        needed = {name for event in events[run] for name in content_hashes(decode_stored(event))}
        try:
            journal.append(run, events[run][0].seq - 1, events[run], [blobs[name] for name in sorted(needed)])
        except JournalError as error:
            raise ArchiveInvalid(f"run `{run}` cannot be stored: {error.message}") from error
    return ImportReport(tuple(imported), tuple(known))


def read_archive(lines: Iterable[bytes]) -> Archive:
    """Read an archive and check all of it: checksum, hashes of events and contents, names of runs.

    Raises:
        ArchiveInvalid: The archive is damaged, incomplete, or of an unknown format.
    """
    events: dict[str, list[Event]] = {}
    blobs: dict[str, Blob] = {}
    header: _Header | None = None
    checksum, is_complete = hashlib.sha256(), False
    for number, line in enumerate(lines, start=1):
        if is_complete:
            raise ArchiveInvalid(f"line {number}: unexpected data after the checksum")
        value = _parse(line, number)
        if header is None:
            header = _convert(value, _Header, number)
            if header.reyn_export != FORMAT:
                raise ArchiveInvalid(f"the archive has format {header.reyn_export}; this version reads format {FORMAT}")
        elif "seal" in value:
            is_complete = value["seal"] == checksum.hexdigest()
            if not is_complete:
                raise ArchiveInvalid("the checksum does not match: the archive was modified or is damaged")
        elif "blob" in value:
            blob = _to_blob(_convert(value, _Content, number), number)
            blobs[blob.hash] = blob
        else:
            _add_event(_entry(line, number), events, number)
        checksum.update(line)
    if header is None or not is_complete:
        raise ArchiveInvalid("the archive has no checksum at its end: it is incomplete")
    if set(header.runs) != events.keys() or len(header.runs) != len(events):
        raise ArchiveInvalid("the header lists other runs than the archive contains")
    for run, own in events.items():
        _check_names(run, own, events)
    return Archive(header.runs, events, blobs)


def _check_names(run: str, own: list[Event], known: Container[str]) -> None:
    """Check that the first event names the run, and that the run only shares workspaces of runs in the archive."""
    try:
        opening = decode(own[0])
    except JournalError as error:
        raise ArchiveInvalid(f"run `{run}`: {error.message}") from error
    named = opening.run_id if isinstance(opening, kinds.RunStarted | kinds.RunForked) else None
    if named != run or not is_run_id(run):
        raise ArchiveInvalid(f"`{run}` is not a valid run id, or its first event names another run")
    shared = opening.workspace if isinstance(opening, kinds.RunStarted) else None
    if shared is not None and shared not in known:
        raise ArchiveInvalid(f"run `{run}` shares the workspace of `{shared}`, which the archive does not contain")


def _parse(line: bytes, number: int) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ArchiveInvalid(f"line {number} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ArchiveInvalid(f"line {number} is not an object")
    return value


def _convert(value: dict[str, Any], shape: Any, number: int) -> Any:
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise ArchiveInvalid(f"line {number}: {error}") from error


def _entry(line: bytes, number: int) -> _Entry:
    """Decode an event but not its data, because the hash covers the bytes of the data as written."""
    try:
        return msgspec.json.decode(line, type=_Entry)
    except msgspec.MsgspecError as error:
        raise ArchiveInvalid(f"line {number}: {error}") from error


def _to_blob(line: _Content, number: int) -> Blob:
    try:
        content = line.text.encode() if line.text is not None else base64.b64decode(line.base64 or "", validate=True)
    except (ValueError, UnicodeEncodeError) as error:
        raise ArchiveInvalid(f"line {number}: invalid content: {error}") from error
    if digest(content) != line.blob:
        raise ArchiveInvalid(f"line {number}: the content does not match its hash")
    return Blob(line.blob, content)


def _add_event(entry: _Entry, events: dict[str, list[Event]], number: int) -> None:
    raw = bytes(entry.data)
    own = events.setdefault(entry.run, [])
    prev = own[-1].hash if own else _first_prev(entry, raw)
    if link(entry.seq, entry.ts, entry.kind, entry.v, raw, prev) != entry.hash:
        raise ArchiveInvalid(f"line {number}: event {entry.seq} of run `{entry.run}` does not match its hash")
    own.append(Event(entry.seq, entry.run, entry.ts, entry.kind, entry.v, raw, prev, entry.hash))


def _first_prev(entry: _Entry, raw: bytes) -> str:
    if entry.kind == kinds.RunForked.kind:
        try:
            return msgspec.json.decode(raw, type=kinds.RunForked).point.hash
        except msgspec.MsgspecError as error:
            raise ArchiveInvalid(f"run `{entry.run}` has an invalid fork event: {error}") from error
    return "0" * 64


def _is_known(journal: Journal, run: str, events: list[Event]) -> bool:
    row = journal.find(run)
    if row is None:
        return False
    if (row.seq, row.hash) != (events[-1].seq, events[-1].hash):
        raise RunKeyTaken(f"a different run `{run}` exists already", hint="Import the archive into another project.")
    return True
