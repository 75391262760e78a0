"""Decide what a user means while a question is open: a reply to it, or a message to the agent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from reyn.errors import QuestionUnknown, ReplyInvalid
from reyn.kernel.inbox import answer_error
from reyn.runs.questions import parse_reply

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.chat.conversation import Conversation
    from reyn.chat.items import QuestionAsked


class Handled(NamedTuple):
    """What became of a text: a `message` to the agent, or the `reply` to a question.

    `reason` says why a text is a message although a question is open.
    """

    outcome: Literal["message", "reply"]
    reason: str = ""


class InterventionHandler:
    """Takes what the user types in a conversation."""

    def __init__(self, conversation: Conversation, say: Callable[[str], None] | None = None) -> None:
        """Take what the user types.

        Args:
            conversation: The conversation.
            say: Sends a message to the agent; by default, without waiting for the reply.
        """
        self._conversation = conversation
        self._say = say or conversation.post

    def handle(self, text: str) -> Handled:
        """Reply to the oldest open question if the text fits it, else say it to the agent. Nothing is lost.

        Raises:
            InputInvalid: The text is blank or too long.
        """
        question = self._conversation.questions.first
        if question is None:
            self._say(text)
            return Handled("message")
        fault = self._reply(question, text)
        if not fault:
            return Handled("reply")
        self._say(text)
        return Handled("message", fault)

    def _reply(self, question: QuestionAsked, text: str) -> str:
        """Reply to a question; return why the text cannot be the reply."""
        wait = question.question
        chosen = text.strip()
        if chosen.isascii() and chosen.isdigit() and len(chosen) < 4 and 0 < int(chosen) <= len(wait.suggestions):
            chosen = wait.suggestions[int(chosen) - 1]
        try:
            value = parse_reply(wait, chosen)
            if fault := answer_error(wait, wait.id, value):
                return fault
            self._conversation.answer(question, value)
        except ReplyInvalid as error:
            return error.message
        except QuestionUnknown as error:  # another process replied
            self._conversation.questions.close(question.run, wait.id)
            return error.message
        return ""
