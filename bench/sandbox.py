"""Measure what a call of a sandbox costs: wall-clock time, and the CPU of the processes that it starts.

Run `python -m bench.sandbox`. A call of the process sandbox needs a new interpreter, so its time depends on the load
of the machine. Between two steps is a pause, as between the visits of a run, in which the next one is started ahead.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from reyn.sandbox import Limits, PythonStep, run_safe
from reyn.sandbox.backends import BACKENDS, run_program
from reyn.sandbox.values import Access

MONTY = "import math\n\n\ndef f(artifact):\n    return {'root': math.sqrt(sum(artifact['data']['numbers']))}\n"
CPYTHON = "import string\n\n\ndef f(artifact):\n    return string.capwords(str(sum(artifact['data']['numbers'])))\n"
_PAUSE = 0.5
ARTIFACT = {"type": "numbers", "data": {"numbers": list(range(100))}}


def _step(source: str) -> PythonStep:
    return PythonStep({"./m.py": source}, "./m.py", "f", ARTIFACT, 1_700_000_000_000_000)


def _measure(call: Callable[[], Any], count: int, pause: float = 0.0) -> dict[str, float]:
    call()  # start workers, fill caches
    times = []
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for _ in range(count):
        time.sleep(pause)
        began = time.perf_counter()
        call()
        times.append((time.perf_counter() - began) * 1000)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000 / count
    return {"median_ms": statistics.median(times), "best_ms": min(times), "child_cpu_ms": cpu}


def sandbox_calls(count: int = 100) -> dict[str, dict[str, float]]:
    """Return the figures of a Monty step, and of a CPython step and a program in each usable backend."""
    found = {"monty step": _measure(lambda: run_safe(_step(MONTY), Limits()), count * 5)}
    for backend in BACKENDS:
        if backend.problem:
            continue
        name: Any = backend.name
        found[f"{name} step"] = _measure(partial(run_safe, _step(CPYTHON), Limits(), name), count, pause=_PAUSE)
        found[f"{name} program"] = _measure(partial(run_program, backend, ("/bin/true",), Access(), Limits()), count)
    return found


if __name__ == "__main__":
    print(json.dumps(sandbox_calls(int(sys.argv[1]) if len(sys.argv) > 1 else 100), indent=2))
