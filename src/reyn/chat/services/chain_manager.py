"""Chains of agents that ask one another: who asked whom, for which message, how deep. A fold over the journal."""

from __future__ import annotations

import msgspec

from reyn.chat.reader import read_turns
from reyn.journal import Journal, kinds
from reyn.kernel.core.conversations import reply_text
from reyn.kernel.world.loading import first_event


class ChainLink(msgspec.Struct, frozen=True):
    """A message from one agent to another.

    Attributes:
        run: The conversation of the agent that asked.
        call: The call of the op, unique in the conversation.
        number: The message of that conversation that the agent answered when it asked.
        agent: The agent that was asked.
        text: The message.
        conversation: The conversation of the agent that was asked; empty if the message was not sent.
        depth: The number of agents that asked one another, this message included.
        state: The state of the message; `working` while there is no reply.
        reply: The reply, or the reason why there is none.
    """

    run: str
    call: str
    number: int
    agent: str
    text: str
    conversation: str
    depth: int
    state: kinds.TaskState = "working"
    reply: str = ""


def read_origin(journal: Journal, run: str) -> list[kinds.AskRef]:
    """Return the messages that led to a conversation, the latest first."""
    found: list[kinds.AskRef] = []
    while (started := first_event(journal, run)) is not None and started.ask is not None:
        found.append(started.ask)
        run = started.ask.run
    return found


def read_links(journal: Journal, run: str) -> list[ChainLink]:
    """Return the messages of a conversation to other agents, in order, each with its outcome."""
    links: dict[str, ChainLink] = {}
    number = 0
    for said, _, body in read_turns(journal.read(run), kinds.ChildStarted, kinds.ChildEnded):
        number = said.number if said is not None else number
        match body:
            case kinds.ChildStarted(type="agent", text=str(text)):
                message = journal.blob(text).decode()
                links[body.call] = ChainLink(run, body.call, number, body.agent, message, body.run, body.depth)
            case kinds.ChildEnded(type="agent", state="rejected", text=str(text)):
                message, state = journal.blob(text).decode(), body.state
                links[body.call] = ChainLink(run, body.call, number, body.agent, message, "", 1, state, body.error)
            case kinds.ChildEnded() if body.call in links:
                reply = reply_text(body, journal.blob) or body.error
                links[body.call] = msgspec.structs.replace(links[body.call], state=body.state, reply=reply)
    return list(links.values())
