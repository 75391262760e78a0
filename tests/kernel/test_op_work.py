"""The work of one small file op, from the answer to its recorded outcome, counted exactly.

Runs with one and with eleven ops per turn differ in ten ops per turn. `docs/explanation/one-decision.md` lists where a
value is validated, encoded, hashed and decoded. The calls of the kernel are not counted: some depend on the clock.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from pathlib import Path

import pytest

from bench.ops import TURNS, ActingModel, write_project
from reyn import OSRuntime, SyncRuntime
from reyn.journal import MemoryJournal
from tests.cost import count_work

NAMES = {
    "validations": "Draft202012Validator.is_valid",
    "encodings": "Encoder.encode",
    "hashes": "openssl_sha256",
    "decodings": "Decoder.decode",
    "resolved names": "lstat",
    "opened files": "open",
}
WORK = {
    "read": {"validations": 1, "encodings": 4, "hashes": 7, "decodings": 2, "resolved names": 1, "opened files": 2},
    "write": {"validations": 1, "encodings": 5, "hashes": 12, "decodings": 3, "resolved names": 1, "opened files": 5},
}
"""The calls of one op whose path is one name."""
PACKAGES = ("reyn.ops", "reyn.permissions", "reyn.vocabulary", "reyn.workspace")
MOST_CALLS = {(3, 11): {"read": 34, "write": 51}}
"""Calls of functions of these packages, by version: other versions count comprehensions differently."""


def work_of_runs(root: Path, op: str, ops: int) -> Counter[str]:
    runtime = OSRuntime.open(root, model=ActingModel(op, TURNS, ops), journal=MemoryJournal())
    with asyncio.Runner() as runner, SyncRuntime(runtime, runner) as rt:  # in this thread, whose calls are counted
        assert rt.run("act", {}).ok  # compiles the skill
        return count_work(lambda: rt.run("act", {}))


@pytest.mark.parametrize("op", WORK)
def test_an_op_does_each_piece_of_work_once(tmp_path: Path, op: str):
    write_project(tmp_path)
    one, many = (work_of_runs(tmp_path, op, ops) for ops in (1, 11))
    spent = {name: (count - one[name]) / (10 * TURNS) for name, count in many.items()}
    assert {what: round(spent[name]) for what, name in NAMES.items()} == WORK[op]
    most = MOST_CALLS.get(sys.version_info[:2])
    assert most is None or round(sum(spent.get(name, 0) for name in PACKAGES)) <= most[op]
