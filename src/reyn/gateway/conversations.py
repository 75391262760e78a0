"""Conversations that this process has open for its clients: they execute here, so that they stream."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from reyn.chat import open_conversation
from reyn.errors import RunBusy

if TYPE_CHECKING:
    from reyn.api import ChatRuntime
    from reyn.chat import Conversation
    from reyn.chat.items import ChatItem, QuestionAsked, Reply, SkillProgressed
    from reyn.gateway.changes import ChangeFeed
    from reyn.gateway.work import BackgroundRuns
    from reyn.kernel.world.inbox import PostedReply
    from reyn.models import Message


_LOOK_SECONDS = 0.01
"""How often to look whether a new conversation is recorded."""


class OpenConversations:
    """The open conversations, by run. The items of each go to the change feed.

    Args:
        runtime: The runtime that executes them.
        work: Says whether this process executes runs.
        changes: Gets the items.
    """

    def __init__(self, runtime: ChatRuntime, work: BackgroundRuns, changes: ChangeFeed) -> None:
        self._runtime = runtime
        self._work = work
        self._changes = changes
        self._open: dict[str, Conversation] = {}
        self._pumps: dict[str, asyncio.Task[None]] = {}
        self._opening: dict[str, asyncio.Lock] = {}

    async def begin(self, agent: str | None, run_id: str | None, message: str | Message, by: str) -> str:
        """Begin or continue a conversation with a message; return its run.

        Raises:
            AgentNotFound: There is no such agent.
            ConversationInvalid: The run is no conversation with this agent.
            RunBusy: Another process executes the conversation.
        """
        self._work.check()
        chat = await self._opened(agent, run_id, by)
        reply: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        reply.add_done_callback(lambda done: done.cancelled() or done.exception())
        chat.post(message, reply, by=by)
        while not self._runtime.runs.is_recorded(chat.run_id):
            await asyncio.wait([reply], timeout=_LOOK_SECONDS)
            if reply.done() and not self._runtime.runs.is_recorded(chat.run_id):
                reply.result()  # raises why it did not begin
        return chat.run_id

    async def say(self, run: str, message: str | Message, by: str) -> None:
        """Say something in a conversation that exists. If another process has it open, that process answers."""
        if run not in self._open and self._runtime.services.existing_journal.is_claimed(run):
            text, images = (message, ()) if isinstance(message, str) else (message.text, message.images)
            self._runtime.conversations.say(run, text, by=by, images=images)
            return
        await self.begin(None, run, message, by)

    def abort(self, run: str, reason: str) -> None:
        """Stop the reply in progress."""
        if run in self._open:
            self._open[run].abort(reason)
        else:
            self._runtime.conversations.abort_turn(run, reason)

    def answered(self, posted: PostedReply) -> bool:
        """Continue the open conversation that a reply is for. Returns whether there is one."""
        for chat in self._open.values():
            if any((one.run, one.question.id) == (posted.run_id, posted.question_id) for one in chat.questions):
                chat.questions.close(posted.run_id, posted.question_id)
                chat.questions.wake(posted.run_id)
                return True
        return False

    def questions(self, run: str) -> list[QuestionAsked]:
        """Return the open questions of a conversation and of its runs."""
        return list(self._open[run].questions) if run in self._open else []

    def progress(self, run: str) -> list[SkillProgressed]:
        """Return where the skills are that run for a conversation."""
        return self._open[run].progress if run in self._open else []

    def agent_of(self, run: str) -> str | None:
        """Return the agent of a conversation that this process has open."""
        return self._open[run].agent.name if run in self._open else None

    def is_open(self, run: str) -> bool:
        """Return whether this process has a conversation open."""
        return run in self._open

    async def leave(self, run: str) -> None:
        """Close a conversation; it can be continued anywhere."""
        chat, pump = self._open.pop(run, None), self._pumps.pop(run, None)
        if chat is not None:
            await chat.close()
        if pump is not None:
            with contextlib.suppress(asyncio.CancelledError):
                await pump

    async def close(self) -> None:
        """Close all conversations."""
        for run in tuple(self._open):
            await self.leave(run)

    async def _opened(self, agent: str | None, run_id: str | None, by: str) -> Conversation:
        if run_id is None:
            return await self._opened_once(agent, None, by)
        async with self._opening.setdefault(run_id, asyncio.Lock()):
            return self._open.get(run_id) or await self._opened_once(agent, run_id, by)

    async def _opened_once(self, agent: str | None, run_id: str | None, by: str) -> Conversation:
        chat = open_conversation(self._runtime, agent, run_id=run_id, by=by, listener=self._changes.publish)
        try:
            await chat.open()
        except RunBusy:
            await chat.close()
            raise
        self._open[chat.run_id] = chat
        self._pumps[chat.run_id] = asyncio.ensure_future(self._pump(chat))
        return chat

    async def _pump(self, chat: Conversation) -> None:
        item: ChatItem
        async for item in chat.items():
            self._changes.publish_item(chat.run_id, item)
            self._changes.look()
