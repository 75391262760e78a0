"""`Conversations`: messages to conversations, as `rt.conversations`: say, rename, abort a turn, change the memory.

A message goes to the inbox of the run. The process that executes the run, now or later, reads it from there.
`reyn.chat` builds conversations with agents on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from weakref import WeakValueDictionary

from reyn.context.messages import NormalizedMessage, check_message
from reyn.errors import ConversationInvalid, ImagesUnsupported, InputInvalid, MutationInvalid, RunNotResumable
from reyn.journal import ENDED, AbortTurn, AttachedImage, ChangeMemory, Rename, RunRow, Say
from reyn.journal.family import check_not_imported, check_open, descendants
from reyn.journal.submission import post_message
from reyn.kernel.core.conversations import memory_error
from reyn.kernel.visit.visit_input import MAX_MESSAGE_CHARS
from reyn.kernel.world.agent_messages import abort_turns
from reyn.kernel.world.inbox import images_error, take_messages
from reyn.kernel.world.run_scope import current_scope
from reyn.kernel.world.services import Observers
from reyn.runtime.attaching import FollowedRun, attach
from reyn.runtime.forks import copy_conversation

if TYPE_CHECKING:
    from reyn.journal.messages import InboxPayload
    from reyn.journal.results import RunResult
    from reyn.kernel.world.services import Listener
    from reyn.kernel.world.watchers import OnDelta
    from reyn.models import Image
    from reyn.runtime.executor import RunExecutor
    from reyn.runtime.same_call import RunCall

MAX_TITLE_CHARS = 200


class PostedMessage(NamedTuple):
    """A message in the inbox of a conversation. `is_claimed` tells whether a process executes the conversation."""

    run_id: str
    message_id: int
    is_claimed: bool


class Conversations:
    """Messages to runs that are conversations. A run is named by its id or by a unique prefix of it."""

    def __init__(self, executor: RunExecutor) -> None:
        self._services = executor.services
        self._runs = executor.runs
        self._executor = executor
        self._known: set[str] = set()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """The order of the callers that execute a conversation."""

    async def execute(
        self,
        run_id: str,
        begin: Callable[[], RunCall],
        enter: Callable[[RunRow], dict[str, Any]],
        *,
        wait: bool,
        listener: Listener | None = None,
        on_delta: OnDelta | None = None,
    ) -> RunResult:
        """Execute a conversation until it ends or stops. `reyn.chat` uses this.

        Messages are sent under the claim on the run, so that the caller who sends a message also executes it.

        Args:
            run_id: The run.
            begin: Returns how the conversation starts, if it is new.
            enter: Sends messages to a conversation that exists; returns the options of `resume`.
            wait: Whether to wait while another caller executes it. Those of one runtime wait in the order of their
                calls. A call inside an op does not wait: the conversation could wait for the op.
            listener: A callback that receives every event after it is durable.
            on_delta: A callback that receives the pieces of a model's answer as they arrive.

        Raises:
            RunBusy: Another caller executes it. Neither `begin` nor `enter` was called.
        """
        executor, observers = self._executor, Observers(listener, on_delta)

        async def attempt() -> RunResult:
            row = self._services.journal.find(run_id)
            if row is None:
                call = begin()
                call = call._replace(input=self._services.scrubber.scrub_value(call.input))
                return await executor.new_run(run_id, call, observers)()
            return await executor.resume(run_id, observers, **enter(row))

        execute = partial(executor.claim_and_execute, run_id, attempt, observers)
        if not wait or current_scope() is not None:
            return await execute()
        async with self._turns.setdefault(run_id, asyncio.Lock()):
            return await attach(
                self._services, self._runs, run_id, execute, FollowedRun(self._services, run_id, Observers())
            )

    def say(
        self,
        run: str,
        text: str,
        *,
        by: str = "",
        images: Sequence[Image] = (),
        instructions: str | None = None,
        sender: str = "",
    ) -> PostedMessage:
        """Say something in a conversation. It is the next message, or one after it if the conversation is busy.

        The message is durable when this method returns. A process that executes the conversation takes it; `resume`
        continues the conversation otherwise. If the conversation ends with an earlier message, this one is refused: an
        event records it, and the result of the run has a warning with its text. A turn that stopped because the model
        reads no images ends without a reply, because it would stop again; its message stays.

        Args:
            run: The conversation.
            text: The message.
            by: The name of the user who says it; it is recorded.
            images: The images of the message.
            instructions: The instructions that the model has from this message on, in place of those of the phase; by
                default, they stay as they are.
            sender: The call of the op whose code says it; it is recorded, so that an op that is repeated says it once.

        Raises:
            InputInvalid: The text is blank or too long, or an image has no content.
            ConversationInvalid: The run is not a conversation.
            MessageInvalid: The text is not valid Unicode.
            RunNotResumable: The conversation has ended.
        """
        row = self._conversation(run, "continued", is_open=True)
        message = checked_message(self._services.scrubber.scrub_value(text), images)
        attached = tuple(AttachedImage(image.media_type, image.data, image.url) for image in images)
        if instructions is not None:
            instructions = checked_message(self._services.scrubber.scrub_value(instructions))
        if row.status == "failed" and self._runs.result(row.run_id).code == ImagesUnsupported.code:
            self.abort_turn(row.run_id, "a new message came before the reply")
        posted = self._post(row, Say(message, by, None, attached, instructions, sender))
        is_claimed = self._services.journal.is_claimed(row.run_id)
        if not is_claimed and self._runs.find(row.run_id).status in ENDED:  # it has ended since
            take_messages(self._services.journal, self._services.clock, row.run_id)
            self.check_open(row.run_id)
        return PostedMessage(row.run_id, posted, is_claimed)

    def check_open(self, run: str) -> RunRow:
        """Return a conversation that takes messages.

        Raises:
            ConversationInvalid: The run is not a conversation.
            RunNotResumable: The conversation has ended.
        """
        return self._conversation(run, "continued", is_open=True)

    def rename(self, run: str, title: str, *, by: str = "") -> None:
        """Give a conversation a title, which `reyn chats` shows; an empty one removes it.

        The title is an event of the run. A conversation that has ended can be renamed, too.

        Raises:
            InputInvalid: The title is too long, or has more than one line.
            ConversationInvalid: The run is not a conversation.
        """
        row = self._conversation(run, "renamed")
        self._post(row, Rename(checked_title(self._services.scrubber.scrub_value(title)), by))
        take_messages(self._services.journal, self._services.clock, row.run_id)

    def copy(self, run: str, *, run_id: str | None = None) -> str:
        """Copy a conversation with everything that was completed; return the run of the copy. Nothing is executed.

        Both go on independently. A turn that has not ended is aborted in the copy: a tool call without a result is
        cancelled, or its outcome is unknown. If the run went on to another phase, the copy does not: its next message
        is one of the conversation. If Reyn repeats an op after a crash, the same call returns the same copy.

        Args:
            run: The conversation.
            run_id: The id of the copy; generated by default.

        Raises:
            ConversationInvalid: The run is not a conversation.
            ForkImpossible: No turn has begun yet, or the conversation takes one message only.
            RunIdTaken: There is a run with the id.
        """
        return copy_conversation(self._executor, self._conversation(run, "copied"), run_id)

    def _conversation(self, run: str, what: str, *, is_open: bool = False) -> RunRow:
        """Return a run that is a conversation, was not imported, and has not ended, if `is_open` is true.

        A run that is a conversation stays one: it is read once.
        """
        row = self._runs.find(run)
        check_not_imported(row, what)
        if is_open and row.status in ENDED:
            raise RunNotResumable(f"conversation `{row.run_id}` is {row.status}", hint="Start a new one, or fork it.")
        if (row.wait is not None and row.wait.is_message) or row.run_id in self._known:
            return row
        started = self._runs.state(row.run_id).started
        phases = self._services.compile_skill(started).skill.phases.values()
        if all(phase.conversation is None for phase in phases):
            raise ConversationInvalid(f"run `{row.run_id}` is a run of `{row.skill}`, which is not a conversation")
        self._known.add(row.run_id)
        return row

    def _post(self, row: RunRow, payload: InboxPayload) -> int:
        """Put a message into the inbox of a run; a driver in this process reads it before its next effect."""
        message_id = post_message(self._services.journal, row, payload)
        self._services.polling.notify(row.run_id)
        return message_id

    def abort_turn(self, run: str, reason: str = "", *, partial: str = "") -> None:
        """Abort the turn in progress of a conversation. The conversation can be continued.

        The transcript keeps the user's message, completed tool calls and the received part of the answer. A tool call
        without a result is recorded as cancelled, or as unknown if it had begun and may have taken effect. If the turn
        has ended already, the request has no effect.

        Args:
            run: The run of the conversation.
            reason: The reason to record.
            partial: The text of the model's answer so far, as the caller received it.

        Raises:
            RunNotResumable: The run has ended.
        """
        row = check_open(self._runs.find(run), "aborted", "There is nothing to abort.")
        scrub = self._services.scrubber.scrub_value
        self._post(row, AbortTurn(scrub(reason), scrub(partial)))
        journal = self._services.journal
        abort_turns(journal, self._services.polling, descendants(journal, row.run_id), reason)

    async def run_background(
        self, run: str, background: str, *, listener: Listener | None = None, on_delta: OnDelta | None = None
    ) -> RunResult:
        """Execute a run that a conversation started in the background, until it ends or stops.

        If it has begun before, it continues. Its end is reported to the conversation as a message.

        Args:
            run: The conversation.
            background: The id of the background run.
            listener: A callback that receives every event after it is durable.
            on_delta: A callback that receives the pieces of a model's answer as they arrive.

        Raises:
            RunNotFound: The conversation did not start this run.
            RunBusy: Another process executes it.
        """
        conversation = self._runs.find(run).run_id
        return await self._executor.run_background(conversation, background, Observers(listener, on_delta))

    def remember(self, run: str, text: str) -> None:
        """Add a text to the memory of a conversation. Every later prompt contains it, also after a compaction.

        Raises:
            MutationInvalid: The text is blank, the memory is full, or the run is not in a conversation.
        """
        self._change_memory(run, "remember", text)

    def forget(self, run: str, entry_id: str) -> None:
        """Remove an entry from the memory of a conversation.

        Raises:
            MutationInvalid: The memory has no entry with this id.
        """
        self._change_memory(run, "forget", entry_id)

    def compact(self, run: str) -> None:
        """Let a conversation replace its older messages by a summary, before its next model call.

        The summary is a recorded model call, which counts towards the run's limits. The last message of the user and
        a recent tail stay. If there is nothing older yet, the conversation is compacted as soon as there is.

        Raises:
            MutationInvalid: The run has no conversation.
        """
        self._change_memory(run, "compact", "")

    def _change_memory(self, run: str, action: Literal["remember", "forget", "compact"], text: str) -> None:
        row = check_open(self._runs.find(run), "changed", "Its memory is not used any more.")
        state, value = self._runs.state(row.run_id), self._services.scrubber.scrub_value(text)
        if state.current_transcript is None:
            raise MutationInvalid(f"phase `{state.phase}` of run `{row.run_id}` has no conversation yet")
        size = self._runs.conversation_size(row.run_id)
        if error := memory_error(state.memory(state.phase), action, value, size.max_pinned):
            raise MutationInvalid(error)
        self._post(row, ChangeMemory(action, value))
        take_messages(self._services.journal, self._services.clock, row.run_id)


def checked_title(title: str) -> str:
    """Return the title of a conversation without blanks around it.

    Raises:
        InputInvalid: It is too long, or has characters that cannot be printed, such as line breaks.
    """
    title = title.strip()
    if len(title) > MAX_TITLE_CHARS:
        raise InputInvalid(
            f"the title has {len(title)} characters; at most {MAX_TITLE_CHARS} are allowed", hint="Shorten it."
        )
    if not title.isprintable():
        raise InputInvalid(
            f"the title {title!r} has line breaks or control characters", hint="Use printable characters only."
        )
    return title


def checked_message(text: str, images: Sequence[Image] = ()) -> str:
    """Return a message of a user, if a conversation can take it.

    Raises:
        InputInvalid: It is blank, without images, or too long, or an image has no content.
        MessageInvalid: It is not valid Unicode.
    """
    if fault := images_error(images):
        raise InputInvalid(fault, hint="Pass images with content, or with an address.")
    if not text.strip() and not images:
        raise InputInvalid("the message is blank", hint="Say something.")
    if len(text) > MAX_MESSAGE_CHARS:
        raise InputInvalid(
            f"the message has {len(text)} characters; at most {MAX_MESSAGE_CHARS} are allowed", hint="Shorten it."
        )
    check_message(NormalizedMessage("user", text))
    return text
