"""What the API returns about runs, as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import NextAction  # noqa: TC001 - a field of a struct
from reyn.journal import RunRow
from reyn.journal.kinds import Question
from reyn.journal.results import Cost, RunResult
from reyn.journal.summary import to_result

if TYPE_CHECKING:
    from reyn.api import ChatRuntime
    from reyn.journal import Event
    from reyn.journal.family import OpenQuestion


_CHECKED = msgspec.json.Decoder(msgspec.Raw)


class AskedQuestion(msgspec.Struct, frozen=True):
    """An open question.

    Attributes:
        run_id: The run that asks.
        root_run: The run that continues with the reply.
        skill: The skill of the run that asks.
        question: The question. The `message` of an approval may be a preview; `text` has all of it.
        text: The whole text: of an approval, what exactly will be executed.
        edits: The field of the reply `edit`: `args` of an op, `artifact` of a decision; empty if there is none.
        draft: The op or the artifact that was proposed, as JSON text, so that no client changes its numbers.
        is_answered: Whether a reply is stored that no process has taken yet.
        since: The time of the last event of the run, in microseconds since 1970.
    """

    run_id: str
    root_run: str
    skill: str
    question: Question
    text: str
    edits: str
    draft: str
    is_answered: bool
    since: int


class RunView(RunRow, frozen=True, kw_only=True):
    """A run in a list: its row in the journal, and what users see beside it. The times are microseconds since 1970.

    Attributes:
        display_status: The status that users see.
        root_run: The run that continues with a reply to this one.
        cost: What its model calls cost.
        next: The operation that continues the run.
        question: The open question of the run or of one of its descendants.
    """

    display_status: str
    root_run: str
    cost: Cost | None
    next: NextAction | None
    question: AskedQuestion | None


class RunDetails(msgspec.Struct, frozen=True):
    """A run with its result. `active` are the microseconds of execution."""

    run: RunView
    result: RunResult
    active: int


class EventView(msgspec.Struct):
    """An event of a run."""

    seq: int
    run_id: str
    ts: int
    kind: str
    v: int
    data: dict[str, Any]
    prev: str
    hash: str


def event_view(event: Event) -> EventView:
    """Return an event for clients. Its data are the stored bytes, which are encoded as they are.

    Raises:
        EventInvalid: They are no JSON: the journal is damaged.
    """
    is_line = b"\n" not in event.raw and b"\r" not in event.raw and _is_json(event.raw)
    data: Any = msgspec.Raw(event.raw) if is_line else event.data
    return EventView(event.seq, event.run_id, event.ts, event.kind, event.v, data, event.prev, event.hash)


def _is_json(raw: bytes) -> bool:
    try:
        _CHECKED.decode(raw)
    except msgspec.DecodeError:
        return False
    return True


def question_view(runtime: ChatRuntime, asked: OpenQuestion) -> AskedQuestion:
    """Return an open question for clients."""
    row, question = asked.row, asked.question
    draft = runtime.runs.edit_draft(asked) or {}
    edits = next((name for name in draft if name != "decision"), "")
    return AskedQuestion(
        asked.run_id,
        runtime.runs.root_run(row).run_id,
        row.skill,
        question,
        runtime.runs.question_text(asked),
        edits,
        msgspec.json.format(msgspec.json.encode(draft[edits]), indent=2).decode() if edits else "",
        asked.is_answered,
        row.updated,
    )


def run_view(runtime: ChatRuntime, row: RunRow) -> RunView:
    """Return a run for clients."""
    runs = runtime.runs
    asked = runs.open_question(row) if row.status in ("running", "waiting") else None
    return RunView(
        **msgspec.structs.asdict(row),
        display_status=runs.display_status(row),
        root_run=runs.root_run(row).run_id,
        cost=Cost.of(row.charge),
        next=runs.next_action(row),
        question=question_view(runtime, asked) if asked is not None else None,
    )


def run_details(runtime: ChatRuntime, row: RunRow) -> RunDetails:
    """Return a run with its result."""
    runs = runtime.runs
    last = runs.inspect(row.run_id).at(None)
    summary = last.after if last is not None else runs.summary(row.run_id)
    return RunDetails(run_view(runtime, row), to_result(summary, runs.content), summary.active)
