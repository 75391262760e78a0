from __future__ import annotations

from pathlib import Path

import pytest

from tests.ops.support import Desk
from tests.workspace.support import make_roots


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(make_roots(tmp_path))
