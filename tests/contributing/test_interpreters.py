"""CI finds the Pythons of the machine, and the package names those that were tested."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def _program(path: Path, version: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{(version and f'echo {version}') or 'exit 127'}\n")
    path.chmod(0o755)
    return path


def test_further_interpreters_are_found_on_the_path_and_under_pyenv(tmp_path: Path):
    path, pyenv = tmp_path / "bin", tmp_path / "pyenv"
    _program(path / "python3.12", "")  # of pyenv, and not selected
    installed = _program(pyenv / "versions" / "3.12.9" / "bin" / "python", "3.12")
    on_path = _program(path / "python3.14", "3.14")
    _program(pyenv / "versions" / "3.14.0" / "bin" / "python", "3.14")
    _program(path / "python3.15", "3.11")  # something else
    newest = _program(pyenv / "versions" / "3.16-dev" / "bin" / "python", "3.16")
    env = {"PATH": f"{path}:{os.environ['PATH']}", "PYENV_ROOT": str(pyenv), "HOME": str(tmp_path)}
    done = subprocess.run([ROOT / ".ci" / "pythons"], env=env, capture_output=True, text=True, check=True)
    lines = dict(line.split() for line in done.stdout.splitlines())
    lines.pop("3.13", None)  # the machine may have one on its path
    assert lines == {"3.12": str(installed), "3.14": str(on_path), "3.16": str(newest)}


def test_a_named_python_that_is_missing_is_reported(tmp_path: Path):
    for name in ("bash", "env", "grep", "dirname"):
        found = next(Path(folder, name) for folder in ("/usr/bin", "/bin") if Path(folder, name).exists())
        (tmp_path / name).symlink_to(found)
    env = {"PATH": str(tmp_path), "PYENV_ROOT": str(tmp_path / "none")}
    done = subprocess.run([ROOT / ".ci" / "pythons"], env=env, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert done.stderr.splitlines() == [f"Python 3.{minor} is not on this machine" for minor in (12, 13)]
