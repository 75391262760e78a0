"""Keep a transcript that grows within the token budget of its phase: a visit with native tools, or a conversation.

While it fits, a turn costs the same however long the transcript is: its size is part of the run's state. Above the
budget, the oldest tool results are truncated first, then whole turns are left out, each with its calls and results, so
that every call that is sent has its result. Of the current turn, only calls that may be repeated are left out:
the model sees what it has done. The run's own transcript stays whole; the frame records what was sent.

The current turn of a conversation, which no summary replaces, may exceed the conversation's `max_tokens`. Then results
of ops that may be repeated are truncated, except the newest ones. While no summary can be asked for, older turns are
left out for it, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from reyn.context import NormalizedMessageList, assemble_sections
from reyn.context.budget import FittedText, Section, SectionCost
from reyn.context.messages import RESULTS_PARTS, NormalizedMessage
from reyn.context.records import stored_message
from reyn.context.render import message_text, sent_text
from reyn.context.tokens import BYTES, NEUTRAL, CalibratedCounter, TokenCounter
from reyn.journal import Blob, kinds
from reyn.kernel.visit.prompt_budget import (
    CORRECTION,
    ESTIMATES,
    MESSAGE_TOKENS,
    NEW_RESULT,
    OLD_RESULT,
    Contents,
    Draft,
    Piece,
    Prompt,
    PromptLayout,
    TurnBudget,
    content_section,
)

if TYPE_CHECKING:
    from reyn.kernel.core.conversations import Transcript
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.visit.compiled_phase import CompiledPhase
    from reyn.kernel.visit.model_call import TurnSpec
    from reyn.kernel.visit.op_log import OpLog

_LEFT_OUT = "(older turns are left out)\n\n"
_MARKER_TOKENS = 40
"""What a truncated result takes at least: a few words, and how to read the whole."""


class TranscriptLimit(NamedTuple):
    """The size that the transcript of a conversation should not exceed in a prompt.

    `leaves_out` is whether turns before the current one may be left out for it.
    """

    tokens: int
    leaves_out: bool = False


async def fit_transcript(
    draft: Draft,
    transcript: Transcript,
    contents: Contents,
    phase: CompiledPhase,
    log: OpLog,
    call: str,
    tape: Tape,
    most: TranscriptLimit | None = None,
) -> Prompt | None:
    """Return the prompt of a turn within its budget; `None` if it needs none. Stops the run if that is impossible.

    `most` is the size that the transcript should not exceed, if it can be truncated to it.
    """
    attempts, soft = 0, None
    if most is not None and transcript.tokens > most.tokens:
        spec, _, sent = draft(is_truncated=False)
        whole = contents.including(spec.stable)
        size = _Size.of(transcript, sent, whole)
        soft = most.tokens + size.tokens - transcript.tokens + MESSAGE_TOKENS * size.messages
        if not most.leaves_out:
            soft = max(soft, TranscriptLayout.of(transcript, sent, log, whole, most).least)
    while True:
        budget = TurnBudget.of(phase, tape, soft)
        if budget is None:
            return None
        spec, _, sent = draft(is_truncated=False)
        size = _Size.of(transcript, sent, contents.including(spec.stable))
        if size.bytes <= budget.most_bytes:
            return None
        estimate = size.estimate(budget)
        if estimate is not None and estimate <= budget.tokens:
            return Prompt(spec, (), kinds.PromptBudget(budget.tokens, estimate, budget.counter, budget.factor))
        if budget.was_not_counted:
            return None
        attempts += 1
        tight_spec, _, tight_sent = draft(is_truncated=True)
        tight = TranscriptLayout.of(
            transcript, tight_sent, log, contents.including(tight_spec.stable), most if budget.is_soft else None
        )
        fitting = _TranscriptFitting(tight, budget.tokens, budget.factor)
        prompt = await budget.fit(fitting, Prompt(spec, ()), tight, tight_spec, f"{call}.tokens{attempts}")
        if prompt is not None:
            return prompt
        soft = soft + -(-soft // 4) if soft is not None else None


class _Size(NamedTuple):
    """The size of a whole prompt: tokens at four characters each, bytes, and messages."""

    tokens: int
    bytes: int
    messages: int

    @classmethod
    def of(cls, transcript: Transcript, sent: NormalizedMessageList, contents: Contents) -> _Size:
        """Add what is not part of the transcript to its recorded size: the system message, and a correction."""
        others = [sent.system, *sent.tail(sent.length - transcript.length)]
        texts = [sent_text(message, contents.get) for message in others if message is not None]
        tokens = sum(ESTIMATES["chars"].count(text) for text in texts)
        size = sum(len(text.encode()) for text in texts)
        return cls(transcript.tokens + tokens, transcript.size + size, sent.length + 1)

    def estimate(self, budget: TurnBudget) -> int | None:
        """Return the tokens as a counter that needs nothing but the text estimates them; `None` for an exact one."""
        if budget.counter not in ESTIMATES:
            return None
        # Each message is rounded up, as if it were counted alone.
        tokens = -(-self.bytes // 4) + self.messages if budget.counter == BYTES.name else self.tokens
        return -(-tokens * budget.factor // NEUTRAL) + MESSAGE_TOKENS * self.messages


class TranscriptLayout(PromptLayout):
    """The sections of a prompt with a transcript, and the turns that can be left out as a whole."""

    def __init__(
        self,
        messages: tuple[kinds.FrameMessage, ...],
        begins: int,
        added: int,
        log: OpLog,
        contents: Contents,
        blobs: Sequence[Blob] = (),
        soft: TranscriptLimit | None = None,
    ) -> None:
        """Lay out messages.

        Args:
            messages: The messages, the system message first.
            begins: The number of the message that began the visit.
            added: How many messages at the end are a correction, which is not part of the transcript.
            log: The ops of the visit.
            contents: The contents of the messages.
            blobs: Those that are not stored yet.
            soft: The soft limit, if there is one. Of the current turn, only older results of ops that may be repeated
                are truncated for it.
        """
        self._input = begins
        self._is_soft = is_soft = soft is not None
        self._harmless = log.harmless_results()
        self._first_added = len(messages) - added
        self._names: Mapping[str, str] = dict(zip(log.results, log.calls, strict=True))
        self._blobs = tuple(blobs)
        starts = [
            number for number in range(1, self._first_added) if messages[number].role != "tool" and number != begins
        ]
        self._newest = starts.pop() if starts and starts[-1] > begins else self._first_added
        """The number of the first message of the newest turn."""
        ends = [*starts[1:], self._newest]
        turns = [
            tuple(number for number in range(start, end) if number != begins)
            for start, end in zip(starts, ends, strict=bool(starts))
        ]
        leaves_out = soft is None or soft.leaves_out
        self.turns = [
            turn
            for turn in turns
            if (leaves_out if turn[0] < begins else not (is_soft or self._is_done(messages, turn)))
        ]
        """The numbers of the messages of each turn that can be left out, the oldest turn first."""
        super().__init__(messages, log, contents, is_truncated=True)

    @classmethod
    def of(
        cls,
        transcript: Transcript,
        sent: NormalizedMessageList,
        log: OpLog,
        contents: Contents,
        soft: TranscriptLimit | None = None,
    ) -> TranscriptLayout:
        """Lay out what a turn would send. Messages of a caller's history are stored to be referred to."""
        blobs: list[Blob] = []
        messages = tuple(stored_message(message, blobs) for message in sent)
        for blob in blobs:
            contents = contents.including(blob)
        added = sent.length - transcript.length
        begins = 1 if transcript.visit else _last_said(sent[: len(messages) - added])
        return cls(messages, begins, added, log, contents, blobs, soft)

    @property
    def least(self) -> int:
        """The estimated tokens of the prompt with all truncated that can be."""
        counts = [(ESTIMATES["chars"].count(piece.section.text), piece.section.never_truncate) for piece in self.pieces]
        return self.overhead + sum(count if is_whole else min(count, _MARKER_TOKENS) + 1 for count, is_whole in counts)

    def _is_done(self, messages: tuple[kinds.FrameMessage, ...], turn: tuple[int, ...]) -> bool:
        """Return whether a turn has calls that must not be repeated, or their results."""
        results = messages[turn[-1] + 1 : turn[-1] + 2]  # without native calls, the results are a message of their own
        return any(
            _has_results(message) and not self._is_harmless(message)
            for message in (*map(messages.__getitem__, turn), *results)
        )

    def _is_harmless(self, message: kinds.FrameMessage) -> bool:
        blobs = [part.blob for part in message.parts if part.blob is not None and part.image is None]
        return bool(blobs) and self._harmless.issuperset(blobs)

    def _is_fixed(self, number: int, message: kinds.FrameMessage) -> bool:
        """Return whether a soft budget leaves a message as it is."""
        if not self._is_soft or number < self._input:
            return False
        return number == self._input or number >= self._newest or not self._is_harmless(message)

    def _pieces(self, number: int, message: kinds.FrameMessage) -> Iterator[Piece]:
        if self._is_fixed(number, message) and number < self._first_added:
            yield Piece(number, 0, Section("transcript", sent_text(message, self._contents.get), never_truncate=True))
        elif number in (0, self._input):
            yield from self._parts(number, message, "input" if number else "system")
        elif message.role == "assistant" and number < self._first_added:
            text = sent_text(message, self._contents.get)
            yield Piece(number, 0, Section("transcript", text, never_truncate=True))
        elif number >= self._first_added and message.role == "assistant" and message.calls:
            yield Piece(number, 0, Section(CORRECTION, sent_text(message, self._contents.get), never_truncate=True))
        elif number >= self._first_added:
            yield from self._parts(number, message, CORRECTION)
        else:
            yield from self._results_of(number, message)

    def _results_of(self, number: int, message: kinds.FrameMessage) -> Iterator[Piece]:
        """Yield the parts of tool results, or of an older message of the user, which can all be truncated."""
        name = "results" if _has_results(message) else "transcript"
        for index, part in enumerate(message.parts):
            text = message_text(kinds.FrameMessage("user", (part,)), self._contents.get)
            if part.blob is None:
                yield Piece(number, index, Section(name, text, never_truncate=True))
                continue
            full_name = self._names.get(part.blob, "")
            is_done = number > self._input and part.blob not in self._harmless
            priority = NEW_RESULT if number >= self._newest or is_done else OLD_RESULT
            section = content_section(name, text, priority, full_name, self._log)
            yield Piece(number, index, section, part.blob, full_name)

    def rebuild(
        self, spec: TurnSpec, fitted: FittedText, budget: kinds.PromptBudget, truncated: Mapping[str, tuple[str, str]]
    ) -> Prompt:
        """Return the prompt with what remains of it; a turn of which nothing remains is left out."""
        prompt = super().rebuild(spec, fitted, budget, truncated)
        left = {piece.message for piece, text in zip(self.pieces, fitted.texts, strict=True) if text != ""}
        gone = {number for turn in self.turns for number in turn if not left & {*turn}}
        messages = [message for number, message in enumerate(prompt.messages) if number not in gone]
        if gone:
            begins = self._input - sum(number < self._input for number in gone)
            first = messages[begins]
            messages[begins] = kinds.FrameMessage("user", (kinds.Part(text=_LEFT_OUT), *first.parts))
        return prompt._replace(messages=tuple(messages), blobs=(*self._blobs, *prompt.blobs))


def _has_results(message: kinds.FrameMessage) -> bool:
    return message.role == "tool" or message.parts[:1] == RESULTS_PARTS


def _last_said(messages: Sequence[NormalizedMessage]) -> int:
    """Return the number of the last message of the user, which began the turn of a conversation."""
    return next((number for number in range(len(messages) - 1, 0, -1) if messages[number].is_said), 1)


class _TranscriptFitting:
    """Counts a prompt and truncates it if it exceeds its budget. Holds texts only, so any thread may call it."""

    def __init__(self, layout: TranscriptLayout, tokens: int, factor: int) -> None:
        self._layout = layout
        self._tokens = tokens
        self._factor = factor

    def __call__(self, counter: TokenCounter) -> FittedText:
        if self._factor != NEUTRAL:
            counter = CalibratedCounter(counter, self._factor)
        pieces = self._layout.pieces
        counts = [counter.count(piece.section.text) for piece in pieces]
        original = sum(counts) + self._layout.overhead
        if original <= self._tokens:
            return FittedText(original, original)
        needed = original
        for left_out in range(len(self._layout.turns) + 1):
            gone = {number for turn in self._layout.turns[:left_out] for number in turn}
            here = [index for index, piece in enumerate(pieces) if piece.message not in gone]
            fixed = MESSAGE_TOKENS * (len(self._layout.messages) - len(gone))
            fixed += sum(counts[index] for index in here if pieces[index].section.never_truncate)
            fixed += counter.count(_LEFT_OUT) if gone else 0
            open_pieces = [index for index in here if not pieces[index].section.never_truncate]
            least = sum(min(counts[index], _MARKER_TOKENS) + 1 for index in open_pieces)
            needed, room = fixed + least, self._tokens - fixed
            if room < least or room <= 0:
                continue
            fitted = self._truncated(open_pieces, room, counter)
            if fitted is not None:
                texts = dict(zip(open_pieces, fitted, strict=True))
                return self._result(original, fixed, counts, texts, {*here}, counter)
        return FittedText(original, max(self._tokens + 1, needed))

    def _truncated(self, open_pieces: list[int], room: int, counter: TokenCounter) -> tuple[str, ...] | None:
        """Return what remains of the pieces that can be truncated; `None` if nothing would remain of one."""
        sections = [
            section if section.minimum else replace(section, minimum=_MARKER_TOKENS)
            for section in self._layout.sections(self._tokens)
        ]
        # Texts that are counted one by one can have a token more each than the joined text.
        joined = max(1, room - len(open_pieces))
        built = assemble_sections([sections[index] for index in open_pieces], joined, counter, separator="")
        if any(not text and sections[index].text for index, text in zip(open_pieces, built.texts, strict=True)):
            return None
        return built.texts if sum(map(counter.count, built.texts)) <= room else None

    def _result(
        self,
        original: int,
        fixed: int,
        counts: list[int],
        texts: Mapping[int, str],
        here: set[int],
        counter: TokenCounter,
    ) -> FittedText:
        left: list[str | None] = []
        costs: list[SectionCost] = []
        total = fixed
        for index, piece in enumerate(self._layout.pieces):
            text = "" if index not in here else texts.get(index, piece.section.text)
            is_whole = text == piece.section.text and index in here
            tokens = counts[index] if is_whole else min(counter.count(text), max(0, counts[index] - 1))
            costs.append(SectionCost(piece.section.name, counts[index], tokens))
            left.append(None if is_whole else text)
            total += counter.count(text) if index in texts else 0
        return FittedText(original, total, tuple(costs), tuple(left))
