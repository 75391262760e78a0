"""The run of a conversation in this process: start or continue it, send messages, read its events, ask its user.

The driver of the run stays alive between messages, so that a turn costs the same however long the conversation is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from reyn.chat.items import ChatItem, MessageReceived, Reply, SkillStarted, Stopped
from reyn.chat.reader import ItemReader, last_reply, sent_before
from reyn.chat.recorded import check_begun_with, end_turn, failure_of, history_of, idle_result, stop_error
from reyn.chat.services.intervention_registry import InterventionRegistry
from reyn.chat.services.skill_runner import SkillRunner
from reyn.chat.unread import PendingReplies, UnreadItems
from reyn.context.messages import NormalizedMessage
from reyn.context.transcript import NO_MESSAGES, NormalizedMessageList
from reyn.errors import RunBusy, RunNotResumable, escape_surrogates
from reyn.journal import Event, RunRow, kinds
from reyn.kernel.runtime_types import LATER, People, RunResult
from reyn.kernel.world.inbox import stored_images
from reyn.runtime.same_call import RunCall
from reyn.skills import USER_MESSAGE, Skill

if TYPE_CHECKING:
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.world.run_scope import RunScope
    from reyn.kernel.world.services import Listener
    from reyn.models import Delta, Image
    from reyn.runtime import OSRuntime
    from reyn.skills.agents import Agent


class Beginning(NamedTuple):
    """What the first message of a conversation starts.

    Attributes:
        skill: The skill of the run.
        history: What was said before; see `OSRuntime.run`.
        within: The op whose code holds the conversation, if it is a sub-run; see `OSRuntime.run`.
        is_single_turn: Whether the run ends with its first reply. Saying the same again returns the same reply.
        instructions: The instructions that come with each message, if a program can change them.
        sender: The call that sends the message, if the code of an op does.
        is_repeated: Whether the op is performed again, so that the message may have been sent before.
    """

    skill: Skill
    history: NormalizedMessageList = NO_MESSAGES
    within: RunScope | None = None
    is_single_turn: bool = False
    instructions: str | None = None
    sender: str = ""
    is_repeated: bool = False

    def call(self, text: str, images: tuple[Image, ...]) -> RunCall:
        """Return how the run starts. The skill has the system message of the history as its instructions."""
        message = {"type": USER_MESSAGE.name, "data": {"text": text}}
        return RunCall(self.skill, message, self.history.with_system(None), stored_images(images), self.sender)

    def said(self, text: str, images: tuple[Image, ...]) -> Beginning:
        """Return it with the first message, which is part of the history whatever becomes of the run."""
        return self._replace(history=self.history.append(NormalizedMessage("user", text, images)))


class TurnProgress:
    """The turn in progress of a conversation.

    Attributes:
        is_executing: Whether the run is claimed, so that messages in its inbox are taken here.
        is_busy: Whether a message is being answered.
        is_open: Whether that message is part of the transcript, so that the turn can be aborted.
        posted: The messages of this process that the conversation has not taken yet.
        is_aborted: Whether the run was asked to abort it.
        abort_reason: Why the next turn is to be aborted as soon as it begins.
    """

    def __init__(self) -> None:
        self.is_executing = self.is_busy = self.is_open = self.is_aborted = False
        self.posted = 0
        self.abort_reason: str | None = None

    def start(self) -> None:
        """The run is about to be executed. Perhaps it continues a turn."""
        self.is_executing, self.is_busy, self.is_open, self.is_aborted = False, True, False, False

    def enter(self, *, is_open: bool) -> None:
        """The run is executed from here on. A turn may be open."""
        self.is_executing, self.is_open = True, is_open

    def take(self, *, is_own: bool) -> None:
        """A turn begins with a message, which may be one of this process."""
        self.is_executing, self.is_busy, self.is_open = True, True, False
        if is_own:
            self.posted = max(0, self.posted - 1)

    def end(self) -> None:
        """The turn has ended, or what follows is not of this turn any more."""
        self.is_busy = self.is_open = self.is_aborted = False


_logger = logging.getLogger("reyn.chat")


class ConversationRun:
    """Executes the run of a conversation and publishes its items. `Conversation` adds what callers use.

    A message is sent under the claim on the run, so that the process that sends it also executes it.
    """

    def __init__(
        self,
        derive: Callable[[People], OSRuntime],
        beginning: Beginning,
        run_id: str,
        *,
        agent: Agent | None = None,
        by: str = "",
        model: str | None = None,
        listener: Listener | None = None,
    ) -> None:
        """Create a conversation. `reyn.chat.open_conversation` does this.

        Args:
            derive: Returns the runtime that executes it. If its runs ask the people that it gets, which is this
                conversation, the run stays alive between messages; otherwise it stops when it asks.
            beginning: How it begins, if it is new.
            run_id: The run; it is created with the first message. If it is empty, the id is generated.
            agent: The agent.
            by: The name of the user; it is recorded with the messages.
            model: The model to call from here on, if the conversation exists.
            listener: A callback that receives every event after it is durable.
        """
        self._agent, self.executes_background_runs = agent, True
        self.questions = InterventionRegistry()
        self._runtime = derive(self)
        self._stays_open = self._runtime.services.people is self
        """Whether the run asks this conversation for the next message. If not, it stops after each reply."""
        self._beginning, self._by, self._model, self._listener = beginning, by, model, listener
        self._earlier = beginning.history
        """What was said before the first message, as far as the caller passed it."""
        self._raise_limits: Mapping[str, int | None] | None = None
        """New values of limits, from the next execution on."""
        self._reader = ItemReader(self._runtime.runs.content, run_id, by)
        self._items = UnreadItems()
        self._replies = PendingReplies()
        self._turn = TurnProgress()
        self._streamed: asyncio.Future[Reply] | None = None
        """The reply that a stream reads."""
        self._is_leaving = False
        """Whether its reader has left, and the run was not asked to abort it yet."""
        self._driving: asyncio.Task[None] | None = None
        self._history: NormalizedMessageList | None = None
        """The messages when the run stopped, before another caller continues it."""
        self._is_ready, self._is_closed = asyncio.Event(), False
        self.runs = SkillRunner(self._runtime, run_id, self.publish)

    @property
    def run_id(self) -> str:
        """The run."""
        return self._reader.run_id

    @property
    def _is_driving(self) -> bool:
        return self._driving is not None and not self._driving.done()

    @property
    def is_busy(self) -> bool:
        """Whether the agent works on a reply, or is about to."""
        return self._is_driving and (self._turn.is_busy or self._turn.posted > 0)

    @property
    def history(self) -> NormalizedMessageList:
        """The messages so far, with those that the conversation began with."""
        found = self._history
        return history_of(self._runtime, self.run_id, self._beginning.history) if found is None else found

    def publish(self, item: ChatItem) -> None:
        """Add an item to the stream, after those of events so far."""
        self._items.put(item)

    def abort(self, reason: str = "") -> None:
        """Stop the reply in progress, or the next one if it is about to begin; the conversation continues.

        Completed ops stay.
        """
        reason = escape_surrogates(reason)
        if not self._turn.is_open:
            self._turn.abort_reason = reason if self.is_busy else None
            return
        if self._turn.is_aborted:
            return
        self._turn.is_aborted = True
        with suppress(RunNotResumable):
            self._runtime.conversations.abort_turn(self.run_id, reason, partial=self._reader.partial)

    def _repeat(self) -> None:
        """Give the last reply to everyone who waits for one although there is nothing to answer."""
        if 0 in self._replies:
            reply = last_reply(self._runtime.runs.state(self.run_id), self._runtime.runs.content)
            self.publish(reply)
            self._replies.resolve(0, reply)

    # -- the run --------------------------------------------------------------------------------------

    def _continue(self) -> None:
        """Execute the run: start it with the first message, or continue it with what was said."""
        if (self._beginning.is_single_turn and self._replies.unsent) or not self.run_id:
            images, call = self._replies.unsent[0].images, self._begin()
            run = partial(self._runtime.run, call.skill, call.input, history=call.history, images=images)
            work = partial(run, run_id=self.run_id or None, within=self._beginning.within)
        else:
            execute = self._runtime.conversations.execute
            work = partial(execute, self.run_id, self._begin, self._enter, wait=not self._stays_open)
        self._turn.start()
        self._history = None
        self._is_ready.clear()
        self._driving = asyncio.ensure_future(self._await(work))

    def _begin(self) -> RunCall:
        """Return how the run starts: with the first message."""
        first = self._replies.unsent.pop(0)
        self._replies.add(0, first.reply)
        call = self._beginning.call(first.text, first.images)
        self._beginning = self._beginning.said(first.text, first.images)
        return call

    def _enter(self, row: RunRow) -> dict[str, Any]:
        """Send what was said to a run that exists, and that is executed here from now on; return how it is resumed."""
        state = self._runtime.runs.state(self.run_id)
        if self._earlier.length:
            check_begun_with(self._runtime, state, self._earlier)
        self._reader = ItemReader(self._runtime.runs.content, self.run_id, self._by, state.usage)
        self._turn.enter(is_open=state.is_turn_open)
        if self._beginning.is_repeated and self._replies.unsent:
            self._find_sent(state)
        if self._replies.unsent and not self._stays_open and end_turn(self._runtime, row):
            self._turn.end()
        self._send()
        model, self._model, raised, self._raise_limits = self._model, None, self._raise_limits, None
        return {"retry": state.status == "failed", "model": model, "raised": raised}

    def _find_sent(self, state: RunState) -> None:
        """Await the reply to the message, without sending it again, if the op sent it before."""
        found = sent_before(self._runtime.services.journal, state, self._beginning.sender)
        if found is None:
            return
        reply, message = self._replies.unsent.pop(0).reply, found.message
        self._replies.add(message, reply)
        if found.reply is not None:
            self.publish(found.reply)
            self._replies.resolve(message, found.reply)

    def _send(self) -> None:
        """Put what was said into the inbox of the run."""
        say, told = self._runtime.conversations.say, self._beginning.instructions
        while self._replies.unsent:
            said = self._replies.unsent[0]
            more: Any = {"instructions": told, "sender": self._beginning.sender}
            sent = say(self.run_id, said.text, by=said.by, images=said.images, **more)
            self._replies.add(sent.message_id, said.reply)
            del self._replies.unsent[0]

    async def _await(self, work: Callable[..., Coroutine[Any, Any, RunResult]]) -> None:
        """Execute the run until it ends or stops, and tell everyone who waits for a reply."""
        try:
            result = await work(listener=self._on_event, on_delta=self._on_delta)
            if result.status == "running":
                raise RunBusy(f"conversation `{self.run_id}` is open elsewhere", run_id=self.run_id)
            self._reader.usage = result.usage
        except asyncio.CancelledError:
            self._items.end()
            self._replies.fail(None)
            raise
        except Exception as error:  # noqa: BLE001 - raised where the reply is awaited
            if (idle := idle_result(self._runtime.runs, self.run_id, error)) is not None:
                return self._stop(idle)
            is_stored = self._turn.posted > len(self._replies.unsent)
            self._fail(*failure_of(self._runtime, self.run_id, error, is_stored=is_stored))
        else:
            self._stop(result)

    def _stop(self, result: RunResult) -> None:
        self._reader.run_id = result.run_id  # also if it recorded nothing
        if not self._stays_open:
            self._history = self.history
        if result.status == "finished" or (result.question is not None and result.question.is_message):
            self._repeat()  # there was nothing left to do
        stopped = Stopped(str(result.status), result.reason, result.code, result.hint)
        self._fail(stop_error(self._runtime.runs, result, self.history) if self._replies else None, stopped)

    def _fail(self, error: Exception | None, stopped: Stopped) -> None:
        self._turn = TurnProgress()
        self._reader.progress.clear()
        self._is_ready.set()
        self._replies.fail(error)
        self.publish(stopped)

    # -- people ---------------------------------------------------------------------------------------

    async def ask(self, run_id: str, question: kinds.Question) -> Any:
        """Show a question; the reply comes through the inbox. Part of the port `People`."""
        if question.is_message and run_id == self.run_id:
            if self._turn.is_busy:
                self._turn.end()
            if self._turn.posted:
                return LATER  # the message is in the inbox
            self._turn.abort_reason = None  # there was no turn to abort
            self._repeat()
        else:
            row = self._runtime.services.journal.find(run_id)
            self.publish(self.questions.open(run_id, question, row.skill if row is not None else ""))
        self._is_ready.set()
        try:
            return await self.questions.sleep(run_id)
        finally:
            self.questions.close(run_id, question.id)

    @property
    def name(self) -> str:
        """The name of the user, recorded with replies."""
        return self._by

    # -- events ---------------------------------------------------------------------------------------

    def _on_delta(self, delta: Delta) -> None:
        if (item := self._reader.read_delta(delta)) is not None:
            self.publish(item)

    def _on_event(self, event: Event) -> None:
        if self._listener is not None:
            try:
                self._listener(event)
            except Exception as error:  # noqa: BLE001 - listeners are foreign code
                self._listener = None
                _logger.warning("the listener failed at event %s and was dropped: %r", event.seq, error)
        for item in self._reader.read(event):
            self.publish(item)
            match item:
                case SkillStarted(background=True):
                    self.runs.start(item.run, event.run_id)
                case MessageReceived():
                    self._turn.take(is_own=not item.run)
                    if self._replies.unsent:
                        self._send()
                case Reply():
                    self._turn.end()
                    self._replies.resolve(self._reader.answering.message, item)
        if event.kind == kinds.TranscriptExtended.kind and event.run_id == self.run_id:
            self._turn.is_open = self._turn.is_busy
            if self._turn.is_open and self._turn.abort_reason is not None:
                reason, self._turn.abort_reason = self._turn.abort_reason, None
                self.abort(reason)
