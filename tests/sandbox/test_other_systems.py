"""On a system other than Linux, what needs Linux is refused with the reason, and the rest works."""

from __future__ import annotations

import asyncio
import os
import platform
from pathlib import Path

import pytest

from reyn.errors import SandboxUnavailable
from reyn.folders import opening
from reyn.sandbox import ProgramLimits, in_thread, run_unconfined
from reyn.sandbox.bubblewrap import Bubblewrap
from reyn.sandbox.landlock import Landlock
from reyn.sandbox.process import missing_descriptors
from reyn.sandbox.python_steps import PythonStep, run_safe

_ONLY_LINUX = ("eventfd", "memfd_create", "pidfd_open", "O_PATH")


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    for name in _ONLY_LINUX:
        monkeypatch.delattr(os, name)


def test_no_program_is_executed_without_a_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    backends = (Bubblewrap(), Landlock())
    assert {backend.problem for backend in backends} == {"it needs Linux; this is Darwin"}
    monkeypatch.setattr("reyn.sandbox.backends.BACKENDS", backends)
    source = "def f(a):\n    import socket\n    return 1\n"
    with pytest.raises(SandboxUnavailable, match="it needs Linux"):
        run_safe(PythonStep({"m.py": source}, "m.py", "f", {}, 0), ProgramLimits())
    with pytest.raises(SandboxUnavailable, match="on Linux only, not on Darwin"):
        run_unconfined(("/bin/sh", "-c", f"touch {tmp_path}/made"), str(tmp_path), ProgramLimits())
    assert not list(tmp_path.iterdir())


def test_a_step_that_needs_no_process_sandbox_is_executed():
    step = PythonStep({"m.py": "def f(a):\n    return a['data']['n'] + 1\n"}, "m.py", "f", {"data": {"n": 1}}, 0)
    result = asyncio.run(in_thread(lambda stop: run_safe(step, ProgramLimits(), stop=stop)))
    assert (result.value, result.sandbox) == (2, "monty")


def test_shortages_are_found_and_long_paths_opened_without_calls_of_linux(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    assert missing_descriptors() == ""
    monkeypatch.setattr(opening, "_openat2", lambda: None)
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "a/b/c/d").write_text("x")
    (tmp_path / "a/b/link").symlink_to("c")
    with opening.OpenFolder(str(tmp_path), os.open(tmp_path, opening.FOLDER)) as handle:
        os.close(opening.open_beneath(handle, "a/b/c/d", opening.FILE))
        with pytest.raises(OSError, match=r"Too many levels|Not a directory"):
            opening.open_beneath(handle, "a/b/link/d", opening.FILE)
