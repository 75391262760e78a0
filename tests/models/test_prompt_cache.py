"""The prompt cache: lookup, integrity, permissions, eviction."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reyn.models import prompt_cache
from reyn.models.prompt_cache import PromptCache


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PromptCache:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    weights = tmp_path / "weights.gguf"
    weights.write_bytes(b"GGUF")
    return PromptCache(weights, "1.0")


def store(cache: PromptCache, text: str, state: bytes = b"state") -> None:
    cache.store(text, lambda name: bool((cache.folder / name).write_bytes(state)))


def files(cache: PromptCache) -> list[Path]:
    return list(cache.folder.iterdir())


def test_a_state_is_found_by_its_text(cache: PromptCache):
    assert cache.find("one") is None
    store(cache, "one")
    name = cache.find("one")
    assert name is not None
    assert (cache.folder / name).read_bytes() == b"state"
    assert cache.find("another") is None


def test_only_the_owner_has_access(cache: PromptCache):
    store(cache, "one")
    assert cache.folder.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in files(cache)] == [0o600]


def test_changed_weights_and_engines_miss(cache: PromptCache, tmp_path: Path):
    store(cache, "one")
    assert PromptCache(tmp_path / "weights.gguf", "1.1").find("one") is None
    (tmp_path / "weights.gguf").write_bytes(b"GGUF again")
    assert PromptCache(tmp_path / "weights.gguf", "1.0").find("one") is None


@pytest.mark.parametrize("damage", [b"", b"stat", b"stat\0", b"state and more"])
def test_a_damaged_file_is_a_miss_and_is_deleted(cache: PromptCache, damage: bytes):
    store(cache, "one")
    files(cache)[0].write_bytes(damage)
    assert cache.find("one") is None
    assert files(cache) == []


def test_a_failed_write_leaves_nothing(cache: PromptCache):
    cache.store("one", lambda name: False)
    assert files(cache) == []


def test_io_errors_are_misses(cache: PromptCache):
    cache.folder.parent.mkdir(parents=True)
    cache.folder.write_text("not a folder")
    store(cache, "one")
    assert cache.find("one") is None


def test_the_least_recently_used_is_evicted(cache: PromptCache, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(prompt_cache, "MAX_CACHE_BYTES", 25)
    for age, text in enumerate(("old", "older", "oldest")):
        store(cache, text, b"0123456789")
        name = cache.find(text)
        if name is not None:
            os.utime(cache.folder / name, (1_000 - age, 1_000 - age))
    store(cache, "new", b"0123456789")
    assert [cache.find(text) is not None for text in ("old", "older", "oldest", "new")] == [True, False, False, True]
