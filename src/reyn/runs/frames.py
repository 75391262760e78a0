"""Reconstruct the exact messages that a model received at an event of a run, and its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec

from reyn.context import estimate_tokens
from reyn.context.budget import FrameSection, SectionCost
from reyn.context.render import frame_message, message_text, normalized, rendered_message
from reyn.errors import ReynError, RunNotFound
from reyn.journal import decode, kinds
from reyn.kernel.core.conversations import changed, seed_of
from reyn.kernel.core.snapshot import TRAIL_LENGTH
from reyn.skills import unpin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from reyn.context.transcript import NormalizedMessage
    from reyn.journal import Body, Event
    from reyn.kernel.core.conversations import Transcript
    from reyn.skills import Skill

_RESULTS = (kinds.OpCompleted, kinds.PermissionDenied, kinds.ApprovalDecided)


TOOLS = "tools"
"""The role under which `prompt_at` returns the native tools of a request, one per line."""
ANSWER = "answer"
"""The role under which `prompt_at` returns the model's answer."""


class RecordedFrame(NamedTuple):
    """A recorded prompt: its messages, the op results in it, its answer, and the truncated contents."""

    messages: tuple[kinds.FrameMessage, ...]
    transcript: tuple[NormalizedMessage, ...]
    """Messages after the system message that `transcript_extended` events added."""
    results: list[str]
    tools: str | None
    answer: str | None
    handoff: kinds.ContextBudgetApplied | None
    truncated: dict[str, str]
    """The hash of the whole content, by the hash of the part that a frame contains."""
    form: kinds.AnswerForm
    budget: kinds.PromptBudget | None = None
    task: str = ""
    """The instructions of the phase."""

    @property
    def turn(self) -> kinds.FrameMessage:
        """The message with the input."""
        begun = next((one for one in reversed(self.transcript) if one.parts and one.parts[0].plain), None)
        if begun is not None:
            return frame_message(begun)
        return next((message for message in self.messages if _is_turn(message)), self.messages[-1])


def prompt_at(
    run_id: str, events: Iterable[Event], seq: int | None, content: Callable[[str], bytes]
) -> list[tuple[str, str]]:
    """Return role and text of the messages of a frame, followed by the native tools and the answer if there are any.

    Args:
        run_id: The run.
        events: Its events.
        seq: The frame at this event, or the last one before it; by default the last frame of the run.
        content: Returns content by its hash.

    Raises:
        RunNotFound: The run has no event `seq`, or no frame at or before it.
    """
    frame = find_frame(run_id, events, seq, content)
    messages = messages_of(frame, content)
    return messages if frame.answer is None else [*messages, (ANSWER, content(frame.answer).decode())]


def messages_of(frame: RecordedFrame, content: Callable[[str], bytes]) -> list[tuple[str, str]]:
    """Return role and text of the messages of a frame, followed by the native tools if there are any."""
    system, rest = frame.messages[:1], frame.messages[1:]
    messages = [
        (str(message.role), _text(message, content, frame.results))
        for message in (*map(normalized, system), *frame.transcript, *map(normalized, rest))
    ]
    return messages if frame.tools is None else [*messages, (TOOLS, _tool_lines(content(frame.tools)))]


def _tool_lines(tools: bytes) -> str:
    return "".join(f"{msgspec.json.encode(tool).decode()}\n" for tool in msgspec.json.decode(tools))


def _text(message: NormalizedMessage, content: Callable[[str], bytes], results: list[str]) -> str:
    """Return the text of a message, and one line for each native tool call."""
    rendered = rendered_message(message, content, results=results)
    calls = [f"{call.name} {call.arguments}" for call in rendered.tool_calls]
    return "\n".join([rendered.text, *calls] if rendered.text else calls) if calls else rendered.text


def prompt_sections(
    run_id: str, events: Iterable[Event], seq: int | None, content: Callable[[str], bytes]
) -> tuple[FrameSection, ...]:
    """Return the estimated tokens of each section of a prompt, before and after truncation. The arguments are those of
    `prompt_at`."""
    return sections_of(find_frame(run_id, events, seq, content), content)


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
        budget: The token budget of the last frame, if it was counted.
    """

    seq: int
    phase: str
    visit: int
    turns: int
    sections: tuple[FrameSection, ...]
    input_tokens: int = 0
    cached_tokens: int = 0
    budget: kinds.PromptBudget | None = None

    @property
    def tokens(self) -> int:
        """The estimated tokens of the last frame."""
        return sum(section.tokens for section in self.sections)


def visit_contexts(events: Iterable[Event], content: Callable[[str], bytes]) -> Iterator[VisitContext]:
    """Yield the tokens of each visit's prompt by section, for every visit with a frame."""
    scanner, last, turns, usage = _Scanner(content), 0, 0, kinds.Usage()
    current: kinds.PhaseStarted | None = None

    def finished() -> Iterator[VisitContext]:
        if current is not None and turns:
            frame = scanner.frame()
            yield VisitContext(
                last,
                current.phase,
                current.visit,
                turns,
                sections_of(frame, content),
                usage.input_tokens,
                usage.cached_tokens,
                frame.budget,
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
    """Return the estimated tokens of each section of a frame; those that its budget counted if it was truncated."""
    if frame.budget is not None and frame.budget.sections:
        return tuple(
            FrameSection(
                section.name,
                section.original_tokens,
                section.tokens,
                _system_parts(section.name, section.tokens, frame, content),
            )
            for section in frame.budget.sections
        )
    turn = next((number for number, one in enumerate(frame.messages) if _is_turn(one)), len(frame.messages))
    sections: list[FrameSection] = []
    if frame.tools is not None:
        tokens = estimate_tokens(content(frame.tools).decode())
        sections.append(FrameSection(TOOLS, tokens, tokens))
    if frame.transcript:
        turn = 1
    for number, message in enumerate(frame.messages):
        if number == turn and not frame.transcript:
            sections += _turn_sections(message, frame, content)
            continue
        name = "system" if number < turn else "correction"
        tokens = estimate_tokens(message_text(message, content, frame.results))
        if sections and sections[-1].name == name:
            tokens += sections.pop().tokens
        sections.append(FrameSection(name, tokens, tokens, _system_parts(name, tokens, frame, content)))
        if number == 0:
            sections += _transcript_sections(frame, content)
    return tuple(sections)


def _transcript_sections(frame: RecordedFrame, content: Callable[[str], bytes]) -> Iterator[FrameSection]:
    """Yield the sections of the first message of a transcript, if it has several, and the rest as one section."""
    rest = frame.transcript
    if rest and len(rest[0].parts) > 1 and _is_turn(first := frame_message(rest[0])):
        yield from _turn_sections(first, frame, content)
        rest = rest[1:]
    if rest:
        tokens = sum(estimate_tokens(_text(message, content, frame.results)) for message in rest)
        yield FrameSection("transcript", tokens, tokens)


def _system_parts(
    name: str, tokens: int, frame: RecordedFrame, content: Callable[[str], bytes]
) -> tuple[SectionCost, ...]:
    """Return the shares of the task and of everything else that is static in the system message."""
    if name != "system" or not frame.task:
        return ()
    text = message_text(frame.messages[0], content, frame.results)
    task = -(-tokens * len(frame.task) // max(1, len(text)))
    if frame.task not in text:
        return ()
    return (SectionCost("task", task, task), SectionCost("static", tokens - task, tokens - task))


def _is_turn(message: kinds.FrameMessage) -> bool:
    return message.role == "user" and message.parts[0].blob is not None


def _turn_sections(
    message: kinds.FrameMessage, frame: RecordedFrame, content: Callable[[str], bytes]
) -> Iterator[FrameSection]:
    """Yield the sections of the last message: the input, then one per heading."""
    sections: list[tuple[str, list[kinds.Part]]] = [("input", [])]
    for part in message.parts:
        for piece in _split_headings(part):
            if piece.text.startswith(_HEADING):
                sections.append((piece.text.removeprefix(_HEADING).partition("\n")[0].lower(), []))
            sections[-1][1].append(piece)
    for name, parts in sections:
        tokens = estimate_tokens(message_text(kinds.FrameMessage("user", tuple(parts)), content, frame.results))
        blobs = [blob for part in parts for blob in ([part.blob] if part.blob else frame.results[: part.results])]
        if frame.handoff is not None and frame.handoff.text in blobs:
            costs = tuple(
                SectionCost(section.name, section.original_tokens, section.tokens) for section in frame.handoff.sections
            )
            removed = frame.handoff.original_tokens - frame.handoff.truncated_tokens
        else:
            costs, whole = (), [(blob, frame.truncated[blob]) for blob in blobs if blob in frame.truncated]
            removed = sum(max(0, (len(content(all_of)) - len(content(blob))) // 4) for blob, all_of in whole)
        yield FrameSection(name, tokens + removed, tokens, costs)


_HEADING = "\n\n# "


def _split_headings(part: kinds.Part) -> list[kinds.Part]:
    """Return a part for each heading in the text of a part: notes and the form of the answer are one text."""
    before, *sections = part.text.split(_HEADING)
    if not sections:
        return [part]
    texts = ([before] if before else []) + [f"{_HEADING}{section}" for section in sections]
    return [kinds.Part(text=text) for text in texts]


class _Scanner:
    """Collects the parts of the last frame, event by event. `content` returns content by its hash."""

    def __init__(self, content: Callable[[str], bytes]) -> None:
        self._content = content
        self._skill_hash = ""
        self._skills: dict[str, Skill | None] = {}
        self.tools: str | None = None
        self._phase = ""
        self._conversations: dict[str, Transcript] = {}
        self._before: dict[str, Transcript] = {}
        self._trail: list[dict[str, Transcript]] = []
        self._transcript: tuple[NormalizedMessage, ...] = ()
        self.answer: str | None = None
        self.built: kinds.FrameBuilt | None = None
        self._results: dict[str, str] = {}
        self._frame_results: list[str] = []
        self._handoff: kinds.ContextBudgetApplied | None = None
        self._truncated: dict[str, str] = {}

    def take(self, body: Body) -> None:
        match body:
            case kinds.RunForked() | kinds.RunResumed() if body.skill_hash is not None:
                self._skill_hash = body.skill_hash
            case kinds.RunStarted():
                self._skill_hash, self._conversations = body.skill_hash, seed_of(body)
            case kinds.PhaseStarted():
                self._phase, self._results, self._before = body.phase, {}, self._conversations
            case kinds.PhaseCompleted():
                self._trail = [*self._trail, self._before][-TRAIL_LENGTH:]
            case kinds.PhaseFailed():
                self._conversations = self._before
            case kinds.PhaseRolledBack() if self._trail:
                self._conversations = self._trail.pop()
            case (
                kinds.TranscriptExtended()
                | kinds.ExperienceRemembered()
                | kinds.ExperienceForgotten()
                | kinds.MemoryChanged()
                | kinds.ContextCompacted()
            ):
                self._conversations = changed(self._conversations, body)
            case kinds.ContextBudgetApplied():
                self._handoff = body
            case kinds.FrameBuilt():
                self.built, self._frame_results, self.answer = body, list(self._results.values()), None
                for one in body.budget.truncated if body.budget else ():
                    self._truncated[one.part] = one.content
                self.tools = None
                self._transcript = self._referenced(body.transcript)
            case kinds.LlmRequested(tools=tools):
                self.tools = tools
            case kinds.LlmResponded():
                self.answer = body.text
            case kinds.ContentTruncated(name=call, part=part, content=whole):
                self._truncated[part] = whole
                if call in self._results:
                    self._results[call] = part
            case body if isinstance(body, _RESULTS) and body.result and _is_model_call(body.call):
                self._results[body.call] = body.result

    def _referenced(self, reference: kinds.TranscriptRef | None) -> tuple[NormalizedMessage, ...]:
        conversation = self._conversations.get(self._phase)
        if reference is None or conversation is None:
            return ()
        whole = conversation.whole(self._content)
        return whole.tail(whole.length)[: reference.length]

    def frame(self) -> RecordedFrame:
        assert self.built is not None
        built, task = self.built, self._task()
        return RecordedFrame(
            built.messages,
            self._transcript,
            self._frame_results,
            self.tools,
            self.answer,
            self._handoff,
            self._truncated,
            built.form,
            built.budget,
            task,
        )

    def _task(self) -> str:
        """Return the instructions of the phase; empty if the run's copy of its skill cannot be read."""
        if self._skill_hash not in self._skills:
            try:
                self._skills[self._skill_hash] = unpin(self._content(self._skill_hash))
            except ReynError:
                self._skills[self._skill_hash] = None
        skill = self._skills[self._skill_hash]
        phase = skill.phases.get(self._phase) if skill else None
        return phase.instructions.strip() if phase else ""


def find_frame(run_id: str, events: Iterable[Event], seq: int | None, content: Callable[[str], bytes]) -> RecordedFrame:
    """Return the frame at an event, or the last one before it. The arguments are those of `prompt_at`."""
    scanner, last = _Scanner(content), 0
    for event in events:
        body, last = decode(event), event.seq
        if seq is not None and event.seq > seq:
            if scanner.answer is not None or isinstance(body, kinds.FrameBuilt | kinds.PhaseStarted):
                break
            if isinstance(body, kinds.LlmRequested):
                scanner.tools = body.tools
            if isinstance(body, kinds.LlmResponded):
                scanner.take(body)
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
    """Return whether a model requested an op (`3.1.2`), not a step (`3.pre.1`)."""
    return all(part.isdigit() for part in call.split(".")) and call.count(".") == 2
