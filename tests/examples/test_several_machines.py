"""The example `several_machines`: two workers, one of them killed, and a run that the other one ends."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "examples" / "several_machines.py"


@pytest.mark.timeout(660)
def test_the_other_worker_continues_what_the_killed_one_left():
    environment = os.environ | {"SLOW_MODEL_SECONDS": "0.5"}
    done = subprocess.run([sys.executable, PROGRAM], capture_output=True, text=True, env=environment, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    killed = re.search(r"\*\*\* kill -9 (worker-[ab]) \*\*\*", done.stdout)
    assert killed, done.stdout
    assert done.stdout.count("→ finish (0.90) The report was published.") == 2
    assert "report-1: OK" in done.stdout
    assert "report-2: OK" in done.stdout
    assert re.search(r"4 answers a run, [01] calls? repeated after the kill", done.stdout)
