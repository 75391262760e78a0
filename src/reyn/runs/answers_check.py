"""Check what people decided in a recorded run: every reply fits its question, and every effect has its approval.

The author of a journal can compute every hash. `verify` and `replay` both check that a reply is one that its question
accepts, that a decision is the one of the reply, and that an op for which a rule said `ask` was approved before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.journal import decode, kinds
from reyn.kernel.world.inbox import answer_error

if TYPE_CHECKING:
    from reyn.journal import Body, Event, Journal

KINDS = frozenset(
    body.kind
    for body in (
        *(kinds.WaitOpened, kinds.WaitAnswered, kinds.WaitExpired, kinds.ApprovalRequired, kinds.ApprovalDecided),
        *(kinds.DecisionReviewed, kinds.RunForked),
    )
)
"""The kinds that are checked, besides the start of ops."""


class AnswersCheck:
    """Checks the events of one run, in order. Nothing is remembered of questions that are closed."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._open: kinds.Question | None = None
        self._reply: Any = None
        self._required: dict[str, kinds.ApprovalRequired] = {}
        self._decided: dict[str, kinds.ApprovalDecided] = {}

    def error(self, event: Event, body: Body) -> str:
        """Return what is wrong with an event; empty if nothing is."""
        match body:
            case kinds.RunForked():
                self._open, self._reply, self._decided = None, None, {}
            case kinds.WaitOpened(wait=wait):
                self._open = wait
            case kinds.WaitExpired():
                asked, self._open, self._reply = self._open, None, "expired"
                is_due = asked is not None and asked.id == body.wait and asked.is_expired(event.ts)
                return "" if is_due else f"the question `{body.wait}` had not expired"
            case kinds.WaitAnswered():
                return self._answered(event, body)
            case kinds.ApprovalRequired():
                self._required[body.call] = body
            case kinds.ApprovalDecided():
                return self._decision(body)
            case kinds.DecisionReviewed():
                return self._unlike_reply(body.decision)
            case kinds.OpStarted():
                return self._unapproved(body)
        return ""

    def _answered(self, event: Event, body: kinds.WaitAnswered) -> str:
        asked, self._open = self._open, None
        self._reply = msgspec.json.decode(self._journal.blob(body.value))
        if asked is not None and asked.is_expired(event.ts):
            return f"the question `{body.wait}` had expired"
        return answer_error(asked, body.wait, self._reply)

    def _decision(self, body: kinds.ApprovalDecided) -> str:
        required = self._required.get(body.call)
        if required is None or required.digest != body.digest:
            return f"no approval of this action of op `{body.call}` was asked for"
        self._decided[body.call] = body
        return self._unlike_reply(body.decision)

    def _unlike_reply(self, decision: str) -> str:
        """Return why a decision is not the one of the last reply."""
        reply = self._reply
        said = reply.get("decision") if isinstance(reply, dict) else reply
        is_invalid_edit = (said, decision) == ("edit", "reject")  # edited arguments that are invalid reject the op
        return "" if said == decision or is_invalid_edit else f"it is `{decision}`, and the reply was {said!r}"

    def _unapproved(self, started: kinds.OpStarted) -> str:
        decided, approval = self._decided.pop(started.call, None), started.approval
        if decided is not None and decided.decision in ("reject", "expired", "defer"):
            return f"op `{started.call}` started although it was not approved"
        if approval is None:
            return ""
        if not approval.standing:
            is_approved = decided is not None and decided.decision == "approve" and decided.digest == approval.digest
            return "" if is_approved else f"no approval of op `{started.call}` is recorded"
        return self._without_standing(started, approval.standing)

    def _without_standing(self, started: kinds.OpStarted, run: str) -> str:
        """Return whether the run that gave a standing approval did not; a run that was deleted cannot tell."""
        op = f"{started.op_kind} {started.op}".strip()
        if self._journal.find(run) is None:
            return ""
        for event in self._journal.read(run):
            if event.kind == kinds.ApprovalDecided.kind:
                body = decode(event)
                if isinstance(body, kinds.ApprovalDecided) and body.always and body.op == op:
                    return ""
        return f"run `{run}` gave no standing approval of `{op}`"
