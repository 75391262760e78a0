"""Execute python steps: safe ones in Monty or in CPython inside the process sandbox, unsafe ones unconfined."""

from __future__ import annotations

import atexit
import json
import os
import queue
import select
import sys
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.errors import SandboxStartFailed, SandboxUnavailable
from reyn.sandbox import monty
from reyn.sandbox.backends import BackendName, choose_backend
from reyn.sandbox.harness import PACKAGES
from reyn.sandbox.interpreter_choice import needs_cpython
from reyn.sandbox.monty import PythonFailed, PythonResult, StepOutput
from reyn.sandbox.process import Backend, python_program
from reyn.sandbox.reaping import run_unconfined
from reyn.sandbox.supervision import Access, Outcome, ProgramLimits, Running, StopSignal, supervise
from reyn.sandbox.tasks import open_process

if TYPE_CHECKING:
    from reyn.config.values import PythonSandbox

_HARNESS = Path(__file__).with_name("harness.py")
_OPTIONS = ("-S", "-s", "-P", "-B")
_PACKAGE_OPTIONS = tuple(option for option in _OPTIONS if option != "-S")
"""`-S` would leave out the packages of an environment."""
_ENV = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}


class StepEnvironment(NamedTuple):
    """The environment with packages of a step: its interpreter, and what a sandbox has to show of it."""

    program: str
    shown: tuple[str, ...]


class PythonStep(msgspec.Struct, frozen=True):
    """A call of a skill's function.

    Attributes:
        sources: The sources of the skill's modules, by path.
        module: The path of the module, for example `./units.py`.
        function: The function.
        artifact: Its argument.
        clock: The time that a safe step sees, in microseconds since 1970.
    """

    sources: dict[str, str]
    module: str
    function: str
    artifact: dict[str, Any]
    clock: int

    @property
    def source(self) -> str:
        return self.sources[self.module]


_failed_in_monty: dict[str, str] = {}
"""Why modules that look as if Monty could run them need CPython, by source."""


def _not_in_monty(source: str, sandbox: PythonSandbox) -> str:
    """Return why a module runs in the process sandbox; empty if Monty can run it."""
    if sandbox == "process":
        return "`python.sandbox` is `process`"
    return needs_cpython(source) or _failed_in_monty.get(source, "") or monty.monty_problem()


def run_safe(
    step: PythonStep,
    limits: ProgramLimits,
    backend: BackendName = "auto",
    stop: StopSignal | None = None,
    *,
    sandbox: PythonSandbox = "auto",
    private: tuple[str, ...] = (),
    environment: StepEnvironment | None = None,
) -> PythonResult:
    """Execute a safe step: without files, network and processes, and with a fixed clock and seed.

    `private` are paths that the process sandbox does not show among the files of the system. In the process sandbox, a
    step with an `environment` can import its packages.

    A step that fails in Monty is executed again by CPython: it has no effects, and CPython's answer is the right one.

    Raises:
        PythonFailed: The step failed or exceeded a limit.
        SandboxUnavailable: It needs the process sandbox, and there is none.
        SandboxStartFailed: The machine lacks something that the process sandbox needs.
    """
    note = reason = _not_in_monty(step.source, sandbox)
    first: monty.MontyFailed | None = None
    if reason and sandbox == "monty":
        message = f"the step needs CPython in the process sandbox, because {note}; `python.sandbox` is `monty`"
        raise SandboxUnavailable(message)
    if not reason:
        try:
            return monty.run_monty(step.source, step.function, step.artifact, step.clock, limits, stop)
        except monty.MontyFailed as failure:
            if failure.is_final or sandbox == "monty":
                raise
            note = f"it failed in Monty: {failure.message}"
            first = failure
    try:
        result = _run_cpython(step, limits, choose_backend(backend), stop, private, environment, note)
    except SandboxStartFailed:
        raise  # without CPython's answer, neither a result nor a failure is known
    except SandboxUnavailable as error:
        if first is not None:
            raise first from error
        message = f"the step needs CPython in the process sandbox, because {reason}; {error.message}"
        raise SandboxUnavailable(message) from error
    if first is not None and len(_failed_in_monty) < 1_000:
        _failed_in_monty[step.source] = note
    return result


def _run_cpython(
    step: PythonStep,
    limits: ProgramLimits,
    chosen: Backend,
    stop: StopSignal | None,
    private: tuple[str, ...],
    environment: StepEnvironment | None,
    note: str,
) -> PythonResult:
    access = Access(environment.shown if environment is not None else (), env=_ENV, private=private)
    command = (python_program(), *_OPTIONS) if environment is None else (environment.program, *_PACKAGE_OPTIONS)
    arguments = ("-c", _harness()) if environment is None else ("-c", _harness(), PACKAGES)
    process = SPARES.start(chosen, (*command, *arguments), access, limits)
    outcome = supervise(process, _request(step, step.clock, has_packages=environment is not None), limits, stop)
    return _result(outcome, chosen.name, limits, note)


def run_unsafe(
    step: PythonStep,
    cwd: str,
    env: dict[str, str],
    limits: ProgramLimits,
    stop: StopSignal | None = None,
    program: str = sys.executable,
) -> PythonResult:
    """Execute an unsafe step with the user's own rights, with an interpreter.

    Raises:
        PythonFailed: The step failed or exceeded a limit.
    """
    argv = (program, "-P", str(_HARNESS))
    outcome = run_unconfined(argv, cwd, limits, env=env, stdin=_request(step, None), stop=stop)
    return _result(outcome, "none", limits, "")


def _request(step: PythonStep, clock: int | None, *, has_packages: bool = False) -> bytes:
    """Return the line that the harness reads."""
    request = {
        "sources": step.sources,
        "module": step.module,
        "function": step.function,
        "artifact": step.artifact,
        "clock": clock,
        "has_packages": has_packages,
    }
    return json.dumps(request).encode() + b"\n"


@cache
def _harness() -> str:
    return _HARNESS.read_text()


class _StepAnswer(msgspec.Struct):
    value: Any = None
    error: str = ""


def _result(outcome: Outcome, sandbox: str, limits: ProgramLimits, note: str) -> PythonResult:
    output = StepOutput(limits.output_bytes)
    output.add(outcome.stderr)
    output.truncated = outcome.truncated
    if outcome.status != "exited":
        raise PythonFailed(outcome.reason, sandbox, output, timed_out=outcome.status == "timeout")
    try:
        answer = msgspec.json.decode(outcome.stdout, type=_StepAnswer)
    except (msgspec.DecodeError, UnicodeDecodeError):
        if outcome.truncated and len(outcome.stdout) >= limits.output_bytes:
            message = f"its result is larger than {limits.output_bytes} bytes"
        else:
            # The sandbox itself reports here why it could not run the interpreter.
            words = outcome.stderr.decode("utf-8", "replace").strip().partition("\n")[0][:200]
            message = f"it ended without a result (exit code {outcome.returncode}); "
            message += words or "it may have run out of memory"
        raise PythonFailed(message, sandbox, output) from None
    if answer.error:
        raise PythonFailed(answer.error, sandbox, output)
    return PythonResult(answer.value, sandbox, output, note)


# -- interpreters that are started ahead ----------------------------------------------------------------------
# Starting an interpreter takes most of the time of a step. A process executes one step and ends, so no step can leave
# anything behind for the next one. The first step of a kind starts its own process; from then on, the next one is
# started while the current one runs.


_Kind = tuple[str, tuple[str, ...], Access, ProgramLimits]
"""The settings that a process was started with: its backend, program, access and limits."""


class Spares:
    """The interpreter that is started ahead in this process, if any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spare: tuple[_Kind, Running] | None = None
        self._orders: queue.SimpleQueue[tuple[_Kind, Backend, Access, ProgramLimits]] = queue.SimpleQueue()
        self._owner = 0
        """The process that this object belongs to."""

    def start(self, backend: Backend, argv: tuple[str, ...], access: Access, limits: ProgramLimits) -> Running:
        """Return a process that waits for its step, and order the next one."""
        # The time limit does not matter before it gets a step.
        kind = (backend.name, argv, access, msgspec.structs.replace(limits, seconds=0.0))
        process = self._take(kind) or backend.start(argv, access, limits)
        self._orders.put((kind, backend, access, limits))
        return process

    def _take(self, kind: _Kind) -> Running | None:
        with self._lock:
            if self._owner != os.getpid():  # a forked process has neither the thread nor the spare
                self._owner, self._spare, self._orders = os.getpid(), None, queue.SimpleQueue()
                # The kernel ends a sandbox with the thread that started it, so this thread never ends.
                threading.Thread(target=self._work, args=(self._orders,), name="reyn-spares", daemon=True).start()
            found, self._spare = self._spare, None
        if found is None:
            return None
        if found[0] == kind and not _has_ended(found[1].pid):
            return found[1]
        found[1].discard()
        return None

    def _work(self, orders: queue.SimpleQueue[tuple[_Kind, Backend, Access, ProgramLimits]]) -> None:
        while True:
            kind, backend, access, limits = orders.get()
            with self._lock:
                is_needed = orders.empty() and self._spare is None
            if is_needed:
                with suppress(OSError, RuntimeError, SandboxStartFailed):
                    process = backend.start(kind[1], access, limits)
                    with self._lock:
                        self._spare = (kind, process)

    def close(self) -> None:
        """End the spare."""
        with self._lock:
            found, self._spare = self._spare, None
        if found is not None and self._owner == os.getpid():
            found[1].discard()


def _has_ended(pid: int) -> bool:
    try:
        descriptor = open_process(pid)
    except OSError:
        return True
    try:
        ended = select.poll()  # unlike `select`, it takes descriptors above 1,023
        ended.register(descriptor, select.POLLIN)
        return bool(ended.poll(0))
    finally:
        os.close(descriptor)


SPARES = Spares()
atexit.register(SPARES.close)
