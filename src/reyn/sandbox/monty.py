"""Run a python step in Monty: an interpreter of a part of Python without access to the system, in worker processes.

Sources that need more are for CPython (`interpreter_choice`). The workers live as long as this process.
"""

from __future__ import annotations

import atexit
import json
import os
import secrets
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pydantic_monty import Monty

    from reyn.sandbox.supervision import ProgramLimits

_INPUT = "reyn_artifact_of_this_step"
_LIMITS = (TimeoutError, MemoryError)
_CHECKED_RESULT = """
def {name}(result, most={most}, isinstance=isinstance, len=len, str=str, bytes=bytes, int=int, list=list, tuple=tuple,
           set=set, frozenset=frozenset, dict=dict, float=float, TypeError=TypeError, MemoryError=MemoryError):
    import datetime, decimal
    values = [result]
    while values:
        value = values.pop()
        most -= 1
        if isinstance(value, (str, bytes, list, tuple, set, frozenset, dict)):
            most -= len(value)
        elif isinstance(value, (int, decimal.Decimal)):
            most -= len(str(value))
        elif not (value is None or isinstance(value, (float, datetime.date, datetime.time, datetime.timedelta))):
            raise TypeError("its result is not JSON")
        if most < -2:
            raise MemoryError("its result is larger than {most} bytes")
        if isinstance(value, dict):
            values.extend(value.keys())
            values.extend(value.values())
        elif isinstance(value, (list, tuple, set, frozenset)):
            values.extend(value)
    return result
"""
"""Checks a result in Monty: one text by many references is small there, and large in this process.

It has the functions that it uses as defaults, and a name that the source cannot know: the source may replace any other.
"""
_pools: dict[int, Monty] = {}
"""The pool, by the process that opened it."""


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
    return "this process was forked from one that uses Monty" if _pools.keys() - {os.getpid()} else ""


class MontyFailed(PythonFailed):
    """The step failed in Monty. Unless `is_final`, CPython may be able to execute it."""

    def __init__(self, message: str, output: StepOutput, *, is_final: bool, timed_out: bool = False) -> None:
        super().__init__(message, "monty", output, timed_out=timed_out)
        self.is_final = is_final


def run_monty(source: str, function: str, artifact: dict[str, Any], clock: int, limits: ProgramLimits) -> PythonResult:
    """Call a function of a module.

    Args:
        source: The source of the module.
        function: The name of the function.
        artifact: Its argument.
        clock: The time that the module sees, in microseconds since 1970.
        limits: Time, memory and output.

    Raises:
        MontyFailed: The module or the function failed, or exceeded a limit.
    """
    from pydantic_monty import MontyCrashedError, MontyError

    output = StepOutput(limits.output_bytes)
    try:
        session = _pool().checkout(
            script_name="step.py",
            limits={"max_feed_duration_secs": limits.seconds, "max_memory": limits.memory_bytes},
            os_policy={
                "datetime": datetime.fromtimestamp(clock / 1_000_000, UTC),
                "sleep": "zero",
                "random_start": {"seed": 0},
            },
        )
        with session:
            check = f"reyn_check_{secrets.token_hex(16)}"
            session.feed_run(_CHECKED_RESULT.format(name=check, most=limits.output_bytes))
            value = session.feed_run(
                f"{source}\n{check}({function}({_INPUT}))\n",
                inputs={_INPUT: artifact},
                print_callback=lambda stream, text: output.add(text.encode("utf-8", "surrogatepass")),
            )
    except MontyCrashedError as error:
        raise MontyFailed(f"its interpreter was ended: {error}", output, is_final=True, timed_out=True) from error
    except MontyError as error:
        cause = error.exception()
        raise MontyFailed(
            f"{type(cause).__name__}: {cause}"[:2_000],
            output,
            is_final=isinstance(cause, _LIMITS),
            timed_out=isinstance(cause, TimeoutError),
        ) from error
    try:
        return PythonResult(json.loads(json.dumps(value, default=str, allow_nan=False)), "monty", output)
    except (TypeError, ValueError, RecursionError) as error:
        raise MontyFailed(f"its result is not JSON: {error}", output, is_final=False) from error


def _pool() -> Monty:
    from pydantic_monty import Monty as Pool

    pool = _pools.get(os.getpid())
    if pool is None:
        # Workers are started when they are needed; each has the environment of this process, which a step cannot read.
        pool = Pool(min_processes=1, max_processes=max(4, os.cpu_count() or 1))
        pool.__enter__()
        _pools[os.getpid()] = pool
    return pool


@atexit.register
def _close() -> None:
    pool = _pools.pop(os.getpid(), None)
    if pool is not None:
        with suppress(Exception):
            pool.__exit__(None, None, None)
