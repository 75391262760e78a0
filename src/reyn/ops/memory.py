"""The ops of a conversation: `remember` and `forget` an entry of the memory, `compact` the transcript.

They request a change of the run's state, which the kernel records; an op itself has no state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.journal.kinds import MemoryRequest
from reyn.ops.op import MemoryOutcome, Plan
from reyn.vocabulary import OpForm, OpSpec
from reyn.vocabulary.schemas import arguments, result, text

if TYPE_CHECKING:
    from typing import Literal

    from reyn.ops.op import Call, Env, Result

MAX_EXPERIENCE_CHARS = 2_000


class MemoryOp:
    """Changes the memory of a conversation, through a request to the kernel."""

    def __init__(
        self,
        action: Literal["remember", "forget", "compact"],
        summary: str,
        field: tuple[str, dict[str, Any]] | None,
        example: dict[str, Any],
    ) -> None:
        self._action = action
        self._field = field[0] if field else None
        form = OpForm(
            op=None,
            summary=summary,
            arguments=arguments(action, None, dict([field]) if field else {}),
            effect="idempotent",
            result=result(action, None, {"id": {"type": "string"}}),
            example={"kind": action, **example},
        )
        self.spec = OpSpec(action, summary, "idempotent", forms=(form,), is_step=False, is_for_conversations=True)

    def plan(self, call: Call, env: Env) -> Plan:
        value = call.args[self._field] if self._field else ""
        return Plan("default: change the memory of the conversation", request=MemoryRequest(self._action, value))

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        outcome: MemoryOutcome = plan.answer
        if outcome.error:
            return call.error(outcome.error)
        return call.ok(id=outcome.id) if outcome.id else call.ok()


REMEMBER = MemoryOp(
    "remember",
    "Remember a text for the rest of the conversation.",
    ("text", text(MAX_EXPERIENCE_CHARS, min_length=1)),
    {"text": "The user prefers short answers."},
)
FORGET = MemoryOp(
    "forget",
    "Forget something that is remembered, by its id.",
    ("id", text(40, min_length=1)),
    {"id": "exp_1"},
)
COMPACT = MemoryOp("compact", "Replace older messages of the conversation by a summary.", None, {})
