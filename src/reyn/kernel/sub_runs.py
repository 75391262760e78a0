"""Sub-runs: a skill that a run executes is a run of its own, linked both ways and limited by what its parent has left.

Its id derives from the run and the call, so that starting it twice starts it once. If it stops, the parent stops for
the same reason; when the parent is resumed, so is the sub-run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from reyn.errors import (
    AnswersRejected,
    OpMissing,
    ReynError,
    RunBlocked,
    RunBusy,
    RunKeyTaken,
    StepFailed,
    SubRunFailed,
)
from reyn.journal import ENDED, Blob, RaiseLimit, canonical, kinds
from reyn.kernel import versions
from reyn.kernel.changes import changes_of
from reyn.kernel.inputs import check_supported, to_artifact
from reyn.kernel.limits import nested, raises_for
from reyn.kernel.loading import Resumption, check_ops, load_run, new_tape, pin_ops
from reyn.kernel.op_performer import requests_above
from reyn.kernel.run_state import Models, fold
from reyn.skills import pin

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from reyn.journal import Body, Journal
    from reyn.kernel.briefs import Briefs
    from reyn.kernel.effects import ExecuteSubRun, PlanSubRun
    from reyn.kernel.ports import Clock, Ids
    from reyn.kernel.run_state import RunState
    from reyn.kernel.tape import Tape
    from reyn.ops import OpTable
    from reyn.skills import Skill

    BriefsOf = Callable[[kinds.RunStarted, Callable[[str], bytes]], Briefs]
    Recorded = tuple[Body, tuple[Blob, ...]]
    Drive = Callable[[Tape, Resumption | None], Awaitable[RunState]]

MAX_DEPTH = 8
"""How deep runs may ask for runs."""

_FINAL_FAILURES = (AnswersRejected.code, StepFailed.code, SubRunFailed.code)
"""Failures that are the result of the sub-run; any other (a model that is unavailable) stops the run above, too."""


class SubRuns:
    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        ids: Ids,
        ops: OpTable,
        load: Callable[[str], Skill],
        briefs_of: BriefsOf,
        drive: Drive,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._ids = ids
        self._ops = ops
        self._load = load
        self._briefs_of = briefs_of
        self._drive = drive

    def plan(self, effect: PlanSubRun, tape: Tape) -> Recorded:
        """Resolve the skill and validate the input. What is wrong with them does not end the run."""
        run = f"{tape.run_id}.{effect.key}"
        try:
            skill, artifact = self._resolve(effect, tape)
        except ReynError as error:
            problem = f"{error.code}: {error.message}"
            return kinds.SubRunStarted(effect.key, effect.skill, run, problem=problem), ()
        copy, content = pin(skill), Blob.of(canonical(artifact))
        specs = None if effect.pinned else pin_ops(skill, self._ops.vocabulary)
        above = tape.state.started
        assert above is not None
        started = kinds.SubRunStarted(
            effect.key,
            skill.name,
            run,
            copy.hash,
            kinds.ArtifactRef(artifact["type"], content.hash),
            effect.shares_workspace,
            "",
            specs.hash if specs else above.ops,
        )
        return started, (copy, content, *((specs,) if specs else ()))

    def _resolve(self, effect: PlanSubRun, tape: Tape) -> tuple[Skill, dict[str, Any]]:
        state = tape.state
        assert state.started is not None
        depth = state.started.parent.depth if state.started.parent else 0
        if depth >= MAX_DEPTH:
            raise SubRunFailed(f"sub-runs are nested more than {MAX_DEPTH} deep")
        skill = effect.pinned or self._load(effect.skill)
        check_supported(skill, self._ops.vocabulary)
        given = effect.input
        if isinstance(given, kinds.ArtifactRef):
            given = msgspec.json.decode(tape.content(given.hash))
        strict = self._briefs_of(state.started, tape.content).settings.strict
        return skill, to_artifact(given, skill, strict=strict)

    async def execute(self, effect: ExecuteSubRun, tape: Tape) -> Recorded:
        """Execute the sub-run until it ends or stops; continue it if it was started before."""
        started = effect.started
        if started.problem:
            return _failed(started, started.problem), ()
        before = fold(self._journal.read(started.run)).active
        try:
            with self._journal.claim(started.run):
                state = await self._continue(started, tape)
        except RunKeyTaken as error:
            return _failed(started, f"{error.code}: {error.message}"), ()
        except (RunBusy, RunBlocked, OpMissing) as error:
            hint = error.own_hint
            return kinds.SubRunStopped(started.call, started.run, "failed", error.message, error.code, hint=hint), ()
        body = self._outcome(started, state)
        body = replace(body, active=max(0, state.active - before))
        if isinstance(body, kinds.SubRunCompleted):
            body = replace(body, changes=self._left_changed(started, state))
        return body, ()

    def _left_changed(self, started: kinds.SubRunStarted, state: RunState) -> tuple[kinds.Change, ...]:
        """What the sub-run left changed in files that are not its alone, and its own sub-runs with it."""
        changes = changes_of(self._journal.read(started.run), with_sub_runs=True)
        is_shared = state.workspace != started.run
        return tuple(change for change in changes if is_shared or not change.path.startswith("workspace:"))

    async def _continue(self, started: kinds.SubRunStarted, tape: Tape) -> RunState:
        above = tape.state
        assert above.started is not None
        allowed = nested(above, self._briefs_of(above.started, tape.content).settings)
        if self._journal.find(started.run) is None:
            return await self._drive(self._new(started, tape, allowed), None)
        loaded = load_run(self._journal, started.run)
        parent = loaded.started.parent
        if parent is None or (parent.run, parent.call) != (tape.run_id, started.call):
            raise RunKeyTaken(f"run `{started.run}` exists and was not started by this call")
        if loaded.state.status in ENDED or _is_final(loaded.state):
            return loaded.state
        briefs = self._briefs_of(loaded.started, self._journal.blob)
        check_ops(started.run, briefs.skill, self._ops)
        settings = briefs.settings
        for name, value in raises_for(above, loaded.state, settings, allowed.limits).items():
            self._journal.post(started.run, RaiseLimit(name, value))
        resumption = Resumption(self._ids.new(), retry=loaded.state.status == "failed")
        return await self._drive(loaded.tape, resumption)

    def _new(self, started: kinds.SubRunStarted, tape: Tape, allowed: Any) -> Tape:
        above = tape.state.started
        assert above is not None
        assert started.input is not None
        assert started.skill_hash is not None
        parent = kinds.ParentRef(
            tape.run_id,
            started.call,
            (above.parent.depth if above.parent else 0) + 1,
            tape.state.models.answers + (above.parent.answered if above.parent else 0),
            f"{above.parent.path}/{started.call}" if above.parent else started.call,
        )
        return new_tape(
            self._journal,
            kinds.RunStarted(
                run_id=started.run,
                skill=started.skill,
                skill_hash=started.skill_hash,
                input=started.input,
                model=tape.state.models.name,
                settings=(pinned := Blob.of(canonical(allowed))).hash,
                requests=(requests := self._requests(tape)).hash,
                rules=versions.RULES,
                wording=versions.WORDING,
                ops=started.ops,
                parent=parent,
                workspace=tape.state.workspace if started.shares_workspace else None,
            ),
            (pinned, requests),
            now=self._clock.now(),
        )

    def _requests(self, tape: Tape) -> Blob:
        """What the run itself and the runs above it request: the most that the sub-run may do."""
        above = tape.state.started
        assert above is not None
        own = self._briefs_of(above, tape.content).skill.permissions
        return Blob.of(canonical([own, *requests_above(above, tape.content)]))

    def _outcome(self, started: kinds.SubRunStarted, state: RunState) -> kinds.SubRunCompleted | kinds.SubRunStopped:
        call, run, stop = started.call, started.run, state.stop
        match state.status:
            case "finished":
                usage, answers = state.models.usage, state.models.answers
                return kinds.SubRunCompleted(call, run, "", state.final_artifact, usage, answers)
            case "failed" if not _is_final(state):
                return kinds.SubRunStopped(call, run, "failed", state.reason, stop.code, hint=stop.hint)
            case "limited":
                limit, value = stop.limit or ("", 0)
                return kinds.SubRunStopped(call, run, "limited", state.reason, "", limit, value)
            case "waiting":
                return kinds.SubRunStopped(call, run, "waiting", state.reason, wait=state.wait)
        return _failed(started, f"the sub-run `{run}` is {state.status}: {state.reason}", state)


def _is_final(state: RunState) -> bool:
    """Whether a failure of the sub-run is its result, which the run above gets instead of stopping, too."""
    return state.status == "failed" and state.stop.code in _FINAL_FAILURES


def _failed(started: kinds.SubRunStarted, error: str, state: RunState | None = None) -> kinds.SubRunCompleted:
    models = state.models if state else Models()
    return kinds.SubRunCompleted(started.call, started.run, error, None, models.usage, models.answers)
