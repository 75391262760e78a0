"""A journal that is deleted, moved or replaced during a run stops the run at the next commit."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime
from reyn.errors import StoreUnavailable
from reyn.testing import ScriptedModel
from tests.support import finish, go, write_skill


def delete_folder(state: Path) -> None:
    shutil.rmtree(state)


def move_folder(state: Path) -> None:
    state.rename(state.with_name("elsewhere"))


def replace_folder(state: Path) -> None:
    move_folder(state)
    shutil.copytree(state.with_name("elsewhere"), state)


def delete_file(state: Path) -> None:
    (state / "journal.db").unlink()


def replace_file(state: Path) -> None:
    content = (state / "journal.db").read_bytes()
    delete_file(state)
    (state / "journal.db").write_bytes(content)


@pytest.mark.parametrize("change", [delete_folder, move_folder, replace_folder, delete_file, replace_file])
@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_run_stops_at_the_next_commit(tmp_path: Path, change: Callable[[Path], None], at: int):
    names = ["a", "b", "c", "d"]
    write_skill(tmp_path, "s", {name: [then] for name, then in zip(names, [*names[1:], "end"], strict=True)})
    answers = [go("b"), go("c"), go("d"), finish()]
    durable: list[str] = []

    class Changing(ScriptedModel):
        async def complete(self, request: Any) -> Any:
            if request.answered == at:
                change(tmp_path / ".reyn")
                durable.clear()
            return await super().complete(request)

    async def scenario() -> None:
        async with OSRuntime.open(tmp_path, model=Changing(answers)) as rt:
            await rt.run("s", {"text": "in"}, run_id="r", listener=lambda event: durable.append(event.kind))

    with pytest.raises(StoreUnavailable, match="deleted, moved or replaced"):
        asyncio.run(scenario())
    assert not durable


@pytest.mark.parametrize("change", [delete_folder, move_folder, replace_folder, delete_file, replace_file])
def test_a_run_that_starts_afterwards_is_refused_with_advice_that_can_work(
    tmp_path: Path, change: Callable[[Path], None]
):
    write_skill(tmp_path, "s", {"a": ["end"]})

    async def scenario() -> None:
        async with OSRuntime.open(tmp_path, model=ScriptedModel([finish(), finish()])) as rt:
            assert (await rt.run("s", {"text": "in"})).ok
            change(tmp_path / ".reyn")
            with pytest.raises(StoreUnavailable, match="was deleted, moved or replaced while it was in use") as found:
                await rt.run("s", {"text": "in"})
        assert "disk" not in found.value.hint
        assert "not lost" not in found.value.hint

    asyncio.run(scenario())
