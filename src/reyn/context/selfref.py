"""The durable state of a conversation as a value: its memory, and the summary of compacted messages.

The kernel folds this state from events, so it is as durable as the run. It is never parsed out of a prompt.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import force_setattr, replace

from reyn.context.messages import Content, Memory, MemoryEntry, NormalizedMessage, normalized_message
from reyn.context.transcript import NO_MESSAGES, NormalizedMessageList, normalize
from reyn.errors import MutationInvalid
from reyn.texts import one_line

MEMORY_HEADING = "# Memory"
_ID = "exp_"


class DataFromSelfRef(msgspec.Struct, frozen=True):
    """The durable state of a conversation.

    Attributes:
        base_system_prompt: The system prompt without the memory; empty to use that of the invocation.
        experiences: The entries of the memory, the oldest first.
        summary: The summary of compacted messages; `None` if there was no compaction.
        summary_message: The summary as the message that replaced the compacted messages.
        working_messages: The transcript after the compaction.
        next_id: The number of the next entry of the memory, at least one more than that of any entry. Ids are never
            reused.
    """

    base_system_prompt: Content = ""
    experiences: tuple[MemoryEntry, ...] = ()
    summary: str | None = None
    summary_message: NormalizedMessage | None = None
    working_messages: NormalizedMessageList = NO_MESSAGES
    next_id: int = 1

    def __post_init__(self) -> None:
        base_system_prompt: Any = self.base_system_prompt  # a program may pass a list
        if isinstance(base_system_prompt, list):
            force_setattr(self, "base_system_prompt", tuple(base_system_prompt))
        summary: object = self.summary
        if summary is not None and not isinstance(summary, str):
            raise MutationInvalid(f"the summary of a memory is a {type(summary).__name__}; pass its text")
        force_setattr(self, "experiences", tuple([_entry(one) for one in self.experiences]))
        if self.summary_message is not None:
            force_setattr(self, "summary_message", normalized_message(self.summary_message))
        force_setattr(self, "working_messages", normalize(self.working_messages))
        used = [int(number) for entry in self.experiences if (number := entry.id.removeprefix(_ID)).isdecimal()]
        force_setattr(self, "next_id", max(self.next_id, 1, *(number + 1 for number in used)))

    @property
    def marker(self) -> Memory:
        """The memory as typed metadata of a transcript."""
        return Memory(self.experiences, self.next_id)

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
            marker.entries if marker else self.experiences,
            summary.text if summary is not None else self.summary,
            summary if summary is not None else self.summary_message,
            messages,
            marker.next_id if marker else self.next_id,
        )


def _entry(entry: MemoryEntry | dict[str, str]) -> MemoryEntry:
    match entry:
        case MemoryEntry():
            return entry
        case {"id": str(name), "text": str(text)}:
            return MemoryEntry(name, text)
    raise MutationInvalid(
        f"an entry of the memory is {entry!r:.200}; pass a `MemoryEntry`, or a dict with `id` and `text`"
    )


def find_summary(messages: NormalizedMessageList) -> NormalizedMessage | None:
    """Return the summary that a transcript begins with, if it does. It can be at no other place."""
    first = messages.first
    return first if first is not None and first.is_summary else None


def memory_text(entries: tuple[MemoryEntry, ...]) -> str:
    """Return the memory as text; empty without entries. Each entry is one line, so no text can imitate an entry."""
    if not entries:
        return ""
    lines = "".join(f"- [{entry.id}] {one_line(entry.text)}\n" for entry in entries)
    return f"\n{MEMORY_HEADING}\n{lines}"


def remember(memory: Memory, text: str) -> tuple[Memory, MemoryEntry]:
    """Return the memory with a new entry, and the entry. A text that the memory contains already is not added again.

    Raises:
        MutationInvalid: The text is blank.
    """
    text = one_line(text)
    if not text:
        raise MutationInvalid("there is nothing to remember: the text is blank")
    known = next((entry for entry in memory.entries if entry.text == text), None)
    if known is not None:
        return memory, known
    added = MemoryEntry(f"{_ID}{memory.next_id}", text)
    return Memory((*memory.entries, added), memory.next_id + 1), added


def forget(memory: Memory, entry_id: str) -> Memory:
    """Return the memory without an entry.

    Raises:
        MutationInvalid: The memory has no entry with this id.
    """
    rest = tuple(entry for entry in memory.entries if entry.id != entry_id)
    if len(rest) == len(memory.entries):
        raise MutationInvalid(f"the memory has no entry `{entry_id}`")
    return replace(memory, entries=rest)
