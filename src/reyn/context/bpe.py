"""Count tokens exactly and offline with byte pair encoding. Needs the extra `tokens`.

The vocabulary `o200k_base` of current OpenAI models comes with the package `rs-bpe`. For other models it is an estimate
that the usage reported by the provider calibrates.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from reyn.context.tokens import CachingCounter, FunctionCounter
from reyn.errors import CounterUnavailable

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
