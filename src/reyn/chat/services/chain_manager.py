"""Chains of agents that ask one another: who asked whom, for which message, how deep. A fold over the journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.chat.reader import read_turns
from reyn.errors import ChainTooDeep
from reyn.journal import decode, kinds
from reyn.kernel.world.sub_runs import MAX_DEPTH
from reyn.runtime.agent_host import depth_below, opened_by
from reyn.skills.agents import PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from reyn.journal import Event, Journal
    from reyn.kernel.core.conversations import AgentThread
    from reyn.kernel.core.snapshot import RunState


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


class ChainManager:
    """The chains of a project."""

    def __init__(self, journal: Journal, max_depth: int) -> None:
        """Look at chains.

        Args:
            journal: The journal.
            max_depth: How many agents may ask one another.
        """
        self._journal = journal
        self._max_depth = max_depth

    def next_depth(self, state: RunState) -> int:
        """Return the depth of a message that a run sends.

        Raises:
            ChainTooDeep: The chain would be too long.
        """
        assert state.started is not None
        depth = self._depth(state.started) + 1
        if depth > self._max_depth:
            raise ChainTooDeep(
                f"agents may ask one another up to {self._max_depth} deep (`agents.max_depth`), "
                f"and this message would be number {depth}"
            )
        if depth_below(state.started) > MAX_DEPTH:
            raise ChainTooDeep(f"sub-runs are nested deeper than {MAX_DEPTH} levels")
        return depth

    def _depth(self, started: kinds.RunStarted) -> int:
        """Return how many agents asked one another until a run was started."""
        ask, parent = started.ask, started.parent
        while ask is None and parent is not None:
            above = next(iter(self._journal.read(parent.run)), None)
            body = decode(above) if above is not None else None
            if not isinstance(body, kinds.RunStarted):
                return 0
            ask, parent = body.ask, body.parent
        return ask.depth if ask is not None else 0

    def thread(self, state: RunState, agent: str) -> AgentThread | None:
        """Return the conversation with an agent that the next message continues; `None` if a new one is opened.

        A conversation that failed, stopped or ended is not continued, and a fork does not write to those of its origin.
        """
        found = state.threads.get(agent)
        is_own = found is not None and found.run.startswith(f"{state.run_id}.")
        return found if found is not None and found.is_open and is_own else None

    def origin(self, run: str) -> list[kinds.AskRef]:
        """Return the messages that led to a conversation, the latest first."""
        found: list[kinds.AskRef] = []
        while (ask := opened_by(self._journal, run)) is not None:
            found.append(ask)
            run = ask.run
        return found

    def links(self, run: str) -> list[ChainLink]:
        """Return the messages that a conversation sent to other agents, in order."""
        return list(read_links(run, self._journal.read(run), self._journal.blob))


def read_links(run: str, events: Iterable[Event], content: Callable[[str], bytes]) -> Iterator[ChainLink]:
    """Yield the messages of a recorded run to other agents, each with what became of it."""
    links: dict[str, ChainLink] = {}
    number = 0
    for said, _, body in read_turns(events, kinds.AgentAsked, kinds.AgentReplied):
        number = said.number if said is not None else number
        match body:
            case kinds.AgentAsked():
                text = content(body.text).decode()
                conversation = "" if body.problem else body.run
                links[body.call] = ChainLink(run, body.call, number, body.agent, text, conversation, body.depth)
            case kinds.AgentReplied() if body.call in links:
                reply = content(body.text).decode() if body.text is not None else body.error
                links[body.call] = msgspec.structs.replace(links[body.call], state=body.state, reply=reply)
    yield from links.values()


def agent_of(skill: str) -> str:
    """Return the agent whose conversations run a skill; empty if it is not the skill of one."""
    return skill.removeprefix(PREFIX) if skill.startswith(PREFIX) else ""
