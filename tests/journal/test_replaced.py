"""A journal that is deleted, moved or replaced during a run stops the run at the next commit."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime
from reyn.errors import StoreDamaged, StoreUnavailable
from reyn.testing import ScriptedModel
from reyn.testing.crash import KILLED, in_child
from tests.journal.stored import verify
from tests.support import finish, go, write_skill

CHANGED = "was (deleted, moved or replaced|truncated) while it was in use"


def delete_folder(state: Path) -> None:
    shutil.rmtree(state)


def move_folder(state: Path) -> None:
    state.rename(state.with_name("elsewhere"))


def replace_folder(state: Path) -> None:
    move_folder(state)
    shutil.copytree(state.with_name("elsewhere"), state)


def delete_file(state: Path) -> None:
    (state / "journal.db").unlink()


def delete_log(state: Path) -> None:
    (state / "journal.db-wal").unlink()


def delete_index(state: Path) -> None:
    (state / "journal.db-shm").unlink()


def delete_log_and_index(state: Path) -> None:
    delete_log(state)
    delete_index(state)


def replace_log(state: Path) -> None:
    content = (state / "journal.db-wal").read_bytes()
    delete_log(state)
    (state / "journal.db-wal").write_bytes(content)


def truncate_log(state: Path) -> None:
    os.truncate(state / "journal.db-wal", 0)


def replace_file(state: Path) -> None:
    content = (state / "journal.db").read_bytes()
    delete_file(state)
    (state / "journal.db").write_bytes(content)


OF_THE_DATABASE = [delete_folder, move_folder, replace_folder, delete_file, replace_file]
OF_THE_LOG = [delete_log, delete_index, delete_log_and_index, replace_log, truncate_log]


@pytest.mark.parametrize("change", [*OF_THE_DATABASE, *OF_THE_LOG])
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

    with pytest.raises(StoreUnavailable, match=CHANGED):
        asyncio.run(scenario())
    assert not durable


@pytest.mark.parametrize("change", [*OF_THE_DATABASE, *OF_THE_LOG])
def test_a_run_that_starts_afterwards_is_refused_with_advice_that_can_work(
    tmp_path: Path, change: Callable[[Path], None]
):
    write_skill(tmp_path, "s", {"a": ["end"]})

    async def scenario() -> None:
        async with OSRuntime.open(tmp_path, model=ScriptedModel([finish(), finish()])) as rt:
            assert (await rt.run("s", {"text": "in"})).ok
            change(tmp_path / ".reyn")
            with pytest.raises(StoreUnavailable, match=CHANGED) as found:
                await rt.run("s", {"text": "in"})
        assert "disk" not in found.value.hint
        is_saved = change in (delete_log, delete_index, delete_log_and_index)
        assert ("nothing that was committed is lost" in found.value.hint) is is_saved

    asyncio.run(scenario())


NAMES = ["a", "b", "c", "d"]
ANSWERS = [go("b"), go("c"), go("d"), finish()]


def write_chain(root: Path) -> None:
    write_skill(root, "s", {name: [then] for name, then in zip(NAMES, [*NAMES[1:], "end"], strict=True)})


@pytest.mark.parametrize("change", [delete_log, delete_index, delete_log_and_index])
def test_what_was_committed_is_there_when_the_log_alone_was_deleted(tmp_path: Path, change: Callable[[Path], None]):
    write_chain(tmp_path)

    class Changing(ScriptedModel):
        async def complete(self, request: Any) -> Any:
            if request.answered == 2:
                change(tmp_path / ".reyn")
            return await super().complete(request)

    async def stopped() -> None:
        async with OSRuntime.open(tmp_path, model=Changing(ANSWERS)) as rt:
            with (tmp_path / "durable").open("w", buffering=1) as durable:
                listener: Any = lambda event: print(event.seq, file=durable)  # noqa: E731
                await rt.run("s", {"text": "in"}, run_id="r", listener=listener)

    async def resumed() -> None:
        async with OSRuntime.open(tmp_path, model=ScriptedModel(ANSWERS)) as rt:
            durable = (tmp_path / "durable").read_text().split()
            assert [str(event.seq) for event in rt.runs.events("r")] == durable
            assert (await rt.resume("r")).ok
            rt.runs.verify("r")

    def stops() -> None:
        with pytest.raises(StoreUnavailable, match=CHANGED) as found:
            asyncio.run(stopped())
        assert "nothing that was committed is lost. Resume the run in a new process" in found.value.hint

    assert in_child(stops) == 0
    asyncio.run(resumed())


def test_a_process_that_uses_an_index_without_a_path_does_not_open_the_journal_again(tmp_path: Path):
    write_chain(tmp_path)

    async def stopped() -> None:
        async with OSRuntime.open(tmp_path, model=ScriptedModel(ANSWERS)) as rt:
            assert (await rt.run("s", {"text": "in"}, run_id="r")).ok
            delete_index(tmp_path / ".reyn")

    def stops() -> None:
        asyncio.run(stopped())
        with pytest.raises(StoreUnavailable, match="were deleted while this process used them"):
            OSRuntime.open(tmp_path).runs.find("r")

    assert in_child(stops) == 0
    verify(tmp_path, "r")


def replace_log_by_an_older_one(state: Path) -> None:
    content = (state / "journal.db-wal").read_bytes()
    (state / "journal.db-wal").write_bytes(content[: 32 + (len(content) - 32) // 2])


def replace_log_by_one_of_another_time(state: Path) -> None:
    content = bytearray((state / "journal.db-wal").read_bytes())
    content[16:24] = b"12345678"
    (state / "journal.db-wal").write_bytes(content)


def before_the_kill(root: Path) -> None:
    class Fatal(ScriptedModel):
        async def complete(self, request: Any) -> Any:
            if request.answered == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            return await super().complete(request)

    asyncio.run(OSRuntime.open(root, model=Fatal(ANSWERS)).run("s", {"text": "in"}, run_id="r"))


LOSSES = [delete_log, truncate_log, replace_log_by_an_older_one, replace_log_by_one_of_another_time]


@pytest.mark.parametrize("change", LOSSES)
def test_a_log_that_is_lost_after_a_kill_is_reported_until_the_user_accepts_the_loss(
    tmp_path: Path, change: Callable[[Path], None]
):
    write_chain(tmp_path)
    assert in_child(lambda: before_the_kill(tmp_path)) == KILLED
    state = tmp_path / ".reyn"
    log = (state / "journal.db-wal").read_bytes()
    change(state)
    for _ in range(2):
        with pytest.raises(StoreDamaged, match="commits of the journal are lost") as found:
            OSRuntime.open(tmp_path).runs.find("r")
        assert "delete `journal.db-shm`" in found.value.hint
    if change is delete_log:  # one way out
        (state / "journal.db-wal").write_bytes(log)
    else:
        (state / "journal.db-shm").unlink()

    async def resumed() -> None:
        async with OSRuntime.open(tmp_path, model=ScriptedModel(ANSWERS)) as rt:
            if change is delete_log:
                assert (await rt.resume("r")).ok
            else:
                assert (await rt.run("s", {"text": "in"}, run_id="r")).ok

    asyncio.run(resumed())


def test_a_journal_without_a_loss_opens_beside_others_in_any_state(tmp_path: Path):
    write_chain(tmp_path)
    assert in_child(lambda: before_the_kill(tmp_path)) == KILLED

    async def scenario() -> None:
        async with OSRuntime.open(tmp_path, model=ScriptedModel(ANSWERS)) as rt:
            assert (await rt.resume("r")).ok
            for number in range(3):  # this process and others, while the log grows
                async with OSRuntime.open(tmp_path, model=ScriptedModel(ANSWERS)) as second:
                    assert (await second.run("s", {"text": "in"}, run_id=f"s{number}")).ok
                assert in_child(lambda: verify(tmp_path, "r")) == 0
                assert (await rt.run("s", {"text": "in"}, run_id=f"t{number}")).ok

    asyncio.run(scenario())
    verify(tmp_path, "r")
