"""What a model is asked in one turn of a phase: the static prompt text, and the output contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.context import InvocationSpec, PromptContract, static_text
from reyn.context.frame import advised
from reyn.context.prompt import closing_text, task_text
from reyn.journal import Blob, kinds, ordered

if TYPE_CHECKING:
    from reyn import models
    from reyn.context.frame import StableFrame
    from reyn.contract import Contract
    from reyn.vocabulary import OpSpec


class TurnSpec:
    """The static prompt text and the output contract of one turn: its candidates and the ops on offer."""

    def __init__(
        self,
        frame: StableFrame,
        contract: Contract,
        ops: tuple[OpSpec, ...],
        *,
        advice: str = "",
        asks_handoff: bool = False,
        stays_open: bool = False,
    ) -> None:
        self.frame = frame
        self.contract = contract
        self.ops = ops
        self._advice = advice
        self._asks_handoff = asks_handoff
        self.stays_open = stays_open
        self.phase = frame.current_phase
        self.form = contract.form
        self.candidates = contract.candidates
        self.task = task_text(frame).rstrip()
        self.closing = closing_text(frame, self.form, is_plain_text=contract.is_plain_text)
        self.stable = Blob.of(self._static_text(frame, is_plain_text=contract.is_plain_text).encode())
        self.schema = Blob.of(ordered(contract.schema))
        self.tools = Blob.of(ordered(contract.tools)) if contract.tools else None
        self.system = kinds.FrameMessage("system", (kinds.Part(blob=self.stable.hash),))
        self.invocation = InvocationSpec(self.phase, "phase", PromptContract(system_prompt=self.system.parts))
        self._instructed: TurnSpec | None = None

    def _static_text(self, frame: StableFrame, *, is_plain_text: bool) -> str:
        return static_text(
            frame,
            self.form,
            asks_handoff=self._asks_handoff,
            is_plain_text=is_plain_text,
            allows_abort=not self.stays_open,
        )

    def instructed(self, instructions: str) -> TurnSpec:
        """Return the same turn with other instructions, which take the place of the phase's role and instructions."""
        instructions = advised(instructions, self._advice)
        if self._instructed is None or self._instructed.frame.instructions != instructions:
            frame = msgspec.structs.replace(self.frame, current_phase_role=None, instructions=instructions)
            self._instructed = TurnSpec(
                frame,
                self.contract,
                self.ops,
                advice=self._advice,
                asks_handoff=self._asks_handoff,
                stays_open=self.stays_open,
            )
        return self._instructed

    def invocation_with(self, overviews: str) -> InvocationSpec:
        """Return the invocation whose system prompt ends with the list of what ops can act on, by its hash."""
        prompt = (*self.system.parts, kinds.Part(blob=overviews))
        return InvocationSpec(self.phase, "phase", PromptContract(system_prompt=prompt))

    def decision_text(self, *, is_conversation: bool) -> str:
        """Return the static text without the ops on offer; in a conversation, that of a reply."""
        frame = msgspec.structs.replace(self.frame, available_control_ops=(), act_lines=())
        is_text = is_conversation and self.contract.reply_field is not None
        return self._static_text(frame, is_plain_text=is_text)

    @property
    def answer_schema(self) -> dict[str, Any]:
        """The JSON Schema of every allowed answer."""
        return self.contract.schema

    @property
    def tool_definitions(self) -> tuple[models.ToolDefinition, ...]:
        """The native tools of a request; `tools` is their record."""
        return self.contract.tools
