"""A minute of fuzzing with fixed seeds: no class of finding that is not known, and none that is known and fixed."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.fuzz.harness import run_case
from tests.fuzz.targets import TARGETS, preload

SEEDS = {
    "answers": range(1, 19),
    "archives": range(1, 31),
    "skills": range(1, 19),
    "servers": range(1, 16),
    "faults": range(1, 21),
}
"""The cases that are always run; `make fuzz` runs others every time."""

KNOWN: dict[str, int] = {}
