"""The slow programs work: a short pass of each, their figures printed but not judged here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def call(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_benchmarks_run_and_tell_every_figure():
    figures = {row["name"]: row["figure"] for row in json.loads(call("bench", "--short", "--json"))}
    assert len(figures) == 16
    assert all(figure is None or figure > 0 for figure in figures.values())
    assert figures["database bytes a visit beside content"] < 8192


@pytest.mark.timeout(120)
def test_a_short_chaos_loses_nothing():
    figures = json.loads(call("tests.chaos", "--kills", "60", "--seed", "5", "--json"))
    assert figures["kills"] >= 60
    assert (figures["lost"], figures["doubled"], figures["stuck"], figures["wrong"]) == (0, 0, 0, [])
