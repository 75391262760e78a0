"""What happened in the world, written down by the world: a file that outlives the kill.

The model, the people, the journal and the system are wrapped so that they tell what is asked of them. The run never
writes here and never reads here, so what it says of itself can be held against it.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.journal import Answer, canonical, decode, digest, kinds
from reyn.workspace import changes

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from reyn.journal import Batch, Event
    from reyn.journal.kinds import Wait
    from reyn.models import Model, ModelReply, ModelRequest


class Entry(msgspec.Struct, frozen=True):
    """One line: what happened, to which call of which run, with which content.

    asked, answered, durable      the model was asked, it answered, its answer is in the journal
    refused                       the model was asked, and had no answer
    questioned, said, posted      a person was asked, said something, and that is in the inbox
    intended, done                the intent of a change of a file is in the journal; so is what came of it
    changing, changed             a file is about to be another one; it is
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
    """A model that is seen being asked."""

    def __init__(self, model: Model, ledger: Ledger) -> None:
        self._model = model
        self._ledger = ledger

    @property
    def name(self) -> str:
        return self._model.name

    async def complete(self, request: ModelRequest) -> ModelReply:
        self._ledger.write(Entry("asked", request.run_id, request.call))
        try:
            reply = await self._model.complete(request)
        except Exception:
            self._ledger.write(Entry("refused", request.run_id, request.call))
            raise
        self._ledger.write(Entry("answered", request.run_id, request.call, digest(reply.text.encode())))
        return reply


class LedgerPeople:
    """People who are seen being asked."""

    def __init__(self, people: Any, ledger: Ledger) -> None:
        self._people = people
        self._ledger = ledger

    async def ask(self, run_id: str, wait: Wait) -> Any:
        self._ledger.write(Entry("questioned", run_id, wait.id))
        answer = await self._people.ask(run_id, wait)
        self._ledger.write(Entry("said", run_id, wait.id, digest(canonical(answer))))
        return answer


class LedgerJournal:
    """A journal that is seen making things durable. What is read from it is durable, too: a kill may have come after
    the commit and before the ledger's line. Everything else passes through."""

    def __init__(self, journal: Any, ledger: Ledger) -> None:
        self._journal = journal
        self._ledger = ledger

    def append(self, run_id: str, expected_seq: int, events: Sequence[Event], blobs: Any = ()) -> int:
        seq: int = self._journal.append(run_id, expected_seq, events, blobs)
        self._note(events)
        return seq

    def append_many(self, batches: Sequence[Batch]) -> Any:
        results = self._journal.append_many(batches)
        for batch, result in zip(batches, results, strict=True):
            if isinstance(result, int):
                self._note(batch.events)
        return results

    def read(self, run_id: str, after: int = 0) -> Iterator[Event]:
        for event in self._journal.read(run_id, after):
            self._note([event])
            yield event

    def post(self, run_id: str, said: Any) -> int:
        number: int = self._journal.post(run_id, said)
        if isinstance(said, Answer):
            self._ledger.write(Entry("posted", run_id, said.wait, digest(canonical(said.value))))
        return number

    def _note(self, events: Sequence[Event]) -> None:
        for event in events:
            match decode(event):
                case kinds.LlmResponded(call=call, text=text):
                    self._ledger.write(Entry("durable", event.run_id, call, text))
                case kinds.OpStarted(call=call, changes=planned):
                    for change in planned:
                        self._ledger.write(Entry("intended", event.run_id, call, _to_be(change.path, change.after)))
                case kinds.RestoreStarted(call=call, changes=planned):
                    for change in planned:
                        self._ledger.write(Entry("intended", event.run_id, call, _to_be(change.path, change.before)))
                case kinds.OpCompleted(call=call) | kinds.WorkspaceRestored(call=call):
                    self._ledger.write(Entry("done", event.run_id, call))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


class LedgerSystem:
    """The calls of `os` by which files are changed, seen taking place: what `reyn.workspace.changes` calls instead.

    A change begins by removing what is left of itself, so the last temporary name that was seen tells whose change it
    is. Folders are told by their descriptors, through `/proc`.
    """

    def __init__(self, ledger: Ledger, system: Any = os) -> None:
        self._ledger = ledger
        self._system = system
        self._token = ""

    def rename(self, source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        told = f"{_folder(dst_dir_fd)}/{target} {_content(source, src_dir_fd)}"
        self._ledger.write(Entry("changing", "", source, told))
        self._system.rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)
        self._ledger.write(Entry("changed", "", source, told))

    def unlink(self, name: str, *, dir_fd: int) -> None:
        if name.startswith(changes.TEMPORARY):
            self._token = name
            self._system.unlink(name, dir_fd=dir_fd)
            return
        told = f"{_folder(dir_fd)}/{name} {GONE}"
        self._ledger.write(Entry("changing", "", self._token, told))
        self._system.unlink(name, dir_fd=dir_fd)
        self._ledger.write(Entry("changed", "", self._token, told))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._system, name)


@contextmanager
def file_changes_through(system: Any) -> Iterator[None]:
    """Let changes of files reach the system through something that looks like `os`."""
    names = vars(changes)
    before, names["os"] = names["os"], system
    try:
        yield
    finally:
        names["os"] = before


GONE = "gone"


def _to_be(path: str, content: str | None) -> str:
    """A file's own name and the content it is to have."""
    return f"{path.removeprefix('workspace:').rpartition('/')[2]} {content or GONE}"


def _folder(handle: int) -> str:
    return os.readlink(f"/proc/self/fd/{handle}")  # noqa: PTH115 - no path is at hand


def _content(name: str, folder: int) -> str:
    handle = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
    with os.fdopen(handle, "rb") as file:
        return digest(file.read())
