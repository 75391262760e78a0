"""What this process knows of the turn in progress, from what it sends and from the events of the run."""

from __future__ import annotations


class TurnProgress:
    """The turn in progress of a conversation.

    Attributes:
        is_executing: Whether the run is claimed, so that messages in its inbox are taken here.
        is_busy: Whether a message is being answered.
        is_open: Whether that message is part of the transcript, so that the turn can be aborted.
        posted: The messages of this process that the conversation has not taken yet.
        abort_reason: Why the next turn is to be aborted as soon as it begins.
    """

    def __init__(self) -> None:
        self.is_executing = self.is_busy = self.is_open = False
        self.posted = 0
        self.abort_reason: str | None = None

    def start(self) -> None:
        """The run is about to be executed. Perhaps it continues a turn."""
        self.is_executing, self.is_busy, self.is_open = False, True, False

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
        self.is_busy = self.is_open = False
