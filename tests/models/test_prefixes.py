"""What an embedded model has read is kept on the disk, whole or not at all, and never too much of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reyn.models import prefixes
from reyn.models.prefixes import Prefixes


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Prefixes:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    weights = tmp_path / "weights.gguf"
    weights.write_bytes(b"GGUF")
    return Prefixes(weights, "1.0")


def keep(kept: Prefixes, text: str, state: bytes = b"state") -> None:
    kept.keep(text, lambda name: bool((kept.folder / name).write_bytes(state)))


def files(kept: Prefixes) -> list[Path]:
    return list(kept.folder.iterdir())


def test_a_text_is_found_again_under_its_own_name_alone(kept: Prefixes):
    assert kept.find("one") is None
    keep(kept, "one")
    name = kept.find("one")
    assert name is not None
    assert (kept.folder / name).read_bytes() == b"state"
    assert kept.find("another") is None


def test_nobody_else_may_read_it(kept: Prefixes):
    keep(kept, "one")
    assert kept.folder.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in files(kept)] == [0o600]


def test_other_weights_and_another_engine_have_other_states(kept: Prefixes, tmp_path: Path):
    keep(kept, "one")
    assert Prefixes(tmp_path / "weights.gguf", "1.1").find("one") is None
    (tmp_path / "weights.gguf").write_bytes(b"GGUF again")
    assert Prefixes(tmp_path / "weights.gguf", "1.0").find("one") is None


@pytest.mark.parametrize("damage", [b"", b"stat", b"stat\0", b"state and more"])
def test_a_damaged_file_is_not_found_and_is_removed(kept: Prefixes, damage: bytes):
    keep(kept, "one")
    files(kept)[0].write_bytes(damage)
    assert kept.find("one") is None
    assert files(kept) == []


def test_what_could_not_be_written_leaves_nothing(kept: Prefixes):
    kept.keep("one", lambda name: False)
    assert files(kept) == []


def test_a_disk_that_refuses_is_a_cache_that_is_empty(kept: Prefixes):
    kept.folder.parent.mkdir(parents=True)
    kept.folder.write_text("a file stands in the way")
    keep(kept, "one")
    assert kept.find("one") is None


def test_the_least_recently_used_makes_room(kept: Prefixes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prefixes, "ROOM", 25)
    for age, text in enumerate(("old", "older", "oldest")):
        keep(kept, text, b"0123456789")
        name = kept.find(text)
        if name is not None:
            os.utime(kept.folder / name, (1_000 - age, 1_000 - age))
    keep(kept, "new", b"0123456789")
    assert [kept.find(text) is not None for text in ("old", "older", "oldest", "new")] == [True, False, False, True]
