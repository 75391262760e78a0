"""Mutations: patches that model calls, tools, memory and aborts produce, and their application to a transcript.

Nothing changes a transcript in place. Mutations collect during a turn and are applied together: either all of them, or
an error and none. Results of tools are stored in the order of the calls, not in the order of arrival.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import force_setattr, replace

from reyn.context.messages import Content, Memory, NormalizedMessage, message_of
from reyn.context.selfref import DataFromSelfRef, forget, remember
from reyn.context.transcript import NO_MESSAGES, NormalizedMessageList, check_closed, normalize
from reyn.errors import MutationInvalid, TranscriptInvalid
from reyn.journal.kinds import Part
from reyn.models import Image, ToolCall

CANCELLED = "The call was cancelled before it had a result."
"""The text of the result of a cancelled call; `NormalizedMessage.status` says it to programs."""
INTERRUPTED = "The call was interrupted before it had a result. It may have taken effect: check before you repeat it."
"""The text of the result of a call whose outcome is unknown."""


class ContextMutation(msgspec.Struct, frozen=True):
    """A patch of a transcript. The ten subclasses are all there are. Lists that a program passes are copied."""


class AssistantMessage(ContextMutation, frozen=True):
    """The model answered: with text, with tool calls, or with both. Without either, nothing is added."""

    content: Content = ""
    tool_calls: tuple[ToolCall, ...] = ()

    def __post_init__(self) -> None:
        content: Any = self.content  # a program may pass a list
        if isinstance(content, list):
            force_setattr(self, "content", tuple(content))
        force_setattr(self, "tool_calls", tuple(self.tool_calls))


class ToolResult(ContextMutation, frozen=True):
    """A tool call has a result, which may be an error."""

    tool_call_id: str
    content: Content

    def __post_init__(self) -> None:
        content: Any = self.content  # a program may pass a list
        if isinstance(content, list):
            force_setattr(self, "content", tuple(content))


class MultimodalToolResult(ContextMutation, frozen=True):
    """A tool call has a result with images."""

    tool_call_id: str
    content: Content
    images: tuple[Image, ...]

    def __post_init__(self) -> None:
        content: Any = self.content  # a program may pass a list
        if isinstance(content, list):
            force_setattr(self, "content", tuple(content))
        force_setattr(self, "images", tuple(self.images))


class UserMessage(ContextMutation, frozen=True):
    """The user, or the system on the user's behalf, says something. An empty message adds nothing.

    `is_from_hook` is true if a hook added it: then it does not begin a turn. Reyn sets it.
    """

    content: Content
    images: tuple[Image, ...] = ()
    is_from_hook: bool = False

    def __post_init__(self) -> None:
        content: Any = self.content  # a program may pass a list
        if isinstance(content, list):
            force_setattr(self, "content", tuple(content))
        force_setattr(self, "images", tuple(self.images))


class ContextReplace(ContextMutation, frozen=True):
    """Other messages replace the transcript. Without a system message among them, the current one stays.

    A history is converted: messages, or dicts in the format of chat completion APIs.
    """

    messages: NormalizedMessageList

    def __post_init__(self) -> None:
        force_setattr(self, "messages", normalize(self.messages))


class ContextSummary(ContextMutation, frozen=True):
    """A summary replaces the older messages.

    The last `keep` messages stay, more if that would part a tool call from its result, and so does the current turn:
    the last message of the user and all after it. `remember` are texts to remember beyond the summary.
    """

    summary: Content
    keep: int = 0
    remember: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        summary: Any = self.summary  # a program may pass a list
        if isinstance(summary, list):
            force_setattr(self, "summary", tuple(summary))
        force_setattr(self, "remember", tuple(self.remember))


class ExperienceRemember(ContextMutation, frozen=True):
    """Add a text to the memory. It survives compactions."""

    text: str


class ExperienceForget(ContextMutation, frozen=True):
    """Remove an entry from the memory."""

    experience_id: str


class AssistantTruncated(ContextMutation, frozen=True):
    """Add the received part of an aborted answer; add nothing if no part was received."""

    partial_content: Content
    abort_reason: str = ""

    def __post_init__(self) -> None:
        partial_content: Any = self.partial_content  # a program may pass a list
        if isinstance(partial_content, list):
            force_setattr(self, "partial_content", tuple(partial_content))


class ToolCancelled(ContextMutation, frozen=True):
    """A tool call was aborted before it had a result. Its result says so, and whether it may have taken effect.

    `details` is what is known of a call whose outcome is unknown.
    """

    tool_call_id: str
    tool_name: str = ""
    abort_reason: str = ""
    is_outcome_unknown: bool = False
    details: str = ""


def apply_mutations(
    messages: NormalizedMessageList,
    mutations: Sequence[ContextMutation],
    selfref: DataFromSelfRef | None = None,
) -> NormalizedMessageList:
    """Return a transcript with mutations applied, in order. The time depends on their number, not on its length.

    Args:
        messages: The transcript, or a list of messages; it stays as it is, also after an error.
        mutations: The patches.
        selfref: The memory of the conversation, if the transcript itself does not carry it.

    Raises:
        MutationInvalid: A mutation is unknown or cannot be applied.
        TranscriptInvalid: The result would have a tool call without exactly one result.
        MessageInvalid: A message has a text that is not valid Unicode.
    """
    if messages.__class__ is not NormalizedMessageList:
        messages = normalize(messages)
    if not mutations:
        check_closed(messages)
        return messages
    applying = _Application(messages, selfref)
    for mutation in mutations:
        applying.apply(mutation)
    return applying.result()


class _Application:
    """One application of mutations."""

    def __init__(self, messages: NormalizedMessageList, selfref: DataFromSelfRef | None) -> None:
        self._messages = messages
        self._results: dict[str, NormalizedMessage] = {}
        """Results of the open calls, which are appended in the order of the calls once all are there."""
        self._selfref = selfref

    def result(self) -> NormalizedMessageList:
        check_closed(self._messages)
        return self._messages

    def apply(self, mutation: ContextMutation) -> None:
        match mutation:
            case AssistantMessage(content, calls):
                self._append(message_of("assistant", content, tool_calls=calls))
            case UserMessage(content, images, is_from_hook):
                self._append(message_of("user", content, images=images, is_from_hook=is_from_hook))
            case ToolResult(call, content):
                self._close(message_of("tool", content, tool_call_id=call))
            case MultimodalToolResult(call, content, images):
                self._close(message_of("tool", content, images=images, tool_call_id=call))
            case ToolCancelled(call, _, reason, is_unknown, details):
                text, status = (INTERRUPTED, "unknown") if is_unknown else (CANCELLED, "cancelled")
                content = (Part(text=text), Part(text=f" {details}")) if details else text
                self._close(message_of("tool", content, tool_call_id=call, status=status, reason=reason))
            case AssistantTruncated(content, reason):
                self._append(message_of("assistant", content, status="truncated", reason=reason))
            case ContextReplace(replacement):
                self._replace(replacement)
            case ContextSummary(summary, keep, texts):
                self._summarise(summary, keep)
                for text in texts:
                    self._set_memory(remember(self._memory, text)[0])
            case ExperienceRemember(text):
                self._set_memory(remember(self._memory, text)[0])
            case ExperienceForget(experience):
                self._set_memory(forget(self._memory, experience))
            case _:
                raise MutationInvalid(f"{type(mutation).__name__} is not a mutation of a transcript")

    def _append(self, message: NormalizedMessage) -> None:
        self._messages = self._messages.append(message)

    def _close(self, result: NormalizedMessage) -> None:
        """Take the result of an open call; append all results of the turn with the last of them."""
        call_id, open_calls = result.tool_call_id, self._messages.open_calls
        if call_id in self._results or all(call.id != call_id for call in open_calls):
            raise TranscriptInvalid(
                f"there is a result of tool call {call_id!r}, which is not open: "
                "the call does not exist, or it has a result already"
            )
        self._results[call_id] = result
        if len(self._results) == len(open_calls):
            results, self._results = self._results, {}
            self._messages = self._messages.append(*(results[call.id] for call in open_calls))

    def _replace(self, replacement: NormalizedMessageList) -> None:
        system, memory = self._messages.system, self._memory_if_any
        self._results = {}
        self._messages = replacement if replacement.system is not None else replacement.with_system(system)
        if memory is not None:
            self._set_memory(memory)

    def _summarise(self, summary: Content, keep: int) -> None:
        messages = self._messages
        check_closed(messages)
        replaced = message_of("user", summary, is_summary=True)
        check_summary(replaced.content)
        kept = recent_tail(messages, keep)
        self._messages = NO_MESSAGES.with_system(messages.system).append(replaced, *kept)

    # -- memory ---------------------------------------------------------------------------------------

    @property
    def _memory_if_any(self) -> Memory | None:
        system = self._messages.system
        if system is not None and system.marker is not None:
            return system.marker
        return self._selfref.marker if self._selfref is not None else None

    @property
    def _memory(self) -> Memory:
        return self._memory_if_any or Memory()

    def _set_memory(self, memory: Memory) -> None:
        system = self._messages.system or NormalizedMessage("system", "")
        self._messages = self._messages.with_system(replace(system, marker=memory))


def check_summary(summary: Content) -> None:
    """Check that a summary says something: it is all that remains of the messages that it replaces.

    Raises:
        MutationInvalid: It is blank.
    """
    parts = (Part(text=summary),) if isinstance(summary, str) else summary
    if all(part == Part(text=part.text) and not part.text.strip() for part in parts):
        raise MutationInvalid("the summary of a conversation is blank")


def recent_tail(messages: NormalizedMessageList, keep: int) -> tuple[NormalizedMessage, ...]:
    """Return the messages that a compaction keeps.

    They are the last `keep` ones, more if the first of these were the result of a call that is not among them, and the
    whole current turn: the last message of the user and all after it.
    """
    every = messages.tail(messages.length)
    said = next((number for number in range(len(every) - 1, -1, -1) if every[number].is_said), len(every))
    first = min(said, max(0, len(every) - keep))
    while 0 < first < len(every) and every[first].role == "tool":
        first -= 1
    return tuple(message for message in every[first:] if not message.is_summary)
