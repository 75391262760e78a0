"""Count tokens with an exact counter: the side effect behind `FitTokens`.

The tokenizer of a model, or the vocabulary of the extra `tokens`, is needed only here: a replay takes the recorded
numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.context.tokens import CachingCounter, FunctionCounter
from reyn.errors import CounterUnavailable, ReynError
from reyn.journal import Blob, kinds
from reyn.models import TokenizingModel

if TYPE_CHECKING:
    from reyn.context import FittedText
    from reyn.journal import Body
    from reyn.kernel.effects import FitTokens
    from reyn.models.protocol import CountTokens
    from reyn.models.roster import Roster


class TokenCounting:
    """The exact counters of one run. Counts are cached, so that static text is counted once."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._counts: dict[str, dict[str, int]] = {}

    async def perform(self, effect: FitTokens) -> tuple[Body, tuple[Blob, ...]]:
        """Count and truncate a text; return the event that records the outcome."""
        try:
            fitted = await self._fit(effect)
        except ReynError as error:
            scrub = self._roster.scrub
            return kinds.LlmFailed(effect.key, error.code, scrub(error.message), scrub(error.own_hint)), ()
        texts = [None if text is None else Blob.of(text.encode()) for text in fitted.texts]
        text = None if fitted.text is None else Blob.of(fitted.text.encode())
        sections = tuple(
            kinds.FittedSection(cost.name, cost.original_tokens, cost.tokens, blob.hash if blob else None)
            for cost, blob in zip(fitted.sections, texts or [None] * len(fitted.sections), strict=True)
        )
        body = kinds.TokensCounted(
            effect.key,
            effect.counter,
            fitted.original_tokens,
            fitted.tokens,
            sections,
            text.hash if text else None,
        )
        return body, tuple(blob for blob in (*texts, text) if blob)

    async def _fit(self, effect: FitTokens) -> FittedText:
        if effect.counter != "model":
            from reyn.context.bpe import exact_counter

            return effect.work(exact_counter())
        model = self._roster.open(effect.model)
        if not isinstance(model, TokenizingModel):
            raise CounterUnavailable(f"model `{effect.model}` has no tokenizer")
        cache = self._counts.setdefault(effect.model, {})

        def work(count: CountTokens) -> FittedText:
            return effect.work(CachingCounter(FunctionCounter("model", count), counts=cache))

        return await model.with_tokenizer(work)
