"""Kills a run with SIGKILL at every port call and proves, from outside, that nothing was lost or done twice.

`Failpoints` wraps the ports: each call is a point before and a point after, numbered as they come, so the harness
enumerates them by running once. `Ledger` is a file that the ports append to as things happen; it survives the kill and
is the only witness: after a kill and a resume, `violations` reads it and nothing else of the run's own record but what
the run claims at its end.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.journal import digest, kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from reyn.journal import Batch, Event
    from reyn.models import Model, ModelReply, ModelRequest


class Entry(msgspec.Struct, frozen=True):
    """One line of the ledger: what happened (`asked`, `answered`, `durable`) to which call, with which content."""

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
        reply = await self._model.complete(request)
        self._ledger.write(Entry("answered", request.run_id, request.call, digest(reply.text.encode())))
        return reply


class LedgerJournal:
    """A journal that is seen making answers durable. Everything else passes through."""

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

    def _note(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.kind == kinds.LlmResponded.kind:
                self._ledger.write(Entry("durable", event.run_id, event.data["call"], event.data["text"]))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._journal, name)


class Failpoints:
    """Counts the points that the wrapped ports pass and kills its process at one of them."""

    def __init__(self, kill_at: int = 0, trace: Path | None = None) -> None:
        self._kill_at = kill_at
        self._trace = trace
        self._passed = 0

    def pass_by(self, name: str) -> None:
        self._passed += 1
        if self._trace is not None:
            with self._trace.open("a") as handle:
                handle.write(name + "\n")
        if self._passed == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def wrap(self, port: Any, name: str) -> Any:
        return _Wrapped(port, name, self)


class _Wrapped:
    def __init__(self, port: Any, name: str, points: Failpoints) -> None:
        self._port = port
        self._name = name
        self._points = points

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(self._port, attribute)
        if not callable(found):
            return found
        label = f"{self._name}.{attribute}"
        return self._wrap_async(found, label) if inspect.iscoroutinefunction(found) else self._wrap_sync(found, label)

    def _wrap_async(self, method: Any, label: str) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            self._points.pass_by(f"{label} before")
            result = await method(*args, **kwargs)
            self._points.pass_by(f"{label} after")
            return result

        return call

    def _wrap_sync(self, method: Any, label: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            self._points.pass_by(f"{label} before")
            result = method(*args, **kwargs)
            self._points.pass_by(f"{label} after")
            return self._guard(result, label) if hasattr(result, "__enter__") else result

        return call

    @contextmanager
    def _guard(self, held: Any, label: str) -> Iterator[Any]:
        with held as value:
            self._points.pass_by(f"{label} held")
            yield value
            self._points.pass_by(f"{label} releasing")
        self._points.pass_by(f"{label} released")


def in_child(work: Callable[[], None], *, kill_after: float | None = None) -> int:
    """Do the work in a forked process, perhaps killed after some seconds; its exit status, negative for a signal."""
    child = os.fork()
    if child == 0:
        status = 99
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def enumerate_points(drive: Callable[[Failpoints], Any], trace: Path) -> list[str]:
    """The points that one undisturbed drive passes, by name."""
    trace.unlink(missing_ok=True)
    status = in_child(lambda: asyncio.run(drive(Failpoints(trace=trace))))
    if status != 0:
        raise AssertionError(f"the undisturbed drive ended with {status}")
    return trace.read_text().splitlines()


def violations(ledger: list[Entry], claimed: dict[str, str], kills: int) -> list[str]:
    """What the ledger of one run holds against it. `claimed` are the answers that its journal says it was given, by
    call."""
    return [
        *_lost(ledger),
        *_asked_again(ledger, kills),
        *_phantom(ledger, claimed),
    ]


def _lost(ledger: list[Entry]) -> Iterator[str]:
    """Once a later call is asked, the answers to all earlier ones are kept: none of them is asked again."""
    newest: tuple[int, ...] = ()
    for entry in ledger:
        place = tuple(int(number) for number in entry.call.split("."))
        if entry.what == "asked" and place < newest:
            yield f"call {entry.call} was asked again after a later one: its answer was lost"
        newest = max(newest, place)


def _asked_again(ledger: list[Entry], kills: int) -> Iterator[str]:
    """A durable answer is never asked for again; a kill costs one unrecorded answer at the most."""
    durable: set[str] = set()
    asked: list[str] = []
    for entry in ledger:
        if entry.what == "durable":
            durable.add(entry.call)
        elif entry.what == "asked":
            if entry.call in durable:
                yield f"call {entry.call} was asked again although its answer was durable"
            asked.append(entry.call)
    if len(asked) - len(set(asked)) > kills:
        yield f"{len(asked) - len(set(asked))} calls were asked again after {kills} kills"


def _phantom(ledger: list[Entry], claimed: dict[str, str]) -> Iterator[str]:
    """What the journal says was answered was answered, with that text; and what was asked for is in the journal."""
    given = {(entry.call, entry.text) for entry in ledger if entry.what == "answered"}
    for call, text in claimed.items():
        if (call, text) not in given:
            yield f"the journal holds an answer to call {call} that nobody gave"
    for call in {entry.call for entry in ledger if entry.what == "asked"} - claimed.keys():
        yield f"call {call} was asked but the finished run knows nothing of it"
