"""The notebook of the guide is current, and IPython executes its cells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "notebook" / "use-in-a-notebook.ipynb"
EXECUTE = """
import json, sys
from pathlib import Path
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

shell, shown = InteractiveShell.instance(), []
for cell in json.loads(Path(sys.argv[1]).read_text())["cells"]:
    if cell["cell_type"] == "code":
        with capture_output() as captured:
            done = shell.run_cell("".join(cell["source"]))
        done.raise_error()
        shown.append([one.data for one in captured.outputs])
        if done.result is not None:
            shown[-1].append(shell.display_formatter.format(done.result)[0])
print(json.dumps(shown))
"""


def test_the_notebook_is_the_page():
    program = ROOT / "tools" / "notebook.py"
    assert subprocess.run([sys.executable, program, "--check"]).returncode == 0


@pytest.mark.slow
def test_every_cell_of_the_notebook_runs(tmp_path: Path):
    environ = os.environ | {"IPYTHONDIR": str(tmp_path / "ipython"), "HOME": str(tmp_path)}
    project = tmp_path / "project"
    project.mkdir()
    subprocess.run([sys.executable, "-m", "reyn", "init"], cwd=project, env=environ, check=True, capture_output=True)
    words = [sys.executable, "-c", EXECUTE, NOTEBOOK]
    done = subprocess.run(words, cwd=project, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    skill, progress, run, diff, usage, closing = json.loads(done.stdout.splitlines()[-1])
    assert "<svg" in skill[-1]["text/html"]
    assert progress[0]["text/plain"] == "waiting for the run"
    assert progress[-2]["text/plain"].endswith("\nfinished")
    assert "Welcome, Ada" in progress[-1]["text/html"]
    assert 'stroke-width="2.5"' in run[-1]["text/html"]
    assert "their inputs differ" in diff[-1]["text/plain"]
    assert "no usage recorded" in usage[-1]["text/html"]
    assert closing == []


def test_reyn_imports_no_ipython():
    program = "import sys, reyn.notebook, reyn; reyn.SyncRuntime, reyn.RunResult; print('IPython' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
