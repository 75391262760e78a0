"""What a model was asked in a turn of a recorded run, what it answered, and what became of the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.context.budget import FrameSection
from reyn.errors import ReynError
from reyn.journal import decode, kinds
from reyn.journal.results import Cost

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from reyn.journal import Event
    from reyn.journal.canonical import ReadBlob
    from reyn.kernel.visit.compiled_skill import CompiledSkill
    from reyn.runs.reader import RecordedTurn


class PromptMessage(msgspec.Struct, frozen=True):
    """A message of a prompt, or the model's answer."""

    role: str
    text: str


class OfferedExit(msgspec.Struct, frozen=True):
    """An exit that a prompt offered. `label` is its name in answers; `type` is the artifact that it requires."""

    label: str
    type: str
    description: str


class RejectedAnswer(msgspec.Struct, frozen=True):
    """Why an answer was rejected: the JSON path, the violated rule, and the message."""

    path: str
    rule: str
    message: str


class RecordedDecision(msgspec.Struct, frozen=True):
    """A turn of a run.

    Attributes:
        seq: The event of the frame.
        answer_seq: The event of the answer; 0 while there is none.
        phase: The phase.
        model: The model.
        messages: The messages of the prompt, and the answer.
        sections: The estimated tokens of each section of the prompt.
        exits: The exits that were offered; empty if the prompt cannot be derived again.
        chosen: The phase that was decided on, `end` or `abort`; empty if the answer decided nothing.
        confidence: The confidence of the decision, as the model stated it or as the engine measured it.
        probability: The probability of the choice among those on offer, if the engine measured it.
        reason: The model's reason.
        rejected: Why the answer was rejected, if it was.
        usage: The tokens that the model reported.
        cost: What the call was charged, if it was charged.
        retries: The number of attempts that failed before the answer.
    """

    seq: int
    answer_seq: int
    phase: str
    model: str
    messages: tuple[PromptMessage, ...]
    sections: tuple[FrameSection, ...]
    exits: tuple[OfferedExit, ...] = ()
    chosen: str = ""
    confidence: float | None = None
    probability: float | None = None
    reason: str = ""
    rejected: tuple[RejectedAnswer, ...] = ()
    usage: kinds.Usage | None = None
    cost: Cost | None = None
    retries: int = 0


def read_decision(
    turn: RecordedTurn,
    events: Iterable[Event],
    content: ReadBlob,
    compile_skill: Callable[[kinds.RunStarted], CompiledSkill],
) -> RecordedDecision:
    """Return a turn as a value.

    Args:
        turn: The turn.
        events: The events of the turn after its frame.
        content: Returns content by its hash.
        compile_skill: Compiles the run's copy of its skill.
    """
    from reyn.runs.frames import RecordedPrompt

    prompt = RecordedPrompt(turn, content)
    try:
        offered = prompt.context_frame(compile_skill).stable.candidate_outputs
    except ReynError:  # of other rules, or imported without what it needs
        offered = ()
    request, answer = turn.request, turn.answer
    found = RecordedDecision(
        turn.seq,
        turn.answer_seq,
        turn.state.phase,
        request.model if request is not None else "",
        tuple(PromptMessage(role, text) for role, text in prompt.with_answer),
        prompt.sections,
        tuple(OfferedExit(one.label, one.schema_name, one.description) for one in offered),
        probability=answer.choice_probability if answer is not None else None,
        usage=answer.usage if answer is not None else None,
    )
    return _with_outcome(found, events)


def _with_outcome(found: RecordedDecision, events: Iterable[Event]) -> RecordedDecision:
    charge, currency = kinds.Charge(), ""
    for event in events:
        match decode(event):
            case kinds.ControlDecided() as body:
                chosen = body.next_phase or ("end" if body.type == "finish" else body.type)
                found = msgspec.structs.replace(found, chosen=chosen, confidence=body.confidence, reason=body.reason)
            case kinds.ValidationError() as body:
                rejected = RejectedAnswer(body.path, body.class_, body.message)
                found = msgspec.structs.replace(found, rejected=(*found.rejected, rejected))
            case kinds.ModelRetried():
                found = msgspec.structs.replace(found, retries=found.retries + 1)
            case kinds.BudgetReserved(price=price):
                currency = price.currency if price is not None else currency
            case kinds.BudgetSettled(usage=usage, cost=cost):
                charge += kinds.Charge(usage.total, cost or 0, currency if cost else "", 1, int(cost is None))
    return msgspec.structs.replace(found, cost=Cost.of(charge))
