"""Try a skill with its cases: runs with scripted answers, in memory and in an empty folder that is removed afterwards.

A trial has no effect outside: files go to the temporary folder, programs, the web, MCP servers and ops of other
packages are denied, and no model is called. The next trial on the machine removes the folder of one that was killed.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.config import Config
from reyn.documents import DocumentError, read_raw
from reyn.errors import CaseInvalid, ReynError
from reyn.folders import remove_temporary
from reyn.journal import MemoryJournal, decode, digest, kinds
from reyn.kernel.runtime_types import LATER
from reyn.kernel.world.services import Services
from reyn.models.scripted import ScriptedModel
from reyn.ops import Denied
from reyn.permissions.trust import ProjectTrust
from reyn.runs.recorded import Runs
from reyn.skills import Library
from reyn.skills.cases import Case, CaseReport, TrialReport, read_cases

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

    from reyn.journal.kinds import Question
    from reyn.journal.results import RunResult
    from reyn.ops import Call, Env, OpSpec, OpTable, Plan

    RunCase = Callable[[Services, str, Any], Coroutine[Any, Any, RunResult]]

_PREFIX = "reyn-trial-"
SECONDS = 30.0
"""Time for all cases of a skill. Cases that are left then count as failed."""
_CASE_SECONDS = 10
_MAX_KNOWN = 32
_MAX_PROBLEMS = 5
_MAX_CHARS = 400
_DENIED = ("shell", "exec", "mcp", "tool", "web")
"""Capabilities that reach outside; denied whatever the skill requests."""
_PERMISSIONS: dict[str, Any] = {
    **dict.fromkeys(_DENIED, "deny"),
    "file.read": [{"allow": "./"}],
    "file.write": [{"allow": "./"}],
}
_REASON = "a case executes no op with effects outside of its own folder"


class Trials:
    """Tries skills of one project. The result of an unchanged folder is remembered."""

    def __init__(self, services: Services, run: RunCase) -> None:
        """Try skills of a project.

        Args:
            services: The services of the project.
            run: Runs a skill with an input with the services of a case, and closes them.
        """
        self._services = services
        self._run_case = run
        self._library = Library(services.root)
        self._known: dict[str, TrialReport] = {}

    def run(self, folder: Path) -> TrialReport:
        """Run the cases of the skill in a folder and compare each with what it expects. Blocks until all have ended."""
        stamp = _fingerprint(folder)
        if stamp not in self._known:
            # Its own thread, because the caller may be inside an event loop.
            with ThreadPoolExecutor(1, thread_name_prefix="reyn-trial") as thread:
                report = thread.submit(self._run, folder).result()
            while len(self._known) >= _MAX_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[stamp] = report
        return self._known[stamp]

    def _run(self, folder: Path) -> TrialReport:
        end = monotonic() + SECONDS
        remove_abandoned_folders()
        reports = []
        for case in read_cases(folder):
            if isinstance(case, CaseInvalid):
                reports.append(CaseReport(case.message.partition(":")[0].rpartition("/")[2], (case.message,)))
            elif monotonic() > end:
                reports.append(CaseReport(case.name, (f"not tried: the cases take more than {SECONDS:g} s",)))
            else:
                reports.append(self._try(folder, case))
        return TrialReport(tuple(reports))

    def _try(self, folder: Path, case: Case) -> CaseReport:
        with _temporary_folder() as scratch:
            for path, content in case.files.items():
                target = scratch / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            trial = self._trial_services(scratch.resolve(), case)
            try:
                result = asyncio.run(self._run_case(trial, str(folder.resolve()), case.input))
                return CaseReport(case.name, tuple(_problems(case, result, Runs(trial))))
            except ReynError as error:
                return CaseReport(case.name, (_short(f"{error.code}: {error.message}"),))

    def _trial_services(self, root: Path, case: Case) -> Services:
        """Return services in a temporary folder with the skills and the ops of the project."""
        real = self._services
        limits = {"limits": {"run_seconds": _CASE_SECONDS}}
        config = msgspec.convert({"permissions": _PERMISSIONS, **limits}, Config)
        config = msgspec.structs.replace(config, sandbox=real.config.sandbox, python=real.config.python)
        model, people = ScriptedModel(case.answers), _Replies(case.replies)
        trial = Services(root=root, config=config, trust=ProjectTrust(str(root)), model=model, people=people)
        trial.journal, trial.library, trial.secrets, trial.ops = MemoryJournal(), self._library, real.secrets, self._ops
        return trial

    @cached_property
    def _ops(self) -> OpTable:
        """The ops of the project, without those of other packages."""
        ops = self._services.ops
        foreign = (spec for spec in ops.vocabulary.ops if spec.is_available and ops.is_foreign(spec.kind))
        return ops.overlaid(*map(_Refused, foreign))


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    """Create a folder for one case, and remove it afterwards. It is locked until the process ends or is killed."""
    lock = None
    while lock is None:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = _locked(folder, fcntl.LOCK_EX)  # `None` if another trial took it for abandoned before it was locked
    try:
        yield folder
    finally:
        with suppress(OSError):
            remove_temporary(str(folder))
        os.close(lock)


def remove_abandoned_folders() -> None:
    """Remove the temporary folders of trials whose process was killed. Those of other users stay."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        with suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            lock = _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock is not None:
                remove_temporary(str(folder))
                os.close(lock)


def _locked(folder: Path, operation: int) -> int | None:
    """Lock a folder; return the descriptor that holds the lock, or `None` if there is no folder or it is locked."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, operation)
        if folder.exists():
            return descriptor
    except BlockingIOError:
        pass
    os.close(descriptor)
    return None


class _Refused:
    """Takes the place of an op from outside the package."""

    def __init__(self, spec: OpSpec) -> None:
        self.spec = spec

    def plan(self, call: Call, env: Env) -> Denied:
        return Denied("default: no effects in a case", _REASON)

    async def perform(self, call: Call, plan: Plan, env: Env) -> dict[str, Any]:
        return call.error(_REASON)


class _Replies:
    """Replies to questions from a list; after the last one, the run waits."""

    def __init__(self, replies: tuple[Any, ...]) -> None:
        self._replies = iter(replies)

    async def ask(self, run_id: str, question: Question) -> Any:
        return next(self._replies, LATER)


def _problems(case: Case, result: RunResult, runs: Runs) -> Iterator[str]:
    """Yield how a result differs from what the case expects, and the answers that Reyn rejected."""
    expected = case.expected
    found = []
    if result.status != expected.status:
        reason = f" ({result.reason})" if result.reason else ""
        found.append(f"it is {result.status}{reason}, expected {expected.status}")
    if expected.path is not None and list(result.path) != expected.path:
        found.append(f"it visits {_names(result.path)}, expected {_names(expected.path)}")
    if not isinstance(expected.artifact, msgspec.UnsetType) and result.artifact != expected.artifact:
        found.append(f"it returns {_json(result.artifact)}, expected {_json(expected.artifact)}")
    used = sum(event.kind == kinds.LlmResponded.kind for row in runs.all() for event in runs.events(row.run_id))
    if not found and used < len(case.answers):
        found.append(f"it uses {used} of {len(case.answers)} answers")
    if found:
        errors = (decode(event) for event in runs.events(result.run_id) if event.kind == kinds.ValidationError.kind)
        found += [
            f"answer {one.call}: {one.path}: {one.message}" for one in errors if isinstance(one, kinds.ValidationError)
        ]
    return (_short(problem) for problem in found[:_MAX_PROBLEMS])


def _names(path: Any) -> str:
    return " → ".join(path) or "no phase"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()[: _MAX_CHARS // 2]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_CHARS else f"{line[:_MAX_CHARS]}…"


def _fingerprint(folder: Path) -> str:
    """Return a digest of the contents of a folder, without files that cases cannot use: too large, links, pipes."""
    parts = []
    for path in sorted(folder.rglob("*")):
        try:
            content = digest(read_raw(path, path.name, inside=folder))
        except DocumentError:
            content = ""
        parts.append(f"{path.relative_to(folder).as_posix()}\0{content}")
    return digest("\n".join([str(folder), *parts]).encode("utf-8", "surrogateescape"))
