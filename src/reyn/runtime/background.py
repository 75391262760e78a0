"""Background runs: a conversation starts them and does not wait for them; a message reports their end.

A background run has the rights of a sub-run and is a run of its own otherwise. It begins when a process that holds the
conversation, or `reyn resume`, executes it; until then only the conversation's journal knows of it.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import msgspec

from reyn.errors import RunNotFound
from reyn.journal import ENDED, ReportRun, decode, kinds

if TYPE_CHECKING:
    from reyn.journal import Journal
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.runtime_types import RunResult

MAX_RESULT_CHARS = 8_000
"""What a message quotes of a result; `reyn show RUN` has all of it."""
_FIRST_WINDOW = 256
"""The events that are searched first, from the end."""
_REPORTED = (*ENDED, "failed", "limited")


def find_intent(journal: Journal, conversation: str, run_id: str) -> kinds.SubRunStarted:
    """Return the event with which a conversation started a background run.

    Raises:
        RunNotFound: It did not start this run.
    """
    row = journal.find(conversation)
    end, size = row.seq if row is not None else 0, _FIRST_WINDOW
    while end:  # from the end: a run is executed soon after it was started, however long the conversation is
        after = max(0, end - size)
        for event in islice(journal.read(conversation, after), end - after):
            body = decode(event) if event.kind == kinds.SubRunStarted.kind else None
            if isinstance(body, kinds.SubRunStarted) and body.background and body.run == run_id:
                return body
        end, size = after, 4 * size
    raise RunNotFound(f"conversation `{conversation}` did not start a run `{run_id}` in the background")


def conversation_of(journal: Journal, run_id: str) -> str:
    """Return the conversation that started a background run; empty for any other run."""
    if "." not in run_id:
        return ""
    first = next(iter(journal.read(run_id)), None)
    body = decode(first) if first is not None else None
    parent = body.parent if isinstance(body, kinds.RunStarted) else None
    return parent.run if parent is not None and parent.background else ""


def unreported(journal: Journal, state: RunState) -> list[str]:
    """Return the background runs of a conversation whose last report is missing or older than their status.

    One that was reported as failed and retried since can be waiting or interrupted.
    """
    rows = []
    for run_id, report in state.inbox.background.items():
        row = journal.find(run_id)
        if report is None or (row is not None and row.status != report.status):
            rows.append(run_id)
    return rows


def report_of(result: RunResult, skill: str, answers: int) -> ReportRun | None:
    """Return the message that reports a background run; `None` while it can go on by itself."""
    if result.status not in _REPORTED:
        return None
    who = f"The background run `{result.run_id}` of the skill `{skill}`"
    if result.status == "finished":
        data = msgspec.json.encode((result.artifact or {}).get("data")).decode()
        excerpt = data if len(data) <= MAX_RESULT_CHARS else f"{data[:MAX_RESULT_CHARS]} … ({len(data)} characters)"
        text = f"{who} has finished. Its result: {excerpt}"
    else:
        text = f"{who} is {result.status}: {result.reason or 'no reason was recorded'}"
    return ReportRun(result.run_id, str(result.status), text, result.usage, answers)
