"""Finding the files that a program changed takes bounded time and memory, whatever the program leaves.

The attacker is a program that writes in the workspace. The oracles are the sizes of the contents that Reyn holds, and
the number of folders that it opens.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.workspace import Roots, files, locate, observation
from reyn.workspace.observation import Observation, Observed
from reyn.workspace.paths import MAX_DEPTH, is_recorded_path
from tests.properties import examples

TOTAL = 100_000


@pytest.fixture
def roots(tmp_path: Path) -> Roots:
    roots = Roots(tmp_path, tmp_path / ".reyn", tmp_path / ".reyn" / "workspace" / "run")
    roots.workspace.mkdir(parents=True)
    return roots


def observe(roots: Roots) -> Observation:
    return Observation([locate("workspace:", roots)], roots, file_bytes=TOTAL // 2, total_bytes=TOTAL)


def nest(folder: Path, name: str, depth: int) -> None:
    """Make nested folders, each with a file, deeper than a path can name."""
    handle = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=handle)
        above, handle = handle, os.open(name, os.O_RDONLY, dir_fd=handle)
        os.close(above)
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, dir_fd=handle))
    os.close(handle)


@pytest.mark.parametrize(("name", "depth"), [("a", 400), ("b" * 30, 200), ("c" * 200, 40)])
def test_deep_folders_are_named_and_not_entered(roots: Roots, name: str, depth: int, monkeypatch: pytest.MonkeyPatch):
    looking = observe(roots)
    nest(roots.workspace, name, depth)
    opened: list[object] = []
    real = os.open
    monkeypatch.setattr(files.os, "open", lambda *args, **keys: opened.append(args) or real(*args, **keys))
    found = looking.changes()
    assert isinstance(found, Observed)
    (unlooked,) = found.unrecorded
    looked = len(unlooked.split("/"))
    assert looked == min(MAX_DEPTH, (4_000 - 255) // (len(name) + 1) + 1)
    recorded = [change.path for change, _ in found.changes]
    assert len(recorded) == looked - 1
    assert all(map(is_recorded_path, (*recorded, unlooked)))
    assert len(opened) <= 3 * MAX_DEPTH**2  # each folder and each file once, from the top
    assert sorted(path for change, _ in found.changes for path in change.made) == sorted(
        path.removesuffix("/f") for path in recorded
    )


@given(st.lists(st.integers(0, TOTAL), min_size=1, max_size=30))
@examples(50)
def test_the_contents_that_are_held_have_a_total(tmp_path_factory: pytest.TempPathFactory, sizes: list[int]):
    root = tmp_path_factory.mktemp("project")
    roots = Roots(root, root / ".reyn", root / ".reyn" / "workspace" / "run")
    roots.workspace.mkdir(parents=True)
    looking = observe(roots)
    for number, size in enumerate(sizes):
        (roots.workspace / f"f{number}").touch()
        os.truncate(roots.workspace / f"f{number}", size)
    found = looking.changes()
    assert isinstance(found, Observed)
    assert sum(len(blob.content) for _, blobs in found.changes for blob in blobs) <= TOTAL
    assert len(found.changes) + len(found.unrecorded) == len(sizes)
    assert found.unrecorded or sum(sizes) <= TOTAL


def test_a_tree_of_long_paths_is_not_compared(roots: Roots, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(observation, "MAX_CHARS", 1_000)
    (roots.workspace / "short").touch()
    assert observe(roots).changes() == Observed((), ())
    for number in range(10):
        (roots.workspace / ("x" * 100 + str(number))).touch()
    assert observe(roots).changes() is None
