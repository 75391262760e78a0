"""The archive format: write runs as JSON lines, and read them again.

An archive has a header, one line per event and per content, and a checksum (`seal`) of all lines before it. The
author of an archive can compute every hash in it; `reyn.runs.importing` checks it before anything is stored.
"""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import msgspec

from reyn.documents import JsonError, check_values
from reyn.errors import ArchiveInvalid, ArchiveTooLarge, JournalError
from reyn.journal import GENESIS, Blob, Event, Journal, RunRow, digest, kinds
from reyn.journal.family import descendants, root_run
from reyn.journal.kinds.shapes import Count
from reyn.journal.registry import content_hashes, decode, link

ARCHIVE_FORMAT = 1
_NO_DATA = msgspec.Raw()
_GZIP = b"\x1f\x8b"
_TOO_LONG = "Pass an exported file."


class ImportLimits(msgspec.Struct, frozen=True):
    """The largest archive that an import reads. It is checked as a whole, so it has to fit into memory."""

    bytes: int = 256 << 20
    """All lines together."""
    line_bytes: int = 96 << 20
    content_bytes: int = 64 << 20
    runs: int = 10_000
    events: int = 500_000


# -- export -------------------------------------------------------------------------------------------


def export_runs(journal: Journal, run_id: str) -> Iterator[bytes]:
    """Yield the lines of an archive: the family of a run, and the families of the runs that it was forked from."""
    row = journal.find(run_id)
    assert row is not None
    runs = _export_order(journal, row, set())
    checksum = hashlib.sha256()
    header = {"reyn_export": ARCHIVE_FORMAT, "run": run_id, "runs": runs}
    for line in (_line(header), *_lines(journal, runs)):
        checksum.update(line)
        yield line
    yield _line({"seal": checksum.hexdigest()})


def _export_order(journal: Journal, row: RunRow, seen: set[str]) -> list[str]:
    """Return the ids of a family, after the families that its runs were forked from; parents before sub-runs."""
    root = root_run(journal, row)
    if root.run_id in seen:
        return []
    seen.add(root.run_id)
    family, before = [root, *descendants(journal, root.run_id)], list[str]()
    for one in family:
        if one.fork_of and (origin := journal.find(one.fork_of)) is not None:
            before += _export_order(journal, origin, seen)
    return [*before, *(one.run_id for one in family)]


def _lines(journal: Journal, runs: list[str]) -> Iterator[bytes]:
    written: set[str] = set()
    for run in runs:
        for event in journal.read(run):
            if event.run_id != run:
                continue
            for name in content_hashes(decode(event)):
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


# -- reading ------------------------------------------------------------------------------------------


class Archive(NamedTuple):
    """The contents of an archive. Runs are in the order of its header."""

    runs: list[str]
    events: dict[str, list[Event]]
    blobs: dict[str, Blob]


class _ArchiveLine(msgspec.Struct, forbid_unknown_fields=True):
    """The fields of every kind of line. The data of an event is not decoded: its hash covers the bytes as written."""

    reyn_export: int | None = None
    run: str | None = None
    runs: list[str] | None = None
    seq: Count | None = None
    ts: int | None = None
    kind: str | None = None
    v: Count | None = None
    data: msgspec.Raw = _NO_DATA
    hash: str | None = None
    blob: str | None = None
    text: str | None = None
    base64: str | None = None
    seal: str | None = None


_EVENT = {"run", "seq", "ts", "kind", "v", "data", "hash"}
_HEADER = {"reyn_export", "run", "runs"}


def bounded_lines(source: Iterable[bytes], limits: ImportLimits) -> Iterator[bytes]:
    """Yield the lines of a file or an iterable; a file is never read beyond the limits.

    Raises:
        ArchiveTooLarge: A line, or all of them, are larger than the limits.
    """
    total = 0
    for line in _file_lines(source, limits.line_bytes) if isinstance(source, io.IOBase) else source:
        total += len(line)
        if len(line) > limits.line_bytes:
            raise ArchiveTooLarge(f"a line is longer than {limits.line_bytes:,} bytes", hint=_TOO_LONG)
        if total > limits.bytes:
            raise ArchiveTooLarge(f"the archive is larger than {limits.bytes:,} bytes")
        yield line


def _file_lines(file: io.IOBase, most: int) -> Iterator[bytes]:
    while line := file.readline(most + 1):
        yield bytes(line)


def read_archive(source: Iterable[bytes], limits: ImportLimits) -> Archive:
    """Read an archive and check its own consistency: checksum, hash chains, hashes of contents.

    Raises:
        ArchiveInvalid: The archive is damaged, incomplete, or of an unknown format.
        ArchiveTooLarge: The archive exceeds a limit.
    """
    events: dict[str, list[Event]] = {}
    blobs: dict[str, Blob] = {}
    runs: list[str] | None = None
    checksum, is_complete, count = hashlib.sha256(), False, 0
    for number, line in enumerate(bounded_lines(source, limits), start=1):
        if is_complete:
            raise ArchiveInvalid(f"line {number}: unexpected data after the checksum")
        fields = _parse(line, number)
        if runs is None:
            runs = _header(fields, number, limits)
        elif fields.seal is not None:
            is_complete = fields.seal == checksum.hexdigest()
            if not is_complete:
                raise ArchiveInvalid("the checksum does not match: the archive was modified or is damaged")
        elif fields.blob is not None:
            blob = _to_blob(fields, number, limits)
            blobs[blob.hash] = blob
        else:
            count += 1
            if count > limits.events:
                raise ArchiveTooLarge(f"the archive has more than {limits.events:,} events")
            _add_event(fields, events, number)
        checksum.update(line)
    if runs is None or not is_complete:
        raise ArchiveInvalid("the archive has no checksum at its end: it is incomplete")
    if set(runs) != events.keys() or len(runs) != len(events):
        raise ArchiveInvalid("the header lists other runs than the archive contains")
    return Archive(runs, events, blobs)


def _parse(line: bytes, number: int) -> _ArchiveLine:
    try:
        check_values(line)
        return msgspec.json.decode(line, type=_ArchiveLine)
    except JsonError as error:
        raise ArchiveTooLarge(f"line {number}: {error}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        hint = "The file is compressed; decompress it first." if line.startswith(_GZIP) else None
        raise ArchiveInvalid(f"line {number} is not a line of an archive: {str(error)[:200]}", hint=hint) from error


def _has(fields: _ArchiveLine, names: set[str]) -> bool:
    present = {name for name in fields.__struct_fields__ if getattr(fields, name) not in (None, _NO_DATA)}
    return present == names


def _header(fields: _ArchiveLine, number: int, limits: ImportLimits) -> list[str]:
    if not _has(fields, _HEADER) or fields.runs is None:
        raise ArchiveInvalid(f"line {number}: the archive does not begin with a header")
    if fields.reyn_export != ARCHIVE_FORMAT:
        raise ArchiveInvalid(f"the archive has format {fields.reyn_export}; this version reads format {ARCHIVE_FORMAT}")
    if len(fields.runs) > limits.runs:
        raise ArchiveTooLarge(f"the archive lists {len(fields.runs):,} runs; {limits.runs:,} is the maximum")
    return fields.runs


def _to_blob(fields: _ArchiveLine, number: int, limits: ImportLimits) -> Blob:
    if not (_has(fields, {"blob", "text"}) or _has(fields, {"blob", "base64"})) or fields.blob is None:
        raise ArchiveInvalid(f"line {number}: a content has a hash, and `text` or `base64`")
    try:
        if fields.text is not None:
            content = fields.text.encode()
        else:
            content = base64.b64decode(fields.base64 or "", validate=True)
    except ValueError as error:
        raise ArchiveInvalid(f"line {number}: invalid content: {error}") from error
    if len(content) > limits.content_bytes:
        raise ArchiveTooLarge(f"line {number}: a content is larger than {limits.content_bytes:,} bytes")
    if digest(content) != fields.blob:
        raise ArchiveInvalid(f"line {number}: the content does not match its hash")
    return Blob(fields.blob, content)


def _add_event(fields: _ArchiveLine, events: dict[str, list[Event]], number: int) -> None:
    if not _has(fields, _EVENT):
        raise ArchiveInvalid(f"line {number}: an event has exactly the fields {', '.join(sorted(_EVENT))}")
    entry: Any = fields
    raw = bytes(entry.data)
    own = events.setdefault(entry.run, [])
    prev = own[-1].hash if own else _first_prev(entry, raw, number)
    try:
        hashed = link(entry.seq, entry.ts, entry.kind, entry.v, raw, prev)
    except UnicodeEncodeError as error:
        raise ArchiveInvalid(f"line {number}: {error}") from error
    if hashed != entry.hash:
        raise ArchiveInvalid(f"line {number}: event {entry.seq} of run `{entry.run[:200]}` does not match its hash")
    own.append(Event(entry.seq, entry.run, entry.ts, entry.kind, entry.v, raw, prev, entry.hash))


def _first_prev(entry: Any, raw: bytes, number: int) -> str:
    """Return the hash before the first event of a run: that of the fork point, if it is a fork."""
    if entry.kind != kinds.RunForked.kind:
        return GENESIS
    try:
        forked = decode(Event(entry.seq, entry.run, entry.ts, entry.kind, entry.v, raw, "", entry.hash))
    except JournalError as error:
        raise ArchiveInvalid(f"line {number}: {error.message}") from error
    assert isinstance(forked, kinds.RunForked)
    return forked.point.hash
