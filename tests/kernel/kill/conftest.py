from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")


@pytest.fixture
def arena(tmp_path: Path) -> Iterator[Path]:
    """The folder for kill tests. Files in memory survive a killed process like files on disk, and are faster."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="reyn-kill-", dir=MEMORY))
    except OSError:
        yield tmp_path
        return
    yield folder
    shutil.rmtree(folder)
