"""Measure the wall-clock time of a call of each sandbox.

A call of the process sandbox needs a new interpreter, so its time depends on the load of the machine. Between two steps
is a pause, as between the visits of a run, in which the next interpreter is started ahead.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from reyn.config.environments import EnvironmentSettings
from reyn.packages import PackageEnvironments
from reyn.sandbox import ProgramLimits, PythonStep, StepEnvironment, run_program, run_safe
from reyn.sandbox.backends import BACKENDS
from reyn.sandbox.supervision import Access

MONTY = "import math\n\n\ndef f(artifact):\n    return {'root': math.sqrt(sum(artifact['data']['numbers']))}\n"
CPYTHON = "import string\n\n\ndef f(artifact):\n    return string.capwords(str(sum(artifact['data']['numbers'])))\n"
ARTIFACT = {"type": "numbers", "data": {"numbers": list(range(100))}}
_PAUSE = 0.5
FILES = 1_000
"""Files of the measured environment: about those of pypdf, openpyxl, pillow and lxml together."""


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
            if name == "landlock":  # of processes in namespaces of their own, the CPU is not reported
                found |= _measure_environment(name, step, count)
    return found


def _measure_environment(name: Any, without: Callable[[], Any], count: int) -> dict[str, float]:
    """Return how much slower a step in an environment is, with the check of its files; both sides in turn."""
    with tempfile.TemporaryDirectory() as folder:
        root, venv = Path(folder), Path(folder, "venv")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
        site = next(venv.glob("lib/python3*/site-packages"))
        for number in range(FILES):
            package = site / f"package{number // 50}"
            package.mkdir(exist_ok=True)
            (package / f"module{number}.py").write_text(f"VALUE = {number}\n")
        packages = PackageEnvironments({"office": EnvironmentSettings(path=str(venv))}, root, root / ".reyn")

        def within() -> None:
            installation = packages.find("office").installation
            environment = StepEnvironment(installation.program, installation.shown)
            run_safe(_step(CPYTHON), ProgramLimits(), name, environment=environment)

        rounds = [(_cpu(within, count), _cpu(without, count)) for _ in range(3)]
    ratio = statistics.median(one / other for one, other in rounds)
    return {"environment_ms": statistics.median(one for one, _ in rounds), "environment_ratio": ratio}


def _cpu(call: Callable[[], Any], count: int) -> float:
    """Return the milliseconds of CPU of a call, with those of the processes that it starts."""
    call()
    began = _used()
    for _ in range(count):
        call()
    return (_used() - began) / count * 1e3


def _used() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in both)
