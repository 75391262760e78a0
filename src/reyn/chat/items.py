"""The items of a conversation's stream, for programs and the terminal. Each is one line of `reyn chat --json`."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from reyn.journal.kinds import Question, Usage


class Item(msgspec.Struct, frozen=True, tag_field="item"):
    """Something that happened in a conversation."""


class MessageReceived(Item, frozen=True, tag="message"):
    """The agent takes a message. `run` is the background run that it is about, if it is not the user's."""

    text: str
    by: str = ""
    run: str = ""


class ReplyDelta(Item, frozen=True, tag="delta"):
    """A piece of an answer: of the reply, or of the text before tool calls, whose items follow.

    A `Restarted` voids the pieces before it; the `Reply` has the whole reply.
    """

    text: str


class Restarted(Item, frozen=True, tag="restarted"):
    """The pieces of this reply so far are void: the model is asked again, or only a part of its answer is the reply."""

    reason: str


class OpRequested(Item, frozen=True, tag="op"):
    """The agent uses an op, and the permission gate allows it."""

    call: str
    kind: str
    arguments: dict[str, Any]


class OpFinished(Item, frozen=True, tag="op_result"):
    """An op has a result."""

    call: str
    kind: str
    status: str
    result: dict[str, Any]


class SkillStarted(Item, frozen=True, tag="run_started"):
    """A skill started: one that the agent waits for, or one in the background."""

    run: str
    skill: str
    background: bool = False


class SkillProgressed(Item, frozen=True, tag="run_progress"):
    """A skill that runs for the conversation enters a phase."""

    run: str
    skill: str
    phase: str
    visit: int


class SkillEnded(Item, frozen=True, tag="run_ended"):
    """A skill ended or stopped."""

    run: str
    status: str
    reason: str = ""


class QuestionAsked(Item, frozen=True, tag="question"):
    """A run asks the user.

    Attributes:
        run: The run of the conversation or one of its sub-runs.
        question: The question.
        number: Names the question in this conversation, until it is closed. No other question gets the number.
        skill: The skill of the run that asks; `agent:NAME` for an agent.
    """

    run: str
    question: Question
    number: int = 0
    skill: str = ""


class Redirected(Item, frozen=True, tag="redirected"):
    """A text that the user typed while a question was open went to the agent instead.

    Attributes:
        run: The run that asks.
        question: The question.
        reason: Why the text is not the reply.
        is_open: Whether the question still waits for a reply. Another process may have replied.
        is_delayed: Whether the agent waits for the run that asks, and answers the text after that.
        number: The number of the question.
    """

    run: str
    question: Question
    reason: str
    is_open: bool = True
    is_delayed: bool = False
    number: int = 0


class Reply(Item, frozen=True, tag="reply"):
    """The agent's reply; the turn is over.

    Attributes:
        text: The reply; empty if the turn was aborted. If the model gave no usable answer, a notice of Reyn.
        status: `replied`, `aborted` by the user, or `unanswered`.
        reason: Why a turn was aborted or is unanswered.
        code: The error code of an unanswered turn.
        usage: The tokens of the conversation so far.
        run: The background run that the reply is about, if no message of the user is answered.
    """

    text: str
    status: Literal["replied", "aborted", "unanswered"] = "replied"
    usage: Usage = Usage()
    run: str = ""
    reason: str = ""
    code: str = ""


class Stopped(Item, frozen=True, tag="stopped"):
    """The conversation stopped: it ended, failed, or reached a limit.

    Attributes:
        status: The status of the run.
        reason: Why it stopped.
        code: The error code, if it failed.
        hint: What to do before it is retried.
    """

    status: str
    reason: str = ""
    code: str = ""
    hint: str = ""


ChatItem = (
    MessageReceived
    | ReplyDelta
    | Restarted
    | OpRequested
    | OpFinished
    | SkillStarted
    | SkillProgressed
    | SkillEnded
    | QuestionAsked
    | Redirected
    | Reply
    | Stopped
)
"""An item of the stream of a conversation."""
