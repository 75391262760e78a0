"""`Permissions`: explain the permissions of a skill before it runs, as `rt.permissions`, and list approvals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from reyn.contract.ops import OpRules, offered_ops
from reyn.errors import ApprovalUnknown, InputInvalid, OpUnknown
from reyn.journal.kinds import AGENT_PREFIX
from reyn.kernel.world.environments import roots_of
from reyn.ops import Call, Env, OpTable, Targeted
from reyn.ops.execution import plan_op
from reyn.permissions import Allowed, Denied, Gate, Policy, SkillRequests, parse_requests, unnamed_target
from reyn.permissions.explain import RequestVerdict, explain_requests
from reyn.permissions.policy import RulePlaces
from reyn.permissions.rules import OPEN
from reyn.runs.recorded import Runs
from reyn.runtime.run_warnings import ungranted_requests
from reyn.skills import Skill, read_skill
from reyn.skills.agents import CHAT, agent_of

if TYPE_CHECKING:
    from reyn.documents import Document
    from reyn.journal import Approval
    from reyn.kernel.world.services import Services
    from reyn.workspace import Roots

_EFFECTS = ("allow", "partly", "ask", "deny")
"""From the most to the least that a request gets."""
_NO_RUN = "no-run"
"""The workspace of an op that is only explained; it does not exist."""


class ZoneReport(msgspec.Struct, frozen=True):
    """A path pattern that needs no request. `place` is the line that sets it, or `default`."""

    access: Literal["read", "write"]
    pattern: str
    place: str


class RuleReport(msgspec.Struct, frozen=True):
    """A rule that concerns the skill, and its line."""

    rule: str
    effect: str
    place: str


class OpReport(msgspec.Struct, frozen=True):
    """The verdict of the rules on an op kind, or on one op.

    Attributes:
        kind: The op kind.
        phases: The phases that allow it.
        permission: The permission that it needs.
        effect: `allow`, `ask` or `deny`; of a kind with targets, the most that any of them gets.
        rule: The rule that decides.
        place: The line of the rule.
        reason: Why it is denied, or what else decides.
        problem: Why an op that is allowed would fail.
        op: The arguments of the op; `None` for a kind.
    """

    kind: str
    phases: tuple[str, ...]
    permission: str | None
    effect: str
    rule: str
    place: str = ""
    reason: str = ""
    problem: str = ""
    op: dict[str, Any] | None = None


class PermissionReport(msgspec.Struct, frozen=True):
    """The permissions of a skill: zones, ops, requests and rules."""

    skill: str
    zones: tuple[ZoneReport, ...]
    ops: tuple[OpReport, ...]
    requests: tuple[RequestVerdict, ...]
    rules: tuple[RuleReport, ...]


class Permissions:
    """The permissions of the skills of a project, explained, and its standing approvals."""

    def __init__(self, services: Services) -> None:
        self._services = services

    @property
    def _policy(self) -> Policy:
        return self._services.read_policy()

    @property
    def _ops(self) -> OpTable:
        return self._services.ops

    @cached_property
    def _places(self) -> RulePlaces:
        return RulePlaces(self._services.root, self._ops.vocabulary.permission_keys)

    @cached_property
    def _roots(self) -> Roots:
        return roots_of(self._services.root, self._services.state_folder, _NO_RUN)

    def approvals(self) -> list[Approval]:
        """Return the standing approvals in the journal, oldest first. Those of another project have no effect."""
        return self._services.existing_journal.approvals()

    def is_effective(self, approval: Approval) -> bool:
        """Return whether a standing approval was given in this project."""
        return approval.is_of(self._services.identity)

    def revoke(self, approval_id: int) -> None:
        """Remove a standing approval.

        Raises:
            ApprovalUnknown: There is no standing approval with this id.
        """
        if not self._services.existing_journal.revoke(approval_id):
            raise ApprovalUnknown(f"no standing approval {approval_id}")

    def warnings(self, run: str) -> tuple[str, ...]:
        """Return a message for each request of a run and of its pinned sub-skills that no rule grants."""
        started = Runs(self._services).state(run).started
        return ungranted_requests(self._services, started, self._services.existing_journal.blob)

    def explain(self, skill: str) -> PermissionReport:
        """Return the permissions of a skill and of its sub-skills: zones, requests, ops, and rules with their lines."""
        name, loaded = skill, self._services.load(skill)
        requests = [*self._requests(loaded, name, ())]
        for sub_skill in loaded.skills.values():
            requests += self._requests(sub_skill, sub_skill.name, (SkillRequests(loaded.name, loaded.permissions),))
        names = {loaded.name, *(sub_skill.name for sub_skill in loaded.skills.values())}
        rules = [rule for rule in self._policy.rules if not rule.skills or names & {*rule.skills}]
        return PermissionReport(
            loaded.name,
            tuple(self._zones()),
            tuple(self._op(kind, phases, loaded) for kind, phases in _allowed_ops(loaded).items()),
            tuple(requests),
            tuple(RuleReport(rule.text, rule.effect, self._places.of_rule(rule)) for rule in rules),
        )

    def explain_op(self, skill: str, op: str | Mapping[str, Any]) -> OpReport:
        """Return whether a skill may execute an op. Nothing is performed or recorded.

        Args:
            skill: Name or path of the skill.
            op: A kind, such as `file`, or a whole op, whose paths are checked as well.

        Raises:
            OpUnknown: There is no such kind, or no release that executes it.
            InputInvalid: The arguments are not an op of that kind.
        """
        loaded = self._services.load(skill)
        if not isinstance(op, str):
            return self._verdict(loaded, dict(op))
        if self._ops.vocabulary.op(op) is None:
            raise OpUnknown(f"no op kind `{op}`")
        return self._op(op, _allowed_ops(loaded).get(op, ()), loaded)

    def _zones(self) -> list[ZoneReport]:
        accesses: tuple[Literal["read", "write"], ...] = ("read", "write")
        reports = [
            ZoneReport(access, pattern.text, self._places.of_zone(access, pattern.text))
            for access in accesses
            for pattern in self._policy.zone(access)
        ]
        return [*reports, *(ZoneReport(access, "workspace:", "default") for access in accesses)]

    def _requests(self, skill: Skill, name: str, above: tuple[SkillRequests, ...]) -> list[RequestVerdict]:
        verdicts = explain_requests(skill.name, skill.permissions, self._policy, above, self._roots)
        return [
            msgspec.structs.replace(
                verdict,
                place=place,
                rules=tuple(map(self._placed, verdict.rules)),
                exceptions=tuple(map(self._placed, verdict.exceptions)),
            )
            for verdict, place in zip(verdicts, self._request_places(name, skill), strict=True)
        ]

    def _request_places(self, name: str, skill: Skill) -> Iterator[str]:
        """Yield the file and line of every request, in the order of the verdicts."""
        documents = self._documents(name)
        parsed = parse_requests(skill.permissions)
        for capability, targets in (*parsed.files.items(), *parsed.others.items()):
            document = next((one for one in documents if capability in one.value.get("permissions", {})), None)
            for index in range(max(1, len(targets))):
                if document is None:  # the memory of an agent
                    yield "default"
                else:
                    yield f"{document.file}:{document.at('permissions', capability, index).line}"

    def _documents(self, name: str) -> list[Document]:
        """Return the files that can request permissions for a skill: its skill.md, and before it that of an agent."""
        if name.startswith(AGENT_PREFIX):
            _, agent = self._services.agents.read(name.removeprefix(AGENT_PREFIX))
            [chat] = self._documents(CHAT)
            chat = msgspec.structs.replace(chat, file=f"{CHAT}/{chat.file}")
            return [chat] if agent is None else [agent, chat]
        folder = read_skill(self._services.library.find(name), self._ops.vocabulary, self._services.library).folder
        document = folder.read("skill.md")
        assert document is not None
        return [document]

    def _place_of(self, text: str) -> str:
        return next((self._places.of_rule(rule) for rule in self._policy.rules if rule.text == text), "")

    def _placed(self, text: str) -> str:
        place = self._place_of(text)
        return f"{text} ({place})" if place else text

    def _op(self, kind: str, phases: tuple[str, ...], skill: Skill) -> OpReport:
        spec = self._ops.vocabulary.op(kind)
        permission = spec.permission if spec else None
        if permission is None or (permission in OPEN and not self._has_rules(permission)):
            keys = " and ".join(f"`{key}`" for key in spec.optional_permissions) if spec else ""
            note = f"zones, requests and rules for {keys} decide about each call" if keys else ""
            return OpReport(kind, phases, None, "allow", "default: no permission needed", "", note)
        target, own = kind, list[RequestVerdict]()
        if isinstance(self._ops.get(kind), Targeted):  # the most that any target gets
            verdicts = explain_requests(skill.name, skill.permissions, self._policy, roots=self._roots)
            target, own = "", [verdict for verdict in verdicts if verdict.capability == permission]
        if own:
            best = min(own, key=lambda verdict: _EFFECTS.index(verdict.effect))
            rule, note = best.rules[0], f"rules for `{permission}` decide about each call"
            if best.effect == "deny":
                return OpReport(kind, phases, permission, "deny", rule, "", best.reason)
            return OpReport(kind, phases, permission, best.effect, rule, self._place_of(rule), note)
        decided = self._gate(skill).capability(permission, target and unnamed_target(permission, target))
        effect, reason = "allow", ""
        if not isinstance(decided, Allowed):
            effect, reason = "deny" if isinstance(decided, Denied) else "ask", decided.reason
        return OpReport(kind, phases, permission, effect, decided.rule, self._place_of(decided.rule), reason)

    def _has_rules(self, permission: str) -> bool:
        return any(rule.capability == permission for rule in self._policy.rules)

    def _gate(self, skill: Skill) -> Gate:
        requests = (parse_requests(skill.permissions),)
        return Gate(self._roots, self._policy, requests, skill.name, agent=agent_of(skill.name))

    def _verdict(self, skill: Skill, args: dict[str, Any]) -> OpReport:
        """Return the verdict on one op: planned with today's files, and not performed."""
        kind = str(args.get("kind"))
        implementation = self._ops.get(kind)
        if implementation is None:
            raise OpUnknown(f"no op kind `{kind}` can be executed")
        error = OpRules(offered_ops(self._ops.vocabulary, (kind,))).first_error([args], "")
        if error is not None:
            where = error[0].removeprefix("$.control_ir[0]").lstrip(".")
            raise InputInvalid(
                f"the op is invalid: {where} {error[1]}", hint=f"See the documentation of the op `{kind}`."
            )
        gate = self._gate(skill)
        env = Env.without_run(gate, self._services.config.sizes.file_bytes)
        plan = plan_op(implementation, Call(_NO_RUN, args), env, is_foreign=self._ops.is_foreign(kind))
        phases, permission = _allowed_ops(skill).get(kind, ()), implementation.spec.permission
        if isinstance(plan, Denied):
            place = self._place_of(plan.rule)
            return OpReport(kind, phases, permission, "deny", plan.rule, place, plan.reason, op=args)
        problem = "" if plan.result is None else str(plan.result.get("error", ""))
        rule, effect = plan.approval or plan.rule, "ask" if plan.approval else "allow"
        return OpReport(kind, phases, permission, effect, rule, self._place_of(rule), "", problem, args)


def _allowed_ops(skill: Skill) -> dict[str, tuple[str, ...]]:
    """Return the op kinds that phases allow, each with its phases."""
    kinds = dict.fromkeys(kind for phase in skill.phases.values() for kind in phase.allowed_ops)
    return {kind: tuple(name for name, phase in skill.phases.items() if kind in phase.allowed_ops) for kind in kinds}
