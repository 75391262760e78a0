"""Messages between agents in the state of a run: the conversations that it opened, and the message it answers. No I/O.

`reyn.chat.services.a2a_handler` delivers the messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec.structs import replace

from reyn.journal import kinds

if TYPE_CHECKING:
    from reyn.kernel.effects import DeliverMessage, EventWithBlobs, PlanMessage
    from reyn.kernel.tape import Tape


class AgentMessenger(Protocol):
    """Carries messages between agents: plans a message, then delivers it and awaits the reply."""

    def plan(self, effect: PlanMessage, tape: Tape) -> EventWithBlobs:
        """Return the `agent_asked` event of a message."""
        ...

    async def deliver(self, effect: DeliverMessage, tape: Tape) -> EventWithBlobs:
        """Deliver a message once, whatever happened before, and return its `agent_replied` event."""
        ...


class AgentThread(msgspec.Struct, frozen=True):
    """The conversation of a run with another agent, as of the last message.

    Attributes:
        run: The conversation.
        seq: Its last event when the agent replied.
        is_open: Whether it can take another message.
        usage: What the run has counted of its tokens.
        answers: What the run has counted of its model answers.
        charge: What the run has counted of its charge.
        active: What the run has counted of its execution time, in microseconds.
    """

    run: str
    seq: int = 0
    is_open: bool = False
    usage: kinds.Usage = kinds.Usage()
    answers: int = 0
    charge: kinds.Charge = kinds.Charge()
    active: int = 0

    def after(self, body: kinds.AgentReplied) -> AgentThread:
        """Return the thread after a reply."""
        before = self if self.run == body.run else AgentThread(body.run)
        return AgentThread(
            body.run,
            body.seq,
            body.open,
            before.usage + body.usage,
            before.answers + body.answers,
            before.charge + (body.charge or kinds.Charge()),
            before.active + body.active,
        )


class ReceivedMessage(msgspec.Struct, frozen=True):
    """The last message of another agent that a conversation received.

    Attributes:
        ask: Where it comes from.
        state: Its state.
        answered_before: Model answers of the run that asks that this conversation has not counted itself.
        reply: The reply, once there is one.
        reason: Why there is none.
    """

    ask: kinds.AskRef
    state: kinds.TaskState = "submitted"
    answered_before: int = 0
    reply: kinds.ArtifactRef | None = None
    reason: str = ""

    def taken(self, ask: kinds.AskRef | None) -> ReceivedMessage:
        """Return it after the conversation took a message, which may be another one."""
        return replace(self, state="working") if ask == self.ask else self

    def completed(self, reply: kinds.ArtifactRef) -> ReceivedMessage:
        """Return it after a turn of the conversation."""
        return replace(self, state="completed", reply=reply) if self.state == "working" else self

    def aborted(self, reason: str) -> ReceivedMessage:
        """Return it after the turn was aborted."""
        return replace(self, state="canceled", reason=reason) if self.state == "working" else self
