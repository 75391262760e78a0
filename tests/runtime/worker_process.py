"""A worker whose model writes every call to a file: `python worker_process.py PROJECT WITNESS`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from reyn import OSRuntime
from reyn.engines import Outbox, Serving
from reyn.models import ModelAnswer
from tests.support import finish, go

PHASES = ("one", "two", "three", "four")
LEASE = 0.6


class Witness:
    """Answers by phase, and writes each call to a file that no journal knows."""

    name, answer_form, takes_time = "witness", "full", True

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    async def complete(self, request: Any) -> ModelAnswer:
        os.write(self._file, f"{os.getpid()} {request.run_id} {request.phase}\n".encode())
        await asyncio.sleep(0.02)
        following = PHASES[PHASES.index(request.phase) + 1 :] if request.phase in PHASES else ()
        return ModelAnswer(json.dumps(go(following[0]) if following else finish("done")))


async def work(project: str, witness: str) -> None:
    async with OSRuntime.open(project, model=Witness(witness), trust=True) as rt:
        serving = Serving(queues=("default",), concurrency=2)
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.stop.set)
        await rt.workers.serve(serving=serving, dispatcher=Outbox(rt.services.journal, LEASE))


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
