from __future__ import annotations

from pathlib import Path

import pytest

from reyn.workspace import Roots
from tests.workspace.support import make_roots


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    return make_roots(tmp_path)
