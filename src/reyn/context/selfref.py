"""The memory of a conversation as a value: what it remembers, and the summary of what was compacted.

The kernel folds this state from events, so that it is as durable as the run. It is never parsed out of a prompt.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from reyn.context.transcript import (
    EMPTY,
    Content,
    Experience,
    NormalizedMessage,
    NormalizedMessageList,
    SelfRefMarker,
)
from reyn.context.words import one_line
from reyn.errors import MutationInvalid

MEMORY_HEADING = "# Memory"


class DataFromSelfRef(msgspec.Struct, frozen=True):
    """The durable state of a conversation.

    Attributes:
        base_system_prompt: The system prompt without the memory; empty to use that of the invocation.
        experiences: What the conversation remembers, the oldest first.
        summary: The summary of the messages that were compacted, if any were.
        summary_message: The summary as the message that replaced them.
        working_messages: The transcript since then.
        next_id: The number of the next experience. Ids are never reused.
    """

    base_system_prompt: Content = ""
    experiences: tuple[Experience, ...] = ()
    summary: str | None = None
    summary_message: NormalizedMessage | None = None
    working_messages: NormalizedMessageList = EMPTY
    next_id: int = 1

    @property
    def marker(self) -> SelfRefMarker:
        """The memory as typed metadata of a transcript."""
        return SelfRefMarker(self.experiences, self.next_id)

    @property
    def memory(self) -> str:
        """The text of the memory, as it follows the system prompt."""
        return memory_text(self.experiences)

    def refreshed(self, messages: NormalizedMessageList) -> DataFromSelfRef:
        """Return the state that the typed metadata of a transcript describes."""
        marker = messages.system.marker if messages.system is not None else None
        summary = find_summary(messages)
        return DataFromSelfRef(
            self.base_system_prompt,
            marker.experiences if marker else self.experiences,
            summary.text if summary is not None else self.summary,
            summary if summary is not None else self.summary_message,
            messages,
            marker.next_id if marker else self.next_id,
        )


def find_summary(messages: NormalizedMessageList) -> NormalizedMessage | None:
    """Return the summary that a transcript begins with, if it does. It can be at no other place."""
    first = messages.first
    return first if first is not None and first.is_summary else None


def memory_text(experiences: tuple[Experience, ...]) -> str:
    """Return experiences as one line each, so that no text can pass for another experience; empty without any."""
    if not experiences:
        return ""
    lines = "".join(f"- [{one.id}] {one_line(one.text)}\n" for one in experiences)
    return f"\n{MEMORY_HEADING}\n{lines}"


def remember(memory: SelfRefMarker, text: str) -> tuple[SelfRefMarker, Experience]:
    """Return the memory with one more experience, and the experience. A text that is remembered already is not added.

    Raises:
        MutationInvalid: The text is blank.
    """
    text = one_line(text)
    if not text:
        raise MutationInvalid("there is nothing to remember: the text is blank")
    known = next((one for one in memory.experiences if one.text == text), None)
    if known is not None:
        return memory, known
    added = Experience(f"exp_{memory.next_id}", text)
    return SelfRefMarker((*memory.experiences, added), memory.next_id + 1), added


def forget(memory: SelfRefMarker, experience: str) -> SelfRefMarker:
    """Return the memory without an experience.

    Raises:
        MutationInvalid: There is none with this id.
    """
    rest = tuple(one for one in memory.experiences if one.id != experience)
    if len(rest) == len(memory.experiences):
        raise MutationInvalid(f"there is no experience `{experience}` to forget")
    return replace(memory, experiences=rest)
