"""Trials without end. The attacker writes a skill, or is a model that proposes one: its cases try skills in turn.

A trial inside of a trial ends. So does a trial whose run is cancelled, whose time is over, or that Ctrl-C interrupts.
The oracle is the number of temporary folders, and the threads and folders that are left.
"""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime, SyncRuntime
from reyn.journal import MemoryJournal
from reyn.runtime import os_runtime, trials
from reyn.testing import ScriptedModel
from tests.building import branching
from tests.runtime.test_trials import add_case
from tests.support import act, finish, write_skill

KINDS = "skill_draft, skill_try, skill_install"
DRAFT = {"kind": "skill_draft", "plan": branching()}
TRY = {"kind": "skill_try", "skill_path": "job"}
INSTALL = {"kind": "skill_install"}


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The temporary folders of trials. There are never many, also while the attack works."""
    created: list[str] = []
    original = tempfile.mkdtemp

    def create(*args: Any, **options: Any) -> str:
        assert len(created) < 20, "trials without end"
        created.append(original(*args, **options))
        return created[-1]

    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(tempfile, "mkdtemp", create)
    return created


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Cases that never end; the event is set when one has begun."""
    begun = threading.Event()

    async def run(services: Any, skill: str, given: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(os_runtime, "_run_case", run)
    return begun


def project(root: Path, answers: list[Any], levels: int = 1, step: str = "") -> None:
    """Write a skill whose case has the same skill in its files, and so on."""
    folder = write_skill(
        root, "job", {"work": ["end"]}, ops={"work": KINDS}, phase_keys={"work": step},
        skill_keys="permissions: {skill.write: true}\n",
    )  # fmt: skip
    add_case(folder, "one", answers)
    if levels > 1:
        project(folder / "cases/one/files", answers, levels - 1, step)


def opened(root: Path, answers: tuple[Any, ...] = ()) -> Any:
    return OSRuntime.open(root, model=ScriptedModel([*answers]), journal=MemoryJournal())


def assert_nothing_left(folders: list[str]) -> None:
    for thread in threading.enumerate():
        if thread.name.startswith(("reyn-trial", "reyn-sandbox")):
            thread.join(30)
            assert not thread.is_alive()
    assert not any(map(os.path.exists, folders))


@pytest.mark.parametrize("ops", [(TRY,), (DRAFT, {"kind": "skill_try", "skill_path": "workspace:draft/sorter"}, TRY)])
def test_a_case_that_tries_its_own_skill_ends(tmp_path: Path, folders: list[str], ops: tuple[dict, ...]):
    project(tmp_path, [act(*ops), finish("done")], levels=5)
    with SyncRuntime.open(tmp_path, model=ScriptedModel([]), journal=MemoryJournal()) as rt:
        assert rt.project.try_cases("job").cases
    # The case, the case inside, and the two cases of the draft.
    assert len(folders) == (2 if ops == (TRY,) else 4)
    assert_nothing_left(folders)


def test_a_trial_that_is_too_deep_is_refused_with_its_code(tmp_path: Path, folders: list[str]):
    step = "preprocessor:\n  - run_op: {op: {kind: skill_try, skill_path: job, on_fail: abort}, into: data.trial}\n"
    project(tmp_path, [finish("done")], levels=5, step=step)
    with SyncRuntime.open(tmp_path, model=ScriptedModel([]), journal=MemoryJournal()) as rt:
        assert "RYN434: `job` is not tried" in " ".join(rt.project.try_cases("job").failures)
    assert len(folders) == 2
    assert_nothing_left(folders)


def cancel_task(rt: OSRuntime, task: asyncio.Task[Any]) -> None:
    task.cancel()


def cancel_run(rt: OSRuntime, task: asyncio.Task[Any]) -> None:
    rt.cancel("r1")


@pytest.mark.parametrize("cancel", [cancel_task, cancel_run])
@pytest.mark.parametrize("ops", [(TRY,), (DRAFT, INSTALL)])
def test_a_cancelled_run_ends_its_trial(
    tmp_path: Path,
    folders: list[str],
    endless: threading.Event,
    ops: tuple[dict, ...],
    cancel: Callable[[OSRuntime, asyncio.Task[Any]], None],
):
    project(tmp_path, [finish("done")])

    async def run() -> None:
        async with opened(tmp_path, (act(*ops), finish("done"))) as rt:
            task = asyncio.create_task(rt.run("job", {"text": "x"}, run_id="r1"))
            while not endless.is_set():
                assert not task.done()
                await asyncio.sleep(0.001)
            cancel(rt, task)
            await asyncio.wait([task])

    asyncio.run(run())
    assert len(folders) == 1
    assert_nothing_left(folders)


def test_a_case_ends_when_the_time_of_the_trial_is_over(
    tmp_path: Path, folders: list[str], endless: threading.Event, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(trials, "SECONDS", 0.05)
    project(tmp_path, [finish("done")])
    with SyncRuntime.open(tmp_path, model=ScriptedModel([]), journal=MemoryJournal()) as rt:
        [problem] = rt.project.try_cases("job").failures
    assert "it was ended: the cases take more than 0.05 s" in problem
    assert_nothing_left(folders)


def test_an_interrupt_ends_a_trial(tmp_path: Path, folders: list[str], monkeypatch: pytest.MonkeyPatch):
    async def interrupt(services: Any, skill: str, given: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()

    monkeypatch.setattr(os_runtime, "_run_case", interrupt)
    project(tmp_path, [finish("done")])
    runtime = asyncio.run(_loaded(tmp_path))
    with pytest.raises(KeyboardInterrupt):
        runtime.project.try_cases("job")
    assert len(folders) == 1
    assert_nothing_left(folders)


async def _loaded(root: Path) -> OSRuntime:
    async with opened(root) as rt:
        return rt
