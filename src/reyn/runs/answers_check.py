"""Check what people decided in a recorded run: every reply fits its question, and every effect has its approval.

The author of a journal can compute every hash. `verify` and `replay` both check that a reply is one that its question
accepts, that a decision is the one of the reply, and that an op for which a rule said `ask` was approved before: the
same action, for the same rule, with a preview that showed it.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from reyn.journal import Body, Event, Journal, canonical, decode, digest, kinds
from reyn.kernel.core.effects import APPROVED
from reyn.kernel.world.inbox import answer_error
from reyn.kernel.world.op_performer import action_digest, bound_rule
from reyn.ops import Call, Plan
from reyn.ops.preview import preview

KINDS = frozenset(
    body.kind
    for body in (
        *(kinds.WaitOpened, kinds.WaitAnswered, kinds.WaitExpired, kinds.ApprovalRequired, kinds.ApprovalDecided),
        *(kinds.DecisionReviewed, kinds.ChildStarted, kinds.RunStarted, kinds.RunForked, kinds.RunResumed),
    )
)
"""The kinds that are checked, besides the start of ops."""
_NEW_FOLDER = re.compile(r"^(create .*), in the new folder .*\)$", re.MULTILINE)
"""A folder may come into being between the question and the reply."""


class AnswersCheck:
    """Checks the events of one run, in order. Nothing is remembered of questions that are closed."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._open: kinds.Question | None = None
        self._reply: Any = None
        self._by = ""
        self._skill = ""
        self.unchecked: list[str] = []
        """What cannot be checked here, because a run is missing."""
        self._required: dict[str, kinds.ApprovalRequired] = {}
        self._decided: dict[str, kinds.ApprovalDecided] = {}

    def error(self, event: Event, body: Body) -> str:
        """Return what is wrong with an event; empty if nothing is."""
        match body:
            case kinds.RunStarted() | kinds.RunResumed():
                self._skill = body.skill_hash or self._skill
            case kinds.RunForked():
                self._open, self._reply, self._decided = None, None, {}
                self._skill = body.skill_hash or self._skill
            case kinds.WaitOpened(wait=wait):
                self._open = wait
            case kinds.WaitExpired():
                asked, self._open, self._reply, self._by = self._open, None, "expired", ""
                is_due = asked is not None and asked.id == body.wait and asked.is_expired(event.ts)
                return "" if is_due else f"the question `{body.wait}` had not expired"
            case kinds.WaitAnswered():
                return self._answered(event, body)
            case kinds.ApprovalRequired():
                self._required[body.call] = body
            case kinds.ApprovalDecided():
                return self._decision(body)
            case kinds.DecisionReviewed():
                return self._unlike_reply(body)
            case kinds.OpStarted():
                return self._unapproved(event.run_id, body)
            case kinds.ChildStarted(call=call):
                return self._not_approved(call, self._decided.pop(call, None))
        return ""

    def _answered(self, event: Event, body: kinds.WaitAnswered) -> str:
        asked, self._open, self._by = self._open, None, body.by
        self._reply = msgspec.json.decode(self._journal.blob(body.value))
        if asked is not None and asked.is_expired(event.ts):
            return f"the question `{body.wait}` had expired"
        return answer_error(asked, body.wait, self._reply)

    def _decision(self, body: kinds.ApprovalDecided) -> str:
        required = self._required.get(body.call)
        if required is None or required.digest != body.digest:
            return f"no approval of this action of op `{body.call}` was asked for"
        if body.rule != required.rule:
            return f"the approval of op `{body.call}` was asked for another rule"
        self._decided[body.call] = body
        return self._unlike_reply(body)

    def _unlike_reply(self, body: kinds.ApprovalDecided | kinds.DecisionReviewed) -> str:
        """Return why a decision is not the one of the last reply."""
        reply, decision = self._reply, body.decision
        always = isinstance(reply, dict) and decision == "approve" and bool(reply.get("always", False))
        if body.by != self._by or (isinstance(body, kinds.ApprovalDecided) and body.always != always):
            return "it is not the decision of the person who replied"
        said = reply.get("decision") if isinstance(reply, dict) else reply
        named = body.args if isinstance(body, kinds.ApprovalDecided) else body.artifact
        edited = (
            (reply.get("args") or reply.get("artifact")) if decision == "edit" and isinstance(reply, dict) else None
        )
        if named != (digest(canonical(edited)) if edited is not None else None):
            return "it does not name what the person who replied has edited"
        is_invalid_edit = (said, decision) == ("edit", "reject")  # edited arguments that are invalid reject the op
        return "" if said == decision or is_invalid_edit else f"it is `{decision}`, and the reply was {said!r}"

    def _unapproved(self, run: str, started: kinds.OpStarted) -> str:
        decided, approval = self._decided.pop(started.call, None), started.approval
        if error := self._not_approved(started.call, decided):
            return error
        if (approval is not None) != started.rule.endswith(APPROVED):
            return f"the rule of op `{started.call}` and its approval do not agree"
        if approval is None:
            return ""
        call, plan = self._action(run, started, approval)
        if action_digest(call, plan) != approval.digest:
            return f"op `{started.call}` is another action than the one that was approved"
        if approval.standing:
            return self._without_standing(started, approval.standing)
        required = self._required.get(started.call)
        is_approved = decided is not None and decided.decision == "approve" and decided.digest == approval.digest
        if not is_approved or required is None:
            return f"no approval of op `{started.call}` is recorded"
        if required.args != started.args or required.rule not in _asked_rules(started):
            return f"the approval of op `{started.call}` was asked for other arguments, or for another rule"
        return self._unlike_preview(call, plan, required)

    def _not_approved(self, call: str, decided: kinds.ApprovalDecided | None) -> str:
        """Return why an op, or the sub-run of a step, cannot start after a decision."""
        is_refused = decided is not None and decided.decision in ("reject", "expired", "defer")
        return f"op `{call}` started although it was not approved" if is_refused else ""

    def _action(self, run: str, started: kinds.OpStarted, approval: kinds.Approved) -> tuple[Call, Plan]:
        """Return the call and the plan of an op as they were when it was approved."""
        args = msgspec.json.decode(self._journal.blob(started.args), type=dict[str, Any])
        rule = started.rule.removesuffix(APPROVED)
        plan = Plan(rule, started.changes, request=started.request, approval=rule, reads=approval.reads)
        return Call(f"{run}/{started.call}", args), plan

    def _unlike_preview(self, call: Call, plan: Plan, required: kinds.ApprovalRequired) -> str:
        """Return why the text that a person saw does not show the action. An op may put a text of its own before it."""
        shown = self._journal.blob(required.preview).decode("utf-8", "replace")
        expected = preview(call, plan, self._journal.blob)
        is_shown = _NEW_FOLDER.sub(r"\1)", shown).endswith(_NEW_FOLDER.sub(r"\1)", expected))
        return "" if is_shown else f"the preview of op `{required.call}` does not show the action that was approved"

    def _without_standing(self, started: kinds.OpStarted, run: str) -> str:
        """Return why a run did not give a standing approval. One that was deleted, or not imported, cannot tell."""
        op = f"{started.op_kind} {started.op}".strip()
        if self._journal.find(run) is None:
            self.unchecked.append(f"the standing approval of op `{started.call}`: its run `{run}` is not here")
            return ""
        skill, given = "", set[tuple[str, str]]()
        for event in self._journal.read(run):
            if event.kind not in KINDS:
                continue
            body = decode(event)
            if isinstance(body, kinds.RunStarted | kinds.RunForked | kinds.RunResumed):
                skill = body.skill_hash or skill
            elif isinstance(body, kinds.ApprovalDecided) and body.always and skill == self._skill:
                given.add((body.op, body.rule))
        if any((op, rule) in given for rule in _asked_rules(started)):
            return ""
        return f"run `{run}` gave no standing approval of `{op}` for this rule and this version of the skill"


def _asked_rules(started: kinds.OpStarted) -> tuple[str, str]:
    """Return the rule of an op in the forms in which a person is asked about it."""
    rule = started.rule.removesuffix(APPROVED)
    return rule, bound_rule(rule, started.args)
