"""Run a python step in Monty: an interpreter of a part of Python without access to the system, in worker processes.

Sources that need more are for CPython (`interpreter_choice`). The workers live as long as this process: one that waits
ends with its input, and a guard process kills those that execute a step.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import SandboxStartFailed
from reyn.sandbox.process import find_shortage

if TYPE_CHECKING:
    from pydantic_monty import Monty, MontyError

    from reyn.sandbox.supervision import ProgramLimits, StopSignal

_LIMITS = (TimeoutError, MemoryError)
_MAX_ERROR = 2_000
_MAX_WORKERS = 32
_WAIT_SECONDS = 30.0
_STEP = """
def step(source, function, artifact, most, longest_error, exec=exec, type=type, isinstance=isinstance, len=len, str=str,
         bytes=bytes, int=int, list=list, tuple=tuple, set=set, frozenset=frozenset, dict=dict, float=float,
         BaseException=BaseException, TypeError=TypeError, MemoryError=MemoryError):
    import datetime, decimal
    containers = (list, tuple, set, frozenset)
    texts_and_containers = (str, bytes, dict, *containers)
    numbers = (int, decimal.Decimal)
    others = (float, datetime.date, datetime.time, datetime.timedelta)
    module = {"__name__": "__main__"}
    try:
        exec(source, module)
        result = module[function](artifact)
    except BaseException as error:
        return ["error", type(error).__name__ + ": " + str(error)[:longest_error]]
    values, room = [result], most
    while values:
        value = values.pop()
        room -= 1
        if isinstance(value, texts_and_containers):
            room -= len(value)
        elif isinstance(value, numbers):
            room -= len(str(value))
        elif not (value is None or isinstance(value, others)):
            raise TypeError("its result is not JSON")
        if room < -2:
            raise MemoryError("its result is larger than " + str(most) + " bytes")
        if isinstance(value, dict):
            values.extend(value.keys())
            values.extend(value.values())
        elif isinstance(value, containers):
            values.extend(value)
    return ["result", result]
"""
"""Executes a step in Monty, and measures its result and its error there: a text by many references is small there and
large in this process. It cannot catch the errors of a limit, which are short.

It has the functions that it uses as defaults: the source may replace them.
"""
_GUARD = """
import os, signal, sys
workers = ""
for workers in sys.stdin:
    pass
for pid in workers.split():
    try:
        os.kill(int(pid), signal.SIGKILL)
    except OSError:
        pass
"""
"""Reads lines that list the workers that execute a step, and kills those of the last line when its input ends."""


class StepOutput:
    """The printed output of a step, up to a limit."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._content = bytearray()
        self.truncated = False

    def add(self, text: bytes) -> None:
        room = self._most - len(self._content)
        self._content += text[:room]
        self.truncated = self.truncated or len(text) > room

    @property
    def text(self) -> str:
        return self._content.decode("utf-8", "replace")


class PythonResult(msgspec.Struct, frozen=True):
    """The value that a step returned, and which sandbox executed it. `note` says why it was not Monty."""

    value: Any
    sandbox: str
    output: StepOutput
    note: str = ""


class PythonFailed(Exception):
    """A python step raised an exception, exceeded a limit, or returned a value that is not JSON."""

    def __init__(self, message: str, sandbox: str, output: StepOutput, *, timed_out: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.sandbox = sandbox
        self.output = output
        self.timed_out = timed_out


def monty_problem() -> str:
    """Return why Monty cannot be used in this process; empty if it can."""
    from importlib.util import find_spec

    if find_spec("pydantic_monty") is None:
        return "the package `pydantic-monty` is not installed (extra `sandbox`)"
    # Its threads do not exist in a forked process, which would wait for them for ever.
    return "this process was forked from one that uses Monty" if MONTY_WORKERS.is_inherited else ""


class MontyFailed(PythonFailed):
    """The step failed in Monty. Unless `is_final`, CPython may be able to execute it."""

    def __init__(self, message: str, output: StepOutput, *, is_final: bool, timed_out: bool = False) -> None:
        super().__init__(message, "monty", output, timed_out=timed_out)
        self.is_final = is_final


def run_monty(
    source: str,
    function: str,
    artifact: dict[str, Any],
    clock: int,
    limits: ProgramLimits,
    stop: StopSignal | None = None,
) -> PythonResult:
    """Call a function of a module.

    Args:
        source: The source of the module.
        function: The name of the function.
        artifact: Its argument.
        clock: The time that the module sees, in microseconds since 1970.
        limits: Time, memory and output.
        stop: Ends the step when it is set.

    Raises:
        MontyFailed: The module or the function failed, exceeded a limit, or was stopped.
        SandboxStartFailed: The machine lacks something that a process needs.
    """
    from pydantic_monty import MontyError

    output = StepOutput(limits.output_bytes)
    inputs: dict[str, Any] = {"source": source, "function": function, "artifact": artifact}
    inputs |= {"most": limits.output_bytes, "longest_error": _MAX_ERROR}
    try:
        with MONTY_WORKERS.checkout(limits, clock, stop) as session:
            session.feed_run(_STEP)
            outcome, value = session.feed_run(
                f"step({', '.join(inputs)})",
                inputs=inputs,
                print_callback=lambda stream, text: output.add(text.encode("utf-8", "surrogatepass")),
            )
    except (TimeoutError, MontyError) as error:
        raise _failure(error, output, stop) from error
    if outcome == "error":
        raise MontyFailed(value, output, is_final=False)
    try:
        return PythonResult(json.loads(json.dumps(value, default=str, allow_nan=False)), "monty", output)
    except (TypeError, ValueError, RecursionError) as error:
        raise MontyFailed(f"its result is not JSON: {error}", output, is_final=False) from error


def _failure(error: TimeoutError | MontyError, output: StepOutput, stop: StopSignal | None) -> MontyFailed:
    """Return why a step has no outcome: no worker was free, its worker was ended, or a limit was exceeded."""
    from pydantic_monty import MontyCrashedError

    if isinstance(error, TimeoutError):
        message = f"all {_MAX_WORKERS} interpreters were busy for {_WAIT_SECONDS:g} seconds"
        return MontyFailed(message, output, is_final=True, timed_out=True)
    if isinstance(error, MontyCrashedError):
        if stop is not None and stop.is_set:
            return MontyFailed("the run was stopped", output, is_final=True)
        return MontyFailed(f"its interpreter was ended: {error}", output, is_final=True, timed_out=True)
    cause = error.exception()
    return MontyFailed(
        f"{type(cause).__name__}: {cause}"[:_MAX_ERROR],
        output,
        is_final=isinstance(cause, _LIMITS),
        timed_out=isinstance(cause, TimeoutError),
    )


def _kill(pid: int) -> None:
    with suppress(OSError):  # it has ended in the meantime
        os.kill(pid, signal.SIGKILL)


class MontyWorkers:
    """The worker processes of this process, and the guard that ends those that execute a step."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pool: Monty | None = None
        self._owner = 0
        """The process that opened the pool."""
        self._busy: set[int] = set()
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def is_inherited(self) -> bool:
        """Whether this process was forked from the one that opened the pool."""
        return self._owner not in {0, os.getpid()}

    @contextmanager
    def checkout(self, limits: ProgramLimits, clock: int, stop: StopSignal | None) -> Iterator[Any]:
        """Yield a session with a worker, which is killed when `stop` is set or this process ends.

        Raises:
            TimeoutError: No worker was free.
            SandboxStartFailed: No guard can be started.
        """
        session = self._open().checkout(
            script_name="step.py",
            limits={"max_feed_duration_secs": limits.seconds, "max_memory": limits.memory_bytes},
            os_policy={
                "datetime": datetime.fromtimestamp(clock / 1_000_000, UTC),
                "sleep": "zero",
                "random_start": {"seed": 0},
            },
        )
        with session:
            pid = session.worker_pid
            assert pid is not None
            self._mark(pid, is_busy=True)
            try:
                with nullcontext() if stop is None else stop.calling(partial(_kill, pid)):
                    yield session
            finally:
                self._mark(pid, is_busy=False)

    def _open(self) -> Monty:
        from pydantic_monty import Monty as Pool

        with self._lock:
            if self._pool is None:
                # Workers are started when they are needed; each has the environment of this process, which a step
                # cannot read.
                self._pool = Pool(min_processes=1, max_processes=_MAX_WORKERS, checkout_timeout=_WAIT_SECONDS)
                self._pool.__enter__()
                self._owner = os.getpid()
            return self._pool

    def _mark(self, pid: int, *, is_busy: bool) -> None:
        with self._lock:
            self._busy = self._busy | {pid} if is_busy else self._busy - {pid}
            line = f"{' '.join(map(str, self._busy))}\n".encode()
            try:
                self._write(line)
            except BrokenPipeError:  # the guard was ended from outside
                self._close_guard()
                self._write(line)

    def _write(self, line: bytes) -> None:
        if self._guard is None:
            if not self._busy:
                return
            argv = [sys.executable, "-I", "-S", "-c", _GUARD]
            null = subprocess.DEVNULL
            try:
                self._guard = subprocess.Popen(  # noqa: S603 - this interpreter
                    argv, stdin=subprocess.PIPE, stdout=null, stderr=null, bufsize=0, cwd="/", start_new_session=True
                )
            except OSError as error:
                raise SandboxStartFailed(f"no process can be started: {find_shortage(error) or error}") from error
        assert self._guard.stdin is not None
        self._guard.stdin.write(line)

    def _close_guard(self) -> None:
        guard, self._guard = self._guard, None
        if guard is not None:
            assert guard.stdin is not None
            guard.stdin.close()
            guard.wait()

    def close(self) -> None:
        """End the workers, also those that execute a step."""
        if self._owner == os.getpid():
            with self._lock:
                self._close_guard()
                self._busy = set()
                pool, self._pool = self._pool, None
            if pool is not None:
                with suppress(Exception):
                    pool.__exit__(None, None, None)


MONTY_WORKERS = MontyWorkers()
atexit.register(MONTY_WORKERS.close)
