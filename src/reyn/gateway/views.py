"""Make what the API returns about runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.client.values import AskedQuestion, RunDetails, RunView
from reyn.journal.results import Cost
from reyn.journal.summary import to_result

if TYPE_CHECKING:
    from reyn.api import ChatRuntime
    from reyn.journal import Event, RunRow
    from reyn.journal.family import OpenQuestion


_CHECKED = msgspec.json.Decoder(msgspec.Raw)


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
