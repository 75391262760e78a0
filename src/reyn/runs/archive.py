"""Runs become a file that another machine can read, and a file becomes runs again: JSON lines, one an event, one a
piece of content, a header before and a seal after. What is imported is checked as if it were appended.
"""

from __future__ import annotations

import base64
import hashlib
from typing import TYPE_CHECKING, Any

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
    """Which runs came in, and which were there already, the same."""

    imported: tuple[str, ...]
    known: tuple[str, ...]


def export_runs(journal: Journal, run_id: str) -> Iterator[bytes]:
    """A run with everything it consists of: the runs that it was forked from first, its sub-runs after it."""
    runs = _family(journal, run_id)
    whole = hashlib.sha256()
    header = {"reyn_export": FORMAT, "run": run_id, "runs": runs}
    for line in (_line(header), *_lines(journal, runs)):
        whole.update(line)
        yield line
    yield _line({"seal": whole.hexdigest()})


def _family(journal: Journal, run_id: str) -> list[str]:
    """Origins before forks, sub-runs after those that asked for them."""
    row = journal.find(run_id)
    assert row is not None
    before = _family(journal, row.fork_of) if row.fork_of else []
    below = [child.run_id for child in journal.runs(f"{run_id}.") if child.parent == run_id]
    after = [name for child in sorted(below) for name in _family(journal, child)]
    return list(dict.fromkeys([*before, run_id, *after]))


def _lines(journal: Journal, runs: list[str]) -> Iterator[bytes]:
    sent: set[str] = set()
    for run in runs:
        for event in journal.read(run):
            if event.run_id != run:
                continue
            for name in content_hashes(decode_stored(event)):
                if name not in sent:
                    sent.add(name)
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


# -- the way back -------------------------------------------------------------------------------------


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


def import_runs(journal: Journal, lines: Iterable[bytes]) -> ImportReport:
    """Everything is read and checked before the first run is stored. A run that is there already must be the same."""
    runs, events, blobs = _read(lines)
    known = [run for run in runs if _is_known(journal, run, events[run])]
    imported = [run for run in runs if run not in known]
    for run in imported:
        wanted = {name for event in events[run] for name in content_hashes(decode_stored(event))}
        missing = wanted - blobs.keys()
        if missing:
            raise ArchiveInvalid(f"run `{run}` refers to content `{min(missing)[:12]}…` that is not in the file")
    for run in imported:
        wanted = {name for event in events[run] for name in content_hashes(decode_stored(event))}
        try:
            journal.append(run, events[run][0].seq - 1, events[run], [blobs[name] for name in sorted(wanted)])
        except JournalError as error:
            raise ArchiveInvalid(f"run `{run}` cannot be stored: {error.message}") from error
    return ImportReport(tuple(imported), tuple(known))


def _read(lines: Iterable[bytes]) -> tuple[list[str], dict[str, list[Event]], dict[str, Blob]]:
    events: dict[str, list[Event]] = {}
    blobs: dict[str, Blob] = {}
    header: _Header | None = None
    whole, sealed = hashlib.sha256(), False
    for number, line in enumerate(lines, start=1):
        if sealed:
            raise ArchiveInvalid(f"line {number}: something stands after the seal")
        value = _parse(line, number)
        if header is None:
            header = _converted(value, _Header, number)
            if header.reyn_export != FORMAT:
                raise ArchiveInvalid(f"the file has format {header.reyn_export}; this version reads {FORMAT}")
        elif "seal" in value:
            sealed = value["seal"] == whole.hexdigest()
            if not sealed:
                raise ArchiveInvalid("the seal does not fit: the file was changed or is damaged")
        elif "blob" in value:
            blob = _to_blob(_converted(value, _Content, number), number)
            blobs[blob.hash] = blob
        else:
            _add_event(_entry(line, number), events, number)
        whole.update(line)
    if header is None or not sealed:
        raise ArchiveInvalid("the file ends before its seal: it is not whole")
    if set(header.runs) != events.keys() or len(header.runs) != len(events):
        raise ArchiveInvalid("the runs of the header are not the runs of the file")
    for run, own in events.items():
        _check_names(run, own, events)
    return header.runs, events, blobs


def _check_names(run: str, own: list[Event], known: Container[str]) -> None:
    """A run is called what its first event says, and uses the files of no run that is not in the file."""
    try:
        opening = decode(own[0])
    except JournalError as error:
        raise ArchiveInvalid(f"run `{run}`: {error.message}") from error
    named = opening.run_id if isinstance(opening, kinds.RunStarted | kinds.RunForked) else None
    if named != run or not is_run_id(run):
        raise ArchiveInvalid(f"run `{run}` is not called so by its first event, or cannot be called so")
    shared = opening.workspace if isinstance(opening, kinds.RunStarted) else None
    if shared is not None and shared not in known:
        raise ArchiveInvalid(f"run `{run}` uses the files of `{shared}`, which is not in the file")


def _parse(line: bytes, number: int) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ArchiveInvalid(f"line {number} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise ArchiveInvalid(f"line {number} is not an object")
    return value


def _converted(value: dict[str, Any], shape: Any, number: int) -> Any:
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise ArchiveInvalid(f"line {number}: {error}") from error


def _entry(line: bytes, number: int) -> _Entry:
    """Read with the data as it is written: its bytes are what the hash covers."""
    try:
        return msgspec.json.decode(line, type=_Entry)
    except msgspec.MsgspecError as error:
        raise ArchiveInvalid(f"line {number}: {error}") from error


def _to_blob(held: _Content, number: int) -> Blob:
    try:
        content = held.text.encode() if held.text is not None else base64.b64decode(held.base64 or "", validate=True)
    except (ValueError, UnicodeEncodeError) as error:
        raise ArchiveInvalid(f"line {number}: the content cannot be read: {error}") from error
    if digest(content) != held.blob:
        raise ArchiveInvalid(f"line {number}: the content does not give its name")
    return Blob(held.blob, content)


def _add_event(entry: _Entry, events: dict[str, list[Event]], number: int) -> None:
    raw = bytes(entry.data)
    own = events.setdefault(entry.run, [])
    prev = own[-1].hash if own else _first_prev(entry, raw)
    if link(entry.seq, entry.ts, entry.kind, entry.v, raw, prev) != entry.hash:
        raise ArchiveInvalid(f"line {number}: event {entry.seq} of run `{entry.run}` does not give its hash")
    own.append(Event(entry.seq, entry.run, entry.ts, entry.kind, entry.v, raw, prev, entry.hash))


def _first_prev(entry: _Entry, raw: bytes) -> str:
    if entry.kind == kinds.RunForked.kind:
        try:
            return msgspec.json.decode(raw, type=kinds.RunForked).point.hash
        except msgspec.MsgspecError as error:
            raise ArchiveInvalid(f"run `{entry.run}` does not say what it was forked from: {error}") from error
    return "0" * 64


def _is_known(journal: Journal, run: str, events: list[Event]) -> bool:
    row = journal.find(run)
    if row is None:
        return False
    if (row.seq, row.hash) != (events[-1].seq, events[-1].hash):
        raise RunKeyTaken(f"a run `{run}` is here already, and is not the same", hint="Import it into another project.")
    return True
