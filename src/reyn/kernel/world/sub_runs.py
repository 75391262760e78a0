"""Plan and execute sub-runs: a skill that a run executes is a run of its own, within what its parent's limits leave.

The id of a sub-run derives from its parent and the call, so starting it twice starts it once. If a sub-run stops, its
parent stops for the same reason; when the parent is resumed, so is the sub-run. A function that the code of an op
calls is a sub-run of the op's run: `RunScope` names that op.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from reyn.config.values import PromptLimit
from reyn.errors import (
    AnswersRejected,
    CallImpossible,
    OpMissing,
    ReynError,
    RunBlocked,
    RunBusy,
    RunIdTaken,
    StepFailed,
    SubRunFailed,
)
from reyn.journal import ENDED, Blob, RaiseLimit, canonical, decode, digest, kinds
from reyn.kernel import versions
from reyn.kernel.core.limits import limits_to_raise, sub_run_settings
from reyn.kernel.core.run_state import fold
from reyn.kernel.core.snapshot import Models
from reyn.kernel.visit.compiled_phase import credentials_of
from reyn.kernel.visit.handoffs import summarize
from reyn.kernel.world.loading import Resumption, check_ops, load_run, new_tape, pin_ops
from reyn.kernel.world.op_performer import requests_above
from reyn.skills import pin
from reyn.skills.inputs import check_supported, to_artifact
from reyn.workspace.recorded_changes import unreverted_changes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from reyn.config import RunSettings
    from reyn.journal import Body, Event, Journal
    from reyn.journal.kinds import AnswerForm
    from reyn.kernel.core.effects import ExecuteSubRun, PlanSubRun
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.runtime_types import Clock, Ids
    from reyn.kernel.visit.compiled_skill import CompiledSkill
    from reyn.kernel.world.budgets import Above
    from reyn.ops import OpTable
    from reyn.skills import Skill

    SkillCompiler = Callable[[kinds.RunStarted, Callable[[str], bytes]], CompiledSkill]
    OutcomeEvent = tuple[Body, tuple[Blob, ...]]
    History = tuple[tuple[kinds.HistoryPart, ...], tuple[Blob, ...]]
    ExecuteRun = Callable[[Tape, Resumption | None, Tape], Awaitable[RunState]]
    """Executes a sub-run. The last argument is the tape of its parent."""

_MAX_PHASES = 50
"""Visits of a sub-run whose artifacts its parent records."""
MAX_DEPTH = 8
"""The maximum nesting of sub-runs."""
_KEY_LENGTH = 12

_FINAL_FAILURES = (AnswersRejected.code, StepFailed.code, SubRunFailed.code)
"""Failures that are the result of the sub-run. Any other failure (an unavailable model) stops the parent as well."""


class SubRuns:
    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        ids: Ids,
        ops: OpTable,
        load: Callable[[str], Skill],
        compile_skill: SkillCompiler,
        execute_run: ExecuteRun,
        hooks: tuple[str, ...] = (),
    ) -> None:
        self._hooks = hooks
        self._journal = journal
        self._clock = clock
        self._ids = ids
        self._ops = ops
        self._load = load
        self._compile_skill = compile_skill
        self._execute_run = execute_run

    def plan(self, effect: PlanSubRun, tape: Tape) -> OutcomeEvent:
        """Resolve the skill and validate the input. An error becomes the result of the sub-run."""
        run = f"{tape.run_id}.{effect.key}"
        try:
            skill, artifact = self._resolve(effect, tape)
        except ReynError as error:
            problem = f"{error.code}: {error.message}"
            failed = kinds.SubRunStarted(effect.key, effect.skill, run, problem=problem, background=effect.background)
            return failed, ()
        copy, content = pin(skill), Blob.of(canonical(artifact))
        specs = None if effect.pinned else pin_ops(skill, self._ops.vocabulary)
        parent_started = tape.state.started
        assert parent_started is not None
        started = kinds.SubRunStarted(
            effect.key,
            skill.name,
            run,
            copy.hash,
            kinds.ArtifactRef(artifact["type"], content.hash),
            effect.shares_workspace,
            "",
            specs.hash if specs else parent_started.ops,
            effect.background,
        )
        return started, (copy, content, *((specs,) if specs else ()))

    def _resolve(self, effect: PlanSubRun, tape: Tape) -> tuple[Skill, dict[str, Any]]:
        state = tape.state
        assert state.started is not None
        depth = state.started.parent.depth if state.started.parent else 0
        if depth >= MAX_DEPTH:
            raise SubRunFailed(f"sub-runs are nested deeper than {MAX_DEPTH} levels")
        skill = effect.pinned or self._load(effect.skill)
        if skill.is_conversation and state.phase in state.conversations:
            raise SubRunFailed(f"`{skill.name}` is a conversation; one conversation cannot run another")
        check_supported(skill, self._ops.vocabulary)
        value = effect.input
        if isinstance(value, kinds.ArtifactRef):
            value = msgspec.json.decode(tape.content(value.hash))
        strict = self._compile_skill(state.started, tape.content).settings.strict
        return skill, to_artifact(value, skill, strict=strict)

    async def execute(self, effect: ExecuteSubRun, tape: Tape, tokens: int | None = None) -> OutcomeEvent:
        """Execute the sub-run until it ends or stops; continue it if it was started before.

        Args:
            effect: The effect.
            tape: The tape of the parent.
            tokens: The most that it may use; `None` allows all that its parent has left.
        """
        started = effect.started
        if started.problem:
            return _failed(started, started.problem), ()
        before = fold(self._journal.read(started.run)).active
        try:
            with self._journal.claim(started.run):
                state = await self._continue(started, tape, tokens)
        except RunIdTaken as error:
            return _failed(started, f"{error.code}: {error.message}"), ()
        except (RunBusy, RunBlocked, OpMissing) as error:
            hint = error.own_hint
            return kinds.SubRunStopped(started.call, started.run, "failed", error.message, error.code, hint=hint), ()
        body = self._outcome(started, state)
        body = replace(body, active=max(0, state.active - before))
        if isinstance(body, kinds.SubRunCompleted):
            row = self._journal.find(started.run)
            assert row is not None
            phases = _phase_artifacts(self._journal.read(started.run))
            body = replace(body, changes=self._shared_changes(started, state), head=row.hash, phases=phases)
        return body, ()

    def begin_background(self, started: kinds.SubRunStarted, tape: Tape) -> None:
        """Record the start of a background run, if that has not happened yet. Its claim is held.

        Args:
            started: The event with which the conversation started it.
            tape: The tape of the conversation, which is only read.

        Raises:
            RunIdTaken: A run with its id exists that is not this one.
        """
        if self._journal.find(started.run) is not None:
            self._check_own(started, tape)
            return
        assert tape.state.started is not None
        settings = self._compile_skill(tape.state.started, tape.content).settings
        self._new_tape(started, tape, sub_run_settings(tape.state, settings)).flush_now(self._journal)

    def tokens_left(self, tape: Tape) -> int | None:
        """Return the tokens that a run may still use; `None` if they are not limited."""
        assert tape.state.started is not None
        settings = self._compile_skill(tape.state.started, tape.content).settings
        return sub_run_settings(tape.state, settings).limits.tokens

    def tokens_of(self, outcome: Body) -> int:
        """Return the tokens that a sub-run has used."""
        match outcome:
            case kinds.SubRunCompleted():
                return outcome.usage.total
            case kinds.SubRunStopped() if outcome.limit == "tokens":
                return fold(self._journal.read(outcome.run)).models.usage.total
        return 0

    async def call(
        self,
        scope: RunScope,
        skill: Skill,
        artifact: dict[str, Any],
        settings: RunSettings,
        model: str,
        form: AnswerForm,
        history: History = ((), ()),
    ) -> RunState:
        """Execute a function that the code of an op calls, as a sub-run; continue it if it was started before.

        The parent records its usage. If the sub-run stops, its state is returned and the caller raises an error.

        Args:
            scope: The op.
            skill: The skill of the function.
            artifact: Its arguments.
            settings: The settings of the sub-run.
            model: The model to call.
            form: The form in which it is asked to answer.
            history: The messages that came before, and their content.
        """
        copy, content, specs = pin(skill), Blob.of(canonical(artifact)), pin_ops(skill, self._ops.vocabulary)
        tape = scope.tape
        assert tape.state.started is not None
        if (tape.state.started.parent.depth if tape.state.started.parent else 0) >= MAX_DEPTH:
            raise SubRunFailed(f"sub-runs are nested deeper than {MAX_DEPTH} levels")
        earlier = "".join(part.content for part in history[0])
        key = scope.next_key(copy.hash, digest(f"{content.hash}{earlier}".encode()) if earlier else content.hash)
        reference = kinds.ArtifactRef(artifact["type"], content.hash)
        intent = kinds.SubRunStarted(key, skill.name, f"{tape.run_id}.{key}", copy.hash, reference, ops=specs.hash)
        with self._journal.claim(intent.run):
            if self._journal.find(intent.run) is None:
                blobs = (copy, content, specs, *history[1])
                child = self._new_tape(intent, tape, settings, blobs, (model, form), history[0])
                state = await self._execute_run(child, None, tape)
            else:
                self._check_own(intent, tape)
                loaded = load_run(self._journal, intent.run)
                state = loaded.state
                if state.status not in ENDED and not _is_final(state):
                    resumption = Resumption(self._ids.new(), retry=state.status == "failed")
                    state = await self._execute_run(loaded.tape, resumption, tape)
        scope.check_open()
        usage, answers = state.models.usage, state.models.answers
        status, charge = str(state.status), charge_of(state)
        ended = kinds.NestedRunEnded(scope.call, intent.run, skill.name, status, usage, answers, charge)
        tape.record(ended, self._clock.now())
        return state

    def _shared_changes(self, started: kinds.SubRunStarted, state: RunState) -> tuple[kinds.Change, ...]:
        """Return the unreverted changes of a sub-run and its sub-runs outside of the sub-run's own workspace."""
        changes = unreverted_changes(self._journal.read(started.run), with_sub_runs=True)
        is_shared = state.workspace != started.run
        return tuple(change for change in changes if is_shared or not change.path.startswith("workspace:"))

    async def _continue(self, started: kinds.SubRunStarted, tape: Tape, tokens: int | None) -> RunState:
        """Start the sub-run, or continue it; return its state once it has ended or stopped."""
        parent_state = tape.state
        assert parent_state.started is not None
        parent_settings = self._compile_skill(parent_state.started, tape.content).settings
        allowed = sub_run_settings(parent_state, parent_settings, tokens)
        if self._journal.find(started.run) is None:
            return await self._execute_run(self._new_tape(started, tape, allowed), None, tape)
        loaded = load_run(self._journal, started.run)
        self._check_own(started, tape)
        if loaded.state.status in ENDED or _is_final(loaded.state):
            return loaded.state
        skill = self._compile_skill(loaded.started, self._journal.blob)
        check_ops(started.run, skill.skill, self._ops)
        for name, value in limits_to_raise(parent_state, loaded.state, skill.settings, allowed.limits).items():
            self._journal.post(started.run, RaiseLimit(name, value))
        resumption = Resumption(self._ids.new(), retry=loaded.state.status == "failed")
        return await self._execute_run(loaded.tape, resumption, tape)

    def _check_own(self, intent: kinds.SubRunStarted, tape: Tape) -> None:
        """Check that an existing run is the one that this call started, and not one that was put in its place.

        Raises:
            RunIdTaken: The run was imported, or has another parent, skill, input or workspace.
        """
        row = self._journal.find(intent.run)
        if row is not None and row.imported:
            raise RunIdTaken(f"run `{intent.run}` exists and was imported from {row.imported}")
        # The first event: an upgrade of the sub-run changes its skill later.
        found = decode(next(iter(self._journal.read(intent.run))))
        parent = found.parent if isinstance(found, kinds.RunStarted) else None
        if (
            not isinstance(found, kinds.RunStarted)
            or parent is None
            or (parent.run, parent.call) != (tape.run_id, intent.call)
        ):
            raise RunIdTaken(f"run `{intent.run}` exists and was not started by this call")
        workspace = tape.state.workspace if intent.shares_workspace else None
        if (found.skill_hash, found.input, found.workspace) != (intent.skill_hash, intent.input, workspace):
            raise RunIdTaken(f"run `{intent.run}` exists with another skill, input or workspace than this call started")

    def _new_tape(
        self,
        started: kinds.SubRunStarted,
        tape: Tape,
        settings: RunSettings,
        blobs: tuple[Blob, ...] = (),
        model: tuple[str, AnswerForm] | None = None,
        history: tuple[kinds.HistoryPart, ...] = (),
    ) -> Tape:
        """Return the tape of a new sub-run. `model` is its model and answer form; by default those of the parent."""
        parent_started = tape.state.started
        assert parent_started is not None
        assert started.input is not None
        assert started.skill_hash is not None
        parent = kinds.ParentRef(
            tape.run_id,
            started.call,
            (parent_started.parent.depth if parent_started.parent else 0) + 1,
            tape.state.total_answers,
            f"{parent_started.parent.path}/{started.call}" if parent_started.parent else started.call,
            started.background,
        )
        return new_tape(
            self._journal,
            kinds.RunStarted(
                run_id=started.run,
                skill=started.skill,
                skill_hash=started.skill_hash,
                input=started.input,
                model=model[0] if model else tape.state.models.name,
                answer_form=model[1] if model else tape.state.models.form,
                prompt_limit=None if (limit := tape.state.models.prompt_limit) == PromptLimit() else limit,
                settings=(pinned := Blob.of(canonical(settings))).hash,
                requests=(requests := self._requests(tape)).hash,
                rules=versions.RULES,
                wording=versions.WORDING,
                ops=started.ops,
                parent=parent,
                workspace=tape.state.workspace if started.shares_workspace else None,
                imported=parent_started.imported,
                credentials=credentials_of(
                    self._compile_skill(parent_started, tape.content).skill, parent_started.credentials
                ),
                history=history,
                hooks=self._hooks,
            ),
            (pinned, requests, *blobs),
            now=self._clock.now(),
        )

    def _requests(self, tape: Tape) -> Blob:
        """The permission requests of the run and its parents, which limit those of the sub-run."""
        above = tape.state.started
        assert above is not None
        own = self._compile_skill(above, tape.content).skill.permissions
        return Blob.of(canonical([own, *requests_above(above, tape.content)]))

    def _outcome(self, started: kinds.SubRunStarted, state: RunState) -> kinds.SubRunCompleted | kinds.SubRunStopped:
        call, run, stop = started.call, started.run, state.stop
        match state.status:
            case "finished":
                usage, answers = state.models.usage, state.models.answers
                return kinds.SubRunCompleted(
                    call,
                    run,
                    "",
                    state.final_artifact,
                    usage,
                    answers,
                    summary=summarize(state.output.reason),
                    handoff=next(reversed(state.history.handoffs.values()), None),
                    charge=charge_of(state),
                )
            case "failed" if not _is_final(state):
                return kinds.SubRunStopped(call, run, "failed", state.reason, stop.code, hint=stop.hint)
            case "limited":
                limit, value = stop.limit or ("", 0)
                return kinds.SubRunStopped(call, run, "limited", state.reason, "", limit, value)
            case "waiting":
                return kinds.SubRunStopped(call, run, "waiting", state.reason, wait=state.wait)
        return _failed(started, f"the sub-run `{run}` is {state.status}: {state.reason}", state)


def _phase_artifacts(events: Iterable[Event]) -> tuple[kinds.PhaseArtifact, ...]:
    """Return the artifacts of the latest visits, in order."""
    found: deque[kinds.PhaseArtifact] = deque(maxlen=_MAX_PHASES)
    stored: kinds.ArtifactRef | None = None
    for event in events:
        if event.kind == kinds.ArtifactStored.kind:
            body = decode(event)
            stored = body.artifact if isinstance(body, kinds.ArtifactStored) else None
        elif event.kind == kinds.PhaseCompleted.kind and stored is not None:
            body = decode(event)
            if isinstance(body, kinds.PhaseCompleted):
                found.append(kinds.PhaseArtifact(body.phase, stored))
            stored = None
    return tuple(found)


def _is_final(state: RunState) -> bool:
    """Return whether a failure is the result of the sub-run, so that its parent continues with it."""
    return state.status == "failed" and state.stop.code in _FINAL_FAILURES


def _failed(started: kinds.SubRunStarted, error: str, state: RunState | None = None) -> kinds.SubRunCompleted:
    models = state.models if state else Models()
    charge = charge_of(state) if state else None
    return kinds.SubRunCompleted(started.call, started.run, error, None, models.usage, models.answers, charge=charge)


def charge_of(state: RunState) -> kinds.Charge | None:
    """Return what a run was charged; `None` if it made no call that was counted."""
    return state.charge if state.charge.calls else None


# -- functions that an op calls --------------------------------------------------------------------------


class RunScope:
    """One op that is being performed.

    Attributes:
        owner: The runtime that executes the run.
        tape: The tape of the run.
        loop: The event loop that executes it.
        above: Returns the runs above it, on whose budgets sub-runs draw as well.
    """

    def __init__(self, owner: Any, tape: Tape, call: str, above: Above) -> None:
        self.owner = owner
        self.tape = tape
        self.above = above
        self.loop = asyncio.get_running_loop()
        self._call = call
        self._counts: dict[str, int] = {}
        self._is_open = True

    @property
    def call(self) -> str:
        """The id of the op's call in its run."""
        return self._call

    def next_key(self, skill_hash: str, input_hash: str) -> str:
        """Return the id of the next call of a function with an input, unique in the run.

        It derives from what is called, not from the order of calls: when the op is performed again after a crash, each
        call finds the sub-run that it started before.
        """
        self.check_open()
        name = digest(f"{skill_hash}{input_hash}".encode())[:_KEY_LENGTH]
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return f"{self._call}.{name}" if count == 1 else f"{self._call}.{name}-{count}"

    def check_open(self) -> None:
        """Raise `CallImpossible` if the op has returned: its run may have moved on."""
        if not self._is_open:
            raise CallImpossible(
                f"the op `{self._call}` of run `{self.tape.run_id}` has ended, so that it can start no more sub-runs",
                hint="Await every call before the tool returns.",
            )

    def close(self) -> None:
        self._is_open = False


_scope: ContextVar[RunScope | None] = ContextVar("reyn_run_scope", default=None)


def current_scope() -> RunScope | None:
    """Return the op that is being performed here, if any."""
    return _scope.get()


@contextmanager
def run_scope(owner: Any, tape: Tape, call: str, above: Above) -> Iterator[None]:
    """Make an op the current scope of the calls in the block."""
    scope = RunScope(owner, tape, call, above)
    token = _scope.set(scope)
    try:
        yield
    finally:
        scope.close()
        _scope.reset(token)
