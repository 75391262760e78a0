"""What a model saw at an event of a run, and what it said: the exact texts, put together again from what is kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.context import join
from reyn.errors import RunNotFound
from reyn.journal import decode, kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from reyn.journal import Event

_RESULTS = (kinds.OpCompleted, kinds.SubRunCompleted, kinds.PermissionDenied, kinds.ApprovalDecided)


ANSWER = "answer"
"""Stands for a role where a frame was answered."""


def frame_at(
    run_id: str, events: Iterable[Event], seq: int | None, content: Callable[[str], bytes]
) -> list[tuple[str, str]]:
    """Role and text of every message of the frame that stands at an event, or last stood before it; then the answer to
    it. Without a number, of the last."""
    built: kinds.FrameBuilt | None = None
    answer: str | None = None
    results: dict[str, str] = {}
    shown: list[str] = []
    for event in events:
        body = decode(event)
        if seq is not None and event.seq > seq:
            if answer is not None or isinstance(body, kinds.FrameBuilt | kinds.PhaseStarted):
                break
            answer = body.text if isinstance(body, kinds.LlmResponded) else None
            continue
        match body:
            case kinds.PhaseStarted():
                results = {}
            case kinds.FrameBuilt() as built:
                shown, answer = list(results.values()), None
            case kinds.LlmResponded(text=answer):
                pass
            case kinds.ContentCut(name=call, shown=part) if call in results:
                results[call] = part
            case body if isinstance(body, _RESULTS) and body.result and _is_models(body.call):
                results[body.call] = body.result
    if built is None:
        raise RunNotFound(
            f"run `{run_id}` has no frame{'' if seq is None else f' at or before event {seq}'}",
            hint="`reyn events RUN --kind frame_built` lists the frames.",
        )
    seen: list[tuple[str, str]] = [(message.role, join(message, content, shown)) for message in built.messages]
    return seen if answer is None else [*seen, (ANSWER, content(answer).decode())]


def _is_models(call: str) -> bool:
    """Whether an op was asked for by a model (`3.1.2`), and not by a step (`3.pre.1`)."""
    return all(word.isdigit() for word in call.split(".")) and call.count(".") == 2
