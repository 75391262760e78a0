"""A sandbox that cannot start because the machine lacks something fails with the cause, and works again later."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import selectors
import threading
from typing import TYPE_CHECKING

import pytest

from reyn.errors import SandboxStartFailed
from reyn.sandbox import Access, ProgramLimits, PythonStep, StopSignal, in_thread, run_safe
from reyn.sandbox.backends import BACKENDS
from reyn.sandbox.bubblewrap import Bubblewrap
from reyn.sandbox.filters import is_supported
from reyn.sandbox.process import Backend
from reyn.sandbox.python_steps import SPARES
from reyn.sandbox.reaping import Reaped
from reyn.sandbox.supervision import supervise
from reyn.testing.crash import in_child
from tests.attacks.test_sandbox import usable

if TYPE_CHECKING:
    from pathlib import Path

LIMITS = ProgramLimits(seconds=60)
NO_TASKS = "no further processes or threads can be started"


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.name)
def backend(request: pytest.FixtureRequest) -> Backend:
    return usable(request.param)


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)


def test_open_files_are_named(backend: Backend):
    def child() -> None:
        free = os.dup(0)
        os.close(free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (free + 2, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        with pytest.raises(SandboxStartFailed, match=r"too many open files \(the limit of this process, `ulimit -n`"):
            backend.start(("/bin/true",), Access(), LIMITS)

    assert in_child(child) == 0


def test_a_shortage_is_no_property_of_the_machine(backend: Backend, monkeypatch: pytest.MonkeyPatch):
    fresh = type(backend)()
    with monkeypatch.context() as patch:
        patch.setattr(fresh, "spawn", lambda *_: (_ for _ in ()).throw(BlockingIOError(errno.EAGAIN, NO_TASKS)))
        with pytest.raises(SandboxStartFailed, match=NO_TASKS):
            assert fresh.problem
    assert not fresh.problem


@pytest.mark.skipif(not is_supported(), reason="no system-call filter for this machine")
class TestBubblewrapThatFails:
    def fake(self, folder: Path, words: str) -> Bubblewrap:
        program = folder / "bwrap"
        program.write_text(f"#!/bin/sh\necho 'bwrap: {words}' >&2\nexit 1\n")
        program.chmod(0o700)
        return Bubblewrap(str(program))

    def test_a_shortage_is_raised(self, tmp_path: Path):
        words = f"Creating new namespace failed: {os.strerror(errno.EAGAIN)}"
        with pytest.raises(SandboxStartFailed, match=words):
            assert self.fake(tmp_path, words).problem

    def test_anything_else_is_a_problem_of_the_machine(self, tmp_path: Path):
        assert "No permissions" in self.fake(tmp_path, "No permissions to create new namespace").problem


def test_the_failure_of_monty_is_not_the_result_while_cpython_cannot_start(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
):
    def start(*args: object) -> None:
        raise SandboxStartFailed(NO_TASKS)

    monkeypatch.setattr(SPARES, "start", start)
    step = PythonStep({"./m.py": "def f(a):\n    raise ValueError('x')\n"}, "./m.py", "f", {}, 0)
    with pytest.raises(SandboxStartFailed, match=NO_TASKS):
        run_safe(step, LIMITS, backend.name)


def test_a_process_that_cannot_be_supervised_is_ended(monkeypatch: pytest.MonkeyPatch):
    def no_selector() -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    process = Reaped(("/bin/sleep", "600"), "/", {})
    monkeypatch.setattr(selectors, "DefaultSelector", no_selector)
    with pytest.raises(SandboxStartFailed, match="too many open files"):
        supervise(process, b"", LIMITS)
    assert process.process.returncode is not None
    for descriptor in process.streams:
        with pytest.raises(OSError, match=os.strerror(errno.EBADF)):
            os.fstat(descriptor)


@pytest.mark.usefixtures("no_threads")
def test_a_step_without_a_thread_closes_what_it_opened():
    stops: list[StopSignal] = []
    close = StopSignal.close

    async def step() -> None:
        await in_thread(lambda stop: None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StopSignal, "close", lambda stop: (stops.append(stop), close(stop))[1])
        with pytest.raises(SandboxStartFailed, match="can't start new thread"):
            asyncio.run(step())
    assert len(stops) == 1
