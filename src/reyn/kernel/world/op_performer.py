"""Perform the effects of ops, and convert plans and outcomes into events. The same for every op kind.

`op_dispatch` decides the order of the effects; `reyn.ops.execution` calls the op.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from reyn.errors import ConfigError
from reyn.journal import APPROVAL_DIGITS, Approval, Blob, Journal, canonical, digest, encode, kinds
from reyn.journal.registry import op_event
from reyn.jsonschema import compile_schema
from reyn.kernel.core.effects import APPROVED, PerformOp, Permit, PlanOp, ReadOverviews, Restore
from reyn.kernel.world.environments import Environments, decide_restore, find_overviews, overviews_read
from reyn.kernel.world.op_outcomes import (
    completed_event,
    completed_outcome,
    denied_outcome,
    resolved_outcome,
    withheld_outcome,
)
from reyn.ops import Call, Denied, Env, Op, OpSpec, OpTable, Overview, Plan, Result
from reyn.ops.budget import OpBudgetExceeded
from reyn.ops.execution import apply_changes, doubtful, failed, perform_op, plan_op, prepare_op
from reyn.ops.op import NO_SECRETS, Attachments, Preparable
from reyn.ops.preview import preview
from reyn.permissions.rules import BOUND_TO_ARGUMENTS
from reyn.workspace.restore import Files, restore

if TYPE_CHECKING:
    from reyn.config.values import Sizes
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.world.environments import SkillCompiler
    from reyn.kernel.world.op_outcomes import OutcomeEvent
    from reyn.secrets import Scrubber
    from reyn.skills import Skill
    from reyn.workspace import Location
    from reyn.workspace.observation import Observed

    EndCalls = Callable[[], str]

_MAX_UNRECORDED = 100
"""Files that an event names without their contents."""


class OpPerformer:
    """Performs the ops of all runs of a runtime.

    An op whose arguments, files or result hold a known secret is denied, and none of its content is recorded.
    """

    def __init__(
        self,
        ops: OpTable,
        environments: Environments,
        journal: Callable[[], Journal],
        project: str,
        compile_skill: SkillCompiler,
        secrets: Callable[[], Scrubber],
    ) -> None:
        self._ops = ops
        self.environments = environments
        self._journal = journal
        self._project = project
        self._compile_skill = compile_skill
        self._secrets = secrets
        self._run_ops: dict[tuple[str | None, str], InstalledOp | None] = {}
        self._planned: dict[str, tuple[kinds.OpStarted, Plan]] = {}
        """The last plan of each run that was made in this process, until it is performed."""

    @cached_property
    def _scrubber(self) -> Scrubber:
        """The known secrets, opened before the first op."""
        return self._secrets()

    def forget(self, run_id: str) -> None:
        """Drop what is kept of a run that no longer executes."""
        self._planned.pop(run_id, None)
        self.environments.forget(run_id)

    def op_of(self, effect: PlanOp | PerformOp, tape: Tape) -> InstalledOp | None:
        """Return the op of an effect as its run uses it, or `None` if it is not installed."""
        started = tape.state.started
        key = (started.ops, effect.args["kind"])
        try:
            return self._run_ops[key]
        except KeyError:
            found = self._run_ops[key] = self._find_op(key[1], started, tape)
            return found

    def _find_op(self, kind: str, started: kinds.RunStarted, tape: Tape) -> InstalledOp | None:
        op = self._ops.get(kind)
        if op is None:
            return None
        recorded = self._compile_skill(started, tape.content).vocabulary.op(kind)
        is_foreign = self._ops.is_foreign(kind)
        return InstalledOp(
            op,
            is_foreign,
            is_preparable=not is_foreign and isinstance(op, Preparable),
            may_take_time=is_foreign or op.spec.takes_time,
            is_unchanged=recorded is None or recorded == op.spec,
            permissions=(recorded.permission,) if recorded is not None and recorded.permission else (),
        )

    # -- planning -------------------------------------------------------------------------------------

    async def prepare_and_plan(self, effect: PlanOp, op: InstalledOp, tape: Tape) -> OutcomeEvent:
        """Compute what the plan needs off the event loop, then plan the op."""
        await prepare_op(cast("Preparable", op.op), _call(effect, tape), self.environments.env(tape))
        return self.plan(effect, op, tape)

    def plan(self, effect: PlanOp, op: InstalledOp | None, tape: Tape) -> OutcomeEvent:
        """Check permissions and plan the op, including the before-images of the files that it changes."""
        call, args = _call(effect, tape), Blob.of(canonical(effect.args))
        known = self._scrubber
        if known.is_empty:
            return self._plan(effect, op, call, args, tape)
        if handle := known.find(args.content):
            return withheld_outcome(effect, call, handle, "its arguments hold")
        planned, blobs = self._plan(effect, op, call, args, tape)
        for content in (encode(planned), *(blob.content for blob in blobs if blob.hash != args.hash)):
            if handle := known.find(content):
                return withheld_outcome(effect, call, handle, "a file that it changes, or its result, holds")
        return planned, blobs

    def _plan(self, effect: PlanOp, op: InstalledOp | None, call: Call, args: Blob, tape: Tape) -> OutcomeEvent:
        kind, form, env = effect.args["kind"], effect.args.get("op") or "", None
        if op is None:
            plan: Plan | Denied = Plan(result=call.error(f"the op kind `{kind}` is not installed"))
        elif not op.is_unchanged and (wrong := _rejected_now(op.op.spec, call)):
            plan = Plan(result=call.error(wrong))
        else:
            env = self.environments.env(tape)
            plan = plan_op(op.op, call, env, permissions=op.permissions, is_foreign=op.is_foreign)
        if isinstance(plan, Denied):
            result = Blob.of(canonical(call.denied(plan)))
            denied = kinds.PermissionDenied(effect.key, form, plan.rule, plan.reason, result.hash, kind)
            return denied, (result, args)
        if env is not None and plan.blobs:
            plan = _within_budget(plan, call, env)
        approval = None if plan.approval is None else self._approval(effect, call, plan, args, tape)
        if isinstance(approval, tuple):
            return approval
        known = None if plan.result is None else Blob.of(canonical(plan.result))
        started = op_event(kinds.OpStarted, kind)(
            effect.key,
            args.hash,
            f"{plan.approval}{APPROVED}" if plan.approval else plan.rule,
            form,
            plan.changes,
            known.hash if known else None,
            plan.request,
            is_untracked=op is not None and op.op.spec.effect == "unsafe" and _is_untracked(op.op.spec, call, plan),
            approval=approval,
        )
        if plan.locations:
            self._planned[tape.run_id] = started, plan
        return started, (args, *plan.blobs) if known is None else (args, known, *plan.blobs)

    def permit(self, effect: Permit, tape: Tape) -> OutcomeEvent | None:
        """Decide about a step that does what an op does; return nothing if it is permitted."""
        op = self._ops.get(effect.args["kind"])
        assert op is not None, "steps and nodes do what standard ops do"
        call, args = _call(effect, tape), Blob.of(canonical(effect.args))
        plan = plan_op(op, call, self.environments.env(tape), is_foreign=False, planned=Plan())
        if isinstance(plan, Denied):
            return denied_outcome(effect, call, plan)
        approval = None if plan.approval is None else self._approval(effect, call, plan, args, tape)
        return approval if isinstance(approval, tuple) else None

    def _approval(
        self, effect: PlanOp | Permit, call: Call, plan: Plan, args: Blob, tape: Tape
    ) -> kinds.Approved | OutcomeEvent:
        """Return the approval that a plan has, or the event that asks for it."""
        assert plan.approval is not None
        action = action_digest(call, plan)
        rule = self._standing_rule(call, plan.approval, args)
        standing = None if effect.approved else self._standing(call, rule, tape)
        if standing is None and effect.approved != action:
            text, form = Blob.of(preview(call, plan, tape.content).encode()), call.op or ""
            required = kinds.ApprovalRequired(effect.key, call.kind, form, args.hash, rule, action, text.hash)
            return required, (args, text, *plan.blobs)
        if effect.always:
            self._keep_standing(call, rule, tape)
        return kinds.Approved(action, standing.run_id if standing is not None else "", plan.reads)

    def _standing_rule(self, call: Call, rule: str, args: Blob) -> str:
        """Return the rule that a person is asked about, as a standing approval stores it."""
        op = self._ops.get(call.kind)
        if op is None or BOUND_TO_ARGUMENTS.isdisjoint((op.spec.permission, *op.spec.optional_permissions)):
            return rule
        return bound_rule(rule, args.hash)

    def _standing(self, call: Call, rule: str, tape: Tape) -> Approval | None:
        """Return the standing approval that covers an action."""
        started = tape.state.started
        if started.imported:  # its skill is new here, whatever its hash
            return None
        op = _op_name(call)
        found = (approval for approval in self._journal().approvals() if approval.is_of(self._project))
        return next((approval for approval in found if approval.covers(started.skill_hash, op, rule)), None)

    def _keep_standing(self, call: Call, rule: str, tape: Tape) -> None:
        """Store a standing approval before the start of its op is recorded, so that a crash cannot lose it."""
        started, answer = tape.state.started, tape.state.last_answer
        by = answer.by if answer is not None else ""
        self._journal().approve(
            Approval(started.skill, started.skill_hash, _op_name(call), rule, by, tape.ts, tape.run_id, self._project)
        )

    def read_overviews(self, effect: ReadOverviews, tape: Tape) -> OutcomeEvent:
        """Return what ops can act on, as the prompt of a conversation shows it."""
        env = self.environments.env(tape)
        found = find_overviews(effect.op_kinds, effect.query, env, self._ops, self._scrubber)
        return overviews_read(effect.key, *found)

    def overviews(self, skill: Skill, sizes: Sizes, query: str = "") -> dict[str, Overview]:
        """Return what the ops of a skill's entry phase can act on, by op kind, as a new run would see it."""
        phase, env = skill.phases[skill.entry], self.environments.before_start(skill, sizes)
        return find_overviews(phase.allowed_ops, query, env, self._ops, self._scrubber)[0]

    # -- performing -----------------------------------------------------------------------------------

    async def perform(
        self, effect: PerformOp, op: InstalledOp | None, tape: Tape, end_calls: EndCalls | None = None
    ) -> OutcomeEvent:
        """Perform a planned op. After a crash this may happen again; a change that took effect is left as it is.

        Args:
            effect: The effect.
            op: The op.
            tape: The tape of the run.
            end_calls: Ends the functions that its code called, and names the unsafe ops of all of them.
        """
        started, call = effect.started, _call(effect, tape)
        known = Blob(started.result, tape.content(started.result)) if started.result else None
        approved = started.rule.removesuffix(APPROVED) if started.rule.endswith(APPROVED) else ""
        planned = self._planned.pop(tape.run_id, None)
        # The gate has decided about these files in this process, and opening them follows no links.
        locations = planned[1].locations if planned is not None and planned[0] is started else ()
        if effect.resolution in ("done", "failed"):
            performed = resolved_outcome(effect, call, known)
        elif started.changes:
            if (journal := self._journal()).is_remote:
                journal.check_claim(tape.run_id)
            return self._changed(effect, call, known, locations, approved=approved, tape=tape)
        elif known is not None and started.request is None:
            status = msgspec.json.decode(known.content, type=_Status).status
            return completed_event(effect, status, known), ()
        else:
            plan = Plan(
                started.rule, request=started.request, answer=effect.answer, approved=approved, locations=locations
            )
            performed = await self._perform(effect, op, call, plan, tape, end_calls)
        if started.changes or self._scrubber.is_empty:
            return performed
        for blob in performed[1]:
            if handle := self._scrubber.find(blob.content):
                return withheld_outcome(effect, call, handle, "its result holds", may_have_effect=effect.is_unsafe)
        return performed

    async def _perform(
        self, effect: PerformOp, op: InstalledOp | None, call: Call, plan: Plan, tape: Tape, end_calls: EndCalls | None
    ) -> OutcomeEvent:
        if op is None:
            return completed_outcome(effect, call.error(f"the op kind `{call.kind}` is not installed"))
        try:
            env = self.environments.env(tape)
        except ConfigError as error:  # nothing has been done, so that no person has to say
            return completed_outcome(effect, failed(call, error))
        if op.may_take_time:  # other ops attach nothing
            env = msgspec.structs.replace(env, attachments=Attachments())
        if (journal := self._journal()).is_remote:  # since the last check, reads may have waited for the server
            journal.check_claim(tape.run_id)
        performed = await perform_op(op.op, call, plan, env, permissions=op.permissions, is_foreign=op.is_foreign)
        acted, result = end_calls() if end_calls is not None else "", performed.result
        if acted and result["status"] != "ok":
            result = result | {"error": f"{result.get('error', '')}. {acted}".removeprefix(". ")}
        if result["status"] == "denied" and result.get("rule") == NO_SECRETS:
            return denied_outcome(effect, call, Denied(NO_SECRETS, str(result.get("error"))))
        content = Blob.of(canonical(result))
        attached = tuple(env.attachments.blobs.values()) if result["status"] == "ok" else ()
        try:
            env.budget.add_recorded((content, *attached))
        except OpBudgetExceeded as error:
            result, attached = call.failed(error), ()
            if effect.is_unsafe:
                performed = doubtful(result)
                result = performed.result
            content = Blob.of(canonical(result))
        completed = completed_event(effect, result["status"], content)
        if performed.may_have_effect:
            completed = msgspec.structs.replace(completed, may_have_effect=True)
        if attached:
            completed = msgspec.structs.replace(completed, attachments=tuple(blob.hash for blob in attached))
        if (used := env.attachments.environment) is not None:
            named = kinds.EnvironmentRef(used.name, used.content)
            completed = msgspec.structs.replace(completed, environment=named)
        if env.attachments.observed is None:
            return completed, (content, *attached)
        changes, unrecorded, blobs = self._recordable(env.attachments.observed, env)
        completed = msgspec.structs.replace(completed, changes=changes, unrecorded=unrecorded)
        return completed, (content, *attached, *blobs)

    def _recordable(
        self, observed: Observed, env: Env
    ) -> tuple[tuple[kinds.Change, ...], tuple[str, ...], tuple[Blob, ...]]:
        """Split what an op changed into changes that are recorded, with their contents, and names of other files."""
        known = self._scrubber
        changes: list[kinds.Change] = []
        contents: list[Blob] = []
        unrecorded = list(observed.unrecorded)
        for change, blobs in observed.changes:
            if any(known.find(blob.content) for blob in blobs) or not env.budget.has_room_for(blobs):
                unrecorded.append(change.path)
            else:
                changes.append(change)
                contents += blobs
        return tuple(changes), tuple(sorted(unrecorded)[:_MAX_UNRECORDED]), tuple(contents)

    def _changed(
        self,
        effect: PerformOp,
        call: Call,
        known: Blob | None,
        locations: tuple[Location, ...],
        *,
        approved: str,
        tape: Tape,
    ) -> OutcomeEvent:
        """Apply the planned changes. Record each change that is in its file, even if the result is an error."""
        assert known is not None
        changes = effect.started.changes
        env = self.environments.env(tape)
        applied = apply_changes(call, changes, env, approved=approved, locations=locations)
        if applied.problem is not None:
            return completed_outcome(effect, applied.problem, applied=applied.changes)
        if applied.note:
            planned: Result = msgspec.json.decode(known.content)
            return completed_outcome(effect, planned | {"note": applied.note}, applied=len(changes))
        return completed_event(effect, "ok", known, applied=len(changes)), ()

    def restore(self, effect: Restore, tape: Tape) -> OutcomeEvent:
        """Restore the files of a failed visit, if the run may write them now."""
        env = self.environments.env(tape)
        files = Files(env.roots, env.content, env.file_bytes, lambda location: decide_restore([env.gate], location))
        done = restore(effect.changes, f"{tape.run_id}/{effect.key}", files)
        return kinds.WorkspaceRestored(effect.key, done.restored, done.left, done.verdicts), ()


class InstalledOp(NamedTuple):
    """An op as one run uses it.

    Attributes:
        op: The op.
        is_foreign: Whether it is code from outside the package.
        is_preparable: Whether its plan needs a result that may take long.
        may_take_time: Whether it may run so long that it has to be abandoned when the run is cancelled.
        is_unchanged: Whether its specification is that which the run recorded.
        permissions: The permission keys that it needs by the recorded specification.
    """

    op: Op
    is_foreign: bool
    is_preparable: bool
    may_take_time: bool
    is_unchanged: bool
    permissions: tuple[str, ...]

    def only_reads(self, args: dict[str, Any]) -> bool:
        """Return whether a call with these arguments changes nothing."""
        form = self.op.spec.form(args.get("op")) or self.op.spec.form(None)
        return form is not None and form.effect_of(args) == "pure"


def _is_untracked(spec: OpSpec, call: Call, plan: Plan) -> bool:
    """Return whether an op may change files without an event: a program, a tool, or a step that is not safe."""
    form = spec.form(call.op)
    is_open = not plan.changes and plan.result is None and plan.request is None
    return is_open and form is not None and form.effect_of(call.args) == "unsafe"


def _within_budget(plan: Plan, call: Call, env: Env) -> Plan:
    """Return a plan whose contents may be recorded, or one that is complete with an error result."""
    try:
        env.budget.add_recorded(plan.blobs)
    except OpBudgetExceeded as error:
        return Plan(plan.rule, result=call.failed(error), approval=plan.approval)
    return plan


def _rejected_now(spec: OpSpec, call: Call) -> str:
    """Return why the current version of an op does not accept these arguments."""
    form = spec.form(call.op)
    wrong = compile_schema(form.arguments).first_error(call.args) if form else None
    if form is not None and wrong is None:
        return ""
    why = f": {wrong.path('')} {wrong.message}" if wrong else ""
    return f"the op `{call.kind}` has changed since the run started and does not accept this call{why}"


def action_digest(call: Call, plan: Plan) -> str:
    """Identify an action: the run and call, the arguments, the contents, the files as they are, and the rule."""
    changes = [(change.path, change.before, change.after) for change in plan.changes]
    request = msgspec.to_builtins(plan.request)
    return digest(canonical([call.key, call.args, changes, request, plan.reads, plan.approval]))


def bound_rule(rule: str, args: str) -> str:
    """Return a rule as a person is asked about it where an approval covers only the arguments with a hash."""
    return f"{rule}, arguments {args[:APPROVAL_DIGITS]}"


def _op_name(call: Call) -> str:
    return f"{call.kind} {call.op or ''}".strip()


def _call(effect: PlanOp | PerformOp | Permit, tape: Tape) -> Call:
    """Return the call of an effect, with a key that is unique among all runs: runs may execute concurrently."""
    return Call(f"{tape.run_id}/{effect.key}", effect.args)


class _Status(msgspec.Struct):
    status: kinds.OpStatus
