"""The mark of tests that run the real local model. `make test` pulls it first."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from reyn.models.weights import DEFAULT_WEIGHTS, KNOWN_WEIGHTS, weights_path

WEIGHTS = weights_path(KNOWN_WEIGHTS[DEFAULT_WEIGHTS])


def unavailable_reason() -> str:
    """Return why the model cannot be used; empty if it can."""
    if importlib.util.find_spec("xllamacpp") is None:
        return "the extra `local` is not installed"
    return "" if WEIGHTS.is_file() else f"no weights at {WEIGHTS}: `reyn models pull {DEFAULT_WEIGHTS}`"


def real(test: Any) -> Any:
    for mark in (
        pytest.mark.real_model,
        pytest.mark.sockets,
        pytest.mark.timeout(600),
        pytest.mark.skipif(bool(unavailable_reason()), reason=unavailable_reason()),
    ):
        test = mark(test)
    return test
