"""One worker of the cluster that `tests.chaos.cluster` attacks, and the witnesses outside of the journal."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from reyn import OSRuntime
from reyn.engines import Dispatcher, Outbox, Serving
from reyn.engines.absurd import Absurd
from reyn.errors import StoreUnavailable
from reyn.journal import Journal
from reyn.journal.postgres import leases
from reyn.journal.postgres.address import JournalAddress
from reyn.journal.postgres.journal import PostgresJournal
from reyn.models import ModelAnswer, ModelRequest
from reyn.ops import Call, Env, OpForm, OpSpec, Plan
from reyn.testing import ScriptedModel
from reyn.vocabulary.schemas import arguments, result
from tests.support import act, finish, go, question, write_skill

PROJECT = "chaos"
SKILL = "rings"
RINGS = (1, 2)
"""The bells that each run rings once."""
ANSWERS = [
    act({"kind": "ring", "bell": 1}),
    go("second"),
    act(question("Go on?")),
    act({"kind": "ring", "bell": 2}),
    finish(),
]
LEASE_SECONDS = 1.0
UNREACHABLE = 8
"""The status of a worker that could not reach the server (`RYN408`). A service manager starts it again."""


class Witness:
    """A file to which all processes append, each line by one system call."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, *words: object) -> None:
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(handle, (" ".join(map(str, words)) + "\n").encode())
        finally:
            os.close(handle)

    def lines(self) -> list[str]:
        return self._path.read_text().splitlines() if self._path.exists() else []


class RingOp:
    """Rings a bell: unsafe to repeat. The witness notes each ring."""

    _FORM = OpForm(
        None,
        "Ring a bell.",
        arguments("ring", None, {"bell": {"type": "integer"}}),
        "unsafe",
        result("ring", None, {"bell": {"type": "integer"}}),
        {"kind": "ring", "bell": 1},
    )
    spec = OpSpec("ring", "Ring a bell.", "unsafe", forms=(_FORM,))

    def __init__(self, witness: Witness) -> None:
        self._witness = witness

    def plan(self, call: Call, env: Env) -> Plan:
        return Plan("default: ring")

    async def perform(self, call: Call, plan: Plan, env: Env) -> dict:
        self._witness.note(call.key.partition("/")[0], call.args["bell"])
        return call.ok(bell=call.args["bell"])


class NotingModel(ScriptedModel):
    """The witness notes each call before it is answered."""

    def __init__(self, witness: Witness) -> None:
        super().__init__(ANSWERS)
        self._witness = witness

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self._witness.note(request.run_id, request.call)
        return await super().complete(request)


def open_cluster(root: Path, name: str, url: str) -> OSRuntime:
    """Open the folder of one machine."""
    folder = root / name
    folder.mkdir(exist_ok=True)
    if name == "desk" and not (folder / "reyn").exists():
        ops = {"first": "ring", "second": "ring, ask_user"}
        write_skill(folder, SKILL, {"first": ["second"], "second": ["end"]}, ops=ops)
    journal = PostgresJournal(JournalAddress(url, PROJECT))
    model, op = NotingModel(Witness(root / "calls")), RingOp(Witness(root / "rings"))
    return OSRuntime.open(folder, journal=journal, model=model, ops=[op], trust=True)


ENGINES = ("absurd", "outbox", "temporal")


def dispatcher_of(engine: str, journal: Journal) -> Dispatcher:
    """Return the dispatcher of an engine, which is one of `ENGINES` or the address of a server of Temporal."""
    if engine.startswith("temporal:"):
        from reyn.engines.temporal import Temporal, TemporalAddress

        return Temporal(journal, TemporalAddress(engine), PROJECT, lease=LEASE_SECONDS)
    return {"absurd": Absurd, "outbox": Outbox}[engine](journal, lease=LEASE_SECONDS)


def work(root: Path, name: str, url: str, *, engine: str, is_elsewhere: bool) -> None:
    """Serve until SIGTERM. A worker that `is_elsewhere` looks like one of another machine."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if is_elsewhere:
        leases._host = lambda: name
    serving = Serving(queues=("default",), concurrency=2)

    async def serve() -> None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.stop.set)
        async with open_cluster(root, name, url) as runtime:
            dispatcher = dispatcher_of(engine, runtime.services.journal)
            await runtime.workers.serve(serving=serving, dispatcher=dispatcher)

    try:
        asyncio.run(serve())
    except StoreUnavailable:
        sys.exit(UNREACHABLE)
