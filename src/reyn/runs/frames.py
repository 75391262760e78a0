"""Reconstruct the exact messages that a model received at an event of a run, and its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.context import message_text
from reyn.errors import RunNotFound
from reyn.journal import decode, kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from reyn.journal import Event

_RESULTS = (kinds.OpCompleted, kinds.SubRunCompleted, kinds.PermissionDenied, kinds.ApprovalDecided)


ANSWER = "answer"
"""The role under which `frame_at` returns the model's answer."""


def frame_at(
    run_id: str, events: Iterable[Event], seq: int | None, content: Callable[[str], bytes]
) -> list[tuple[str, str]]:
    """Return role and text of the messages of a frame, followed by the answer if there is one.

    Args:
        run_id: The run.
        events: Its events.
        seq: The frame at this event, or the last one before it; by default the last frame of the run.
        content: Returns content by its hash.

    Raises:
        RunNotFound: The run has no event `seq`, or no frame at or before it.
    """
    built: kinds.FrameBuilt | None = None
    answer: str | None = None
    results: dict[str, str] = {}
    frame_results: list[str] = []
    last = 0
    for event in events:
        body, last = decode(event), event.seq
        if seq is not None and event.seq > seq:
            if answer is not None or isinstance(body, kinds.FrameBuilt | kinds.PhaseStarted):
                break
            answer = body.text if isinstance(body, kinds.LlmResponded) else None
            continue
        match body:
            case kinds.PhaseStarted():
                results = {}
            case kinds.FrameBuilt() as built:
                frame_results, answer = list(results.values()), None
            case kinds.LlmResponded(text=answer):
                pass
            case kinds.ContentTruncated(name=call, part=part) if call in results:
                results[call] = part
            case body if isinstance(body, _RESULTS) and body.result and _is_model_call(body.call):
                results[body.call] = body.result
    if seq is not None and seq > last:
        raise RunNotFound(f"run `{run_id}` has no event {seq}", hint=f"The last event of the run is {last}.")
    if built is None:
        raise RunNotFound(
            f"run `{run_id}` has no frame{'' if seq is None else f' at or before event {seq}'}",
            hint="The first frame is recorded by the first `frame_built` event.",
        )
    messages = [(str(message.role), message_text(message, content, frame_results)) for message in built.messages]
    return messages if answer is None else [*messages, (ANSWER, content(answer).decode())]


def _is_model_call(call: str) -> bool:
    """Whether a model requested an op (`3.1.2`), not a step (`3.pre.1`)."""
    return all(part.isdigit() for part in call.split(".")) and call.count(".") == 2
