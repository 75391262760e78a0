"""The program that tests these tests with mutants: it finds faults, and every explanation of a survivor is needed."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reyn_mutants", ROOT / "tools" / "mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_measured_module_has_mutants_with_distinct_keys(mutants: ModuleType):
    for module in mutants.MODULES:
        found = mutants.mutants_of(module)
        assert len(found) > 40
        assert len({mutant.key for mutant in found}) == len(found)


def test_a_mutant_replaces_one_place(mutants: ModuleType):
    changes = {(one.line, one.becomes) for one in mutants.mutants_of("reyn.permissions.gate")}
    denies = 'if rule is not None and rule.effect == "deny":'
    assert (denies, 'if (rule is None) and rule.effect == "deny":') in changes
    assert (denies, "if (rule is not None or rule.effect == 'deny'):") in changes
    assert (denies, "if rule is not None and rule.effect == '':") in changes


def test_every_explanation_matches_a_mutant(mutants: ModuleType):
    assert mutants.stale_explanations() == []
    assert all(len(one.reason) > 20 for one in mutants.explanations())


def test_a_sample_is_tested_and_reported(tmp_path: Path):
    words = ["reyn.permissions.gate", "--sample", "4", "--seed", "4", "--tests", "tests/permissions/test_gate.py"]
    done = subprocess.run(
        [sys.executable, "tools/mutants.py", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        env=os.environ | {"MUTANTS_RESULTS": str(tmp_path)},
    )
    assert done.stderr == ""
    name, *figures = done.stdout.splitlines()[-1].split()
    tested, killed, survived, explained = map(int, figures)
    assert (name, tested, killed + survived) == ("all", 4, 4)
    assert killed > 0
    assert done.returncode == (1 if survived else 0)
    assert done.stdout.count("\n+ ") == survived - explained
