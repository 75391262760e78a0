"""Reconstruct the exact messages that a model received at an event of a run, and its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reyn.context import FrameSection, SectionCost, estimate_tokens, message_text
from reyn.errors import RunNotFound
from reyn.journal import decode, kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from reyn.journal import Event

_RESULTS = (kinds.OpCompleted, kinds.SubRunCompleted, kinds.PermissionDenied, kinds.ApprovalDecided)


ANSWER = "answer"
"""The role under which `frame_at` returns the model's answer."""


class _Frame(NamedTuple):
    """A recorded frame: its messages, the op results in it, its answer, and what was truncated for it."""

    messages: tuple[kinds.FrameMessage, ...]
    results: list[str]
    answer: str | None
    handoff: kinds.ContextBudgetApplied | None
    truncated: dict[str, str]
    """The hash of the whole content, by the hash of the part that a frame contains."""


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
    frame = _find(run_id, events, seq)
    messages = [(str(message.role), message_text(message, content, frame.results)) for message in frame.messages]
    return messages if frame.answer is None else [*messages, (ANSWER, content(frame.answer).decode())]


def frame_sections(
    run_id: str, events: Iterable[Event], seq: int | None, content: Callable[[str], bytes]
) -> tuple[FrameSection, ...]:
    """Return the estimated tokens of each section of a frame, and of what was truncated. The arguments are those of
    `frame_at`."""
    frame = _find(run_id, events, seq)
    turn = next((number for number, one in enumerate(frame.messages) if _is_turn(one)), len(frame.messages))
    sections: list[FrameSection] = []
    for number, message in enumerate(frame.messages):
        if number == turn:
            sections += _turn_sections(message, frame, content)
            continue
        name = "system" if number < turn else "correction"
        tokens = estimate_tokens(message_text(message, content, frame.results))
        if sections and sections[-1].name == name:
            tokens += sections.pop().tokens
        sections.append(FrameSection(name, tokens, tokens))
    return tuple(sections)


def _is_turn(message: kinds.FrameMessage) -> bool:
    return message.role == "user" and message.parts[0].blob is not None


def _turn_sections(
    message: kinds.FrameMessage, frame: _Frame, content: Callable[[str], bytes]
) -> Iterator[FrameSection]:
    """Yield the sections of the last message: the input, then one per heading."""
    sections: list[tuple[str, list[kinds.Part]]] = [("input", [])]
    for part in message.parts:
        if part.text.startswith("\n\n# "):
            sections.append((part.text[4:].partition("\n")[0].lower(), []))
        sections[-1][1].append(part)
    for name, parts in sections:
        tokens = estimate_tokens(message_text(kinds.FrameMessage("user", tuple(parts)), content, frame.results))
        blobs = [blob for part in parts for blob in ([part.blob] if part.blob else frame.results[: part.results])]
        if frame.handoff is not None and frame.handoff.text in blobs:
            costs = tuple(SectionCost(one.name, one.original_tokens, one.tokens) for one in frame.handoff.sections)
            removed = frame.handoff.original_tokens - frame.handoff.truncated_tokens
        else:
            costs, whole = (), [(blob, frame.truncated[blob]) for blob in blobs if blob in frame.truncated]
            removed = sum(max(0, (len(content(all_of)) - len(content(blob))) // 4) for blob, all_of in whole)
        yield FrameSection(name, tokens + removed, tokens, costs)


def _find(run_id: str, events: Iterable[Event], seq: int | None) -> _Frame:
    built: kinds.FrameBuilt | None = None
    answer: str | None = None
    results: dict[str, str] = {}
    frame_results: list[str] = []
    handoff: kinds.ContextBudgetApplied | None = None
    truncated: dict[str, str] = {}
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
            case kinds.ContextBudgetApplied():
                handoff = body
            case kinds.FrameBuilt() as built:
                frame_results, answer = list(results.values()), None
            case kinds.LlmResponded(text=answer):
                pass
            case kinds.ContentTruncated(name=call, part=part, content=whole):
                truncated[part] = whole
                if call in results:
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
    return _Frame(built.messages, frame_results, answer, handoff, truncated)


def _is_model_call(call: str) -> bool:
    """Whether a model requested an op (`3.1.2`), not a step (`3.pre.1`)."""
    return all(part.isdigit() for part in call.split(".")) and call.count(".") == 2
