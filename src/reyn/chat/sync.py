"""Conversations for synchronous code: `with rt.chat() as chat: chat.say("hello")`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from types import TracebackType
    from typing import Self

    from reyn.chat.conversation import Conversation
    from reyn.chat.items import Reply


class SyncConversation:
    """A conversation for synchronous code. Between two calls nothing happens, also not in background runs.

    Attributes:
        conversation: The conversation itself.
    """

    def __init__(self, conversation: Conversation, runner: asyncio.Runner) -> None:
        self.conversation = conversation
        self._runner = runner

    def __enter__(self) -> Self:
        self._runner.run(self.conversation.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._runner.run(self.conversation.close())

    @property
    def run_id(self) -> str:
        """The run."""
        return self.conversation.run_id

    def say(self, text: str) -> Reply:
        """Say something and return the reply; see `Conversation.say`."""
        return self._runner.run(self.conversation.say(text))

    def settle(self) -> None:
        """Wait until no background run is being executed."""
        self._runner.run(self.conversation.runs.settle())
