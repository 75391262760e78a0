"""Recorded prompts of a run: the exact messages of a turn, the tokens of its sections, and its context frame.

`reyn.runs.reader` finds the turn. Runs and previews both use this module, so that their frames are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.context import estimate_tokens
from reyn.context.budget import FrameSection, SectionCost
from reyn.context.frame import ContextFrame, Execution, RejectedArtifact, advised
from reyn.context.handoff import PhaseHandoff
from reyn.context.render import (
    begins_visit,
    frame_message,
    message_text,
    normalized,
    noted_turns,
    rendered_message,
    turn_parts,
)
from reyn.errors import EventInvalid, HistoryInvalid, ReynError
from reyn.journal import Event, decode, kinds
from reyn.journal.summary import limit_of
from reyn.kernel.core.limits import visits_left
from reyn.kernel.visit.work import duties_left
from reyn.runs.reader import RecordedTurn, read_run, turn_at
from reyn.skills import Skill, unpin

if TYPE_CHECKING:
    from reyn.context.messages import NormalizedMessage
    from reyn.contract import Duty
    from reyn.journal.canonical import ReadBlob
    from reyn.kernel.visit.compiled_phase import CompiledPhase
    from reyn.kernel.visit.compiled_skill import CompiledSkill
    from reyn.kernel.visit.model_call import TurnSpec

TOOLS = "tools"
"""The role of the native tools of a request among its messages, one tool per line."""
_ANSWER = "answer"
"""The role of the model's answer."""


class RecordedPrompt:
    """The prompt of a turn.

    Args:
        turn: The turn.
        content: Returns content by its hash.
    """

    def __init__(self, turn: RecordedTurn, content: ReadBlob) -> None:
        self._turn = turn
        self._content = content
        self._results = list(turn.results)
        self._tools = turn.request.tools if turn.request is not None else None
        conversation = turn.state.current_transcript
        self._transcript: tuple[NormalizedMessage, ...] = ()
        """Messages after the system message that `transcript_extended` events added."""
        if turn.frame.transcript is not None and conversation is not None:
            whole = conversation.whole(content)
            self._transcript = whole.tail(whole.length)[: turn.frame.transcript.length]
        self._frame = turn.frame.messages

    @classmethod
    def at(cls, run_id: str, events: Iterable[Event], seq: int | None, content: ReadBlob) -> RecordedPrompt:
        """Return the prompt at an event of a run, or the last one before it; by default the last prompt.

        Raises:
            RunNotFound: The run has no event `seq`, or no frame at or before it.
        """
        return cls(turn_at(run_id, events, seq), content)

    def _decode(self, name: str, shape: Any) -> Any:
        """Return recorded content that is JSON of a certain shape."""
        try:
            return msgspec.json.decode(self._content(name), type=shape)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise EventInvalid(
                f"the turn at event {self._turn.seq} refers to content `{name[:12]}…`: {error}",
                hint="The run is damaged, or was imported from an archive that Reyn did not write.",
            ) from error

    # -- messages -------------------------------------------------------------------------------------

    @property
    def messages(self) -> list[tuple[str, str]]:
        """Role and text of the messages, followed by the native tools if there are any."""
        system, rest = self._frame[:1], self._frame[1:]
        messages = [
            (str(message.role), self._text(message))
            for message in (*map(normalized, system), *self._transcript, *map(normalized, rest))
        ]
        tools = [] if self._tools is None else [(TOOLS, _tool_lines(self._decode(self._tools, list[Any])))]
        return [*messages, *tools]

    @property
    def with_answer(self) -> list[tuple[str, str]]:
        """The messages, followed by the model's answer if there is one."""
        answer = self._turn.answer
        return self.messages if answer is None else [*self.messages, (_ANSWER, self._content(answer.text).decode())]

    def _text(self, message: NormalizedMessage) -> str:
        """Return the text of a message, and one line for each native tool call."""
        rendered = rendered_message(message, self._content, results=self._results)
        calls = [f"{call.name} {call.arguments}" for call in rendered.tool_calls]
        return "\n".join([rendered.text, *calls] if rendered.text else calls) if calls else rendered.text

    def _tokens(self, message: kinds.FrameMessage) -> int:
        return estimate_tokens(message_text(message, self._content, self._results))

    # -- sections -------------------------------------------------------------------------------------

    @property
    def sections(self) -> tuple[FrameSection, ...]:
        """The estimated tokens of each section, before and after truncation; those that the budget counted if any."""
        budget = self._turn.frame.budget
        if budget is not None and budget.sections:
            return tuple(
                FrameSection(one.name, one.original_tokens, one.tokens, self._system_parts(one.name, one.tokens))
                for one in budget.sections
            )
        sections: list[FrameSection] = []
        if self._tools is not None:
            sections.append(_whole(TOOLS, estimate_tokens(self._content(self._tools).decode())))
        turn = next((number for number, one in enumerate(self._frame) if begins_visit(one)), len(self._frame))
        if self._transcript:
            turn = 1
        for number, message in enumerate(self._frame):
            if number == turn and not self._transcript:
                sections += self._turn_sections(message)
                continue
            name, tokens = "system" if number < turn else "correction", self._tokens(message)
            if sections and sections[-1].name == name:
                tokens += sections.pop().tokens
            sections.append(FrameSection(name, tokens, tokens, self._system_parts(name, tokens)))
            if number == 0:
                sections += self._transcript_sections()
        return tuple(sections)

    def _transcript_sections(self) -> Iterator[FrameSection]:
        """Yield the sections of the first message of a transcript, if it has several, and the rest as one section."""
        rest = self._transcript
        if rest and len(rest[0].parts) > 1 and begins_visit(first := frame_message(rest[0])):
            yield from self._turn_sections(first)
            rest = rest[1:]
        if rest:
            yield _whole("transcript", sum(estimate_tokens(self._text(message)) for message in rest))

    def _system_parts(self, name: str, tokens: int) -> tuple[SectionCost, ...]:
        """Return the shares of the task and of everything else that is static in the system message."""
        task = self._task() if name == "system" else ""
        text = message_text(self._frame[0], self._content, self._results) if task else ""
        if not task or task not in text:
            return ()
        share = -(-tokens * len(task) // len(text))
        return (SectionCost("task", share, share), SectionCost("static", tokens - share, tokens - share))

    def _task(self) -> str:
        """Return the instructions of the phase; empty if the run's copy of its skill cannot be read."""
        state = self._turn.state
        try:
            phase = _unpinned(self._content(state.started.skill_hash)).phases.get(state.phase)
        except ReynError:
            return ""
        return advised(phase.instructions, phase.advice).strip() if phase else ""

    def _turn_sections(self, message: kinds.FrameMessage) -> Iterator[FrameSection]:
        """Yield the sections of the message with the input: the input, then one per heading."""
        sections: list[tuple[str, list[kinds.Part]]] = [("input", [])]
        for part in message.parts:
            for piece in _split_headings(part):
                if piece.text.startswith(_HEADING):
                    sections.append((piece.text.removeprefix(_HEADING).partition("\n")[0].lower(), []))
                sections[-1][1].append(piece)
        handoff, truncated = self._turn.handoff, self._turn.truncated
        for name, parts in sections:
            tokens = self._tokens(kinds.FrameMessage("user", tuple(parts)))
            blobs = [blob for part in parts for blob in ([part.blob] if part.blob else self._results[: part.results])]
            if handoff is not None and handoff.text in blobs:
                costs = tuple(SectionCost(one.name, one.original_tokens, one.tokens) for one in handoff.sections)
                removed = handoff.original_tokens - handoff.truncated_tokens
            else:
                costs, cut = (), [blob for blob in blobs if blob in truncated]
                sizes = ((len(self._content(truncated[one])), len(self._content(one))) for one in cut)
                removed = sum(max(0, (whole - part) // 4) for whole, part in sizes)
            yield FrameSection(name, tokens + removed, tokens, costs)

    # -- the context frame ----------------------------------------------------------------------------

    def context_frame(self, compile_skill: Callable[[kinds.RunStarted], CompiledSkill]) -> ContextFrame:
        """Return the frame as a value. `compile_skill` compiles the run's copy of its skill.

        Raises:
            RunBlocked: The run's copy of its skill cannot be read.
        """
        turn, state = self._turn, self._turn.state
        compiled = compile_skill(turn.start.started)
        phase, spec, warnings = self._spec(compiled)
        parts, back = turn_parts(self._input_message), state.visit.rollback
        cap = limit_of(state, compiled.settings, "max_phase_visits")
        assert state.visit.input is not None  # since `run_started`

        def value(name: str) -> Any:
            """Return a stored value, whole even if the frame truncates it."""
            return self._decode(turn.truncated.get(name, name), Any)

        return ContextFrame(
            spec.frame,
            value(state.visit.input.hash if warnings else parts.input),
            Execution(
                state.path,
                state.visits_of(phase.name),
                state.history.total_steps,
                phase.remaining_visits(state, visits_left(state, compiled.skill, cap, phase.name)),
            ),
            self._remaining_act_turns(parts.remaining_act_turns),
            tuple(value(name) for name in parts.reads),
            self._content(parts.handoff).decode() if parts.handoff else None,
            RejectedArtifact(value(back.rejected.hash), back.reason) if back is not None else None,
            tuple(value(name) for name in turn.results),
            tuple(self.messages),
            self.sections,
            warnings,
        )

    def _remaining_act_turns(self, first: int | None) -> int | None:
        """Return the act turns that are left: as noted with the last results of native tools, if there are any."""
        parts = [one.parts for one in self._transcript if one.role == "tool"]
        parts += [one.parts for one in self._frame if one.role == "tool"]
        noted = map(noted_turns, reversed(parts))
        return next((turns for turns in noted if turns is not None), first)

    @property
    def _input_message(self) -> kinds.FrameMessage:
        said = (one for one in reversed(self._transcript) if any(part.plain for part in one.parts[:2]))
        begun = next(filter(begins_visit, said), None)
        if begun is not None:
            return frame_message(begun)
        return next((message for message in self._frame if begins_visit(message)), self._frame[-1])

    def _spec(self, skill: CompiledSkill) -> tuple[CompiledPhase, TurnSpec, tuple[str, ...]]:
        """Return the phase and the turn whose static text was recorded.

        A limit that was raised during the visit changes the phase. If no turn has the recorded text, another version of
        Reyn phrased it, or a hook.
        """
        turn, form = self._turn, self._turn.frame.form
        conversation = turn.state.current_transcript
        system = conversation.messages.system if conversation is not None else None
        told = message_text(system, self._content) if system is not None and system.content else ""
        phases = [skill.phase(turn.state.phase, state) for state in (turn.start, turn.state)]
        if turn.checked is not None and turn.checked.removed:
            phases = [phase.without(frozenset(turn.checked.removed)) for phase in phases]
        left = self._work_left(phases[0])
        for phase in phases:
            for is_truncated in (False, True):
                for acting in (True, False):
                    spec = phase.turn_spec(form, acting=acting, is_truncated=is_truncated, left=left)
                    spec = spec.instructed(told) if told.strip() else spec
                    if spec.system == self._frame[0]:
                        return phase, spec, ()
        phase = phases[0]
        warning = "another version of Reyn, or a hook, phrased this prompt; its exact text is in the messages"
        return phase, phase.turn_spec(form, acting=bool(phase.ops), is_truncated=False, left=left), (warning,)

    def _work_left(self, phase: CompiledPhase) -> tuple[Duty, ...]:
        """Return what the visit must still do, by the results of its ops and those of earlier attempts."""
        if not phase.duties:
            return ()
        before = self._turn.state.history.done.get(phase.name, ())
        results = [self._decode(self._turn.truncated.get(name, name), dict[str, Any]) for name in self._turn.results]
        done = {phase.vocabulary.name_of(result) for result in results if result.get("status") == "ok"}
        return duties_left(phase.duties, done | {op.form for op in before if op.form})


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
        handoff: The handoff that the visit left for later phases, if it left one.
    """

    seq: int
    phase: str
    visit: int
    turns: int
    sections: tuple[FrameSection, ...]
    input_tokens: int = 0
    cached_tokens: int = 0
    budget: kinds.PromptBudget | None = None
    handoff: PhaseHandoff | None = None

    @property
    def tokens(self) -> int:
        """The estimated tokens of the last frame."""
        return sum(section.tokens for section in self.sections)


def visit_contexts(events: Iterable[Event], content: ReadBlob) -> Iterator[VisitContext]:
    """Yield the tokens of each visit's prompt by section, for every visit with a frame."""
    for _, group in groupby(read_run(events), key=lambda read: read.after.history.total_steps):
        visit = list(group)
        turn, turns = visit[-1].turn, sum(isinstance(read.body, kinds.FrameBuilt) for read in visit)
        if turn is None or not turns:
            continue
        usage = kinds.Usage()
        for read in visit:
            if isinstance(read.body, kinds.LlmResponded) and read.body.usage is not None:
                usage += read.body.usage
        phase = turn.state.phase
        yield VisitContext(
            turn.seq,
            phase,
            turn.state.visits_of(phase),
            turns,
            RecordedPrompt(turn, content).sections,
            usage.input_tokens,
            usage.cached_tokens,
            turn.frame.budget,
            next(
                (_handoff(read.body, content) for read in visit if isinstance(read.body, kinds.HandoffRecorded)), None
            ),
        )


def read_handoffs(events: Iterable[Event], content: ReadBlob) -> Iterator[PhaseHandoff]:
    """Yield the handoffs of a run in the order of the visits, also those that a rollback discarded later."""
    for event in events:
        if event.kind == kinds.HandoffRecorded.kind:
            yield _handoff(decode(event), content)


def _handoff(body: Any, content: ReadBlob) -> PhaseHandoff:
    try:
        return msgspec.json.decode(content(body.handoff), type=PhaseHandoff)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise HistoryInvalid(f"the handoff of phase `{body.phase}` cannot be read: {error}") from error


@lru_cache(maxsize=8)
def _unpinned(copy: bytes) -> Skill:
    return unpin(copy)


def _whole(name: str, tokens: int) -> FrameSection:
    return FrameSection(name, tokens, tokens)


def _tool_lines(tools: list[Any]) -> str:
    return "".join(f"{msgspec.json.encode(tool).decode()}\n" for tool in tools)


_HEADING = "\n\n# "


def _split_headings(part: kinds.Part) -> list[kinds.Part]:
    """Return a part for each heading in the text of a part: notes and the form of the answer are one text."""
    before, *sections = part.text.split(_HEADING)
    if not sections:
        return [part]
    texts = ([before] if before else []) + [f"{_HEADING}{section}" for section in sections]
    return [kinds.Part(text=text) for text in texts]
