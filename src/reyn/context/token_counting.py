"""Count tokens with an exact counter: the side effect behind the kernel's effect `FitTokens`.

The tokenizer of a model, or the vocabulary of the extra `tokens`, is needed only here: a replay takes the recorded
numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from reyn.context.tokens import CachingCounter, FunctionCounter, TokenCounter
from reyn.errors import CounterUnavailable, ReynError
from reyn.journal import Blob, Body, kinds
from reyn.models import TokenizingModel

if TYPE_CHECKING:
    from reyn.config.values import CounterName
    from reyn.context.budget import FittedText
    from reyn.models.protocol import CountTokens
    from reyn.models.roster import Roster

    FitText = Callable[[TokenCounter], FittedText]


class TokenCounting:
    """The exact counters of one run. Counts are cached, so that static text is counted once."""

    def __init__(self, roster: Roster) -> None:
        self._roster = roster
        self._counts: dict[str, dict[str, int]] = {}

    async def perform(self, key: str, counter: CounterName, model: str, work: FitText) -> tuple[Body, tuple[Blob, ...]]:
        """Count and truncate a text; return the event that records the outcome.

        Args:
            key: Identifies the text within the run.
            counter: The counter.
            model: The model whose prompt it is.
            work: Counts and truncates the text, in any thread.
        """
        try:
            fitted = await self._fit(counter, model, work)
        except ReynError as error:
            scrub = self._roster.scrub
            return kinds.LlmFailed(key, error.code, scrub(error.message), scrub(error.own_hint)), ()
        texts = [None if text is None else Blob.of(text.encode()) for text in fitted.texts]
        text = None if fitted.text is None else Blob.of(fitted.text.encode())
        sections = tuple(
            kinds.FittedSection(cost.name, cost.original_tokens, cost.tokens, blob.hash if blob else None)
            for cost, blob in zip(fitted.sections, texts or [None] * len(fitted.sections), strict=True)
        )
        body = kinds.TokensCounted(
            key,
            counter,
            fitted.original_tokens,
            fitted.tokens,
            sections,
            text.hash if text else None,
        )
        return body, tuple(blob for blob in (*texts, text) if blob)

    async def _fit(self, counter: CounterName, model: str, work: FitText) -> FittedText:
        if counter != "model":
            return work(exact_counter())
        opened = self._roster.open(model)
        if not isinstance(opened, TokenizingModel):
            raise CounterUnavailable(f"model `{model}` has no tokenizer")
        cache = self._counts.setdefault(model, {})

        def with_cache(count: CountTokens) -> FittedText:
            return work(CachingCounter(FunctionCounter("model", count), counts=cache))

        return await opened.with_tokenizer(with_cache)


O200K = "o200k_base"
_SAMPLE, _SAMPLE_TOKENS = "Count 3 tokens: 漢字.", 9
"""A vocabulary that did not load completely counts something else."""


def check_installed() -> None:
    """Check that the exact counter is installed, without loading it.

    Raises:
        CounterUnavailable: It is not.
    """
    if find_spec("rs_bpe") is None:
        raise CounterUnavailable("`context.counter: exact` needs the extra `tokens`")


@cache
def exact_counter() -> CachingCounter:
    """Return the exact counter, loaded on first use. Special tokens in a text count as the text that they are.

    Raises:
        CounterUnavailable: It is not installed, or its vocabulary is broken.
    """
    try:
        bpe: Any = import_module("rs_bpe.bpe")
    except ImportError as error:
        raise CounterUnavailable("the exact token counter needs the extra `tokens`") from error
    count = bpe.openai.o200k_base().count
    if count(_SAMPLE) != _SAMPLE_TOKENS:
        raise CounterUnavailable("the vocabulary of the exact token counter is broken", hint="Install `rs-bpe` again.")
    return CachingCounter(FunctionCounter(O200K, count))
