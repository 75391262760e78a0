"""Python steps that do not end, or fail with a lot of text, in Monty: they stop with their run and with Reyn.

The attacker controls the module of a skill that needs no trust. The oracle is outside: the processes that the kernel
lists, and the memory that this process allocates.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from reyn.sandbox import ProgramLimits, PythonFailed, StopSignal, in_thread, monty
from reyn.sandbox.monty import MontyWorkers, run_monty
from reyn.sandbox.tasks import open_process

ENDLESS = {
    "a loop": "def f(a):\n    while True:\n        pass\n",
    "a loop that catches everything": (
        "def f(a):\n    while True:\n        try:\n            while True:\n                pass\n"
        "        except BaseException:\n            pass\n"
    ),
    "a loop of the module": "while True:\n    pass\ndef f(a):\n    return 1\n",
    "one long operation": "def f(a):\n    return sum(range(10 ** 15))\n",
}
HONEST = "def f(a):\n    return 1\n"
LONG = ProgramLimits(seconds=600)


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> Iterator[MontyWorkers]:
    """Workers of this test alone."""
    fresh = MontyWorkers()
    monkeypatch.setattr(monty, "MONTY_WORKERS", fresh)
    yield fresh
    fresh.close()


def computing(parent: int, deadline: float) -> int | None:
    """The worker of a process that has used CPU time; `None` if there is none yet."""
    assert time.monotonic() < deadline
    with suppress(OSError):  # a thread has ended in the meantime
        for thread in Path(f"/proc/{parent}/task").iterdir():
            for pid in map(int, (thread / "children").read_text().split()):
                name, _, fields = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
                if name == "monty" and int(fields.split()[11]) >= 2:
                    return pid
    return None


def has_ended(process: int) -> bool:
    """Wait for the end of a process by its descriptor."""
    end = select.poll()
    end.register(process, select.POLLIN)
    try:
        return bool(end.poll(20_000))
    finally:
        os.close(process)


@pytest.mark.parametrize("source", ENDLESS.values(), ids=ENDLESS)
def test_a_cancelled_step_ends_its_worker_and_leaves_room_for_the_next(
    source: str, workers: MontyWorkers, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(monty, "_MAX_WORKERS", 1)

    async def cancelled() -> int:
        step = asyncio.create_task(in_thread(partial(run_monty, source, "f", {}, 0, LONG)))
        deadline = time.monotonic() + 30
        while (worker := computing(os.getpid(), deadline)) is None:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.005)
        process = open_process(worker)
        step.cancel()
        with pytest.raises(asyncio.CancelledError):
            await step
        return process

    assert has_ended(asyncio.run(cancelled()))
    assert run_monty(HONEST, "f", {}, 0, LONG).value == 1


def test_a_step_of_a_stopped_run_is_not_executed(workers: MontyWorkers):
    stop = StopSignal()
    stop.set()
    with pytest.raises(PythonFailed, match="the run was stopped") as failed:
        run_monty(ENDLESS["a loop"], "f", {}, 0, LONG, stop)
    stop.close()
    assert not failed.value.timed_out


def test_a_step_waits_for_a_worker_within_a_limit(workers: MontyWorkers, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(monty, "_MAX_WORKERS", 1)
    monkeypatch.setattr(monty, "_WAIT_SECONDS", 0.05)
    with (
        workers.checkout(LONG, 0, None),
        pytest.raises(PythonFailed, match=r"all 1 interpreters were busy for 0\.05 seconds") as failed,
    ):
        run_monty(HONEST, "f", {}, 0, LONG)
    assert failed.value.timed_out
    assert run_monty(HONEST, "f", {}, 0, LONG).value == 1


PROGRAM = """
import sys, threading
from reyn.sandbox import ProgramLimits
from reyn.sandbox.monty import run_monty
step = threading.Thread(target=run_monty, args=(sys.argv[1], "f", {}, 0, ProgramLimits(seconds=600)), daemon=True)
step.start()
sys.stdin.read()
"""


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, None], ids=str)
def test_a_worker_ends_with_the_process_of_reyn(end: signal.Signals | None):
    argv = [sys.executable, "-c", PROGRAM, ENDLESS["a loop that catches everything"]]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as reyn:
        deadline = time.monotonic() + 30
        while (worker := computing(reyn.pid, deadline)) is None:
            assert reyn.poll() is None
            time.sleep(0.005)
        process = open_process(worker)
        if end is not None:
            reyn.send_signal(end)
    assert has_ended(process)


def test_a_guard_that_was_killed_is_replaced(workers: MontyWorkers):
    run_monty(HONEST, "f", {}, 0, LONG)
    assert workers._guard is not None
    first = workers._guard
    first.kill()
    first.wait()
    assert run_monty(HONEST, "f", {}, 0, LONG).value == 1
    assert workers._guard is not None
    assert workers._guard.poll() is None


LARGE_ERRORS = {
    "a message": "def f(a):\n    raise ValueError('x' * 10_000_000)\n",
    "a message of the module": "raise ValueError('x' * 10_000_000)\ndef f(a):\n    return 1\n",
    "a cause": (
        "def f(a):\n    try:\n        raise KeyError('x' * 10_000_000)\n"
        "    except KeyError as error:\n        raise ValueError('y' * 10_000_000) from error\n"
    ),
    "the end of the interpreter": "def f(a):\n    raise SystemExit('x' * 10_000_000)\n",
    "with names that the source replaces": (
        "def str(a):\n    return 'x' * 10_000_000\ndef type(a):\n    return str\n"
        "BaseException = ValueError\ndef f(a):\n    raise KeyError('x' * 10_000_000)\n"
    ),
}


@pytest.mark.parametrize("source", LARGE_ERRORS.values(), ids=LARGE_ERRORS)
def test_the_text_of_an_error_is_truncated_before_it_is_large_here(source: str):
    run_monty(HONEST, "f", {}, 0, ProgramLimits())
    tracemalloc.start()
    try:
        with pytest.raises(PythonFailed) as failed:
            run_monty(source, "f", {}, 0, ProgramLimits())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(failed.value.message) < 2_100
    assert peak < 1_000_000


def test_an_error_that_a_step_names_like_a_limit_is_not_final():
    with pytest.raises(monty.MontyFailed, match="TimeoutError: mine") as failed:
        run_monty("def f(a):\n    raise TimeoutError('mine')\n", "f", {}, 0, ProgramLimits())
    assert not failed.value.is_final
    assert not failed.value.timed_out
