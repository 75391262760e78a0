"""Whether the small model can be asked here, and the mark of the tests that ask it. `make test` fetches it first."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from reyn.models.weights import DEFAULT, KNOWN, weights_path

WEIGHTS = weights_path(KNOWN[DEFAULT])


def why_not() -> str:
    """Why it cannot be asked; empty if it can."""
    if importlib.util.find_spec("xllamacpp") is None:
        return "the extra `local` is not installed"
    return "" if WEIGHTS.is_file() else f"no weights at {WEIGHTS}: `reyn models pull {DEFAULT}`"


def real(test: Any) -> Any:
    for mark in (
        pytest.mark.real_model,
        pytest.mark.sockets,
        pytest.mark.timeout(600),
        pytest.mark.skipif(bool(why_not()), reason=why_not()),
    ):
        test = mark(test)
    return test
