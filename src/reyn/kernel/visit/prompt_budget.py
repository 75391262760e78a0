"""Keep the prompt of a turn within its token budget: count it, truncate the least important parts, record both.

Instructions, choices, headings and notes are never truncated; a run whose prompt would have nothing else left stops at
the limit `max_prompt_tokens`. This module decides the order; `reyn.context.budget` truncates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec.structs import replace

from reyn.context import NormalizedMessageList, assemble_sections
from reyn.context.budget import FittedText, Section, SectionCost
from reyn.context.render import HANDOFF_HEADING, message_text, read_marker
from reyn.context.tokens import BYTES, CHARS, NEUTRAL, SUFFIX, CalibratedCounter, TokenCounter
from reyn.context.transcript import NO_MESSAGES
from reyn.errors import RunBlocked
from reyn.journal import Blob, kinds
from reyn.jsonschema.words import escape_line_ends
from reyn.kernel import versions
from reyn.kernel.core.effects import FitTokens, Pause

if TYPE_CHECKING:
    from reyn.config.values import CounterName
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.compiled_phase import CompiledPhase
    from reyn.kernel.visit.model_call import TurnSpec
    from reyn.kernel.visit.op_log import OpLog

ESTIMATES: Mapping[str, TokenCounter] = {CHARS.name: CHARS, BYTES.name: BYTES}
"""Counters that need nothing but the text, so that a replay counts again."""
MESSAGE_TOKENS = 8
"""The tokens that a chat template adds to a message, at most."""
_MAX_CHARACTER = 4
"""The most bytes of a character."""
_EXPANSION = 3
"""The most bytes that a byte of stored content takes in a prompt."""
MINIMUM = 16
"""All but the oldest results and handoffs keep a sixteenth of the budget as long as others can be truncated."""
_LEFT_OUT = "(older results are truncated or left out)\n"
CORRECTION = "correction"
_PRIORITIES = {HANDOFF_HEADING[2:].lower(): 1, "rejected": 2, CORRECTION: 2, "input": 4}
"""What is truncated first has the lowest priority: older results, handoffs, reads and rejected contents, the newest
result, the input."""
OLD_RESULT, OTHER, NEW_RESULT = 0, 2, 3


class Prompt(NamedTuple):
    """A prompt within its budget: the answer specification, the messages, and new content that they refer to.

    Without messages, a transcript is sent as it is.
    """

    spec: TurnSpec
    messages: tuple[kinds.FrameMessage, ...]
    budget: kinds.PromptBudget | None = None
    blobs: tuple[Blob, ...] = ()


class TurnBudget:
    """The token budget of the prompt of one turn.

    Attributes:
        tokens: The most tokens that the prompt may have.
        counter: The name of the token counter.
        model: The model that is called.
        is_soft: Whether a prompt that cannot be truncated to it may have more tokens, instead of stopping the run.
    """

    def __init__(
        self, tokens: int, counter: CounterName, phase: CompiledPhase, tape: Tape, *, is_soft: bool = False
    ) -> None:
        self.tokens = tokens
        self.is_soft = is_soft
        self.counter = counter
        self.model = phase.model or tape.state.models.name
        self._phase = phase
        self._tape = tape
        # A recorded turn of another wording is executed again as it was, whatever the new wording would take.
        is_other_wording = tape.upcoming is not None and tape.state.wording != versions.WORDING
        self._recorded = tape.upcoming.kind if tape.upcoming is not None and is_other_wording else None

    @classmethod
    def of(cls, phase: CompiledPhase, tape: Tape, soft: int | None = None) -> TurnBudget | None:
        """Return the budget of the next turn, the soft one if it is lower; `None` if there is none."""
        limit = phase.prompt_limit(tape.state)
        if soft is not None and (limit.tokens is None or soft < limit.tokens):
            return cls(soft, limit.counter, phase, tape, is_soft=True)
        return None if limit.tokens is None else cls(limit.tokens, limit.counter, phase, tape)

    @property
    def factor(self) -> int:
        """The factor, per mille, by which counts are multiplied."""
        return self._phase.counter_factor(self._tape.state)

    @property
    def most_bytes(self) -> int:
        """The size up to which a prompt fits however it is counted: no token is shorter than a byte."""
        calibrated = self._tape.state.models.calibration.get(self.model) or NEUTRAL
        return self.tokens * NEUTRAL // max(NEUTRAL, calibrated)

    @property
    def was_not_counted(self) -> bool:
        """Whether the recorded turn called the model without counting the prompt with an exact counter."""
        return self.counter not in ESTIMATES and self._recorded not in (None, kinds.TokensCounted.kind)

    async def fit(
        self,
        fitting: Callable[[TokenCounter], FittedText],
        whole: Prompt,
        tight: PromptLayout,
        tight_spec: TurnSpec,
        call: str,
    ) -> Prompt | None:
        """Return a prompt within the budget; `None` if a soft one is too low, or after a stop at the limit.

        Args:
            fitting: Counts the prompt, and truncates it.
            whole: The prompt as it is sent if it fits.
            tight: The prompt in the form that can be truncated.
            tight_spec: The answer specification of `tight`.
            call: The id of the count, if an exact counter takes it.
        """
        if estimate := ESTIMATES.get(self.counter):
            fitted = fitting(estimate)
        else:
            fitted = recall_fitted(await FitTokens(call, self.counter, self.model, fitting), tight.content)
            if fitted.texts and len(fitted.texts) != len(tight.pieces):
                raise RunBlocked(f"the recorded sections of the prompt `{call}` are not those of its phase")
        is_over = fitted.tokens > self.tokens
        if self._recorded is not None and not self.is_soft:
            is_over = self._recorded == kinds.LimitReached.kind
        if is_over:
            if not self.is_soft:
                await self._stop(fitted.tokens)
            return None
        budget = kinds.PromptBudget(self.tokens, fitted.tokens, self.counter, self.factor)
        if not fitted.texts:
            return whole._replace(budget=budget)
        return tight.rebuild(tight_spec, fitted, budget, self._tape.state.truncated)

    async def _stop(self, needed: int) -> None:
        """Stop the run: what is never truncated exceeds the budget."""
        name = self._phase.name
        reason = (
            f"phase `{name}`: the parts of the prompt that are never truncated take {needed} tokens; "
            f"`max_prompt_tokens` is {self.tokens}"
        )
        await Pause(stop=kinds.LimitReached("max_prompt_tokens", self.tokens, name, reason))


def recall_fitted(counted: kinds.TokensCounted, content: Callable[[str], bytes]) -> FittedText:
    """Return the recorded result of fitting a text with an exact counter."""
    try:
        return FittedText(
            counted.original_tokens,
            counted.tokens,
            tuple(SectionCost(section.name, section.original_tokens, section.tokens) for section in counted.sections),
            tuple(None if section.text is None else content(section.text).decode() for section in counted.sections),
            None if counted.text is None else content(counted.text).decode(),
        )
    except UnicodeDecodeError as error:  # an imported run can hold anything
        raise RunBlocked(f"a recorded text of the prompt cannot be read: {error}") from error


class TurnDraft(NamedTuple):
    """What the model would be asked in a turn, without regard to a token budget.

    Attributes:
        spec: What it may answer.
        messages: The messages as they are recorded, if the turn has a fresh frame.
        sent: The messages of a transcript that grows, with the system message.
    """

    spec: TurnSpec
    messages: tuple[kinds.FrameMessage, ...] = ()
    sent: NormalizedMessageList = NO_MESSAGES


class Draft(Protocol):
    """Builds the prompt of a turn without regard to its budget."""

    def __call__(self, *, is_truncated: bool) -> TurnDraft:
        """Return the contract and the messages; with `is_truncated`, offer ops to read truncated content."""
        ...


class Contents(NamedTuple):
    """The contents that a prompt refers to.

    Attributes:
        get: Returns content by its hash.
        names: The name of each content under which ops can read the whole, by the hash that the prompt has of it.
    """

    get: Callable[[str], bytes]
    names: Mapping[str, str]

    def including(self, blob: Blob) -> Contents:
        """Return the contents with one more, which is not stored yet."""
        return Contents(lambda name: blob.content if name == blob.hash else self.get(name), self.names)


async def fit_prompt(
    draft: Draft, contents: Contents, phase: CompiledPhase, log: OpLog, call: str, tape: Tape
) -> Prompt:
    """Build the prompt of a turn within the budget of its phase. Stops the run if that is impossible."""
    attempts = 0
    while True:
        budget = TurnBudget.of(phase, tape)
        spec, messages, _ = draft(is_truncated=False)
        contents = contents.including(spec.stable)
        if budget is None or _surely_fits(messages, log, contents, budget.most_bytes) or budget.was_not_counted:
            return Prompt(spec, messages)
        attempts += 1
        whole = PromptLayout(messages, log, contents)
        tight_spec, tight_messages, _ = draft(is_truncated=True)
        tight = PromptLayout(tight_messages, log, contents.including(tight_spec.stable), is_truncated=True)
        fitting = _PromptFitting(whole, tight, budget.tokens, budget.factor)
        prompt = await budget.fit(fitting, Prompt(spec, messages), tight, tight_spec, f"{call}.tokens{attempts}")
        if prompt is not None:
            return prompt


def _surely_fits(messages: tuple[kinds.FrameMessage, ...], log: OpLog, contents: Contents, most_bytes: int) -> bool:
    """Return whether a prompt fits however it is counted."""
    size = MESSAGE_TOKENS * len(messages)
    for message in messages:
        for part in message.parts:
            size += _MAX_CHARACTER * len(part.text)
            if part.blob is not None:
                size += (_EXPANSION if part.plain else 1) * len(contents.get(part.blob))
            for name in log.results[: part.results]:
                size += _EXPANSION * len(contents.get(name))
            if size > most_bytes:
                return False
    return True


class Piece(NamedTuple):
    """A section of a prompt: the part that it belongs to, and the hash of its content if it can be truncated.

    `name` is the name under which ops can read the whole content; empty if they cannot.
    """

    message: int
    part: int
    section: Section
    content: str | None = None
    name: str = ""


class PromptLayout:
    """The sections of a prompt, in order."""

    def __init__(
        self,
        messages: tuple[kinds.FrameMessage, ...],
        log: OpLog,
        contents: Contents,
        *,
        is_truncated: bool = False,
    ) -> None:
        self.messages = messages
        self._contents = contents
        self._log = log
        self._is_truncated = is_truncated
        self.pieces = [piece for number, message in enumerate(messages) for piece in self._pieces(number, message)]

    def content(self, name: str) -> bytes:
        """Return content by its hash."""
        return self._contents.get(name)

    @property
    def overhead(self) -> int:
        """The tokens that the chat template adds."""
        return MESSAGE_TOKENS * len(self.messages)

    def _pieces(self, number: int, message: kinds.FrameMessage) -> Iterator[Piece]:
        name = "system" if message.role == "system" else "input" if number == 1 else CORRECTION
        yield from self._parts(number, message, name)

    def _parts(self, number: int, message: kinds.FrameMessage, name: str) -> Iterator[Piece]:
        for index, part in enumerate(message.parts):
            if part.text.startswith("\n\n# "):
                name = part.text[4:].partition("\n")[0].lower()
            if part.results:
                yield from self._results(number, index, part.results)
            elif part.blob is None or message.role == "system":
                text = message_text(kinds.FrameMessage("user", (part,)), self._contents.get)
                yield Piece(number, index, Section(name, text, never_truncate=True))
            else:
                yield from self._content(number, index, part, part.blob, name)

    def _results(self, number: int, index: int, count: int) -> Iterator[Piece]:
        if self._is_truncated:
            yield Piece(number, index, Section("results", _LEFT_OUT, never_truncate=True))
        for position, (name, call) in enumerate(zip(self._log.results[:count], self._log.calls, strict=False), start=1):
            text = escape_line_ends(self._contents.get(name).decode()) + ("\n" if position < count else "")
            priority = NEW_RESULT if position == count else OLD_RESULT
            yield Piece(number, index, content_section("results", text, priority, call, self._log), name, call)

    def _content(self, number: int, index: int, part: kinds.Part, blob: str, name: str) -> Iterator[Piece]:
        text = message_text(kinds.FrameMessage("user", (part,)), self._contents.get)
        priority, full_name = _PRIORITIES.get(name, OTHER), self._contents.names.get(blob, "")
        if name != "handoff":
            section = content_section(name, text, priority, full_name, self._log)
            yield Piece(number, index, section, blob, full_name)
            return
        header, *phases = text.split("\n\n")  # one block for each phase, the oldest first
        yield Piece(number, index, Section(name, header, OTHER, 1), blob, full_name)
        for rank, block in enumerate(phases, start=1):
            section = Section(name, f"\n\n{block}", priority, int(rank == len(phases)))
            yield Piece(number, index, section, blob, full_name)

    def sections(self, tokens: int) -> list[Section]:
        """Return the sections, with the least that each of them keeps as long as others can be truncated."""
        keeps = tokens // MINIMUM
        return [
            replace(piece.section, minimum=keeps) if piece.section.minimum else piece.section for piece in self.pieces
        ]

    def rebuild(
        self, spec: TurnSpec, fitted: FittedText, budget: kinds.PromptBudget, truncated: Mapping[str, tuple[str, str]]
    ) -> Prompt:
        """Return the prompt with what remains of its sections."""
        remaining: dict[tuple[int, int], str] = {}
        changed: dict[tuple[int, int], None] = {}
        whole: dict[str, tuple[str, tuple[int, int]]] = {}
        for piece, text in zip(self.pieces, fitted.texts, strict=True):
            place = (piece.message, piece.part)
            remaining[place] = remaining.get(place, "") + (piece.section.text if text is None else text)
            if piece.content is not None and text is not None:
                changed[place] = None
                if piece.name:
                    content, _ = truncated.get(piece.name, (piece.content, ""))
                    whole[piece.name] = (content, place)
        blobs = {place: Blob.of(remaining[place].encode()) for place in changed}
        messages = tuple(
            replace(
                message,
                parts=tuple(
                    kinds.Part(blob=blobs[number, index].hash) if (number, index) in blobs else part
                    for index, part in enumerate(message.parts)
                ),
            )
            for number, message in enumerate(self.messages)
        )
        costs = add_up(fitted.sections)
        sections = tuple(kinds.SectionTokens(cost.name, cost.original_tokens, cost.tokens) for cost in costs)
        contents = tuple(
            kinds.TruncatedContent(name, content, blobs[place].hash) for name, (content, place) in whole.items()
        )
        budget = kinds.PromptBudget(budget.limit, budget.tokens, budget.counter, budget.factor, sections, contents)
        return Prompt(spec, messages, budget, tuple(blobs.values()))


def content_section(name: str, text: str, priority: int, full_name: str, log: OpLog) -> Section:
    marker = read_marker(full_name, log.truncation_reader) if full_name else SUFFIX
    return Section(name, text, priority, int(priority != OLD_RESULT), unit="text", marker=marker)


class _PromptFitting:
    """Counts a prompt and truncates it if it exceeds its budget. Holds texts only, so any thread may call it."""

    def __init__(self, whole: PromptLayout, tight: PromptLayout, tokens: int, factor: int) -> None:
        self._whole = whole
        self._tight = tight
        self._tokens = tokens
        self._factor = factor

    def __call__(self, counter: TokenCounter) -> FittedText:
        if self._factor != NEUTRAL:
            counter = CalibratedCounter(counter, self._factor)
        whole = self._whole
        original = self._static(whole, counter) + counter.count(self._changing(whole))
        if original <= self._tokens:
            return FittedText(original, original)
        tight = self._tight
        fixed = self._static(tight, counter)
        sections = tight.sections(self._tokens)
        system = [section for section in sections if section.name == "system"]
        changing = sections[len(system) :]
        room = self._tokens - fixed
        if room > 0:
            built = assemble_sections(changing, room, counter, separator="")
            is_input_left = any(
                text
                for section, text in zip(changing, built.texts, strict=True)
                if section.name == "input" and not section.never_truncate
            )
            is_fixed = all(
                text == section.text
                for section, text in zip(changing, built.texts, strict=True)
                if section.never_truncate
            )
            if is_input_left and is_fixed:
                left = (
                    None if text == section.text else text for section, text in zip(changing, built.texts, strict=True)
                )
                static = (SectionCost("system", tokens := counter.count(one.text), tokens) for one in system)
                costs = (*static, *built.sections)
                return FittedText(original, fixed + built.tokens, costs, (*(None for _ in system), *left))
        never = "".join(section.text for section in changing if section.never_truncate)
        return FittedText(original, max(self._tokens + 1, fixed + counter.count(never)))

    def _static(self, layout: PromptLayout, counter: TokenCounter) -> int:
        """Return the tokens of the static message, which a counter may have cached, and of the chat template."""
        system = "".join(piece.section.text for piece in layout.pieces if piece.section.name == "system")
        return layout.overhead + counter.count(system)

    def _changing(self, layout: PromptLayout) -> str:
        return "".join(piece.section.text for piece in layout.pieces if piece.section.name != "system")


def add_up(costs: Sequence[SectionCost]) -> tuple[SectionCost, ...]:
    """Add up the costs of sections with the same name."""
    totals: dict[str, tuple[int, int]] = {}
    for cost in costs:
        original, tokens = totals.get(cost.name, (0, 0))
        totals[cost.name] = (original + cost.original_tokens, tokens + cost.tokens)
    return tuple(SectionCost(name, *tokens) for name, tokens in totals.items())
