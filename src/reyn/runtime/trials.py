"""Try a skill with its cases: runs with scripted answers, in memory and in an empty folder that is removed afterwards.

The permission rules of the project decide about every op, and the replies of the case to every question. A trial has
no effect outside: files go to the temporary folder, programs, the web, MCP servers, unsafe Python and ops of other
packages are not executed, and no model is called. The next trial on the machine removes the folder of one that was
killed.

A case may try the skill that it makes, and no deeper. A trial is one task: when it is cancelled or its time is over, so
are the trials inside.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.config import Config
from reyn.documents import DocumentError, read_raw
from reyn.errors import CaseInvalid, ReynError, ScriptExhausted, TrialTooDeep
from reyn.folders import remove_temporary, take_lock
from reyn.journal import Event, Journal, MemoryJournal, decode, digest, kinds
from reyn.kernel.runtime_types import LATER
from reyn.kernel.world.environments import roots_of
from reyn.kernel.world.inbox import answer_error
from reyn.kernel.world.services import Services
from reyn.models.scripted import ScriptedModel
from reyn.ops import Call, Denied, Env, Op, OpTable, Plan, Targeted
from reyn.ops.op import ProjectOp
from reyn.permissions.policy import written_places
from reyn.permissions.rules import Rule
from reyn.retrieval import STATIC, Embedders, Indexes
from reyn.runs.recorded import Runs
from reyn.sandbox import StopSignal
from reyn.skills import Library
from reyn.skills.cases import Case, CaseReport, TrialReport, case_files, read_cases
from reyn.texts import truncated
from reyn.vocabulary import PERMISSIONS

if TYPE_CHECKING:
    from reyn.journal.kinds import Question
    from reyn.journal.results import RunResult
    from reyn.models.protocol import ModelAnswer, ModelRequest
    from reyn.permissions import Policy
    from reyn.skills.resolve import MayRead

    RunCase = Callable[[Services, str, Any], Coroutine[Any, Any, RunResult]]

_PREFIX = "reyn-trial-"
SECONDS = 30.0
"""Time for all cases of a skill. Cases that have not ended then count as failed."""
_MAX_DEPTH = 2
"""The cases of a skill that makes skills try the skill that they make."""
_CASE_SECONDS = 10
_MAX_KNOWN = 32
_MAX_PROBLEMS = 5
_MAX_CHARS = 400
_SETTINGS = (
    *("max_phase_visits", "max_phase_retries", "max_act_turns", "limits", "agents", "context", "output_language"),
    *("strict", "sizes", "sandbox", "python", "environments"),
)
"""The settings of the project that decide how a case goes. Those of models, budgets and servers do not."""
_OUTSIDE = frozenset(("shell", "exec", "mcp", "tool", "web"))
"""Capabilities that reach outside."""
_NOT_EXECUTED = Denied("default: no effects in a case", "a case executes no op with effects outside of its own folder")

_JOURNAL: ContextVar[Journal] = ContextVar("journal of a case")


class _Tried(NamedTuple):
    """The result of a folder, and the files that its skill and sub-skills were read from."""

    report: TrialReport
    files: tuple[Path, ...]


class Trials:
    """Tries skills of one project. The result of an unchanged folder is remembered."""

    def __init__(self, services: Services, run: RunCase, depth: int = 0) -> None:
        """Try skills of a project.

        Args:
            services: The services of the project.
            run: Runs a skill with an input with the services of a case, and closes them.
            depth: The number of trials that these are inside of.
        """
        self._services = services
        self._run_case = run
        self._depth = depth
        self._library = Library(services.root, written_places(services.config))
        self._known: dict[tuple[str, Policy], _Tried] = {}

    def run(self, folder: Path, may_read: MayRead | None = None, stop: StopSignal | None = None) -> TrialReport:
        """Run the cases of the skill in a folder and compare each with what it expects. Blocks until all have ended.

        Args:
            folder: The folder.
            may_read: Raises an error if a file of the skill, its cases or its sub-skills may not be read.
            stop: Cancels the trial when it is set.

        Raises:
            TrialTooDeep: This is a case of a skill that a case tries.
        """
        if self._depth >= _MAX_DEPTH:
            raise TrialTooDeep(f"`{folder.name}` is not tried: this is a trial inside of a trial")
        may_read = may_read or _may_read_all
        for path in case_files(folder):
            may_read(path)
        stamp = _fingerprint(folder, self._services.root), self._services.read_policy()
        if stamp not in self._known:
            files: dict[Path, None] = {}

            def ask(path: Path) -> None:
                files[path] = None
                may_read(path)

            report = self._run_in_thread(folder.resolve(), self._library.asking(ask), stop)
            while len(self._known) >= _MAX_KNOWN:
                del self._known[next(iter(self._known))]
            self._known[stamp] = _Tried(report, tuple(files))
        known = self._known[stamp]
        for path in known.files:
            may_read(path)
        return known.report

    def _run_in_thread(self, folder: Path, library: Library, stop: StopSignal | None) -> TrialReport:
        """Run in a thread of its own, because the caller may be inside an event loop. Ctrl-C cancels the trial."""
        signal = stop or StopSignal()

        def work() -> TrialReport:
            try:
                return asyncio.run(self._run(folder, library, signal))
            finally:
                if stop is None:
                    signal.close()

        with ThreadPoolExecutor(1, thread_name_prefix="reyn-trial") as thread:
            try:
                return thread.submit(work).result()
            except BaseException:
                signal.set()
                raise

    async def _run(self, folder: Path, library: Library, stop: StopSignal) -> TrialReport:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        loop.add_reader(stop.fileno(), task.cancel)
        remove_abandoned_folders()
        end = loop.time() + SECONDS
        return TrialReport(tuple([await self._try_until(end, folder, case, library) for case in read_cases(folder)]))

    async def _try_until(self, end: float, folder: Path, case: Case | CaseInvalid, library: Library) -> CaseReport:
        if isinstance(case, CaseInvalid):
            return CaseReport(case.message.partition(":")[0].rpartition("/")[2], (case.message,))
        limit = asyncio.timeout_at(end)
        try:
            async with limit:
                return await self._try(folder, case, library)
        except TimeoutError:
            if not limit.expired():
                raise
            return CaseReport(case.name, (f"it was ended: the cases take more than {SECONDS:g} s",))

    async def _try(self, folder: Path, case: Case, library: Library) -> CaseReport:
        with _temporary_folder() as folder_of_case:
            scratch = folder_of_case / "project"  # not the folder itself, whose lock a change of a file in it needs
            scratch.mkdir()
            for path, content in case.files.items():
                target = scratch / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            script, replies = _Script(case.answers), _Replies(case.replies)
            trial = self._trial_services(scratch.resolve(), script, replies, self._policy_of(folder))
            trial.library = library
            try:
                result = await self._run_case(trial, str(folder), case.input)
                return CaseReport(case.name, tuple(_problems(case, result, Runs(trial), script, replies)))
            except ReynError as error:
                return CaseReport(case.name, (_short(f"{error.code}: {error.message}"),))

    def _policy_of(self, folder: Path) -> Policy:
        """Return the rules of the project, as if every run had the switches for ops that a case does not execute.

        The operator grants the requests of a draft when it is installed, so that they are granted in its cases.
        """
        policy = msgspec.structs.replace(self._services.read_policy(), allow_shell=True, allow_unsafe_python=True)
        if not folder.is_relative_to(self._services.state_folder.resolve()):
            return policy
        grants = (Rule("allow", entry.key) for entry in PERMISSIONS if not (entry.is_asked or entry.is_open))
        return msgspec.structs.replace(policy, rules=(*policy.rules, *grants))

    def _trial_services(self, root: Path, script: _Script, replies: _Replies, policy: Policy) -> Services:
        """Return services in a temporary folder with the skills, the ops and the rules of the project."""
        real = self._services
        config = msgspec.structs.replace(Config(), **{name: getattr(real.config, name) for name in _SETTINGS})
        limits = msgspec.structs.replace(config.limits, run_seconds=_CASE_SECONDS)
        config = msgspec.structs.replace(config, limits=limits)
        trial = Services(root=root, config=config, trust=real.trust, model=script, people=replies)
        trial.origin = roots_of(real.root, real.state_folder, "none")
        trial.journal, trial.secrets = MemoryJournal(), real.secrets
        _JOURNAL.set(trial.journal)
        trial.ops, trial.read_policy, trial.run_cases = self._ops, lambda: policy, self._inner.run
        return trial

    @cached_property
    def _inner(self) -> Trials:
        """The trials of a case."""
        return Trials(self._services, self._run_case, self._depth + 1)

    @cached_property
    def _ops(self) -> OpTable:
        """The ops of the project, none of which reaches outside."""
        ops = self._services.ops
        installed = [op for spec in ops.vocabulary.ops if (op := ops.get(spec.kind)) is not None]
        return OpTable(_isolated(self._nested(op), is_foreign=ops.is_foreign(op.spec.kind)) for op in installed)

    def _nested(self, op: Op) -> Op:
        """Return an op whose trials are those of a case."""
        if not isinstance(op, ProjectOp):
            return op
        return op.set_up(replace(op.project, try_cases=self._inner.run, indexes=self._indexes))

    @cached_property
    def _indexes(self) -> Indexes:
        """Indexes in the journal of the case, with no vectors of a model."""
        setting = self._services.config.retrieval.embedder
        return Indexes(_JOURNAL.get, Embedders(setting if setting == "none" else STATIC, lambda: self._services.roster))


def _may_read_all(path: Path) -> None:
    """Allow every file."""


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    """Create a folder for one case, and remove it afterwards. It is locked until the process ends or is killed."""
    lock = None
    while lock is None:
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
        lock = _locked(folder)  # `None` if another trial took it for abandoned before it was locked
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
            lock = _locked(folder)
            if lock is not None:
                remove_temporary(str(folder))
                os.close(lock)


def _locked(folder: Path) -> int | None:
    """Lock a folder; return the descriptor that holds the lock, or `None` if there is no folder or it is locked."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:
        return None
    if take_lock(descriptor) and folder.exists():
        return descriptor
    os.close(descriptor)
    return None


def _isolated(op: Op, *, is_foreign: bool) -> Op:
    """Return an op as a case uses it."""
    if not is_foreign and op.spec.permission not in _OUTSIDE and op.spec.kind != "python":
        return op
    return (_IsolatedTarget if isinstance(op, Targeted) else _Isolated)(op, is_foreign=is_foreign)


class _Isolated:
    """An op that is planned, so that the rules decide about it, and not executed. Safe python steps are."""

    def __init__(self, op: Op, *, is_foreign: bool) -> None:
        self._op = op
        self._is_foreign = is_foreign
        self.spec = op.spec

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        plan = Plan() if self._is_foreign else self._op.plan(call, env)
        if isinstance(plan, Denied) or (call.kind, call.op) == ("python", "safe"):
            return plan
        return Plan(plan.rule, result=call.denied(_NOT_EXECUTED), approval=plan.approval)

    async def perform(self, call: Call, plan: Plan, env: Env) -> dict[str, Any]:
        return await self._op.perform(call, plan, env)


class _IsolatedTarget(_Isolated):
    """An isolated op with a target that rules can name."""

    def target(self, call: Call) -> str:
        return self._op.target(call)  # type: ignore[attr-defined, no-any-return]  # made for ops with a target


class _Script(ScriptedModel):
    """The answers of a case. `problem` is the error of a call for which there was none."""

    problem = ""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        try:
            return await super().complete(request)
        except ScriptExhausted as error:
            self.problem = error.message
            raise


class _Replies:
    """Replies to questions from a list; after the last one, and after one that the question does not take, it waits."""

    def __init__(self, replies: tuple[Any, ...]) -> None:
        self._replies = replies
        self._used = 0
        self._rejected = ""

    async def ask(self, run_id: str, question: Question) -> Any:
        if self._rejected or self._used == len(self._replies):
            return LATER
        reply = self._replies[self._used]
        self._used += 1
        if reason := answer_error(question, question.id, reply):
            self._rejected = f"reply {self._used}, {_json(reply)}, does not fit the question: {reason}"
            return LATER
        return reply

    @property
    def problem(self) -> str:
        """Why the replies are not those that the run needs."""
        if self._rejected or self._used == len(self._replies):
            return self._rejected
        return f"it uses {self._used} of {len(self._replies)} replies"


def _problems(case: Case, result: RunResult, runs: Runs, script: _Script, replies: _Replies) -> Iterator[str]:
    """Yield how a run differs from what the case expects, and the answers that Reyn rejected.

    Whatever the case expects, its own script, replies and time must be enough.
    """
    expected = case.expected
    events = [event for row in runs.all() for event in runs.events(row.run_id)]
    found = [*_denials(events, expected.denied), *filter(None, (script.problem, replies.problem, _overtime(events)))]
    if result.status != expected.status:
        found.append(f"it is {result.status}{_why(result)}, expected {expected.status}")
    if expected.path is not None and list(result.path) != expected.path:
        found.append(f"it visits {_names(result.path)}, expected {_names(expected.path)}")
    if not isinstance(expected.artifact, msgspec.UnsetType) and result.artifact != expected.artifact:
        found.append(f"it returns {_json(result.artifact)}, expected {_json(expected.artifact)}")
    used = sum(event.kind == kinds.LlmResponded.kind for event in events)
    if not found and used < len(case.answers):
        found.append(f"it uses {used} of {len(case.answers)} answers")
    if found:
        errors = (decode(event) for event in runs.events(result.run_id) if event.kind == kinds.ValidationError.kind)
        found += [
            f"answer {one.call}: {one.path}: {one.message}" for one in errors if isinstance(one, kinds.ValidationError)
        ]
    return (_short(problem) for problem in found[:_MAX_PROBLEMS])


def _overtime(events: list[Event]) -> str:
    reached = (decode(event) for event in events if event.kind == kinds.LimitReached.kind)
    is_over = any(isinstance(one, kinds.LimitReached) and one.limit == "run_seconds" for one in reached)
    return f"it was stopped: a case may take {_CASE_SECONDS} s" if is_over else ""


def _denials(events: list[Event], expected: list[str]) -> list[str]:
    """Return the ops that the rules deny, if they are not those that a case expects."""
    bodies = (decode(event) for event in events if event.kind == kinds.PermissionDenied.kind)
    denied = [(f"{one.op_kind} {one.op}".strip(), one) for one in bodies if isinstance(one, kinds.PermissionDenied)]
    names = [name for name, _ in denied]
    if names == expected:
        return []
    if expected:
        return [f"the rules deny {', '.join(names) or 'no op'}, expected {', '.join(expected)}"]
    return [f"`{name}` is denied ({one.rule}): {one.reason}" for name, one in denied]


def _why(result: RunResult) -> str:
    if result.question is not None:
        return f" for a reply in `replies.jsonl` to: {result.question.message}"
    return f" ({result.reason})" if result.reason else ""


def _names(path: Any) -> str:
    return " → ".join(path) or "no phase"


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()[: _MAX_CHARS // 2]


def _short(text: str) -> str:
    line = " ".join(text.split())
    return truncated(line, _MAX_CHARS)


def _fingerprint(folder: Path, root: Path) -> str:
    """Return a digest of a skill's folder, and of the skills and shared files of the project, which it may use.

    Files that cases cannot use are left out: too large, links, pipes.
    """
    parts = []
    shelves = (root / "reyn" / shelf for shelf in ("local", "project", "shared"))
    # A shelf that is a link out of the project is not used.
    for top in (folder, *(shelf for shelf in shelves if shelf.resolve().is_relative_to(root.resolve()))):
        for path in sorted(top.rglob("*")):
            try:
                content = digest(read_raw(path, path.name, inside=top))
            except DocumentError:
                content = ""
            parts.append(f"{path}\0{content}")
    return digest("\n".join([str(folder), *parts]).encode("utf-8", "surrogateescape"))
