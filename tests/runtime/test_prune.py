"""`prune` deletes old runs with everything that only they use, and nothing that another run needs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from reyn import SyncRuntime
from reyn.errors import RunNotFound
from reyn.journal.sqlite import SqliteJournal
from reyn.testing.crash import KILLED, Failpoints, in_child
from tests.kernel.support import Project
from tests.properties import some
from tests.support import abort, act, file, finish, go, question, write_skill

IN = {"text": "in"}
NOW = timedelta(0)
WRITE = act(file("write", "workspace:n.txt", content="notes"))


@pytest.fixture(params=["memory", "sqlite"])
def project(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Project]:
    write_skill(tmp_path, "s", {"a": ["b"], "b": ["end"]}, ops={"a": "file, ask_user, run_skill", "b": "file"})
    write_skill(tmp_path, "outer", {"@s": ["b"], "b": ["end"]}, entry="@s")
    journal = SqliteJournal(tmp_path / ".reyn") if request.param == "sqlite" else None
    project = Project(tmp_path, journal)
    close = project.journal.close
    yield project
    close()


def open_runtime(project: Project, answers: list, **options) -> SyncRuntime:
    """Open a runtime that leaves the project's journal open."""
    rt = project.open(answers, **options)
    rt.async_form.services.journal.close = lambda: None
    return rt


def execute(project: Project, run_id: str, *answers: object, skill: str = "s") -> str:
    with open_runtime(project, list(answers)) as rt:
        return rt.run(skill, IN, run_id=run_id).status


def recorded(project: Project) -> set[str]:
    return {row.run_id for row in project.journal.runs()}


def test_runs_that_have_ended_are_deleted_with_their_files(project: Project):
    assert execute(project, "finished", WRITE, go("b"), finish("end")) == "finished"
    assert execute(project, "aborted", abort()) == "aborted"
    workspace = project.root / ".reyn/workspace/finished"
    assert (workspace / "n.txt").read_text() == "notes"
    with open_runtime(project, []) as rt:
        planned = rt.runs.prune(older_than=NOW, dry_run=True)
        assert (planned.runs, planned.is_dry) == (("aborted", "finished"), True)
        assert recorded(project) == {"finished", "aborted"}
        report = rt.runs.prune(older_than=NOW)
        assert report.runs == planned.runs
        assert (report.events, report.blobs, report.bytes) == (planned.events, planned.blobs, planned.bytes)
        assert report.events > 10
        assert report.blobs > 5
        assert not workspace.exists()
        with pytest.raises(RunNotFound):
            rt.runs.result("finished")
        assert rt.runs.prune(older_than=NOW).runs == ()


def test_runs_that_can_continue_stay_unless_their_status_is_asked_for(project: Project):
    assert execute(project, "failed", "no", "no", "no") == "failed"
    assert execute(project, "waiting", act(question("ok?"))) == "waiting"
    write_skill(project.root, "spin", {"turn": ["back", "end"], "back": ["turn"]})
    with open_runtime(project, [go("back")], max_phase_visits=1) as rt:
        for run_id in ("cancelled", "limited"):
            assert rt.run("spin", IN, run_id=run_id).status == "limited"
        rt.cancel("cancelled")
        assert rt.runs.prune(older_than=NOW).runs == ("cancelled",)
        assert rt.runs.prune(older_than=NOW, statuses=["failed"]).runs == ("failed",)
    assert recorded(project) == {"waiting", "limited"}


def test_recent_runs_stay(project: Project):
    execute(project, "k", abort())
    with open_runtime(project, []) as rt:
        assert rt.runs.prune(older_than=timedelta(days=1)).runs == ()
        project.clock._now += timedelta(days=1) // timedelta(microseconds=1)
        assert rt.runs.prune(older_than=timedelta(days=1)).runs == ("k",)


def test_a_run_stays_as_long_as_a_fork_reads_through_it(project: Project):
    execute(project, "origin", go("b"), abort())
    with open_runtime(project, [go("b"), "no", "no", "no"]) as rt:
        assert rt.fork("origin", run_id="fork").status == "failed"
        report = rt.runs.prune(older_than=NOW)
        assert (report.runs, report.needed) == ((), ("origin",))
        assert rt.runs.replay("fork").status == "failed"
        assert rt.runs.prune(older_than=NOW, statuses=["aborted", "failed"]).runs == ("fork", "origin")


def test_a_run_stays_while_an_unfinished_run_uses_it_as_its_model(project: Project):
    execute(project, "cassette", abort())
    with open_runtime(project, [], model="recorded:cassette") as rt:
        assert rt.run("s", {"text": "other"}, run_id="user").status == "failed"
        report = rt.runs.prune(older_than=NOW)
        assert (report.runs, report.needed) == ((), ("cassette",))
        assert rt.runs.prune(older_than=NOW, statuses=["aborted", "failed"]).runs == ("cassette", "user")


def test_a_run_stays_while_an_unfinished_run_uses_it_for_a_model_class(project: Project):
    execute(project, "cassette", abort())
    with open_runtime(project, [act(question("which?"))], models={"light": "recorded:cassette"}) as rt:
        assert rt.run("s", IN, run_id="user").status == "waiting"
        assert rt.runs.prune(older_than=NOW).needed == ("cassette",)


def test_a_run_is_deleted_once_the_run_that_used_it_as_its_model_has_ended(project: Project):
    execute(project, "cassette", abort())
    with open_runtime(project, [], model="recorded:cassette") as rt:
        assert rt.run("s", IN, run_id="user").status == "aborted"
        assert rt.runs.prune(older_than=NOW).runs == ("cassette", "user")


def test_a_rerun_does_not_hold_its_original(project: Project):
    execute(project, "original", go("b"), abort())
    with open_runtime(project, ["no", "no", "no"]) as rt:
        assert rt.rerun("original", run_id="again").status == "failed"
        assert rt.runs.prune(older_than=NOW).runs == ("original",)
        assert rt.runs.verify("again").events
        assert rt.runs.replay("again").status == "failed"


def test_a_family_is_deleted_as_a_whole_or_not_at_all(project: Project):
    assert execute(project, "up", go("b"), finish(), "no", "no", "no", skill="outer") == "failed"
    [child] = recorded(project) - {"up"}
    with open_runtime(project, []) as rt:
        assert rt.runs.find(child).status == "finished"
        assert rt.runs.prune(older_than=NOW).runs == ()
        assert rt.runs.prune(older_than=NOW, statuses=["failed"]).runs == ("up", child)
    assert recorded(project) == set()


def test_a_fork_of_a_sub_run_holds_the_whole_family(project: Project):
    assert execute(project, "up", go("b"), finish(), finish(), skill="outer") == "finished"
    [child] = recorded(project) - {"up"}
    with open_runtime(project, ["no", "no", "no"]) as rt:
        rt.fork(child, at=1, run_id="fork")
        assert rt.runs.prune(older_than=NOW).needed == ("up", child)
    assert recorded(project) == {"up", child, "fork"}


def test_a_run_that_is_being_executed_stays(project: Project):
    execute(project, "k", abort())
    with open_runtime(project, []) as rt:
        with project.journal.claim("k"):
            assert rt.runs.prune(older_than=NOW).runs == ()
        assert rt.runs.prune(older_than=NOW).runs == ("k",)


def test_what_remains_is_complete(project: Project):
    for run_id in ("one", "two"):
        execute(project, run_id, WRITE, go("b"), finish(run_id))
    execute(project, "failed", WRITE, go("b", "own text"), "no", "no", "no")
    with open_runtime(project, [WRITE, go("b", "own text"), "no", "no", "no", finish()]) as rt:
        assert rt.runs.prune(older_than=NOW).runs == ("one", "two")
        assert rt.runs.verify("failed").events
        assert rt.runs.replay("failed").status == "failed"
        assert rt.resume("failed", retry=True).ok
        assert rt.runs.replay("failed").status == "finished"
        assert (project.root / ".reyn/workspace/failed/n.txt").exists()


def test_a_project_without_a_journal_loses_no_workspace(tmp_path: Path):
    with SyncRuntime.open(tmp_path) as rt:
        assert rt.runs.prune(older_than=NOW).runs == ()
        assert not (tmp_path / ".reyn").exists()
        workspace = tmp_path / ".reyn/workspace/k"
        workspace.mkdir(parents=True)
        assert rt.runs.prune(older_than=NOW).runs == ()
        assert workspace.exists()


@pytest.mark.slow
def test_the_journal_file_shrinks(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]})
    for number in range(60):
        with Project(tmp_path, SqliteJournal(tmp_path / ".reyn")).open([finish(json.dumps("x" * 20_000))]) as rt:
            assert rt.run("s", {"text": f"{number} {'y' * 20_000}"}, run_id=f"run-{number}").ok
    database = tmp_path / ".reyn/journal.db"
    before = database.stat().st_size
    with SyncRuntime.open(tmp_path, trust=True) as rt:
        report = rt.runs.prune(older_than=NOW)
        assert len(report.runs) == 60
        assert report.bytes > 60 * 20_000
        while_open = database.stat().st_size
    after = sum(path.stat().st_size for path in database.parent.glob("journal.db*"))
    assert while_open < before / 6  # empty tables and indexes take a page or two each
    assert after < before / 6


@pytest.mark.sampled
@pytest.mark.slow
def test_a_prune_that_is_killed_anywhere_deletes_all_or_nothing_and_can_be_repeated(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["b"], "b": ["end"]}, ops={"a": "file"})
    state = tmp_path / ".reyn"
    killed = 0
    for point in some(range(1, 40), 4):
        with Project(tmp_path, SqliteJournal(state)).open([WRITE, go("b"), finish()]) as rt:
            for run_id in ("one", "two"):
                rt.run("s", IN, run_id=run_id)

        def work(point: int = point) -> None:
            points = Failpoints(point)
            journal = points.wrap(SqliteJournal(state), "journal")
            with SyncRuntime.open(tmp_path, journal=journal) as rt:
                rt.runs.prune(older_than=NOW)

        status = in_child(work)
        with SyncRuntime.open(tmp_path, journal=SqliteJournal(state)) as rt:
            left = [row.run_id for row in rt.runs.all()]
            assert left in ([], ["two", "one"])
            for run_id in left:
                assert rt.runs.verify(run_id).events
                assert (state / "workspace" / run_id / "n.txt").exists()
            rt.runs.prune(older_than=NOW)
            assert rt.runs.all() == []
        assert list((state / "workspace").iterdir()) == []
        if status != KILLED:
            break
        killed += 1
    assert killed > 5
