"""Temporal's development server, which starts without a network."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from reyn.engines.temporal import Temporal, TemporalAddress
from reyn.errors import EngineUnavailable
from reyn.journal import MemoryJournal

_PROGRAM = Path(sys.executable).with_name("temporal")


def free_port() -> int:
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def development_server(port: int) -> Iterator[str]:
    """Start the server, and yield its address when it answers."""
    options = ["--ip", "127.0.0.1", "--port", str(port), "--headless", "--log-level", "never"]
    process = subprocess.Popen(
        [_PROGRAM, "server", "start-dev", *options], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        address = f"temporal://127.0.0.1:{port}/default"
        while True:
            with suppress(EngineUnavailable):
                Temporal(MemoryJournal(), TemporalAddress(address), "probe").inspect()
                break
            assert process.poll() is None
        yield address
    finally:
        process.kill()
        process.wait()
