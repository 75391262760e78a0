"""Run one case in a forked process with resource limits, and collect its findings.

A target is a function of a `Case`: it builds hostile input from `case.random`, uses Reyn, and calls `case.found` for
every violation. Memory, CPU time and crashes are measured here, from outside the process.
"""

from __future__ import annotations

import faulthandler
import gc
import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reyn.errors import InternalError, ReynError

MEGABYTE = 1 << 20
MEMORY = 300 * MEGABYTE
"""Peak memory of a case, beyond that of the process that it is forked from: a test runner may have grown."""
CPU_SECONDS = 20
WALL_SECONDS = 200
"""Only bounds a case that hangs without using CPU; the machine may be overloaded."""
STATE_BYTES = 64 * MEGABYTE
_ADDRESS_SPACE = 1400 * MEGABYTE
"""Address space of a case, beyond that of the process that it is forked from."""
_LARGEST_FILE = 128 * MEGABYTE
_DETAIL = 400


@dataclass(frozen=True)
class Finding:
    name: str
    """The class of the finding: `target/what`."""
    detail: str
    target: str
    seed: int

    @property
    def command(self) -> str:
        return f"python -m tests.fuzz --only {self.target} --case {self.seed}"


@dataclass
class Outcome:
    """What one case did."""

    target: str
    seed: int
    label: str = ""
    findings: list[Finding] = field(default_factory=list)
    cpu: float = 0.0
    memory: int = 0

    @property
    def names(self) -> set[str]:
        return {finding.name for finding in self.findings}


class Case:
    """One case, seen from inside its process."""

    def __init__(self, target: str, seed: int, folder: Path, report: Path) -> None:
        self.target = target
        self.seed = seed
        self.random = random.Random(f"{target}/{seed}")
        self.folder = folder
        """Empty, and removed after the case."""
        self._report = report

    def label(self, text: str) -> None:
        """Say which kind of input the case has."""
        self._write({"label": text})

    def found(self, what: str, detail: object = "") -> None:
        """Report a violation. `what` names its class within the target."""
        self._write({"name": f"{self.target}/{what}", "detail": str(detail)[:_DETAIL]})

    def _write(self, entry: dict[str, str]) -> None:
        # Appended at once: the process may be killed by a limit.
        with self._report.open("ab") as file:
            file.write(json.dumps(entry).encode() + b"\n")

    @contextmanager
    def guarded(self, doing: str) -> Iterator[None]:
        """Let documented errors pass; any other exception is a finding."""
        try:
            yield
        except InternalError as error:
            self._broken(doing, error.__cause__ or error)
        except ReynError:
            pass
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - this is what the case is for
            self._broken(doing, error)

    @contextmanager
    def holds(self, what: str) -> Iterator[None]:
        """A check of Reyn's own, as `verify`: any error at all is a finding."""
        with self.guarded(what):
            try:
                yield
            except InternalError:
                raise
            except ReynError as error:
                self.found(f"{what}-fails", f"{error.code}: {error.message}")

    def _broken(self, doing: str, error: BaseException) -> None:
        if isinstance(error, MemoryError):
            self.found("memory", f"{doing}: MemoryError")
            return
        self.found(f"internal-error({signature(error)})", f"{doing}: {error!r}")


def signature(error: BaseException) -> str:
    """Name an exception by its type and the module of Reyn that it left, so that two faults are two classes."""
    module = "?"
    for frame, _ in traceback.walk_tb(error.__traceback__):
        _, _, inside = frame.f_code.co_filename.partition("/src/reyn/")
        module = inside or module
    return f"{type(error).__name__} in {module}"


Target = Callable[[Case], Any]


def run_case(name: str, target: Target, seed: int) -> Outcome:
    """Run a case in a forked process and return what it found and used."""
    scratch = Path(tempfile.mkdtemp(prefix="reyn-fuzz-", dir=_memory_disk())).resolve()
    report, folder = scratch / "report", scratch / "around"
    folder.mkdir()
    report.touch()
    try:
        resident = _anonymous_bytes()
        status, usage, is_hung = _in_limited_child(lambda: target(Case(name, seed, folder, report)), scratch / "output")
        memory = max(0, usage.ru_maxrss * 1024 - resident)
        outcome = Outcome(name, seed, cpu=usage.ru_utime + usage.ru_stime, memory=memory)
        for line in report.read_bytes().splitlines():
            entry = json.loads(line)
            if "label" in entry:
                outcome.label = entry["label"]
            else:
                outcome.findings.append(Finding(entry["name"], entry["detail"], name, seed))
        for what, detail in _limits_passed(outcome, status, is_hung, scratch / "output"):
            outcome.findings.append(Finding(f"{name}/{what}", detail, name, seed))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return outcome


def _memory_disk() -> str | None:
    """A folder in memory, if there is one with enough space: most of a case's time would be `fsync`."""
    folder = Path("/dev/shm")
    return str(folder) if folder.is_dir() and shutil.disk_usage(folder).free > 8 * _LARGEST_FILE else None


def _limits_passed(outcome: Outcome, status: int, is_hung: bool, output: Path) -> Iterator[tuple[str, str]]:
    if outcome.memory > MEMORY and f"{outcome.target}/memory" not in outcome.names:
        yield "memory", f"{outcome.label}: {outcome.memory // MEGABYTE} MB"
    if status == -signal.SIGXCPU or outcome.cpu > CPU_SECONDS:
        yield "cpu", f"{outcome.label}: {outcome.cpu:.0f} s"
    elif is_hung:
        yield "hang", f"{outcome.label}: no end after {WALL_SECONDS} s"
    elif status < 0:
        yield f"killed-by-{signal.Signals(-status).name}", outcome.label
    elif status > 0 and outcome.memory <= MEMORY:
        yield "case-broken", output.read_text(errors="replace")[-_DETAIL:]


def _in_limited_child(work: Callable[[], Any], output: Path) -> tuple[int, resource.struct_rusage, bool]:
    gc.freeze()  # else a collection in the child copies every page that it shares with us
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads: the child uses none of them
        child = os.fork()
    if child == 0:
        _work_and_exit(work, output)
    gc.unfreeze()
    is_hung = False
    handle = os.pidfd_open(child)
    try:
        ended = select.poll()
        ended.register(handle, select.POLLIN)
        if not ended.poll(WALL_SECONDS * 1000):
            is_hung = True
            os.killpg(child, signal.SIGKILL)
        _, status, usage = os.wait4(child, 0)
    finally:
        os.close(handle)
        with suppress(ProcessLookupError):  # what the case started is in its group
            os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status), usage, is_hung


def _anonymous_bytes() -> int:
    """Return what a forked process begins with.

    Mapped files do not count: their pages are not resident in a child until it touches them, and a test runner may have
    mapped the weights of a model.
    """
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon:"))


def _address_space() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _work_and_exit(work: Callable[[], Any], output: Path) -> None:
    status = 99
    try:
        os.setpgid(0, 0)
        faulthandler.disable()  # a test runner's: it would print our crashes as its own
        _redirect(output)
        space = _address_space() + _ADDRESS_SPACE
        resource.setrlimit(resource.RLIMIT_AS, (space, space))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS + 1, CPU_SECONDS + 2))
        resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, _LARGEST_FILE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        work()
        status = 0
    except BaseException:  # noqa: BLE001 - this is another process
        with suppress(BaseException):
            traceback.print_exc()
    finally:
        with suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _redirect(output: Path) -> None:
    handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for standard in (1, 2):
        os.dup2(handle, standard)
    os.close(handle)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - lives as long as the process
    sys.stdout = open(1, "w", closefd=False, errors="replace")  # noqa: SIM115 - open until the process ends
    sys.stderr = open(2, "w", closefd=False, errors="replace")  # noqa: SIM115 - open until the process ends


def run_for(
    targets: dict[str, Target], seconds: float, seed: int, listener: Callable[[Outcome], None]
) -> list[Outcome]:
    """Run cases of every target in turns until the time is over. A case under way is finished."""
    chance, outcomes = random.Random(seed), list[Outcome]()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, target in targets.items():
            if time.monotonic() >= end:
                break
            outcome = run_case(name, target, chance.randrange(1 << 32))
            outcomes.append(outcome)
            listener(outcome)
    return outcomes
