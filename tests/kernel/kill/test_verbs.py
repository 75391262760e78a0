"""A killed undo or fork can be repeated, with the same result as without the kill."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reyn import SyncRuntime
from reyn.testing import ScriptedModel
from reyn.testing.crash import KILLED, Failpoints, in_child
from reyn.workspace.files import TEMPORARY
from tests.kernel.kill.scenario import Scenario, kill_points, tree_of
from tests.kernel.kill.scenarios import RUN, rolled_back, sub_runs, writing
from tests.support import act, file, finish, write_skill

FORK = "forked"


def undo(scenario: Scenario, points: Failpoints) -> None:
    with scenario.world(points) as runtime:
        report = runtime.runs.undo(RUN)
        runtime.services.journal.close()
        assert report.left == ()


def fork(scenario: Scenario, points: Failpoints) -> None:
    """Fork a finished run at its first act turn, or continue the fork if it exists."""

    async def work() -> None:
        with scenario.world(points) as runtime:
            async with runtime:
                if runtime.services.journal.find(FORK) is not None:
                    assert (await runtime.resume(FORK)).ok
                    return
                seq = next(e.seq for e in runtime.runs.events(RUN) if e.kind == "phase_completed")
                assert (await runtime.fork(RUN, at=seq, run_id=FORK)).ok

    asyncio.run(work())


class Staged:
    """A finished run on which an operation is executed repeatedly, each time from the same state."""

    def __init__(self, scenario: Scenario, do: Callable[[Scenario, Failpoints], None]) -> None:
        self._scenario, self._do = scenario, do
        self._finished = scenario.root.with_name("finished")
        scenario.rehearse()
        shutil.copytree(scenario.root, self._finished)
        points = Failpoints()
        do(scenario, points)
        self.points, self._expected = points.reached, tree_of(scenario.root)

    def kill_at(self, number: int) -> None:
        root = self._scenario.root
        shutil.rmtree(root)
        shutil.copytree(self._finished, root)
        assert in_child(lambda: self._do(self._scenario, Failpoints(number))) == KILLED
        self._do(self._scenario, Failpoints())
        assert tree_of(root) == self._expected, self.points[number - 1]
        self._verify()

    def _verify(self) -> None:
        async def work() -> None:
            with self._scenario.world(Failpoints()) as runtime:
                async with runtime:
                    for row in runtime.runs.all():
                        runtime.runs.verify(row.run_id)
                        await runtime.runs.replay(row.run_id)

        asyncio.run(work())


@pytest.mark.parametrize("make", [writing, rolled_back, sub_runs])
def test_a_killed_undo_is_completed_by_the_next_one(arena: Path, make: Callable[[Path], Scenario]):
    staged = Staged(make(arena / "project"), undo)
    assert any(point.startswith("os.rename") for point in staged.points)
    for number in kill_points(staged.points):
        staged.kill_at(number)


def test_a_killed_fork_is_created_once_and_continues(arena: Path):
    scenario = writing(arena / "project")
    (scenario.seed / "output/log.txt").chmod(0o600)
    staged = Staged(scenario, fork)
    for number in kill_points(staged.points):
        staged.kill_at(number)


def test_a_run_abandoned_after_a_kill_can_be_undone(arena: Path):
    """A run that is cancelled instead of resumed leaves an intent with unknown outcome, which undo reverts.

    A temporary file may remain, because only the run itself would find it again.
    """
    scenario = writing(arena / "project")
    points = scenario.rehearse()
    before = files_of(scenario.seed)
    for number in kill_points(points):
        scenario.reset()
        assert scenario.execute_in_child(kill_at=number) == KILLED
        with scenario.world(Failpoints()) as runtime:
            if runtime.services.journal.find(RUN) is not None:
                if runtime.runs.find(RUN).status == "running":
                    runtime.cancel(RUN)
                assert runtime.runs.undo(RUN).left == ()
            runtime.services.journal.close()
        assert files_of(scenario.root) == before, points[number - 1]


def test_undo_does_not_overwrite_what_another_program_wrote(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file"})
    log = tmp_path / "output/log.txt"
    log.parent.mkdir()
    log.write_text("1")

    class Meddling(ScriptedModel):
        async def complete(self, request):
            if request.answered == 1:
                log.write_text("3, by another program")
            return await super().complete(request)

    changes = [act(file("write", "output/log.txt", content=content)) for content in ("2", "4")]
    with SyncRuntime.open(tmp_path, model=Meddling([*changes, finish()])) as rt:
        assert rt.run("s", {"text": "in"}, run_id=RUN).ok
        assert rt.runs.undo(RUN, dry_run=True).left == ("output/log.txt",)
        assert rt.runs.undo(RUN).left == ("output/log.txt",)
    assert log.read_text() == "3, by another program"


def files_of(root: Path) -> dict[str, tuple[int, bytes | None]]:
    """Return the project files without temporary ones."""
    return {
        path: found for path, found in tree_of(root).items() if path.startswith("output/") and TEMPORARY not in path
    }
