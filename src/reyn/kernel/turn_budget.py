"""The token budget of the prompt of one turn: count a prompt, use its truncated form, or stop the run at the limit.

`prompt_budget` and `transcript_budget` decide what is truncated: of a prompt, and of a transcript.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from reyn.context import FittedText, SectionCost
from reyn.context.tokens import BYTES, CHARS, NEUTRAL
from reyn.errors import RunBlocked
from reyn.journal import kinds
from reyn.kernel import versions
from reyn.kernel.effects import FitTokens, Pause

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reyn.config.values import CounterName
    from reyn.context import TokenCounter
    from reyn.journal import Blob
    from reyn.kernel.compiled_skill import CompiledPhase, TurnSpec
    from reyn.kernel.prompt_budget import PromptLayout
    from reyn.kernel.tape import Tape

ESTIMATES: Mapping[str, TokenCounter] = {CHARS.name: CHARS, BYTES.name: BYTES}
"""Counters that need nothing but the text, so that a replay counts again."""


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
    """

    def __init__(self, tokens: int, counter: CounterName, phase: CompiledPhase, tape: Tape) -> None:
        self.tokens = tokens
        self.counter = counter
        self.model = phase.model or tape.state.models.name
        self._phase = phase
        self._tape = tape
        # A recorded turn of another wording is executed again as it was, whatever the new wording would take.
        is_other_wording = tape.upcoming is not None and tape.state.wording != versions.WORDING
        self._recorded = tape.upcoming.kind if tape.upcoming is not None and is_other_wording else None

    @classmethod
    def of(cls, phase: CompiledPhase, tape: Tape) -> TurnBudget | None:
        """Return the budget of the next turn; `None` if there is none."""
        limit = phase.prompt_limit(tape.state)
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
        """Return a prompt within the budget; `None` after the run was stopped at the limit and continued.

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
        is_over = fitted.tokens > self.tokens if self._recorded is None else self._recorded == kinds.LimitReached.kind
        if is_over:
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
        self._tape.emit(kinds.LimitReached("max_prompt_tokens", self.tokens, name, reason))
        await Pause()


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
