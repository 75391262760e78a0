"""What a text of the user means while questions are open: the one rule for terminal, pipe, browser and Python.

An answer is a suggestion, its number, or a text that fits a schema that few texts fit. A schema that any sentence fits
cannot tell an answer from a message: the user confirms such an answer. No text answers an approval.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from reyn.chat.items import QuestionAsked
from reyn.errors import ReplyInvalid
from reyn.journal.family import chosen_reply, parse_text
from reyn.journal.kinds import AGENT_PREFIX
from reyn.kernel.world.inbox import answer_error

if TYPE_CHECKING:
    from reyn.journal.kinds import Question

_SENTENCES = ("ok", "Oh.", "Oh, hm.", "Thanks, that is all for now.", f"{'I have thought about it. ' * 8}Thanks.")
"""What may be said in any conversation, in several lengths."""
_MAX_QUESTION = 300
"""Longer texts are content, even if they end with a question mark."""
_ENDS_AS_QUESTION = re.compile(r"[?？؟‽⁇⁈⁉][!！\s\"'”’»›)\]}」』）】》]*\Z")  # noqa: RUF001 - these very characters
_QUOTES = "\"'“”„‘’‚«»‹›「」『』"  # noqa: RUF001 - these very characters


class Meaning(msgspec.Struct, frozen=True):
    """What a text means.

    Attributes:
        kind: Whether it is a message to the agent or the answer to a question.
        question: The question that it answers, or that stays open; none if no question is open.
        value: The answer, as JSON.
        reason: Why it is a message although a question is open.
        is_certain: Whether it can only be the answer. Otherwise the user confirms it; a pipe takes it as a message.
    """

    kind: Literal["message", "answer"]
    question: QuestionAsked | None = None
    value: Any = None
    reason: str = ""
    is_certain: bool = True


def meaning_of(text: str, questions: Iterable[QuestionAsked]) -> Meaning:
    """Return what a text means while questions are open, the oldest first. It can answer only the oldest."""
    found = tuple(questions)
    asked = next((one for one in found if not one.question.must_be_named), None)
    if asked is None:
        return Meaning("message", found[0], reason="it does not name the approval") if found else Meaning("message")
    wait, text = asked.question, text.strip()
    chosen = chosen_reply(wait, text)
    value, fault = checked_answer(wait, text if chosen is None else chosen)
    if fault:
        return Meaning("message", asked, reason=fault)
    if chosen is not None or _is_read_by_agent(asked) or not takes_any_text(wait):
        return Meaning("answer", asked, value)
    if wait.suggestions:
        return Meaning("message", asked, reason="it is none of the suggestions")
    if not wait.is_message and _is_question(text):
        return Meaning("message", asked, reason="it is a question")
    return Meaning("answer", asked, value, is_certain=False)


def checked_answer(wait: Question, text: str) -> tuple[Any, str]:
    """Return the value of exactly this text as an answer, and why it does not fit the question; empty if it does."""
    try:
        value = parse_text(wait, text)
    except ReplyInvalid as error:
        return None, error.message
    return value, answer_error(wait, wait.id, value)


def takes_any_text(wait: Question) -> bool:
    """Return whether a question takes ordinary sentences, so that its schema does not tell an answer from a message."""
    return any(not checked_answer(wait, sentence)[1] for sentence in _SENTENCES)


def _is_read_by_agent(asked: QuestionAsked) -> bool:
    """Return whether an agent asks, which reads the answer as it reads a message."""
    return asked.skill.startswith(AGENT_PREFIX)


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
