"""An interpreter that was started ahead executes one step, and nothing of it reaches the next one."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from reyn.sandbox import ProgramLimits, PythonFailed, PythonStep, run_safe
from reyn.sandbox.backends import BACKENDS
from reyn.sandbox.process import Backend
from reyn.sandbox.python_steps import SPARES, _has_ended
from reyn.testing.crash import in_child
from tests.attacks.test_sandbox import usable

LIMITS = ProgramLimits(seconds=60)
STATE = (
    "import builtins, string\ndef f(a):\n"
    "    seen = getattr(builtins, 'left', None)\n    builtins.left = a\n    return seen\n"
)


def run(backend: Backend, source: str, artifact: Any = None, limits: ProgramLimits = LIMITS) -> Any:
    step = PythonStep({"./m.py": source}, "./m.py", "f", {"value": artifact}, 0)
    return run_safe(step, limits, backend.name).value


@pytest.fixture(params=BACKENDS, ids=lambda backend: backend.name)
def backend(request: pytest.FixtureRequest) -> Backend:
    return usable(request.param)


def test_a_step_leaves_nothing_behind(backend: Backend):
    assert [run(backend, STATE, number) for number in range(4)] == [None] * 4


def test_a_spare_that_has_ended_is_replaced(backend: Backend):
    run(backend, STATE)
    found = None
    while found is None:
        with SPARES._lock:
            found = SPARES._spare
    found[1].kill()
    while not _has_ended(found[1].pid):
        pass
    assert run(backend, STATE) is None


def test_other_limits_get_another_process(backend: Backend):
    source = "import resource\ndef f(a):\n    return resource.getrlimit(resource.RLIMIT_AS)[0]\n"
    sizes = [
        run(backend, source, limits=ProgramLimits(seconds=60, memory_bytes=size)) for size in (300_000_000, 200_000_000)
    ]
    assert [size // 1024 * 1024 for size in sizes] == [299_999_232, 199_999_488]


def test_a_step_that_fails_does_not_spoil_the_next(backend: Backend):
    with pytest.raises(PythonFailed, match="exit code 3"):
        run(backend, "import os\ndef f(a):\n    os._exit(3)\n")
    assert run(backend, STATE) is None


def test_steps_run_at_the_same_time(backend: Backend):
    source = "import string\ndef f(a):\n    return a['value'] * 2\n"
    with ThreadPoolExecutor(6) as threads:
        results = list(threads.map(lambda number: run(backend, source, number), range(6)))
    assert results == [2 * number for number in range(6)]


def test_a_forked_process_starts_its_own(backend: Backend):
    run(backend, STATE)

    def child() -> None:
        assert run(backend, STATE) is None
        assert SPARES._owner == os.getpid()

    assert in_child(child) == 0
    assert run(backend, STATE) is None
