"""Reconstruct the exact messages that a model received at an event of a run, and its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from reyn.context import FrameSection, SectionCost, estimate_tokens, message_text
from reyn.errors import RunNotFound
from reyn.journal import decode, kinds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from reyn.journal import Body, Event

_RESULTS = (kinds.OpCompleted, kinds.SubRunCompleted, kinds.PermissionDenied, kinds.ApprovalDecided)


ANSWER = "answer"
"""The role under which `frame_at` returns the model's answer."""


class RecordedFrame(NamedTuple):
    """A recorded frame: its messages, the op results in it, its answer, and what was truncated for it."""

    messages: tuple[kinds.FrameMessage, ...]
    results: list[str]
    answer: str | None
    handoff: kinds.ContextBudgetApplied | None
    truncated: dict[str, str]
    """The hash of the whole content, by the hash of the part that a frame contains."""
    form: kinds.AnswerForm

    @property
    def turn(self) -> kinds.FrameMessage:
        """The message with the input."""
        return next((one for one in self.messages if _is_turn(one)), self.messages[-1])


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
    frame = find_frame(run_id, events, seq)
    messages = messages_of(frame, content)
    return messages if frame.answer is None else [*messages, (ANSWER, content(frame.answer).decode())]


def messages_of(frame: RecordedFrame, content: Callable[[str], bytes]) -> list[tuple[str, str]]:
    """Return role and text of the messages of a frame."""
    return [(str(message.role), message_text(message, content, frame.results)) for message in frame.messages]


def frame_sections(
    run_id: str, events: Iterable[Event], seq: int | None, content: Callable[[str], bytes]
) -> tuple[FrameSection, ...]:
    """Return the estimated tokens of each section of a frame, and of what was truncated. The arguments are those of
    `frame_at`."""
    return sections_of(find_frame(run_id, events, seq), content)


class VisitContext(msgspec.Struct, frozen=True):
    """The tokens of a visit's prompt, by section.

    Attributes:
        seq: The event of the last frame of the visit.
        phase: The phase.
        visit: The number of visits of the phase so far.
        turns: The number of frames of the visit.
        sections: The estimated tokens of each section of the last frame.
        input_tokens: The tokens of all prompts of the visit, as the provider reported them; 0 if it did not.
        cached_tokens: The part of them that a prompt cache served.
    """

    seq: int
    phase: str
    visit: int
    turns: int
    sections: tuple[FrameSection, ...]
    input_tokens: int = 0
    cached_tokens: int = 0

    @property
    def tokens(self) -> int:
        """The estimated tokens of the last frame."""
        return sum(section.tokens for section in self.sections)


def visit_contexts(events: Iterable[Event], content: Callable[[str], bytes]) -> Iterator[VisitContext]:
    """Yield the tokens of each visit's prompt by section, for every visit with a frame."""
    scanner, last, turns, usage = _Scanner(), 0, 0, kinds.Usage()
    current: kinds.PhaseStarted | None = None

    def finished() -> Iterator[VisitContext]:
        if current is not None and turns:
            sections = sections_of(scanner.frame(), content)
            yield VisitContext(
                last, current.phase, current.visit, turns, sections, usage.input_tokens, usage.cached_tokens
            )

    for event in events:
        body = decode(event)
        if isinstance(body, kinds.PhaseStarted):
            yield from finished()
            current, turns, usage = body, 0, kinds.Usage()
        scanner.take(body)
        if isinstance(body, kinds.FrameBuilt):
            last, turns = event.seq, turns + 1
        elif isinstance(body, kinds.LlmResponded) and body.usage is not None:
            usage += body.usage
    yield from finished()


def sections_of(frame: RecordedFrame, content: Callable[[str], bytes]) -> tuple[FrameSection, ...]:
    """Return the estimated tokens of each section of a frame."""
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
    message: kinds.FrameMessage, frame: RecordedFrame, content: Callable[[str], bytes]
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


class _Scanner:
    """Collects the parts of the last frame, event by event."""

    def __init__(self) -> None:
        self.answer: str | None = None
        self.built: kinds.FrameBuilt | None = None
        self._results: dict[str, str] = {}
        self._frame_results: list[str] = []
        self._handoff: kinds.ContextBudgetApplied | None = None
        self._truncated: dict[str, str] = {}

    def take(self, body: Body) -> None:
        match body:
            case kinds.PhaseStarted():
                self._results = {}
            case kinds.ContextBudgetApplied():
                self._handoff = body
            case kinds.FrameBuilt():
                self.built, self._frame_results, self.answer = body, list(self._results.values()), None
            case kinds.LlmResponded(text=answer):
                self.answer = answer
            case kinds.ContentTruncated(name=call, part=part, content=whole):
                self._truncated[part] = whole
                if call in self._results:
                    self._results[call] = part
            case body if isinstance(body, _RESULTS) and body.result and _is_model_call(body.call):
                self._results[body.call] = body.result

    def frame(self) -> RecordedFrame:
        assert self.built is not None
        return RecordedFrame(
            self.built.messages, self._frame_results, self.answer, self._handoff, self._truncated, self.built.form
        )


def find_frame(run_id: str, events: Iterable[Event], seq: int | None) -> RecordedFrame:
    """Return the frame at an event, or the last one before it. The arguments are those of `frame_at`."""
    scanner, last = _Scanner(), 0
    for event in events:
        body, last = decode(event), event.seq
        if seq is not None and event.seq > seq:
            if scanner.answer is not None or isinstance(body, kinds.FrameBuilt | kinds.PhaseStarted):
                break
            scanner.answer = body.text if isinstance(body, kinds.LlmResponded) else None
            continue
        scanner.take(body)
    if seq is not None and seq > last:
        raise RunNotFound(f"run `{run_id}` has no event {seq}", hint=f"The last event of the run is {last}.")
    if scanner.built is None:
        raise RunNotFound(
            f"run `{run_id}` has no frame{'' if seq is None else f' at or before event {seq}'}",
            hint="The first frame is recorded by the first `frame_built` event.",
        )
    return scanner.frame()


def _is_model_call(call: str) -> bool:
    """Whether a model requested an op (`3.1.2`), not a step (`3.pre.1`)."""
    return all(part.isdigit() for part in call.split(".")) and call.count(".") == 2
