"""The benchmark and chaos programs work: a short run of each, without judging the figures."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.models.small_model import real
from tests.properties import ALL_CASES

ROOT = Path(__file__).parent.parent
pytestmark = pytest.mark.timeout(660)


def call(*words: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | variables,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


MEASURED = [
    "visit",
    "resume",
    "replay",
    "memory",
    "concurrent runs",
    "lint",
    "`reyn runs`",
    "write",
    "handoffs",
    "Monty",
    "@llm_function",
    "model call",
    "chat turn",
    "settling",
    "cap",
    "MCP",
    "sub-runs",
]
"""What the benchmarks have figures of, in words of their names."""


@pytest.mark.parametrize("name", ["visits", "budgets", "graph"])
def test_a_benchmark_runs(name: str):
    assert all(figure > 0 for figure in json.loads(call("bench.measures", name, "20")).values())


@pytest.mark.sampled(0)
def test_the_benchmarks_run_and_print_every_figure():
    rows = json.loads(call("bench", "--short", "--json"))
    figures = {row["name"]: row["value"] for row in rows}
    assert len(figures) == len(rows), "two figures have one name"
    assert [words for words in MEASURED if not any(words in name for name in figures)] == []
    missing = {row["name"] for row in rows if row["value"] is None and not row["is_optional"]}
    assert all(name.startswith("fsyncs") for name in missing), "only fsyncs need a program that may not be there"
    assert figures.pop("commits per read") < 1  # ops that only read share commits
    assert all(figure is None or figure > 0 for figure in figures.values())
    assert (
        figures["database bytes per visit, without content"] < 10_000
    )  # empty tables and indexes count in a short run


@real
def test_the_small_model_benchmark_caches_its_answers(tmp_path: Path):
    words = ("bench.small", "--inputs", "1", "--skill", "welcome", "--condition", "constrained", "--json")
    figures = json.loads(call(*words, "--project", str(tmp_path)))
    assert figures["constrained"]["all"] == {"valid": [1, 1], "finished": [1, 1]}
    without_the_model = {"XDG_CACHE_HOME": str(tmp_path)}
    assert json.loads(call(*words, "--project", str(tmp_path), **without_the_model)) == figures


@pytest.mark.sampled
def test_edits_of_one_file_by_several_processes_are_neither_lost_nor_doubled():
    edits = 300 if ALL_CASES else 60
    figures = json.loads(call("tests.chaos.edits", "--edits", str(edits), "--processes", "3", "--json"))
    assert figures["made"] >= edits
    assert (figures["lost"], figures["doubled"]) == (0, 0)


@pytest.mark.sampled
def test_a_short_chaos_run_loses_nothing():
    kills = 60 if ALL_CASES else 12
    figures = json.loads(call("tests.chaos", "--kills", str(kills), "--seed", "5", "--json"))
    assert figures["kills"] >= kills
    assert (figures["lost"], figures["doubled"], figures["stuck"], figures["wrong"]) == (0, 0, 0, [])


def test_a_short_attack_on_workers_loses_nothing():
    faults = {"kills": 6, "restarts": 1, "pauses": 2, "partitions": 2}
    words = [word for name, number in faults.items() for word in (f"--{name}", str(number))]
    figures = json.loads(call("tests.chaos.cluster", *words, "--seed", "5", "--json"))
    assert {name: figures[name] for name in faults} == faults
    assert (figures["lost"], figures["doubled"], figures["stuck"], figures["wrong"]) == (0, 0, 0, [])


def test_the_benchmark_of_workers_prints_its_figures():
    figures = json.loads(call("bench.cluster", "--short", "--json", "--only", "throughput", "cpu", "resume"))
    assert len(figures) == 9
    assert all(figure > 0 for figure in figures.values())
    assert "first limit" in call("bench.scaling", "--visits", "1000")
