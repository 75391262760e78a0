"""Decide what a user means while a question is open: a reply to it, or a message to the agent.

A text never replies to a question that authorises an effect: the user names such a question (`reply_to`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol

from reyn.chat.items import ChatItem, QuestionAsked, Redirected
from reyn.errors import QuestionUnknown, ReplyInvalid
from reyn.journal.family import parse_reply
from reyn.kernel.world.inbox import answer_error

if TYPE_CHECKING:
    from reyn.chat.services.intervention_registry import InterventionRegistry
    from reyn.chat.services.skill_runner import SkillRunner
    from reyn.journal.kinds import Question

_MAX_QUESTION = 300
"""Longer texts are content, even if they end with a question mark."""
_ENDS_AS_QUESTION = re.compile(r"[?？؟‽⁇⁈⁉][!！\s\"'”’»›)\]}」』）】》]*\Z")  # noqa: RUF001 - these very characters
_QUOTES = "\"'“”„‘’‚«»‹›「」『』"  # noqa: RUF001 - these very characters


class OpenConversation(Protocol):
    """What this module needs of a conversation."""

    @property
    def questions(self) -> InterventionRegistry: ...
    @property
    def runs(self) -> SkillRunner: ...
    def post(self, text: str) -> None: ...
    def publish(self, item: ChatItem) -> None: ...
    def is_of_agent(self, run: str) -> bool: ...
    def answer(self, question: QuestionAsked, value: Any) -> None: ...


class InterventionHandler:
    """Takes what the user types in a conversation."""

    def __init__(self, conversation: OpenConversation, say: Callable[[str], None] | None = None) -> None:
        """Take what the user types.

        Args:
            conversation: The conversation.
            say: Sends a message to the agent; by default, without waiting for the reply.
        """
        self._conversation = conversation
        self._say = say or conversation.post

    def handle(self, text: str) -> Literal["message", "reply"]:
        """Reply to the oldest open question if the text can be the reply, else say it to the agent. Nothing is lost.

        Approvals take no text, whatever it is; they are named, see `reply_to`.
        A `Redirected` in the conversation's stream reports a text that went to the agent although a question is open.

        Raises:
            InputInvalid: The text is blank or too long.
        """
        question = self._conversation.questions.oldest(must_be_named=False)
        if question is not None:
            chosen = _chosen(question.question, text.strip())
            reason = "it is a question" if self._is_question_back(question, chosen) else self._reply(question, chosen)
            if not reason:
                return "reply"
        else:
            question = self._conversation.questions.oldest(must_be_named=True)
            reason = "it does not name the approval"
        self._say(text)
        if question is None or (question.question.must_be_named and not self._concerns(question, text.strip())):
            return "message"
        is_open = self._conversation.questions.has(question)
        is_delayed = is_open and not self._conversation.runs.is_executing(question.run)
        self._conversation.publish(
            Redirected(question.run, question.question, reason, is_open, is_delayed, question.number)
        )
        return "message"

    def _concerns(self, question: QuestionAsked, text: str) -> bool:
        """Return whether a user may have meant an approval: the text could be its reply, or the turn waits for it."""
        could_reply = not _fault(question.question, _chosen(question.question, text))
        return could_reply or not self._conversation.runs.is_executing(question.run)

    def reply(self, text: str) -> str:
        """Reply to the oldest open question with exactly this text; return why it cannot be the reply."""
        question = self._conversation.questions.oldest(must_be_named=False)
        if question is None:
            named = self._conversation.questions.oldest(must_be_named=True)
            return "no question is open" if named is None else f"approval {named.number} is not named"
        return self._reply(question, text.strip())

    def reply_to(self, name: str, text: str) -> str:
        """Reply to the open question with a number or an id; return why the text cannot be the reply."""
        question = self._conversation.questions.named(name)
        if question is None:
            return f"no question `{name}` is open"
        return self._reply(question, text.strip())

    def _is_question_back(self, asked: QuestionAsked, text: str) -> bool:
        """Return whether a text is a question of the user and not the reply to a question of a skill.

        A skill takes any text as the value that it asked for. An agent reads it, and can answer a question.
        """
        wait = asked.question
        if wait.is_message or text in wait.suggestions or not _is_question(text):
            return False
        # If the question accepts only texts that end with a question mark, the text is the reply.
        without_mark = _ENDS_AS_QUESTION.sub(".", text)
        accepts_any = all(_fault(wait, one) == "" for one in (text, without_mark))
        return accepts_any and not wait.is_approval and not self._conversation.is_of_agent(asked.run)

    def _reply(self, question: QuestionAsked, text: str) -> str:
        """Reply to a question; return why the text cannot be the reply."""
        wait = question.question
        if fault := _fault(wait, text):
            return fault
        try:
            self._conversation.answer(question, parse_reply(wait, text))
        except ReplyInvalid as error:
            return error.message
        except QuestionUnknown as error:  # another process replied
            self._conversation.questions.close(question.run, wait.id)
            return error.message
        return ""


def _chosen(wait: Question, text: str) -> str:
    """Return the suggestion that a number selects, else the text."""
    if text.isascii() and text.isdigit() and len(text) < 4 and 0 < int(text) <= len(wait.suggestions):
        return wait.suggestions[int(text) - 1]
    return text


def _fault(wait: Question, text: str) -> str:
    """Return why a text cannot be the reply to a question; empty if it can."""
    try:
        return answer_error(wait, wait.id, parse_reply(wait, text))
    except ReplyInvalid as error:
        return error.message


def _is_question(text: str) -> bool:
    """Return whether a text is one short line that ends with a question mark.

    A quotation is none, nor is a single word with other characters than letters, such as an address or a pattern.
    """
    mark = _ENDS_AS_QUESTION.search(text)
    if mark is None or len(text) > _MAX_QUESTION or len(text.splitlines()) != 1:
        return False
    is_quotation = text[:1] in _QUOTES and text[-1:] in _QUOTES
    words = text[: mark.start()].lstrip("([{¿¡")
    is_language = " " in words or all(not one.isascii() or one.isalpha() or one in "'-" for one in words)
    return is_language and not is_quotation
