"""Visit a node that runs branches: execute them as children, and join their results. No model is called here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.journal import canonical, kinds
from reyn.kernel.core.child_effects import AwaitFirst, CancelChild, PlanChild
from reyn.kernel.core.effects import UnknownOutcome
from reyn.kernel.core.errors_of_nodes import NodeFailed
from reyn.kernel.core.joins import Join
from reyn.kernel.core.limits import within_limits
from reyn.kernel.visit.child_calls import end_failed, plan_child
from reyn.kernel.visit.skill_state import read_state
from reyn.kernel.visit.step_context import CollectedResults, StepContext, StepFault
from reyn.kernel.visit.step_values import look_up
from reyn.kernel.visit.steps import NOTHING, StepsResult, permit, run_steps
from reyn.skills.fan_out import ERRORS, ITEMS, MAX_ITEMS
from reyn.skills.flow import LOCAL_ROOT
from reyn.skills.state import state_names
from reyn.skills.state_fields import STATE_ROOT
from reyn.skills.values import Branch, NodeSettings, is_skill_node

if TYPE_CHECKING:
    from reyn.kernel.core.run_orchestrator import Visit
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.compiled_phase import CompiledPhase
    from reyn.kernel.visit.op_log import OpLog

_NOT_NEEDED = "the join of its node is decided"
_MAX_CAUSES = 5
"""The failures that the reason of a failed join names."""


async def run_branches(phase: CompiledPhase, entry: Visit, log: OpLog, tape: Tape) -> StepsResult:
    """Return the artifact that joins the results of the branches of a node, and what its steps bind to `local`.

    Raises:
        StepFault: A step of the preprocessor failed, or the join cannot be met.
    """
    settings = phase.skill.fan_out(entry.phase)
    assert settings is not None
    artifact: dict[str, Any] = msgspec.json.decode(tape.content(entry.input.hash))
    local: Mapping[str, Any] = NOTHING
    if phase.definition.preprocessor:
        steps = phase.definition.preprocessor
        artifact, local = await run_steps(steps, artifact, f"{entry.step}.pre", phase, log, tape, entry.phase)
    context = StepContext(phase, log, tape, entry.phase)
    values = artifact | {LOCAL_ROOT: local}
    if settings.each is not None and (read := state_names([settings.each.items], phase.skill)):
        values[STATE_ROOT] = read_state(phase.skill, read, tape)
    branches = _branches(settings, artifact, values)
    return StepsResult(await _FanOut(phase, entry, settings, branches, context).result(), local)


class _Start(NamedTuple):
    """A branch that is about to start: its kind, its name for people, and its input."""

    branch: Branch
    name: str | int
    value: Any


def _branches(settings: NodeSettings, artifact: dict[str, Any], values: dict[str, Any]) -> list[_Start]:
    """Return the branches of a visit, in order. `values` is the artifact with what its steps bind, and the state."""
    if settings.each is None:
        return [_Start(branch, branch.name, artifact) for branch in settings.branches]
    path, [branch] = settings.each.items, settings.branches
    items = look_up(values, path)
    if not isinstance(items, list):
        raise StepFault(f"`{path}` is not a list")
    if len(items) > MAX_ITEMS:
        raise StepFault(f"`{path}` has {len(items):,} items; a fan-out runs at most {MAX_ITEMS:,} branches")
    return [_Start(branch, index, item) for index, item in enumerate(items)]


class _Running(NamedTuple):
    """A branch that was planned and has not ended, by its position."""

    position: int
    plan: PlanChild
    args: dict[str, Any]
    started: kinds.ChildStarted


class _FanOut:
    """The branches of one visit."""

    def __init__(
        self,
        phase: CompiledPhase,
        entry: Visit,
        settings: NodeSettings,
        branches: list[_Start],
        context: StepContext,
    ) -> None:
        self._phase, self._entry, self._settings = phase, entry, settings
        self._branches, self._context, self._tape = branches, context, context.tape
        self._join = Join(len(branches), settings.need, settings.on_item_error)
        self._waiting = list(range(len(branches) - 1, -1, -1))
        """The branches that are not planned yet, the next one last."""
        self._running: dict[str, _Running] = {}
        self._collected = CollectedResults()
        self._acted: dict[int, str] = {}
        """The unsafe ops of attempts that failed, by branch."""
        self._results: dict[int, Any] = {}
        self._causes: dict[int, str] = {}
        self._names: dict[int, str] = {}
        """The names of the errors of branches that failed."""
        self._writers: dict[str, int] = {}
        """The branch that wrote each shared file."""
        self._new: list[tuple[dict[str, Any], kinds.ChildEnded]] = []
        """What completed in this visit, for another attempt if the join fails."""

    async def result(self) -> dict[str, Any]:
        """Return the joined artifact."""
        try:
            while self._join.verdict == "open":
                await self._plan()
                if self._running and self._join.verdict == "open":
                    await self._await_first()
        except (StepFault, NodeFailed):
            await self._cancel_rest()
            self._keep_results()
            raise
        cancelled = await self._cancel_rest()
        join, verdict = self._join, self._join.verdict
        self._tape.emit(
            kinds.BranchesJoined(
                self._entry.phase,
                self._entry.visit,
                "met" if verdict == "met" else "impossible",
                join.total,
                join.needed,
                len(join.completed),
                len(join.failed),
                cancelled,
            )
        )
        if verdict == "impossible":
            self._keep_results()
            raise StepFault(self._reason(), error_name=self._names.get(min(join.failed, default=-1), ""))
        return {"type": self._settings.joined, "data": self._joined()}

    # -- branches -------------------------------------------------------------------------------------

    async def _plan(self) -> None:
        """Plan branches until as many are in progress as may execute together."""
        settings = self._settings
        spare = settings.max_parallel if settings.need == "all" else 0  # a place that gets free is taken at once
        while self._waiting and len(self._running) < settings.max_parallel + spare and self._join.verdict == "open":
            await within_limits(self._tape, self._phase.settings)
            await self._start(self._waiting.pop())

    async def _start(self, index: int) -> None:
        branch, _, value = self._branches[index]
        attempt, first = self._join.attempt(index), f"{self._entry.step}.{branch.name or index + 1}"
        call = f"{first}r{attempt}" if attempt > 1 else first
        skill = self._phase.branch_skill(branch)
        args = {"kind": "run_skill", "skill": skill.name, "input": value}
        if not is_skill_node(branch.do):
            args |= {"phase": branch.do, "output": branch.output}
        acted: Any = self._acted.get(index, "")
        if attempt == 1 and isinstance(acted := self._context.taken_over(args, call), tuple):
            self._context.end_step(call, "branch")
            self._complete(index, acted[0])
            return
        if attempt > 1:
            self._context.completed.repeat(first if attempt == 2 else f"{first}r{attempt - 1}", call)
        plan = PlanChild(call, "skill", skill.name, value, skill)
        try:
            if is_skill_node(branch.do):
                await permit(args, call, self._context)
        except StepFault as fault:
            self._fail(index, fault.message, fault.error_name)
        else:
            await self._planned(index, plan, args, acted)

    async def _planned(self, index: int, plan: PlanChild, args: dict[str, Any], acted: str) -> None:
        planned = await plan_child(plan, args, self._tape, acted)
        if isinstance(planned, kinds.ChildStarted):
            self._running[plan.key] = _Running(index, plan, args, planned)
        else:
            self._end(index, args, planned)

    async def _await_first(self) -> None:
        """Wait until a branch ends. A fork plans those again that its origin has begun."""
        started = tuple(one.started for one in self._running.values())
        call = f"{self._entry.step}.join"
        try:
            ended = await AwaitFirst(call, started, self._settings.max_parallel)
        except NodeFailed as failed:
            if failed.call not in self._running:
                raise
            ended = await end_failed(self._running[failed.call].started, failed)
        if isinstance(ended, UnknownOutcome):
            lost = self._tape.state.recovery.children
            for key, (index, plan, args, _) in [*self._running.items()]:
                if key in lost:
                    del self._running[key]
                    await self._planned(index, plan, args, lost[key])
            return
        index, _, args, _ = self._running.pop(ended.call)
        self._end(index, args, ended)

    def _end(self, index: int, args: dict[str, Any], ended: kinds.ChildEnded) -> None:
        """Take the result of a branch, or run it again if it has none."""
        try:
            result = self._context.add_child(args, ended)
        except StepFault as fault:
            self._acted[index] = ended.acted
            self._fail(index, fault.message, fault.error_name)
            return
        if not ended.acted:
            self._new.append((args, ended))
        for change in ended.changes:
            other = self._writers.setdefault(change.path, index)
            if other != index:
                names = f"`{self._branches[other].name}` and `{self._branches[index].name}`"
                raise StepFault(f"the branches {names} both wrote `{change.path}`")
        self._complete(index, result)

    def _complete(self, index: int, result: dict[str, Any]) -> None:
        self._collected.add(len(canonical(result)))
        self._join.end(index, has_completed=True)
        self._results[index] = result["data"]

    def _fail(self, index: int, cause: str, error_name: str) -> None:
        self._causes[index], self._names[index] = cause, error_name
        if self._join.end(index, has_completed=False):
            self._waiting.append(index)

    async def _cancel_rest(self) -> int:
        """Cancel the branches that are not needed any more; return how many there were."""
        running = [*self._running.values()]
        for position, one in enumerate(running):
            others = tuple(other.started for other in running[position + 1 :])
            ended = await CancelChild(one.plan.key, one.started, _NOT_NEEDED, others)
            self._context.add_end(one.args, ended)
        self._running.clear()
        return len(running)

    # -- results --------------------------------------------------------------------------------------

    def _joined(self) -> dict[str, Any]:
        results = {self._branches[index].name: self._results[index] for index in sorted(self._results)}
        data: dict[str, Any] = {str(name): result for name, result in results.items()}
        if self._settings.each is not None:
            data = {ITEMS: [*results.values()]}
        if self._settings.on_item_error == "collect":
            failed = sorted(self._join.failed)
            data[ERRORS] = [{"branch": self._branches[one].name, "message": self._causes[one]} for one in failed]
        return data

    def _reason(self) -> str:
        """Return why the join cannot be met."""
        join = self._join
        failed = [f"{self._branches[one].name}: {self._causes[one]}" for one in sorted(join.failed)]
        more = f"; and {len(failed) - _MAX_CAUSES} more" if len(failed) > _MAX_CAUSES else ""
        needs = "1 branch" if join.needed == 1 else f"{join.needed} branches"
        have = f"{len(failed)} of {join.total} failed" if failed else f"there are {join.total}"
        causes = f": {'; '.join(failed[:_MAX_CAUSES])}{more}" if failed else ""
        return f"the join needs {needs}, but {have}{causes}"

    def _keep_results(self) -> None:
        """Let another attempt take over the results of this one."""
        for args, ended in self._new:
            self._context.keep_result(args, ended)
