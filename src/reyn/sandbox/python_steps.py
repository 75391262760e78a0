"""Execute python steps: safe ones in Monty or in CPython inside the process sandbox, unsafe ones unconfined."""

from __future__ import annotations

import json
import threading
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import SandboxStartFailed, SandboxUnavailable
from reyn.sandbox import monty
from reyn.sandbox.backends import choose_backend
from reyn.sandbox.interpreter_choice import needs_cpython
from reyn.sandbox.results import PythonFailed, PythonResult, StepOutput
from reyn.sandbox.spares import SPARES
from reyn.sandbox.supervision import supervise
from reyn.sandbox.system import python_program
from reyn.sandbox.unconfined import run_unconfined
from reyn.sandbox.values import Access

if TYPE_CHECKING:
    from reyn.config.values import PythonSandbox
    from reyn.sandbox.backends import BackendName
    from reyn.sandbox.supervision import Stop
    from reyn.sandbox.values import Limits, Outcome

_HARNESS = Path(__file__).with_name("harness.py")
_OPTIONS = ("-S", "-s", "-P", "-B")
_ENV = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}


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


class SandboxChoice(msgspec.Struct, frozen=True):
    """The sandbox that a safe step runs in: `monty` or `process`, and why it is not `monty`."""

    sandbox: str
    reason: str = ""


_failed_in_monty: dict[str, str] = {}
"""Why modules that look as if Monty could run them need CPython, by source."""
_lock = threading.Lock()


def choose_sandbox(source: str, sandbox: PythonSandbox = "auto") -> SandboxChoice:
    """Return the sandbox for the source of a module; `sandbox` is the operator's choice."""
    if sandbox == "process":
        return SandboxChoice("process", "`python.sandbox` is `process`")
    if reason := needs_cpython(source) or _failed_in_monty.get(source, ""):
        return SandboxChoice("process", reason)
    problem = monty.problem()
    return SandboxChoice("process", problem) if problem else SandboxChoice("monty")


def run_safe(
    step: PythonStep,
    limits: Limits,
    backend: BackendName = "auto",
    stop: Stop | None = None,
    *,
    sandbox: PythonSandbox = "auto",
) -> PythonResult:
    """Execute a safe step: without files, network and processes, and with a fixed clock and seed.

    A step that fails in Monty is executed again by CPython: it has no effects, and CPython's answer is the right one.

    Raises:
        PythonFailed: The step failed or exceeded a limit.
        SandboxUnavailable: It needs the process sandbox, and there is none.
        SandboxStartFailed: The machine lacks something that the process sandbox needs.
    """
    choice = choose_sandbox(step.source, sandbox)
    note = choice.reason
    if sandbox == "monty" and choice.sandbox != "monty":
        message = f"the step needs CPython in the process sandbox, because {note}; `python.sandbox` is `monty`"
        raise SandboxUnavailable(message)
    if choice.sandbox == "monty":
        try:
            return monty.run_monty(step.source, step.function, step.artifact, step.clock, limits)
        except monty.MontyFailed as failure:
            if failure.is_final or sandbox == "monty":
                raise
            note = f"it failed in Monty: {failure.message}"
            first = failure
    else:
        first = None
    try:
        result = _run_cpython(step, limits, backend, stop, note)
    except SandboxStartFailed:
        raise  # without CPython's answer, neither a result nor a failure is known
    except SandboxUnavailable as error:
        if first is not None:
            raise first from error
        message = f"the step needs CPython in the process sandbox, because {choice.reason}; {error.message}"
        raise SandboxUnavailable(message) from error
    if first is not None:
        with _lock:
            if len(_failed_in_monty) < 1_000:
                _failed_in_monty[step.source] = note
    return result


def _run_cpython(step: PythonStep, limits: Limits, backend: BackendName, stop: Stop | None, note: str) -> PythonResult:
    chosen = choose_backend(backend)
    argv = (python_program(), *_OPTIONS, "-c", _harness())
    process = SPARES.start(chosen, argv, Access(env=_ENV), limits)
    outcome = supervise(process, _request(step, step.clock), limits, stop)
    return _result(outcome, chosen.name, limits, note)


def run_unsafe(
    step: PythonStep, cwd: str, env: dict[str, str], limits: Limits, stop: Stop | None = None
) -> PythonResult:
    """Execute an unsafe step with the user's own rights.

    Raises:
        PythonFailed: The step failed or exceeded a limit.
    """
    import sys

    argv = (sys.executable, "-P", str(_HARNESS))
    outcome = run_unconfined(argv, cwd, limits, env=env, stdin=_request(step, None), stop=stop)
    return _result(outcome, "none", limits, "")


def _request(step: PythonStep, clock: int | None) -> bytes:
    """Return the line that the harness reads."""
    request = {
        "sources": step.sources,
        "module": step.module,
        "function": step.function,
        "artifact": step.artifact,
        "clock": clock,
    }
    return json.dumps(request).encode() + b"\n"


@cache
def _harness() -> str:
    return _HARNESS.read_text()


class _Answer(msgspec.Struct):
    value: Any = None
    error: str = ""


def _result(outcome: Outcome, sandbox: str, limits: Limits, note: str) -> PythonResult:
    output = StepOutput(limits.output_bytes)
    output.add(outcome.stderr)
    output.truncated = outcome.truncated
    if outcome.status != "exited":
        raise PythonFailed(outcome.reason, sandbox, output, timed_out=outcome.status == "timeout")
    try:
        answer = msgspec.json.decode(outcome.stdout, type=_Answer)
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
