"""The folder of a hostile program is removed, whatever is in it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from reyn.folders import remove_temporary
from reyn.sandbox import ProgramLimits, run_program
from reyn.sandbox.backends import BACKENDS
from reyn.sandbox.process import python_program
from reyn.sandbox.supervision import Access
from tests.attacks.test_sandbox import usable

DEEP = """
import os
for number in range(DEPTH):
    os.mkdir('d'); open('f', 'w').close(); os.chdir('d')
"""


def test_folders_nested_beyond_every_limit(tmp_path: Path):
    top, here = tmp_path / "top", Path.cwd()
    top.mkdir()
    os.chdir(top)
    try:
        for _ in range(20_000):
            os.mkdir("d")  # noqa: PTH102 - relative to the working folder
            os.chdir("d")
    finally:
        os.chdir(here)
    remove_temporary(str(top))
    assert not top.exists()


def test_many_entries_odd_names_and_modes(tmp_path: Path):
    top, outside = tmp_path / "top", tmp_path / "outside"
    outside.mkdir()
    (outside / "kept.txt").write_text("kept")
    for name in (b"plain", b"\xff\xfe", b"new\nline", b"x" * 255, b"-rf"):
        os.makedirs(os.fsencode(top) + b"/" + name + b"/inner/more")  # noqa: PTH103 - bytes
        for number in range(200):
            os.mknod(os.fsencode(top) + b"/" + name + b"/%d" % number)
    (top / "plain/link").symlink_to(outside)
    (top / "plain/file").symlink_to(outside / "kept.txt")
    os.mkfifo(top / "plain/pipe")
    (top / "plain/inner/more").chmod(0)
    (top / "plain/inner").chmod(0)
    top.chmod(0)
    remove_temporary(str(top))
    assert not top.exists()
    assert stat.S_IMODE(outside.stat().st_mode) & 0o700 == 0o700
    assert (outside / "kept.txt").read_text() == "kept"


def test_a_folder_that_is_gone(tmp_path: Path):
    remove_temporary(str(tmp_path / "gone"))


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_nothing_of_a_program_is_left(backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    code = f"import os\nos.chdir(os.environ['TMPDIR']){DEEP.replace('DEPTH', '3000')}"
    outcome = run_program(usable(backend), (python_program(), "-S", "-c", code), Access(), ProgramLimits(seconds=60))
    assert outcome.returncode == 0, outcome.stderr
    assert list(tmp_path.iterdir()) == []
