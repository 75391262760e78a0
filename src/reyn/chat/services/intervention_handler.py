"""Take what the user types in a conversation: hold it while a question is open, then send it as what it means.

`reyn.chat.meaning` decides what a text means.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol

from reyn.chat.items import ChatItem, QuestionAsked, Redirected
from reyn.chat.meaning import Meaning, checked_answer, meaning_of
from reyn.errors import QuestionUnknown, ReplyInvalid
from reyn.journal.family import chosen_reply

if TYPE_CHECKING:
    from reyn.chat.services.intervention_registry import InterventionRegistry
    from reyn.chat.services.skill_runner import SkillRunner

_UNCERTAIN = "the question takes any text, so an answer is marked as one"


class OpenConversation(Protocol):
    """What this module needs of a conversation, which imports the services."""

    @property
    def questions(self) -> InterventionRegistry: ...
    @property
    def runs(self) -> SkillRunner: ...
    def post(self, text: str) -> None: ...
    def publish(self, item: ChatItem) -> None: ...
    def answer(self, question: QuestionAsked, value: Any) -> None: ...


class HeldText:
    """A text that was typed while a question was open, and what it means. It has no effect until it is sent."""

    def __init__(self, text: str, meaning: Meaning) -> None:
        self.text = text
        self.meaning = meaning


class InterventionHandler:
    """Takes what the user types in a conversation.

    Attributes:
        held: The text that is held.
    """

    def __init__(self, conversation: OpenConversation, say: Callable[[str], None] | None = None) -> None:
        """Take what the user types.

        Args:
            conversation: The conversation.
            say: Sends a message to the agent; by default, without waiting for the reply.
        """
        self._conversation = conversation
        self._say = say or conversation.post
        self.held: HeldText | None = None

    def handle(self, text: str) -> Literal["message", "answer"]:
        """Answer the oldest open question if the text can only be the answer, else say it to the agent.

        Approvals take no text, whatever it is; they are named, see `answer`.
        A `Redirected` in the conversation's stream reports a text that went to the agent although a question is open.

        Raises:
            InputInvalid: The text is blank or too long.
        """
        meaning = meaning_of(text, self._conversation.questions)
        if meaning.kind == "answer" and not meaning.is_certain:
            meaning = Meaning("message", meaning.question, reason=_UNCERTAIN)
        return self._send(text, meaning)

    def hold(self, text: str) -> HeldText | None:
        """Hold a text while a question is open that takes texts; else send it. Returns what is held.

        Raises:
            InputInvalid: The text is blank or too long.
        """
        self.held = None
        meaning = meaning_of(text, self._conversation.questions)
        if meaning.question is None or meaning.question.question.must_be_named:
            self._send(text, meaning)
        else:
            self.held = HeldText(text, meaning)
        return self.held

    def take_back(self) -> str:
        """Drop the text that is held, and return it; empty if none is."""
        held, self.held = self.held, None
        return held.text if held is not None else ""

    def send(self) -> str:
        """Send the text that is held as what it means; return why that is not possible."""
        held, self.held = self.held, None
        if held is None:
            return "nothing is held"
        if held.meaning.kind == "answer" and held.meaning.question is not None:
            return self._answer(held.meaning.question, held.meaning.value)
        self._send(held.text, held.meaning)
        return ""

    def say(self, text: str = "") -> str:
        """Send a text to the agent, by default the one that is held; return why that is not possible."""
        text = text or self.take_back()
        self.held = None
        if not text:
            return "there is no text to send"
        self._say(text)
        return ""

    def answer(self, text: str = "") -> str:
        """Answer an open question with a text, by default the one that is held; return why that is not possible.

        The text can begin with the number or the id of the question. Otherwise it answers the oldest one, unless that
        is an approval, which must be named.
        """
        text = text.strip() or self.take_back().strip()
        self.held = None
        name, _, value = text.partition(" ")
        named = self._conversation.questions.named(name)
        oldest = self._conversation.questions.oldest(must_be_named=False)
        if named is not None and (value.strip() or oldest is None):
            return self.reply_to(name, value)
        if value.strip() and (name.isdigit() or name.startswith("ask-")):  # not the text of another question
            return f"no question `{name}` is open; /reply takes a text as it is"
        return self._checked(oldest, text, takes_numbers=True)

    def reply(self, text: str) -> str:
        """Answer the oldest open question with exactly this text; return why it cannot be the answer."""
        return self._checked(self._conversation.questions.oldest(must_be_named=False), text)

    def reply_to(self, name: str, text: str) -> str:
        """Answer the open question with a number or an id; return why the text cannot be the answer."""
        question = self._conversation.questions.named(name)
        if question is None:
            return f"no question `{name}` is open"
        return self._checked(question, text, takes_numbers=not question.question.must_be_named)

    def _checked(self, question: QuestionAsked | None, text: str, *, takes_numbers: bool = False) -> str:
        """Answer a question; return why the text cannot be the answer, or why there is no question that takes it."""
        if question is None:
            named = self._conversation.questions.oldest(must_be_named=True)
            return "no question is open" if named is None else f"approval {named.number} is not named"
        chosen = chosen_reply(question.question, text.strip()) if takes_numbers else None
        value, fault = checked_answer(question.question, text.strip() if chosen is None else chosen)
        return fault or self._answer(question, value)

    def _answer(self, question: QuestionAsked, value: Any) -> str:
        try:
            self._conversation.answer(question, value)
        except ReplyInvalid as error:
            return error.message
        except QuestionUnknown as error:  # another process answered
            self._conversation.questions.close(question.run, question.question.id)
            return error.message
        return ""

    def _send(self, text: str, meaning: Meaning) -> Literal["message", "answer"]:
        """Answer the question, or say the text to the agent. Nothing is lost."""
        question, reason = meaning.question, meaning.reason
        if meaning.kind == "answer" and question is not None and not (reason := self._answer(question, meaning.value)):
            return "answer"
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
        chosen = chosen_reply(question.question, text)
        could_reply = not checked_answer(question.question, text if chosen is None else chosen)[1]
        return could_reply or not self._conversation.runs.is_executing(question.run)
