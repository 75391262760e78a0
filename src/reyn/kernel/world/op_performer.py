"""Perform the effects of ops, and convert plans and outcomes into events. The same for every op kind.

`op_dispatch` decides the order of the effects; `reyn.ops.execution` calls the op.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from reyn.journal import Blob, canonical, digest, encode, kinds
from reyn.journal.registry import op_event
from reyn.jsonschema import compile_schema
from reyn.kernel.world.environments import Environments, decide_restore
from reyn.kernel.world.overviews import find_overviews, overviews_read
from reyn.ops import Call, Denied, Env, Plan
from reyn.ops.budget import OpBudgetExceeded
from reyn.ops.execution import apply_changes, is_preparable, perform_op, plan_op, prepare_op
from reyn.ops.op import Attachments
from reyn.ops.preview import preview
from reyn.permissions.rules import BOUND_TO_ARGUMENTS
from reyn.workspace.restore import Files, restore

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.config.values import Sizes
    from reyn.journal import Approval, Body
    from reyn.kernel.core.effects import PerformOp, PlanOp, ReadOverviews, Restore
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.compiled_skill import CompiledSkill
    from reyn.ops import OpSpec, OpTable, Overview, Result
    from reyn.secrets import Scrubber
    from reyn.skills import Skill
    from reyn.workspace.observation import Observed

    SkillCompiler = Callable[[kinds.RunStarted, Callable[[str], bytes]], CompiledSkill]
    OutcomeEvent = tuple[Body, tuple[Blob, ...]]

_APPROVED = " (approved)"
"""Ends the rule of an op that a person approved."""
_ARGUMENTS_DIGITS = 32
"""Digits of the hash of the arguments in a rule that is bound to them."""
_MAX_UNRECORDED = 100
"""Files that an event names without their contents."""
_SECRETS = "default: no secret in an op"


class OpPerformer:
    """Performs the ops of all runs of a runtime.

    An op whose arguments, files or result hold a known secret is denied, and none of its content is recorded.
    """

    def __init__(
        self,
        ops: OpTable,
        environments: Environments,
        approvals: Callable[[], list[Approval]],
        compile_skill: SkillCompiler,
        secrets: Callable[[], Scrubber],
    ) -> None:
        self._ops = ops
        self.environments = environments
        self._approvals = approvals
        self._compile_skill = compile_skill
        self._secrets = secrets
        self._offers: dict[tuple[str | None, str], _Offered] = {}

    def is_foreign(self, effect: PlanOp | PerformOp) -> bool:
        """Return whether an effect runs code from outside the package."""
        return self._ops.is_foreign(str(effect.args["kind"]))

    def may_take_time(self, effect: PerformOp) -> bool:
        """Return whether an op may run so long that it has to be abandoned when the run is cancelled."""
        op = self._ops.get(str(effect.args["kind"]))
        return self.is_foreign(effect) or (op is not None and op.spec.takes_time)

    def is_preparable(self, effect: PlanOp) -> bool:
        """Return whether the plan of an op needs a result that may take long."""
        op = self._ops.get(str(effect.args["kind"]))
        return op is not None and is_preparable(type(op)) and not self.is_foreign(effect)

    # -- planning -------------------------------------------------------------------------------------

    async def prepare_and_plan(self, effect: PlanOp, tape: Tape) -> OutcomeEvent:
        """Compute what the plan needs off the event loop, then plan the op."""
        op: Any = self._ops.get(str(effect.args["kind"]))
        await prepare_op(op, _call(effect, tape), self.environments.env(tape))
        return self.plan(effect, tape)

    def plan(self, effect: PlanOp, tape: Tape) -> OutcomeEvent:
        """Check permissions and plan the op, including the before-images of the files that it changes."""
        call, args = _call(effect, tape), Blob.of(canonical(effect.args))
        known = self._secrets()
        if handle := known.find(args.content):
            return _withheld(effect, call, handle, "its arguments hold")
        planned, blobs = self._planned(effect, call, args, tape)
        if not known.is_empty:
            for content in (encode(planned), *(blob.content for blob in blobs if blob.hash != args.hash)):
                if handle := known.find(content):
                    what = "a file that it changes, or its result, holds"
                    return _withheld(effect, call, handle, what)
        return planned, blobs

    def _planned(self, effect: PlanOp, call: Call, args: Blob, tape: Tape) -> OutcomeEvent:
        plan = self._within_budget(self._plan(call, tape), call, tape)
        if isinstance(plan, Denied):
            result = Blob.of(canonical(call.denied(plan)))
            denied = kinds.PermissionDenied(effect.key, call.op or "", plan.rule, plan.reason, result.hash, call.kind)
            return denied, (result, args)
        if plan.approval is not None:
            action = _digest(call, plan)
            rule = self._standing_rule(call, plan.approval, args)
            standing = self._standing(call, rule, tape)
            if standing is None and effect.approved != action:
                text = Blob.of(preview(call, plan, tape.content).encode())
                required = kinds.ApprovalRequired(
                    effect.key, call.kind, call.op or "", args.hash, rule, action, text.hash
                )
                return required, (args, text, *plan.blobs)
        known = None if plan.result is None else Blob.of(canonical(plan.result))
        started = op_event(kinds.OpStarted, call.kind)(
            effect.key,
            args.hash,
            f"{plan.approval}{_APPROVED}" if plan.approval else plan.rule,
            call.op or "",
            plan.changes,
            known.hash if known else None,
            plan.request,
            is_untracked=self._is_untracked(call, plan),
        )
        return started, (args, *((known,) if known else ()), *plan.blobs)

    def _is_untracked(self, call: Call, plan: Plan) -> bool:
        """Return whether an op may change files without an event: a program, a tool, or a step that is not safe."""
        op = self._ops.get(call.kind)
        form = (op.spec.form(call.op) or op.spec.form(None)) if op is not None else None
        is_open = not plan.changes and plan.result is None and plan.request is None
        return is_open and form is not None and form.effect_of(call.args) == "unsafe"

    def _within_budget(self, plan: Plan | Denied, call: Call, tape: Tape) -> Plan | Denied:
        """Return a plan whose contents may be recorded, or one that is complete with an error result."""
        if not isinstance(plan, Plan) or not plan.blobs:
            return plan
        try:
            self.environments.budget(tape).add_recorded(plan.blobs)
        except OpBudgetExceeded as error:
            return Plan(plan.rule, result=call.failed(error))
        return plan

    def _standing_rule(self, call: Call, rule: str, args: Blob) -> str:
        """Return the rule that a person is asked about, as a standing approval stores it."""
        op = self._ops.get(call.kind)
        if op is None or BOUND_TO_ARGUMENTS.isdisjoint((op.spec.permission, *op.spec.optional_permissions)):
            return rule
        return f"{rule}, arguments {args.hash[:_ARGUMENTS_DIGITS]}"

    def _standing(self, call: Call, rule: str, tape: Tape) -> Approval | None:
        """Return the standing approval that covers an action."""
        started = tape.state.started
        if started.imported:  # its skill is new here, whatever its hash
            return None
        op = f"{call.kind} {call.op or ''}".strip()
        return next((approval for approval in self._approvals() if approval.covers(started.skill_hash, op, rule)), None)

    def _plan(self, call: Call, tape: Tape) -> Plan | Denied:
        kind = call.kind
        op = self._ops.get(kind)
        if op is None:
            return Plan(result=call.error(f"the op kind `{kind}` is not installed"))
        offered = self._offered(op.spec, tape)
        if not offered.is_unchanged and (wrong := _rejected_now(op.spec, call)):
            return Plan(result=call.error(wrong))
        is_foreign = self._ops.is_foreign(kind)
        return plan_op(op, call, self.environments.env(tape), permissions=offered.permissions, is_foreign=is_foreign)

    def _offered(self, now: OpSpec, tape: Tape) -> _Offered:
        """Compare an op with its specification when the run started."""
        started = tape.state.started
        key = (started.ops, now.kind)
        found = self._offers.get(key)
        if found is None:
            spec = self._compile_skill(started, tape.content).vocabulary.op(now.kind)
            permissions = (spec.permission,) if spec is not None and spec.permission else ()
            found = self._offers[key] = _Offered(spec is None or spec == now, permissions)
        return found

    def read_overviews(self, effect: ReadOverviews, tape: Tape) -> OutcomeEvent:
        """Return what ops can act on, as the prompt of a conversation shows it."""
        env = self.environments.env(tape)
        found = find_overviews(effect.op_kinds, effect.query, env, self._ops, self._secrets())
        return overviews_read(effect.key, *found)

    def overviews(self, skill: Skill, sizes: Sizes, query: str = "") -> dict[str, Overview]:
        """Return what the ops of a skill's entry phase can act on, by op kind, as a new run would see it."""
        phase, env = skill.phases[skill.entry], self.environments.before_start(skill, sizes)
        return find_overviews(phase.allowed_ops, query, env, self._ops, self._secrets())[0]

    # -- performing -----------------------------------------------------------------------------------

    async def perform(self, effect: PerformOp, tape: Tape) -> OutcomeEvent:
        """Perform a planned op. After a crash this may happen again; a change that took effect is left as it is."""
        call = _call(effect, tape)
        outcome, blobs = await self._performed(effect, call, tape)
        if not effect.started.changes:
            for blob in blobs:
                if handle := self._secrets().find(blob.content):
                    return _withheld(effect, call, handle, "its result holds")
        return outcome, blobs

    async def _performed(self, effect: PerformOp, call: Call, tape: Tape) -> OutcomeEvent:
        started = effect.started
        known = Blob(started.result, tape.content(started.result)) if started.result else None
        if effect.resolution in ("done", "failed"):
            return self._resolved(effect, call, known)
        approved = started.rule.removesuffix(_APPROVED) if started.rule.endswith(_APPROVED) else ""
        if started.changes:
            return self._changed(effect, call, known, approved=approved, tape=tape)
        if known is not None and started.request is None:
            status = msgspec.json.decode(known.content, type=_Status).status
            return _outcome(effect, call, status, known), ()
        plan = Plan(started.rule, (), None, (), started.request, effect.answer, approved=approved)
        op = self._ops.get(call.kind)
        if op is None:
            return _completed(effect, call, call.error(f"the op kind `{call.kind}` is not installed"))
        is_foreign = self._ops.is_foreign(call.kind)
        env = msgspec.structs.replace(self.environments.env(tape), attachments=Attachments())
        needed = self._offered(op.spec, tape).permissions
        result = await perform_op(op, call, plan, env, permissions=needed, is_foreign=is_foreign)
        content = Blob.of(canonical(result))
        attached = tuple(env.attachments.blobs.values()) if result["status"] == "ok" else ()
        try:
            env.budget.add_recorded((content, *attached))
        except OpBudgetExceeded as error:
            result, attached = call.failed(error), ()
            content = Blob.of(canonical(result))
        completed = _outcome(effect, call, result["status"], content)
        if attached:
            completed = msgspec.structs.replace(completed, attachments=tuple(blob.hash for blob in attached))
        if env.attachments.observed is None:
            return completed, (content, *attached)
        changes, unrecorded, blobs = self._recordable(env.attachments.observed, env)
        completed = msgspec.structs.replace(completed, changes=changes, unrecorded=unrecorded)
        return completed, (content, *attached, *blobs)

    def _recordable(
        self, observed: Observed, env: Env
    ) -> tuple[tuple[kinds.Change, ...], tuple[str, ...], tuple[Blob, ...]]:
        """Split what an op changed into changes that are recorded, with their contents, and names of other files."""
        known = self._secrets()
        changes: list[kinds.Change] = []
        contents: list[Blob] = []
        unrecorded = list(observed.unrecorded)
        for change, blobs in observed.changes:
            if any(known.find(blob.content) for blob in blobs) or not env.budget.has_room_for(blobs):
                unrecorded.append(change.path)
            else:
                changes.append(change)
                contents += blobs
        return tuple(changes), tuple(unrecorded[:_MAX_UNRECORDED]), tuple(contents)

    def _changed(self, effect: PerformOp, call: Call, known: Blob | None, *, approved: str, tape: Tape) -> OutcomeEvent:
        """Apply the planned changes. Record each change that is in its file, even if the result is an error."""
        assert known is not None
        changes = effect.started.changes
        applied = apply_changes(call, changes, self.environments.env(tape), approved=approved)
        if applied.problem is not None:
            return _completed(effect, call, applied.problem, applied=applied.changes)
        if applied.note:
            planned: Result = msgspec.json.decode(known.content)
            return _completed(effect, call, planned | {"note": applied.note}, applied=len(changes))
        return _outcome(effect, call, "ok", known, applied=len(changes)), ()

    def _resolved(self, effect: PerformOp, call: Call, known: Blob | None) -> OutcomeEvent:
        """Return the outcome that the operator confirmed for an intent whose outcome is unknown."""
        if effect.resolution == "failed":
            result = call.error("the op did not take effect, as an operator confirmed")
        else:
            planned: Result = msgspec.json.decode(known.content) if known else call.ok()
            result = planned | {"note": "the op took effect, as an operator confirmed"}
        applied = len(effect.started.changes) if effect.resolution == "done" else 0
        return _completed(effect, call, result, applied=applied)

    def restore(self, effect: Restore, tape: Tape) -> OutcomeEvent:
        """Restore the files of a failed visit, if the run may write them now."""
        env = self.environments.env(tape)
        files = Files(env.roots, env.content, env.file_bytes, lambda location: decide_restore([env.gate], location))
        done = restore(effect.changes, f"{tape.run_id}/{effect.key}", files)
        return kinds.WorkspaceRestored(effect.key, done.restored, done.left, done.verdicts), ()


class _Offered(NamedTuple):
    """An op kind as recorded in a run: whether it is unchanged, and the permissions that it needed."""

    is_unchanged: bool
    permissions: tuple[str, ...]


def _rejected_now(spec: OpSpec, call: Call) -> str:
    """Return why the current version of an op does not accept these arguments."""
    form = spec.form(call.op) or spec.form(None)
    wrong = compile_schema(form.arguments).first_error(call.args) if form else None
    if form is not None and wrong is None:
        return ""
    why = f": {wrong.path('')} {wrong.message}" if wrong else ""
    return f"the op `{call.kind}` has changed since the run started and does not accept this call{why}"


def _digest(call: Call, plan: Plan) -> str:
    """Identify an action: the run and call, the arguments, the contents, the files as they are, and the rule."""
    changes = [(change.path, change.before, change.after) for change in plan.changes]
    request = msgspec.to_builtins(plan.request)
    return digest(canonical([call.key, call.args, changes, request, plan.reads, plan.approval]))


def _call(effect: PlanOp | PerformOp, tape: Tape) -> Call:
    """Return the call of an effect, with a key that is unique among all runs: runs may execute concurrently."""
    return Call(f"{tape.run_id}/{effect.key}", effect.args)


def _withheld(effect: PlanOp | PerformOp, call: Call, handle: str, what: str) -> OutcomeEvent:
    """Return the denial of an op that holds a secret. It names the secret, and repeats nothing of the op."""
    denied = Denied(_SECRETS, f"{what} the value of `{handle}`; nothing of it was recorded")
    result = Blob.of(canonical(call.denied(denied)))
    event = kinds.PermissionDenied(effect.key, call.op or "", denied.rule, denied.reason, result.hash, call.kind)
    return event, (result,)


def _completed(effect: PerformOp, call: Call, result: Result, *, applied: int = 0) -> OutcomeEvent:
    content = Blob.of(canonical(result))
    return _outcome(effect, call, result["status"], content, applied=applied), (content,)


def _outcome(
    effect: PerformOp, call: Call, status: kinds.OpStatus, result: Blob, *, applied: int = 0
) -> kinds.OpCompleted:
    """Return the event. `applied` counts the planned changes that are in their files, or may be."""
    partly = applied if 0 < applied < len(effect.started.changes) else None
    completed = op_event(kinds.OpCompleted, call.kind)
    return completed(effect.key, status, result.hash, len(result.content), applied > 0, partly)


class _Status(msgspec.Struct):
    status: kinds.OpStatus
