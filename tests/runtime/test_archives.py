"""Hostile archives and journals: their author can compute every hash, and gains nothing."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from reyn.errors import (
    ArchiveInvalid,
    ArchiveTooLarge,
    ChainBroken,
    EventInvalid,
    HeadMismatch,
    HistoryInvalid,
    ReplayMismatch,
    RunBlocked,
    RunIdTaken,
    RunImported,
)
from reyn.journal import Approval, Event, MemoryJournal, kinds
from reyn.journal.lifecycle import rebuild
from reyn.journal.state_folder import project_identity
from reyn.kernel.core.run_state import EMPTY, apply, fold
from reyn.runs.archive import ImportLimits, read_archive
from tests.fuzz.archives import Archive
from tests.kernel.support import Project
from tests.support import act, file, finish, go, question, write_skill

IN = {"text": "in"}
WRITE = file("write", "output/a.md", content="new\n")
EVIL = b"#!/bin/sh\nid\n"
TARGETS = [".git/hooks/pre-commit", "reyn.yaml", "reyn/project/s/skill.md", "conftest.py", "notes.txt", "reyn/x.txt"]


@pytest.fixture
def here(tmp_path: Path) -> Project:
    """The project in which archives are made."""
    return make_project(tmp_path / "here")


@pytest.fixture
def there(tmp_path: Path) -> Project:
    """The project of the victim, who has the same skill."""
    return make_project(tmp_path / "there")


def make_project(root: Path) -> Project:
    root.mkdir()
    write_skill(root, "s", {"a": ["b"], "b": ["end"]}, ops={"a": "file, ask_user"})
    write_skill(root, "inner", {"x": ["end"]}, ops={"x": "file"})
    write_skill(root, "outer", {"a": ["end"]}, ops={"a": "run_skill, file, ask_user"})
    (root / ".git" / "hooks").mkdir(parents=True)
    for path in ("reyn.yaml", "notes.txt"):
        (root / path).write_text("# mine\n")
    return Project(root)


def export(project: Project, run: str = "k") -> Archive:
    with project.open([]) as rt:
        return Archive(b"".join(rt.runs.export(run)))


def plant(project: Project, archive: Archive) -> None:
    """Put runs into a journal as if they had been executed there."""
    contents = read_archive(archive.lines(), ImportLimits())
    for run, events in contents.events.items():
        project.journal.append(run, events[0].seq - 1, events, list(contents.blobs.values()))


def import_(project: Project, archive: Archive, **options: Any) -> None:
    with project.open([]) as rt:
        rt.runs.import_(archive.lines(), **options)


def tree(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file() and ".reyn" not in path.parts}


def forge_changes(archive: Archive, path: str, current: Path) -> None:
    """Make every recorded change one that is reverted by writing a script to a path."""
    change: dict[str, Any] = {"path": path, "before": archive.add_blob(EVIL)}
    if current.exists():
        change["after"] = archive.add_blob(current.read_bytes())
    change["mode"] = 0o755
    for event in archive.events:
        if "change" in event["data"]:
            event["data"]["change"] = change
        if event["data"].get("changes"):
            event["data"]["changes"] = [change]


def cut_after(archive: Archive, kind: str) -> None:
    at = next(number for number, event in enumerate(archive.events) if event["kind"] == kind)
    archive.events = archive.events[: at + 1]


# -- restores pass the gate ---------------------------------------------------------------------------


@pytest.mark.parametrize("path", TARGETS)
def test_undo_of_a_forged_change_writes_nothing_outside_the_zones(here: Project, there: Project, path: str):
    here.run("s", [act(WRITE), go("b"), finish()])
    archive = export(here)
    forge_changes(archive, path, there.root / path)
    plant(there, archive)
    before = tree(there.root)
    with there.open([]) as rt:
        for report in (rt.runs.undo("k", dry_run=True), rt.runs.undo("k")):
            assert (report.restored, report.left) == ((), ())
            [verdict] = report.denied
            assert verdict.path == path
            assert verdict.rule
        [completed] = there.events("undo_completed")
        assert completed["verdicts"][0]["path"] == path
    assert tree(there.root) == before


@pytest.mark.parametrize("path", TARGETS)
def test_the_rollback_of_a_forged_change_writes_nothing_outside_the_zones(here: Project, there: Project, path: str):
    here.run("s", [act(WRITE), "no", "no", "no"])
    archive = export(here)
    forge_changes(archive, path, there.root / path)
    cut_after(archive, "restore_started")
    plant(there, archive)
    before = tree(there.root)
    result = there.resume([act(WRITE), "no", "no", "no"])
    assert result.status == "failed"
    [restored] = there.events("workspace_restored")
    [verdict] = restored["verdicts"]
    assert verdict["path"] == path
    assert verdict["rule"]
    assert any(path in warning and verdict["rule"] in warning for warning in result.warnings)
    assert tree(there.root) == before


def test_an_undo_removes_only_folders_above_its_files(here: Project, there: Project):
    here.run("s", [act(WRITE), go("b"), finish()])
    archive = export(here)
    for event in archive.events:
        for change in [event["data"].get("change"), *event["data"].get("changes", [])]:
            if change:
                change["made"] = ["docs", "output"]
    plant(there, archive)
    (there.root / "docs").mkdir()
    (there.root / "output").mkdir()
    (there.root / "output/a.md").write_text("new\n")
    with there.open([]) as rt:
        assert rt.runs.undo("k").restored == ("output/a.md",)
    assert (there.root / "docs").is_dir()
    assert not (there.root / "output").exists()


def test_an_undo_follows_the_rules_of_today(here: Project):
    here.run("s", [act(WRITE), go("b"), finish()])
    with here.open([], permissions={"file.write": [{"deny": "output/"}]}) as rt:
        report = rt.runs.undo("k")
        assert [verdict.rule for verdict in report.denied] == ["permissions.file.write: deny output/"]
    with here.open([]) as rt:
        report = rt.runs.undo("k")
        assert report.restored == ("output/a.md",)
        assert [verdict.rule for verdict in report.verdicts] == ["default: write output/"]


def test_each_file_passes_the_gate_of_the_run_that_changed_it(tmp_path: Path):
    write_skill(
        tmp_path,
        "outer",
        {"a": ["end"]},
        ops={"a": "run_skill, file"},
        skill_keys="permissions: {file.write: [log/]}\n",
    )
    write_skill(tmp_path, "inner", {"x": ["end"]}, ops={"x": "file"})
    project = Project(tmp_path)
    run_inner = {"kind": "run_skill", "skill": "inner", "input": IN}
    answers = [act(file("write", "log/a.md", content="1"), run_inner), act(WRITE), finish(), finish()]
    grant = {"permissions": {"file.write": [{"allow": "log/"}]}}
    assert project.run("outer", answers, **grant).ok
    with project.open([], **grant) as rt:
        assert sorted(rt.runs.undo("k").restored) == ["log/a.md", "output/a.md"]


# -- imported runs ------------------------------------------------------------------------------------


def imported(here: Project, there: Project) -> None:
    """Import a run that waits for an answer and has changed a file."""
    here.run("s", [act(WRITE), act(question("Go on?")), go("b"), finish()])
    import_(there, export(here), origin="mail.jsonl")


@pytest.mark.parametrize(
    "operation",
    [
        lambda rt: rt.resume("k"),
        lambda rt: rt.resume("k", retry=True),
        lambda rt: rt.answer("k", "1.2.1", "yes"),
        lambda rt: rt.cancel("k"),
        lambda rt: rt.runs.undo("k"),
        lambda rt: rt.runs.undo("k", dry_run=True),
        lambda rt: rt.run("s", IN, run_id="k"),
    ],
)
def test_an_imported_run_is_refused(here: Project, there: Project, operation):
    imported(here, there)
    events, before = there.kinds(), tree(there.root)
    with (
        there.open([go("b"), finish()]) as rt,
        pytest.raises(RunImported, match=r"imported from mail\.jsonl") as caught,
    ):
        operation(rt)
    assert (caught.value.action.verb, caught.value.action.run_id) == ("fork", "k")
    assert (there.kinds(), tree(there.root)) == (events, before)


def test_an_imported_run_is_listed_as_such_and_can_be_read(here: Project, there: Project):
    imported(here, there)
    with there.open([]) as rt:
        row = rt.runs.find("k")
        assert row.imported == "mail.jsonl"
        assert rt.runs.display_status(row) == "waiting (imported)"
        assert rt.runs.next_action(row).verb == "fork"
        assert rt.runs.open_question(row) is None
        assert rt.runs.verify("k").head == row.hash
        assert rt.runs.replay("k").events == row.seq
        assert rt.runs.result("k").status == "waiting"


def test_a_fork_of_an_imported_run_has_the_settings_of_this_project(here: Project, there: Project):
    assert here.run("s", [go("b"), go("nowhere")], max_phase_retries=0, max_phase_visits=7).status == "failed"
    import_(there, export(here))
    with there.open(["not asked", finish("forked")], max_phase_visits=1) as rt:
        result = rt.fork("k", run_id="f")
        started = rt.runs.state("f").started
        assert not rt.runs.find("f").imported
    assert result.artifact == {"type": "note", "data": {"text": "forked"}}
    assert started.imported
    assert started.source is None
    [forked] = there.events("run_forked", run_id="f")
    assert forked["imported"]
    assert b'"max_phase_visits":1' in there.journal.blob(forked["settings"])


def test_a_fork_of_an_imported_run_performs_no_inherited_intent(here: Project, there: Project):
    """The run was cut between the intent and the outcome of a write, and before the answer of a model."""
    here.run("s", [act(WRITE), go("b"), finish()])
    for kind in ("file_started", "llm_requested"):
        archive = export(here)
        cut_after(archive, kind)
        project = make_project(there.root / kind)
        import_(project, archive)
        with project.open([go("b"), finish()]) as rt:
            assert rt.fork("k", run_id="f").ok
            assert [event.kind for event in rt.runs.events("f")][:2] == ["run_started", "run_forked"]
            assert project.kinds("f").count("llm_requested") == 2
        assert not (project.root / "output").exists()


def test_a_forged_answer_does_not_approve_an_action_of_a_fork(here: Project, there: Project):
    ask = {"permissions": {"file.write": [{"ask": "output/"}]}}
    here.run("s", [go("b"), finish()])
    archive = export(here)
    last = next(event for event in archive.events if event["kind"] == "phase_completed")
    answered = {"wait": "1.1.1.approve", "value": archive.add_blob(b'"approve"'), "message": 1}
    at = archive.events.index(archive.events[0]) + 1
    archive.events = [archive.events[0], last | {"kind": "wait_answered", "v": 1, "ts": archive.events[0]["ts"]}]
    archive.events[at] |= {"seq": 2, "data": answered}
    import_(there, archive)
    with there.open([act(WRITE), go("b"), finish()], **ask) as rt:
        result = rt.fork("k", run_id="f")
    assert (result.status, result.question.reason) == ("waiting", "approval")
    assert not (there.root / "output").exists()


@pytest.mark.parametrize("verb", ["fork", "rerun"])
def test_no_standing_approval_applies_to_the_skill_of_an_imported_run(here: Project, there: Project, verb: str):
    ask = {"permissions": {"file.write": [{"ask": "output/"}]}}
    here.run("s", [go("b"), finish()])
    import_(there, export(here))
    started = next(iter(there.events("run_started")))
    rule = "permissions.file.write: ask output/"
    project = project_identity(there.root)
    there.journal.approve(Approval("s", started["skill_hash"], "file write", rule, "ada", 1, "k", project))
    with there.open([act(WRITE), go("b"), finish()], **ask) as rt:
        assert rt.run("s", IN, run_id="own").ok
    (there.root / "output" / "a.md").unlink()
    with there.open([act(WRITE), go("b"), finish()], **ask) as rt:
        result = rt.fork("k", at=1, run_id="new") if verb == "fork" else rt.rerun("k", run_id="new")
        assert (result.status, result.question.reason) == ("waiting", "approval")


@pytest.mark.parametrize("verb", ["fork", "rerun"])
def test_a_grant_to_a_named_skill_is_not_for_an_imported_one(here: Project, there: Project, verb: str):
    write = file("write", "log/a.md", content="1")
    for project in (here, there):
        requests = "permissions: {file.write: [log/]}\n"
        write_skill(project.root, "s", {"a": ["end"]}, ops={"a": "file"}, skill_keys=requests)
    grant = {"permissions": {"file.write": [{"allow": "log/", "skill": "s"}]}}
    here.run("s", [finish()])
    import_(there, export(here))
    with there.open([act(write), finish()], **grant) as rt:
        assert (rt.fork("k", at=1, run_id="new") if verb == "fork" else rt.rerun("k", run_id="new")).ok
        assert not (there.root / "log").exists()
    with there.open([act(write), finish()], **grant) as rt:
        assert rt.run("s", IN, run_id="own").ok
        assert (there.root / "log" / "a.md").exists()


def test_a_rerun_of_an_imported_run_does_not_load_the_path_that_it_names(here: Project, there: Project):
    here.run("s", [go("b"), finish()])
    archive = export(here)
    archive.events[0]["data"]["source"] = str(here.root / "reyn" / "project" / "inner")
    import_(there, archive)
    with there.open([go("b"), finish()]) as rt:
        assert rt.rerun("k", upgrade=True, run_id="r").ok
        assert rt.runs.find("r").skill == "s"


def test_a_fork_of_a_fork_inherits_nothing_from_an_imported_run(here: Project, there: Project):
    """The second fork continues from an imported event as well, and the model is not the one that the import names."""
    here.run("s", [go("b"), finish()], max_phase_visits=7)
    archive = export(here)
    archive.events[0]["data"]["model"] = "scripted:/etc/passwd"
    import_(there, archive)
    with there.open([go("b"), finish()], max_phase_visits=1) as rt:
        assert rt.fork("k", at=1, run_id="first").ok
    with there.open([go("b"), finish()], max_phase_visits=1) as rt:
        assert rt.fork("first", at=4, run_id="second").ok
        [forked] = there.events("run_forked", run_id="second")[-1:]
        assert forked["point"]["seq"] == 2
    with there.open([go("b"), finish()], max_phase_visits=1) as rt:
        assert rt.fork("first", at=1, run_id="third").ok
        [forked] = there.events("run_forked", run_id="third")
        assert forked["imported"]
        assert b'"max_phase_visits":1' in there.journal.blob(forked["settings"])
    with there.open([go("b"), finish()]) as rt:
        assert rt.rerun("first", run_id="again").ok
        [started] = there.events("run_started", run_id="again")
        assert started["imported"]
        assert started["model"] != "scripted:/etc/passwd"


# -- families -----------------------------------------------------------------------------------------

INNER = {"kind": "run_skill", "skill": "inner", "input": {"text": "for inner"}}
FAMILY = [act(INNER), finish("inner"), finish("outer")]


def family(here: Project) -> Archive:
    assert here.run("outer", FAMILY).ok
    return export(here)


@pytest.mark.parametrize("run", ["k", "k.1.1.1"])
def test_an_export_contains_the_whole_family(here: Project, there: Project, run: str):
    family(here)
    archive = export(here, run)
    assert archive.header["run"] == run
    assert archive.header["runs"] == ["k", "k.1.1.1"]
    import_(there, archive)
    with there.open([]) as rt:
        assert rt.runs.verify("k").sub_runs == 1
        assert rt.runs.find("k.1.1.1").imported


def test_a_planted_sub_run_is_not_imported(here: Project, there: Project):
    """The id and the input are those of the sub-run that the waiting run of the victim will start next."""
    asking = [act(question("Go on?")), act(INNER), finish("honest"), finish("outer")]
    for project in (here, there):
        project.run("outer", asking)
    with here.open([*asking[:2], finish("planted"), finish()]) as rt:
        rt.answer("k", "1.1.1", "yes")
        assert rt.resume("k").ok
    archive = export(here)
    child = "k.1.2.1"
    alone = export(here)
    alone.events = alone.run_events(child)
    alone.header |= {"run": child, "runs": [child]}
    as_root = export(here)
    as_root.events = as_root.run_events(child)
    as_root.header |= {"run": child, "runs": [child]}
    del as_root.events[0]["data"]["parent"]
    for forged, error in ((archive, RunIdTaken), (alone, ArchiveInvalid), (as_root, RunIdTaken)):
        with pytest.raises(error):
            import_(there, forged)
    with there.open(asking) as rt:
        rt.answer("k", "1.1.1", "yes")
        assert rt.resume("k").ok
        assert rt.runs.result(child).artifact["data"] == {"text": "honest"}


@pytest.mark.parametrize("forged", ["skill_hash", "input", "workspace"])
def test_a_sub_run_that_its_parent_did_not_start_is_not_imported(here: Project, there: Project, forged: str):
    archive = family(here)
    opening = archive.run_events("k.1.1.1")[0]["data"]
    if forged == "workspace":
        opening["workspace"] = "k"
    elif forged == "input":
        content = archive.add_blob(b'{"data":{"text":"other"},"type":"note"}')
        opening["input"] = {"type": "note", "hash": content}
    else:
        opening["skill_hash"] = archive.events[0]["data"]["skill_hash"]
    with pytest.raises(ArchiveInvalid, match="another skill, input or workspace"):
        import_(there, archive)


@pytest.mark.parametrize("forged", ["skill_hash", "input"])
def test_a_parent_takes_no_result_of_another_sub_run(here: Project, there: Project, forged: str):
    """The journal has a run with the id of the sub-run, which is to start after an interruption."""
    archive = family(here)
    parent, child = archive.run_events("k"), archive.run_events("k.1.1.1")
    at = next(number for number, event in enumerate(parent) if event["kind"] == "child_started")
    archive.events = [*parent[: at + 1], *child]
    if forged == "input":
        content = archive.add_blob(b'{"data":{"text":"other"},"type":"note"}')
        child[0]["data"]["input"] = {"type": "note", "hash": content}
    else:
        child[0]["data"]["skill_hash"] = parent[0]["data"]["skill_hash"]
    plant(there, archive)
    assert there.resume(FAMILY[:1] + FAMILY[2:]).ok
    [completed] = there.events("child_ended")
    assert "another skill, input or workspace" in completed["error"]


def test_a_parent_takes_no_result_of_an_imported_sub_run(here: Project, there: Project):
    archive = family(here)
    parent = archive.run_events("k")
    at = next(number for number, event in enumerate(parent) if event["kind"] == "child_started")
    contents = read_archive(archive.lines(), ImportLimits())
    child = contents.events["k.1.1.1"]
    there.journal.import_runs([_batch("k.1.1.1", child, contents)], "a test")
    there.journal.append("k", 0, contents.events["k"][: at + 1], list(contents.blobs.values()))
    assert there.resume(FAMILY[:1] + FAMILY[2:]).ok
    [completed] = there.events("child_ended")
    assert "was imported" in completed["error"]


def _batch(run: str, events: list[Event], contents: Any) -> Any:
    from reyn.journal import Batch

    return Batch(run, 0, events, list(contents.blobs.values()))


def test_verify_compares_a_sub_run_with_the_one_whose_result_was_taken(here: Project):
    family(here)
    [completed] = here.events("child_ended")
    assert completed["head"] == here.journal.find("k.1.1.1").hash
    with here.open([]) as rt:
        assert rt.runs.verify("k").sub_runs == 1
        rt.runs.undo("k.1.1.1")
        assert rt.runs.verify("k").sub_runs == 1  # events that were appended later do not matter
    journal = here.journal
    assert isinstance(journal, MemoryJournal)
    journal._events["k.1.1.1"] = journal._events["k.1.1.1"][:-1]
    journal._rows["k.1.1.1"] = rebuild(journal._events["k.1.1.1"])
    with here.open([]) as rt, pytest.raises(ChainBroken, match="is not the one whose result run `k` took"):
        rt.runs.verify("k")


# -- one transaction, everything checked first ---------------------------------------------------------


def test_an_invalid_second_run_leaves_nothing_stored(here: Project, there: Project):
    archive = export_two(here)
    archive.run_events("second")[-1]["data"]["unknown"] = 1
    with pytest.raises(ArchiveInvalid):
        import_(there, archive)
    assert there.journal.runs() == []
    assert not (there.root / ".reyn" / "workspace").exists()


def export_two(here: Project) -> Archive:
    here.run("s", [act(WRITE), go("b"), finish()])
    here.run("s", [go("b"), finish()], run_id="second")
    first, second = export(here), export(here, "second")
    first.events += second.events
    first.blobs |= second.blobs
    first.header["runs"] = ["k", "second"]
    return first


BAD_PATHS = [
    "",
    ".",
    "..",
    "../x",
    "/etc/x",
    "a\x00b",
    "a//b",
    "workspace:",
    "workspace:/x",
    "workspace:../x",
    "x" * 300,
]


@pytest.mark.parametrize("path", BAD_PATHS)
@pytest.mark.parametrize("field", ["path", "made"])
def test_a_path_that_no_op_can_record_is_not_imported(here: Project, there: Project, path: str, field: str):
    here.run("s", [act(WRITE), go("b"), finish()])
    archive = export(here)
    [updated] = archive.of_kind("workspace_updated")
    updated["data"]["change"][field] = path if field == "path" else [path]
    with pytest.raises(ArchiveInvalid, match="is not the path of a file"):
        import_(there, archive)
    assert there.journal.runs() == []


@pytest.mark.parametrize(
    ("where", "value"),
    [
        (("ts",), 2**80),
        (("ts",), -1),
        (("ts",), 2**63),
        (("seq",), 2**70),
        (("v",), 2**70),
        (("data", "rules"), 2**70),
        (("data", "rules"), 2**63),
        (("data", "wording"), 2**80),
        (("data", "run_id"), "../x"),
        (("data", "skill_hash"), "no hash"),
        (("data", "workspace"), "other"),
    ],
)
def test_an_impossible_value_is_not_imported(here: Project, there: Project, where: tuple[str, ...], value: Any):
    here.run("s", [go("b"), finish()])
    archive = export(here)
    holder = archive.events[0]
    for name in where[:-1]:
        holder = holder[name]
    holder[where[-1]] = value
    with pytest.raises(ArchiveInvalid):
        import_(there, archive)
    assert there.journal.runs() == []


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("wait_opened", "wait", {"id": "x", "reason": "question", "message": "?", "response_schema": {"type": 7}}),
        ("wait_answered", "message", 2**70),
        ("phase_started", "visit", -1),
        ("llm_responded", "call", "1."),
        ("llm_responded", "call", "9" * 5000),
        ("skill_completed", "artifact", {"type": "card", "hash": None}),
    ],
)
def test_an_event_that_cannot_be_shown_is_not_imported(
    here: Project, there: Project, kind: str, field: str, value: Any
):
    with here.open([act(question("Go on?")), go("b"), finish()]) as rt:
        rt.run("s", IN, run_id="k")
        rt.answer("k", "1.1.1", "yes")
        assert rt.resume("k").ok
    archive = export(here)
    event = archive.of_kind(kind)[0]
    if isinstance(value, dict) and value.get("hash", "") is None:
        value["hash"] = event["data"][field]["hash"]
    event["data"][field] = value
    with pytest.raises(ArchiveInvalid):
        import_(there, archive)
    assert there.journal.runs() == []


@pytest.mark.parametrize(
    ("kind", "field", "content"),
    [
        ("llm_responded", "text", b"\xff\xfe"),
        ("llm_requested", "tools", b'{"name": "x"}'),
        ("file_started", "args", b"[]"),
        ("file_completed", "result", b"no JSON"),
        ("file_completed", "result", b"[" * 300 + b"]" * 300),
        ("run_started", "settings", b"{"),
        ("run_started", "skill_hash", b"{}"),
        ("run_started", "ops", b"\xff"),
    ],
)
def test_content_of_the_wrong_shape_is_not_imported(
    here: Project, there: Project, kind: str, field: str, content: bytes
):
    here.run("s", [act(WRITE), go("b"), finish()])
    archive = export(here)
    archive.of_kind(kind)[0]["data"][field] = archive.add_blob(content)
    with pytest.raises(ArchiveInvalid):
        import_(there, archive)
    assert there.journal.runs() == []


def test_a_recorded_prompt_of_the_wrong_shape_is_an_error_with_advice(here: Project, there: Project):
    here.run("s", [go("b"), finish()])
    archive = export(here)
    for event in archive.of_kind("llm_requested"):
        event["data"]["tools"] = archive.add_blob(b'{"system": 7}')
    plant(there, archive)
    with there.open([]) as rt, pytest.raises(EventInvalid, match="event 12 refers to content") as raised:
        rt.runs.prompt_at("k")
    assert "archive that Reyn did not write" in raised.value.hint


def test_a_copy_of_a_skill_with_a_missing_phase_is_not_imported(here: Project, there: Project):
    here.run("s", [go("b"), finish()])
    archive = export(here)
    started = archive.events[0]["data"]
    skill = archive.blobs[started["skill_hash"]].replace(b'"entry":"a"', b'"entry":"nowhere"')
    started["skill_hash"] = archive.add_blob(skill)
    with pytest.raises(ArchiveInvalid, match="no phase or skill `nowhere`"):
        import_(there, archive)


@pytest.mark.parametrize("verb", ["fork", "rerun"])
def test_an_invalid_copy_of_a_skill_under_older_rules_is_imported_but_not_continued(
    here: Project, there: Project, verb: str
):
    """Copies under older rules are not checked by the import: their shape may differ from today's."""
    here.run("s", [go("b"), finish()])
    archive = export(here)
    started = archive.events[0]["data"]
    skill = archive.blobs[started["skill_hash"]].replace(b'"required":["text"]', b'"required":"text"')
    started |= {"skill_hash": archive.add_blob(skill), "rules": 4}
    import_(there, archive)
    with there.open([finish()]) as rt, pytest.raises(RunBlocked, match="invalid schema"):
        getattr(rt, verb)("k")


@pytest.mark.parametrize("kind", ["artifact_stored", "run_started"])
def test_events_in_an_order_that_no_run_produces_are_not_imported(here: Project, there: Project, kind: str):
    here.run("s", [go("b"), finish()])
    archive = export(here)
    archive.events = [event for event in archive.events if event["kind"] != kind]
    for number, event in enumerate(archive.events, start=1):
        event["seq"] = number
    with pytest.raises(ArchiveInvalid):
        import_(there, archive)
    assert there.journal.runs() == []


def test_the_fold_reports_an_impossible_order(here: Project):
    here.run("s", [go("b"), finish()])
    events = list(here.journal.read("k"))
    with pytest.raises(HistoryInvalid, match="before `run_started`"):
        apply(EMPTY, kinds.PhaseStarted("a", 1, kinds.ArtifactRef("note", "0" * 64)), 1)
    state = fold(events[:1])
    for body in (
        kinds.PhaseCompleted("a", 1, "finish"),
        kinds.PostprocessorStarted(1, kinds.ArtifactRef("note", "0" * 64)),
        kinds.PostprocessorFailed("RYN203", "why"),
    ):
        with pytest.raises(HistoryInvalid, match="without an artifact"):
            apply(state, body, 1)


@pytest.mark.parametrize("limit", ["bytes", "line_bytes", "content_bytes", "runs", "events"])
def test_an_archive_beyond_a_limit_is_refused(here: Project, there: Project, limit: str):
    archive = export_two(here)
    with pytest.raises(ArchiveTooLarge):
        import_(there, archive, limits=ImportLimits(**{limit: 1}))
    assert there.journal.runs() == []


def test_a_file_without_an_end_of_line_is_not_read_as_a_whole(there: Project):
    with Path("/dev/zero").open("rb") as file, there.open([]) as rt, pytest.raises(ArchiveTooLarge, match="a line"):
        rt.runs.import_(file, limits=ImportLimits(line_bytes=1_000_000))


def test_a_compressed_file_is_recognised(there: Project, tmp_path: Path):
    path = tmp_path / "run.jsonl.gz"
    path.write_bytes(gzip.compress(b"{}\n"))
    with path.open("rb") as file, there.open([]) as rt, pytest.raises(ArchiveInvalid) as caught:
        rt.runs.import_(file)
    assert "decompress" in caught.value.hint


# -- replay and verify --------------------------------------------------------------------------------

EDIT = file("edit", "output/a.md", old_string="new", new_string="newer")
CHANGES = [act(WRITE, EDIT, file("delete", "output/b.md")), go("b"), finish()]


@pytest.mark.parametrize("op", ["write", "edit", "delete"])
@pytest.mark.parametrize("field", ["path", "after", "made"])
def test_replay_detects_a_change_that_the_arguments_do_not_imply(here: Project, there: Project, op: str, field: str):
    (here.root / "output").mkdir()
    (here.root / "output/b.md").write_text("b")
    here.run("s", CHANGES)
    archive = export(here)
    evil = archive.add_blob(EVIL)
    value: Any = {"path": "output/other.md", "after": evil, "made": ["reyn"]}[field]
    [started] = [event for event in archive.of_kind("file_started") if event["data"]["op"] == op]
    call = started["data"]["call"]
    for event in archive.events:
        if event["data"].get("call") == call:
            for change in [event["data"].get("change"), *event["data"].get("changes", [])]:
                if change:
                    change[field] = value
    import_(there, archive)
    with there.open([]) as rt:
        assert rt.runs.verify("k")
        with pytest.raises(ReplayMismatch, match="file_started") as caught:
            rt.runs.replay("k")
        assert caught.value.seq == started["seq"]


def test_replay_detects_arguments_that_the_model_did_not_give(here: Project, there: Project):
    here.run("s", [act(WRITE), go("b"), finish()])
    archive = export(here)
    [started] = archive.of_kind("file_started")
    args = b'{"content":"evil","kind":"file","op":"write","path":"output/a.md"}'
    started["data"]["args"] = archive.add_blob(args)
    after = archive.add_blob(b"evil")
    started["data"]["changes"][0]["after"] = after
    archive.of_kind("workspace_updated")[0]["data"]["change"]["after"] = after
    import_(there, archive)
    with there.open([]) as rt, pytest.raises(ReplayMismatch, match="recorded arguments"):
        rt.runs.replay("k")


def test_replay_accepts_paths_through_links_and_in_other_spellings(here: Project):
    (here.root / "output" / "deep").mkdir(parents=True)
    (here.root / "latest").symlink_to("output/deep")
    paths = ["latest/a.md", "output//deep/./b.md", str(here.root / "output" / "c.md"), "workspace:/d.md"]
    here.run("s", [act(*(file("write", path, content="x") for path in paths)), go("b"), finish()])
    assert [event["change"]["path"] for event in here.events("workspace_updated")] == [
        "output/deep/a.md",
        "output/deep/b.md",
        "output/c.md",
        "workspace:d.md",
    ]
    assert here.is_sound()


class GrowingJournal(MemoryJournal):
    """A journal of a live run: one more event is appended whenever content is read."""

    def __init__(self) -> None:
        super().__init__()
        self.rest: list[Event] = []

    def blob(self, hash: str) -> bytes:
        if self.rest:
            event = self.rest.pop(0)
            self.append(event.run_id, event.seq - 1, [event])
        return super().blob(hash)


@pytest.mark.parametrize("operation", ["verify", "replay"])
def test_a_live_run_gives_no_false_alarm(here: Project, tmp_path: Path, operation: str):
    here.run("s", [act(WRITE), go("b"), finish()])
    contents = read_archive(export(here).lines(), ImportLimits())
    events, journal = contents.events["k"], GrowingJournal()
    journal.append("k", 0, events[:6], list(contents.blobs.values()))
    journal.rest = events[6:]
    with Project(here.root, journal).open([]) as rt:
        report = getattr(rt.runs, operation)("k")
        assert report.events == 6
        assert journal.find("k").seq > 6


def test_verify_compares_with_a_noted_hash(here: Project):
    here.run("s", [go("b"), finish()])
    events = list(here.journal.read("k"))
    with here.open([]) as rt:
        assert rt.runs.verify("k").noted_at is None
        assert rt.runs.verify("k", head=events[3].hash).noted_at == 4
        assert rt.runs.verify("k", head=rt.runs.verify("k").head).noted_at == len(events)
        with pytest.raises(HeadMismatch, match="no event of run `k`"):
            rt.runs.verify("k", head="0" * 64)
