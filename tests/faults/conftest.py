from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.support import Disk, ask_and_write
from tests.support import act, file, finish, go


@pytest.fixture(scope="module", autouse=True)
def own_configuration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One user configuration for the module, because its tests may share a journal."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
        yield


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """A small tmpfs; skips the test if it cannot be mounted."""
    disk = Disk(tmp_path / "disk")
    try:
        disk.mount("1m")
    except (OSError, subprocess.CalledProcessError) as error:
        reason = getattr(error, "stderr", None) or error
        pytest.skip(f"mounting a tmpfs is not permitted here (it requires root): {reason}")
    yield disk
    disk.unmount()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project whose skill `pair` writes a file, and whose script is three answers long."""
    root = tmp_path / "project"
    root.mkdir()
    ask_and_write(root)
    answers = (act(file("write", "workspace:a.txt", content="a\n" * 500)), go("second"), finish("end"))
    (root / "reyn.yaml").write_text("model: scripted:answers.jsonl\n")
    (root / "answers.jsonl").write_text("\n".join(json.dumps(answer) for answer in answers))
    return root
