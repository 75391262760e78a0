"""Measure the wall-clock time of a call of each sandbox.

A call of the process sandbox needs a new interpreter, so its time depends on the load of the machine. Between two steps
is a pause, as between the visits of a run, in which the next interpreter is started ahead.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from reyn.sandbox import ProgramLimits, PythonStep, run_program, run_safe
from reyn.sandbox.backends import BACKENDS
from reyn.sandbox.supervision import Access

MONTY = "import math\n\n\ndef f(artifact):\n    return {'root': math.sqrt(sum(artifact['data']['numbers']))}\n"
CPYTHON = "import string\n\n\ndef f(artifact):\n    return string.capwords(str(sum(artifact['data']['numbers'])))\n"
ARTIFACT = {"type": "numbers", "data": {"numbers": list(range(100))}}
_PAUSE = 0.5


def _step(source: str) -> PythonStep:
    return PythonStep({"./m.py": source}, "./m.py", "f", ARTIFACT, 1_700_000_000_000_000)


def _median(call: Callable[[], Any], count: int, pause: float = 0.0) -> float:
    call()  # starts workers and fills caches
    times = []
    for _ in range(count):
        time.sleep(pause)
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


def measure_calls(count: int) -> dict[str, float]:
    """Return the milliseconds of a Monty step, and of a CPython step and a program in each usable backend."""
    found = {"monty_step_ms": _median(partial(run_safe, _step(MONTY), ProgramLimits()), count * 5)}
    for backend in BACKENDS:
        if not backend.problem:
            name: Any = backend.name
            step = partial(run_safe, _step(CPYTHON), ProgramLimits(), name)
            program = partial(run_program, backend, ("/bin/true",), Access(), ProgramLimits())
            found[f"{name}_step_ms"] = _median(step, count, pause=_PAUSE)
            found[f"{name}_program_ms"] = _median(program, count)
    return found
