"""The ledger: a file outside of the run that records every external effect, and survives a kill.

Wrappers around model, user, journal and file system calls write it. The run never reads or writes it, so the run's own
record can be checked against it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.journal import Answer, Batch, Event, canonical, decode, digest, kinds
from reyn.models.answers import to_answer
from reyn.models.protocol import encode_reply
from reyn.workspace import changes
from reyn.workspace.files import TEMPORARY

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.journal.kinds import Question
    from reyn.models import Model, ModelAnswer, ModelRequest


class Entry(msgspec.Struct, frozen=True):
    """One line: an event of the world, with the run, the call and the content that it concerns.

    asked, answered, durable      the model was called, it answered, its answer is in the journal
    refused                       the model was called and raised an error
    questioned, replied, posted   the user was asked, replied, and the reply is in the inbox
    intended, done                the intent of a file change is in the journal; so is its outcome
    changing, changed             a file is about to change; it has changed
    """

    what: str
    run: str
    call: str
    text: str = ""


class Ledger:
    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, entry: Entry) -> None:
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(handle, msgspec.json.encode(entry) + b"\n")
        finally:
            os.close(handle)

    def read(self) -> list[Entry]:
        if not self._path.exists():
            return []
        return [msgspec.json.decode(line, type=Entry) for line in self._path.read_bytes().splitlines()]


class LedgerModel:
    """Records the calls of a model."""

    def __init__(self, model: Model, ledger: Ledger) -> None:
        self._model = model
        self._ledger = ledger

    @property
    def name(self) -> str:
        return self._model.name

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self._ledger.write(Entry("asked", request.run_id, request.call))
        try:
            reply = to_answer(await self._model.complete(request), request)
        except Exception:
            self._ledger.write(Entry("refused", request.run_id, request.call))
            raise
        recorded = encode_reply(reply, request.answer_form, str)
        self._ledger.write(Entry("answered", request.run_id, request.call, digest(recorded)))
        return reply


class LedgerPeople:
    """Records the questions to the user."""

    def __init__(self, people: Any, ledger: Ledger) -> None:
        self._people = people
        self._ledger = ledger

    async def ask(self, run_id: str, question: Question) -> Any:
        self._ledger.write(Entry("questioned", run_id, question.id))
        answer = await self._people.ask(run_id, question)
        self._ledger.write(Entry("replied", run_id, question.id, digest(canonical(answer))))
        return answer


class LedgerJournal:
    """Records what becomes durable. Events that are read count as well, because a kill may have come between the commit
    and the ledger's line."""

    def __init__(self, journal: Any, ledger: Ledger) -> None:
        self._journal = journal
        self._ledger = ledger

    def append(self, run_id: str, expected_seq: int, events: Sequence[Event], blobs: Any = (), wakes: Any = ()) -> int:
        seq: int = self._journal.append(run_id, expected_seq, events, blobs, wakes)
        self._record(events)
        return seq

    def append_many(self, batches: Sequence[Batch]) -> Any:
        results = self._journal.append_many(batches)
        for batch, result in zip(batches, results, strict=True):
            if isinstance(result, int):
                self._record(batch.events)
        return results

    def read(self, run_id: str, after: int = 0) -> Iterator[Event]:
        for event in self._journal.read(run_id, after):
            self._record([event])
            yield event

    def post(self, run_id: str, message: Any, wakes: Any = ()) -> int:
        number: int = self._journal.post(run_id, message, wakes)
        if isinstance(message, Answer):
            self._ledger.write(Entry("posted", run_id, message.wait, digest(canonical(message.value))))
        return number

    def _record(self, events: Sequence[Event]) -> None:
        for event in events:
            match decode(event):
                case kinds.LlmResponded(call=call, text=text):
                    self._ledger.write(Entry("durable", event.run_id, call, text))
                case kinds.OpStarted(call=call, changes=intended):
                    for change in intended:
                        self._ledger.write(Entry("intended", event.run_id, call, _planned(change.path, change.after)))
                case kinds.RestoreStarted(call=call, changes=intended):
                    for change in intended:
                        self._ledger.write(Entry("intended", event.run_id, call, _planned(change.path, change.before)))
                case kinds.OpCompleted(call=call) | kinds.WorkspaceRestored(call=call):
                    self._ledger.write(Entry("done", event.run_id, call))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


class LedgerSystem:
    """Records file changes; `reyn.workspace.changes` calls it instead of `os`.

    A change starts by removing its own leftover temporary file, so the last temporary name identifies the change.
    Folders are identified by their descriptors, through `/proc`.
    """

    def __init__(self, ledger: Ledger, system: Any = os) -> None:
        self._ledger = ledger
        self._system = system
        self._token = ""

    def rename(self, source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        change = f"{_folder(dst_dir_fd)}/{target} {_content(source, src_dir_fd)}"
        self._ledger.write(Entry("changing", "", source, change))
        self._system.rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        self._ledger.write(Entry("changed", "", source, change))

    def unlink(self, name: str, *, dir_fd: int) -> None:
        if name.startswith(TEMPORARY):
            self._token = name
            self._system.unlink(name, dir_fd=dir_fd)
            return
        change = f"{_folder(dir_fd)}/{name} {DELETED}"
        self._ledger.write(Entry("changing", "", self._token, change))
        self._system.unlink(name, dir_fd=dir_fd)
        self._ledger.write(Entry("changed", "", self._token, change))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._system, name)


@contextmanager
def file_changes_through(system: Any) -> Iterator[None]:
    """Replace `os` in `reyn.workspace.changes`."""
    names = vars(changes)
    before, names["os"] = names["os"], system
    try:
        yield
    finally:
        names["os"] = before


DELETED = "deleted"


def _planned(path: str, content: str | None) -> str:
    """Return the name of a file and the hash of its future content."""
    return f"{path.removeprefix('workspace:').rpartition('/')[2]} {content or DELETED}"


def _folder(handle: int) -> str:
    return os.readlink(f"/proc/self/fd/{handle}")  # noqa: PTH115 - there is only a descriptor


def _content(name: str, folder: int) -> str:
    handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(handle, "rb") as file:
        return digest(file.read())
