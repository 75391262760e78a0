"""Forks, reruns, upgrades, undo, diff, export and import."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from reyn import SyncRuntime
from reyn.errors import ArchiveInvalid, ForkImpossible, RunIdTaken, UpgradeIncompatible
from reyn.journal.sqlite import SqliteJournal
from reyn.ops import Call, Env, OpForm, OpSpec, Plan
from reyn.runs.timeline import Timeline
from reyn.testing import ScriptedModel
from reyn.vocabulary.schemas import arguments as fields
from reyn.vocabulary.schemas import result, text
from tests.kernel.support import Project
from tests.support import abort, act, file, finish, go, question, write_skill


@pytest.fixture(params=["memory", "sqlite"])
def project(tmp_path: Path, request: pytest.FixtureRequest):
    write_skill(tmp_path, "s", {"a": ["b"], "b": ["a", "end"]}, ops={"a": "file, ask_user", "b": "file"})
    journal = SqliteJournal(tmp_path / ".reyn") if request.param == "sqlite" else None
    made = Project(tmp_path, journal)
    close = made.journal.close
    yield made
    close()


def reopened(project: Project, answers: list, **options) -> SyncRuntime:
    """A runtime that leaves the journal open."""
    rt = project.open(answers, **options)
    rt.async_form.services.journal.close = lambda: None
    return rt


END = {"reason": "it is good", "choice": "end", "confidence": 1, "data": {"text": "done"}}
ANSWERS = [act(file("write", "workspace:n.txt", content="1")), go("b", "one"), abort("stuck")]


def test_a_fork_continues_from_an_event_and_shares_the_events_before_it(project: Project):
    with reopened(project, ANSWERS) as rt:
        assert rt.run("s", {"text": "in"}, run_id="k").status == "aborted"
    before = list(project.journal.read("k"))
    with reopened(project, [*ANSWERS[:2], finish("saved")]) as rt:
        result = rt.fork("k", run_id="f")
        assert result.ok
        assert result.path == ("a", "b")
        events = list(rt.runs.events("f"))
        opened = next(event for event in events if event.kind == "run_forked")
        assert opened.seq == opened.data["point"]["seq"] + 1
        assert opened.prev == before[opened.seq - 2].hash
        assert [event.run_id for event in events[: opened.seq - 1]] == ["k"] * (opened.seq - 1)
        assert events[: opened.seq - 1] == before[: opened.seq - 1]
        assert list(rt.runs.events("f", after=opened.seq)) == events[opened.seq :]
        assert list(rt.runs.events("f", after=opened.seq - 3)) == events[opened.seq - 3 :]
        assert rt.runs.verify("f").events == len(events)
        assert rt.runs.replay("f").status == "finished"
        assert list(project.journal.read("k")) == before
        assert rt.runs.find("f").fork_of == "k"
    assert (project.root / ".reyn/workspace/f/n.txt").read_text() == "1"


def test_a_fork_can_replace_the_input_of_its_first_phase(project: Project):
    with reopened(project, ANSWERS) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
    with reopened(project, [*ANSWERS[:2], finish()]) as rt:
        assert rt.fork("k", input={"text": "other"}, run_id="f").ok
        assert project.model.turn_message(0).startswith("other\n")
        started = [event for event in rt.runs.events("f") if event.kind == "phase_started"]
        assert [event.data["phase"] for event in started] == ["a", "b"]
        assert rt.runs.replay("f").status == "finished"
        assert rt.fork("k", at=3, input={"text": "first"}, run_id="g").ok
        assert "first" in project.model.turn_message(1)


def test_a_fork_can_continue_with_another_skill(project: Project):
    with reopened(project, ANSWERS) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
    phase = project.root / "reyn/project/s/phases/b.md"
    phase.write_text(phase.read_text().replace("Do what b does.", "Do it better."))
    with reopened(project, [*ANSWERS[:2], finish()]) as rt:
        assert rt.fork("k", skill="s", run_id="f").ok
        assert "Do it better." in project.model.system_message(0)
        assert rt.runs.replay("f").status == "finished"
        report = rt.runs.diff("k", "f")
        assert report.cause == "skill"


def test_a_fork_of_a_fork_shares_the_events_of_both(project: Project):
    with reopened(project, ANSWERS) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
    with reopened(project, [*ANSWERS[:2], go("a", "round"), abort("again")]) as rt:
        rt.fork("k", run_id="f")
    with reopened(project, [*ANSWERS[:2], go("a", "round"), go("b", "x"), finish()]) as rt:
        result = rt.fork("f", run_id="g")
        assert result.ok
        assert result.path == ("a", "b", "a", "b")
        assert rt.runs.replay("g").status == "finished"
        assert {event.run_id for event in rt.runs.events("g")} == {"k", "f", "g"}


def test_a_fork_point_before_the_first_event_is_refused(project: Project):
    with reopened(project, ANSWERS) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
        with pytest.raises(ForkImpossible):
            rt.fork("k", at=0)
        with pytest.raises(RunIdTaken):
            rt.fork("k", run_id="k")


def test_a_fork_point_after_the_last_event_is_refused(project: Project):
    with reopened(project, ANSWERS) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
        last = rt.runs.find("k").seq
        with pytest.raises(ForkImpossible, match="no event 999") as raised:
            rt.fork("k", at=999, run_id="f")
        assert raised.value.hint == f"Choose an event from 1 to {last}."
        with pytest.raises(ForkImpossible, match=f"no event {last + 1}"):
            rt.fork("k", at=last + 1, input={"text": "other"})
        assert [row.run_id for row in rt.runs.all()] == ["k"]
        assert len(project.model.requests) == len(ANSWERS)
        assert not (project.root / ".reyn/workspace/f").exists()
        rt.fork("k", at=last, run_id="f")


def test_a_rerun_starts_with_the_same_input_and_skill(project: Project):
    with reopened(project, ANSWERS) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
    phase = project.root / "reyn/project/s/phases/a.md"
    phase.write_text(phase.read_text().replace("Do what a does.", "Do it better."))
    with reopened(project, ANSWERS) as rt:
        assert rt.rerun("k", run_id="again").status == "aborted"
        assert "Do what a does." in project.model.system_message(0)
        assert rt.runs.diff("k", "again").is_same
        rt.rerun("k", run_id="new", upgrade=True)
        assert "Do it better." in project.model.system_message(3)
        assert [event.data["rerun_of"] for event in rt.runs.events("again") if event.kind == "run_started"] == ["k"]


# -- diff ---------------------------------------------------------------------------------------------


def test_diff_names_the_first_different_decision_and_its_cause(project: Project):
    with reopened(project, ANSWERS) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
    with reopened(project, [*ANSWERS[:2], finish()]) as rt:
        rt.run("s", {"text": "in"}, run_id="other-answer")
        report = rt.runs.diff("k", "other-answer")
        assert (report.cause, report.decisions) == ("answer", 2)
        assert report.in_a.phase == "b"
    with reopened(project, ANSWERS) as rt:
        rt.run("s", {"text": "elsewhere"}, run_id="other-input")
        assert rt.runs.diff("k", "other-input").cause == "input"
        rt.run("s", {"text": "in"}, run_id="same")
        assert rt.runs.diff("k", "same").is_same


def test_diff_names_the_frame_part_that_differs(project: Project):
    (project.root / "x.txt").write_text("before")
    answers = [act(file("read", "x.txt")), go("b"), finish()]
    with reopened(project, answers) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
    (project.root / "x.txt").write_text("after")
    with reopened(project, [answers[0], go("b", "otherwise"), finish()]) as rt:
        rt.run("s", {"text": "in"}, run_id="l")
        report = rt.runs.diff("k", "l")
        assert (report.cause, report.part) == ("frame", "Results")


# -- upgrade ------------------------------------------------------------------------------------------


def edit(project: Project, phase: str) -> None:
    path = project.root / f"reyn/project/s/phases/{phase}.md"
    path.write_text(path.read_text().replace(f"Do what {phase} does.", "Do it better."))


def test_a_waiting_run_can_be_upgraded_if_its_current_phase_is_unchanged(project: Project):
    answers = [act(question("ok?")), go("b"), finish()]
    with reopened(project, answers) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
        edit(project, "b")
        rt.answer("k", "1.1.1", "yes")
        assert rt.resume("k", upgrade=True).ok
        assert "Do it better." in project.model.system_message(2)
        assert rt.runs.replay("k").status == "finished"


def test_an_incompatible_upgrade_is_refused_and_the_run_continues_without_it(project: Project):
    answers = [act(question("ok?")), go("b"), finish()]
    with reopened(project, answers) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
        edit(project, "a")
        rt.answer("k", "1.1.1", "yes")
        with pytest.raises(UpgradeIncompatible, match="has changed since the run started"):
            rt.resume("k", upgrade=True)
        assert rt.resume("k").ok


class Note:
    """An op whose specification differs between two installed versions."""

    def __init__(self, summary: str) -> None:
        arguments = fields("note", None, {"text": text(80)})
        form = OpForm(None, summary, arguments, "idempotent", result("note", None, {}), {"kind": "note", "text": "x"})
        self.spec = OpSpec("note", summary, effect="idempotent", forms=(form,))

    def plan(self, call: Call, env: Env) -> Plan:
        return Plan("notes are allowed")

    async def perform(self, call: Call, plan: Plan, env: Env) -> dict[str, Any]:
        return call.ok()


@pytest.mark.parametrize("summary", ["Take a note.", "Take a note and keep it."])
def test_an_unedited_skill_can_be_upgraded_even_if_an_op_has_changed(project: Project, summary: str):
    write_skill(project.root, "noting", {"a": ["b"], "b": ["end"]}, ops={"a": "note, ask_user", "b": "note"})
    answers = [act({"kind": "note", "text": "1"}, question("ok?")), go("b"), finish()]
    with reopened(project, answers, ops=[Note("Take a note.")]) as rt:
        assert rt.run("noting", {"text": "in"}, run_id="k").status == "waiting"
        rt.answer("k", "1.1.2", "yes")
    with reopened(project, answers, ops=[Note(summary)]) as rt:
        assert rt.resume("k", upgrade=True).ok
        assert "Take a note." in project.model.system_message(0)  # the open visit keeps what it was offered
        assert summary in project.model.system_message(1)
        assert rt.runs.replay("k").status == "finished"


def test_an_upgrade_checks_the_input_of_a_phase_that_failed(project: Project):
    with reopened(project, [go("b"), "no", "no", "no", finish()]) as rt:
        assert rt.run("s", {"text": "in"}, run_id="k").status == "failed"
        number = {"type": "object", "properties": {"text": {"type": "integer"}}}
        (project.root / "reyn/project/s/artifacts/note.yaml").write_text(json.dumps(number))
        with pytest.raises(UpgradeIncompatible, match="phase `b` no longer accepts its input"):
            rt.resume("k", retry=True, upgrade=True)


def lines(rt: SyncRuntime, run: str) -> str:
    """The lines of `reyn show`."""
    timeline = Timeline(rt.runs.content)
    return "\n".join(entry.text for event in rt.runs.events(run) if (entry := timeline.add(event)) is not None)


def prompt(rt: SyncRuntime, run: str) -> str:
    """The last prompt of a run."""
    return "\n".join(text for _, text in rt.runs.prompt_at(run))


def test_a_fork_takes_an_answer_of_the_user_at_any_model_call(project: Project):
    with reopened(project, ANSWERS) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
        calls = [event.seq for event in rt.runs.events("k") if event.kind == "llm_requested"]
    assert len(calls) == 3
    for number, seq in enumerate(calls):
        answers = [finish("saved") if one == number else ANSWERS[one] for one in range(3)]
        answers[number] = {"not": "asked"}  # the model is not called for it
        own = finish("mine") if number == 2 else go("b", "mine")
        with reopened(project, [*answers[: number + 1], finish("model")]) as rt:
            fork = f"f{number}"
            result = rt.fork("k", at=seq + 1, answer=own, run_id=fork)
            assert result.ok
            assert result.artifact["data"]["text"] == ("mine" if number == 2 else "model")
            events = list(rt.runs.events(fork))
            opened = next(event for event in events if event.kind == "run_forked")
            assert opened.data["point"]["seq"] == seq
            answered = events[opened.seq]
            assert answered.kind == "llm_responded"
            assert opened.data["answer"] == answered.data["text"]
            assert answered.data["usage"] == {"input_tokens": 0, "output_tokens": 0} | answered.data["usage"]
            assert rt.runs.verify(fork).events == len(events)
            assert rt.runs.replay(fork).status == "finished"
            report = rt.runs.diff("k", fork)
            assert report.cause == "answer"
            assert "answer of the user" in lines(rt, fork)


WRITE = file("write", "workspace:n.txt", content="1")
UNFIT: dict[str, tuple[Any, str]] = {
    "no JSON": ("a text", "not one JSON object"),
    "another object": ({"not": "asked"}, "at `$"),
    "shape": ({"control_ir": 7}, "at `$"),
    "phase": (go("nowhere", "x"), "nowhere"),
    "not offered": (finish("too early"), "finish"),
    "inconsistent": (go("b", decision="finish"), "decision"),
    "type": (go("b", type="other"), "other"),
    "schema": (go("b") | {"artifact": {"type": "note", "data": {}}}, "text"),
    "op that is not offered": (act({"kind": "web_fetch", "url": "https://example.com"}), "web_fetch"),
    "arguments of an op": (act({"kind": "file", "op": "write"}), "path"),
    "op of a decision": (go("b") | {"control_ir": [{"kind": "file", "op": "none", "path": "x"}]}, "none"),
}
"""Answers of a user that phase `a` does not accept, and what the error names."""


@pytest.mark.parametrize(("at", "retries"), [(None, 0), (8, 2)])
@pytest.mark.parametrize("case", UNFIT)
def test_an_answer_that_does_not_fit_is_refused_before_a_fork_is_made(
    tmp_path: Path, case: str, at: int | None, retries: int
):
    write_skill(tmp_path, "s", {"a": ["b"], "b": ["a", "end"]}, ops={"a": "file, ask_user", "b": "file"})
    project, (own, message) = Project(tmp_path), UNFIT[case]
    with reopened(project, [act(WRITE), "no"] if at is None else ANSWERS, max_phase_retries=0) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
    with reopened(project, [finish("model")] * 4, max_phase_retries=retries) as rt:
        before = [row.run_id for row in rt.runs.all()]
        with pytest.raises(ForkImpossible, match="does not fit") as refused:
            rt.fork("k", at=at, answer=own, run_id="f")
        assert message in str(refused.value)
        assert re.search(r"The prompt at event \d+ ", refused.value.hint)
        assert [row.run_id for row in rt.runs.all()] == before
        assert not (project.root / ".reyn/workspace/f").exists()
        assert not project.model.requests
        assert rt.fork("k", at=at, answer=go("b", "mine"), run_id="f").ok
        assert rt.runs.replay("f").status == "finished"


@pytest.mark.parametrize("form", ["full", "short", "tools"])
def test_an_answer_of_the_user_has_the_form_of_the_model(tmp_path: Path, form: Any):
    write_skill(tmp_path, "s", {"a": ["b"], "b": ["end"]})
    project = Project(tmp_path)
    short = END | {"choice": "b", "data": {"text": "mine"}}
    with reopened(
        project, [], model=ScriptedModel([short, END] if form != "full" else [go("b"), finish()], answer_form=form)
    ) as rt:
        assert rt.run("s", {"text": "in"}, run_id="k").ok
    good: Any = go("b", "mine") if form == "full" else short
    bad: list[Any] = [good | {"more": 1}, good | {"data": {"text": 1}}, "plain text"]
    if form == "tools":  # any text is that of a note
        bad = [{"content": "", "tool_calls": [{"name": "none", "arguments": {}}]}]
    first = next(event.seq for event in project.journal.read("k") if event.kind == "llm_requested")
    with reopened(project, [], model=ScriptedModel([END if form != "full" else finish()] * 2, answer_form=form)) as rt:
        for own in bad:
            with pytest.raises(ForkImpossible, match="does not fit"):
                rt.fork("k", at=first, answer=own, run_id="f")
        assert rt.fork("k", at=first, answer=good, run_id="f").ok


def test_a_fork_of_a_conversation_takes_a_text_as_the_reply(tmp_path: Path):
    keys = {"talk": "conversation: true\n"}
    write_skill(tmp_path, "s", {"talk": ["talk"]}, inputs={"talk": "user_message | note"}, phase_keys=keys)
    project = Project(tmp_path)
    with reopened(project, [], model=ScriptedModel(["hello"], answer_form="tools")) as rt:
        assert rt.run("s", {"type": "note", "data": {"text": "in"}}, run_id="k").status == "waiting"
        assert rt.fork("k", answer="my own words", run_id="f").status == "waiting"
        assert "my own words" in lines(rt, "f")


def test_a_fork_takes_new_instructions_of_phases(project: Project):
    with reopened(project, ANSWERS) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
    with reopened(project, [*ANSWERS[:2], finish("short")]) as rt:
        result = rt.fork("k", instructions={"b": "Answer in one word."}, run_id="f")
        assert result.ok
        assert "Answer in one word." in prompt(rt, "f")
        assert "Answer in one word." not in prompt(rt, "k")
        opened = next(event for event in rt.runs.events("f") if event.kind == "run_forked")
        assert opened.data["instructions"] == ["b"]
        assert "new instructions of b" in lines(rt, "f")
        report = rt.runs.diff("k", "f")
        assert (report.cause, report.skill[0], report.skill[-1]) == (
            "skill",
            "phases.b.instructions:",
            "+Answer in one word.",
        )
        assert rt.runs.replay("f").status == "finished"
        archive = list(rt.runs.export("f"))
    with Project(project.root).open([]) as rt:
        rt.runs.import_(archive)
        assert rt.runs.replay("f").status == "finished"


@pytest.mark.parametrize(("changed", "repeated"), [(["a"], ["a", "b"]), (["b"], ["b"]), (["a", "b"], ["a", "b"])])
def test_a_fork_begins_where_its_instructions_have_an_effect(project: Project, changed: list[str], repeated: list[str]):
    with reopened(project, ANSWERS) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
    with reopened(project, ANSWERS) as rt:
        rt.fork("k", instructions=dict.fromkeys(changed, "Be brief."), run_id="f")
        events = list(rt.runs.events("f"))
        forked = next(place for place, event in enumerate(events) if event.kind == "run_forked")
        started = [event.data["phase"] for event in events[forked:] if event.kind == "phase_started"]
        assert started[-len(repeated) :] == repeated
        first = next(event.seq for event in events[forked:] if event.kind == "llm_requested")
        assert "Be brief." in "".join(text for _, text in rt.runs.prompt_at("f", first))


def test_new_instructions_of_a_branch_begin_at_the_node_that_runs_it(tmp_path: Path):
    node = "nodes:\n  each: {each: {in: data.items, do: leaf, output: note}, as: notes}\n"
    open_type = {"type": "object"}
    folder = write_skill(
        tmp_path,
        "s",
        {"a": ["each"], "each": ["b"], "b": ["end"]},
        inputs={"each": "list", "b": "notes"},
        artifacts={"list": open_type, "notes": open_type},
        skill_keys=node,
    )
    (folder / "phases/each.md").write_text("---\ntype: phase\nname: each\ninput: list\n---\n")
    (folder / "phases/leaf.md").write_text("---\ntype: phase\nname: leaf\ninput: note\n---\nDo it.\n")
    items = go("each", type="list") | {"artifact": {"type": "list", "data": {"items": [{"text": "x"}]}}}
    answers = [items, finish("did x"), finish()]
    project = Project(tmp_path)
    with reopened(project, answers) as rt:
        assert rt.run("s", {"text": "in"}, run_id="k").ok
        assert rt.fork("k", instructions={"leaf": "Be brief."}, run_id="f").ok
        events = list(rt.runs.events("f"))
        forked = next(place for place, event in enumerate(events) if event.kind == "run_forked")
        started = [event.data["phase"] for event in events[forked:] if event.kind == "phase_started"]
        assert started == ["each", "b"]
        [child] = [row.run_id for row in rt.runs.all() if row.parent == "f"]
        assert "Be brief." in prompt(rt, child)
        with pytest.raises(ForkImpossible, match="calls no model"):
            rt.fork("k", instructions={"each": "Be brief."})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"instructions": {"c": "x"}}, "no phase `c`"),
        ({"instructions": {"b": " "}}, "empty"),
        ({"answer": "x", "input": {"text": "y"}}, "recorded prompt"),
        ({"answer": "x", "skill": "s"}, "recorded prompt"),
        ({"answer": "x", "instructions": {"b": "y"}}, "recorded prompt"),
        ({"answer": "x", "at": 1}, "no model call at or before event 1"),
    ],
)
def test_a_fork_that_cannot_have_its_changes_starts_nothing(project: Project, options: dict[str, Any], message: str):
    with reopened(project, ANSWERS) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
        with pytest.raises(ForkImpossible, match=message):
            rt.fork("k", run_id="f", **options)
        assert project.journal.find("f") is None


def test_a_run_that_failed_between_visits_can_be_upgraded(project: Project):
    answers = [go("b"), "no", "no", "no", finish()]
    with reopened(project, answers) as rt:
        assert rt.run("s", {"text": "in"}, run_id="k").status == "failed"
        edit(project, "b")
        assert rt.resume("k", retry=True, upgrade=True).ok
        assert "Do it better." in project.model.system_message(4)
        assert rt.runs.replay("k").status == "finished"


# -- undo ---------------------------------------------------------------------------------------------


def test_undo_restores_files_except_those_that_were_changed_since(project: Project):
    first, second = project.root / "output/one.txt", project.root / "output/two.txt"
    first.parent.mkdir()
    first.write_text("old")
    writes = act(
        file("write", "output/one.txt", content="new"),
        file("edit", "output/one.txt", old_string="new", new_string="newer"),
        file("write", "output/deep/two.txt", content="x"),
        file("write", "output/two.txt", content="y"),
    )
    with reopened(project, [writes, go("b"), finish()]) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
        assert rt.runs.changed_files("k") == {
            "output/one.txt": "changed",
            "output/deep/two.txt": "new",
            "output/two.txt": "new",
        }
        second.write_text("mine")
        dry = rt.runs.undo("k", dry_run=True)
        assert (sorted(dry.restored), dry.left) == (["output/deep/two.txt", "output/one.txt"], ("output/two.txt",))
        assert first.read_text() == "newer"
        done = rt.runs.undo("k")
        assert (sorted(done.restored), done.left) == (sorted(dry.restored), dry.left)
        assert first.read_text() == "old"
        assert not (project.root / "output/deep").exists()
        assert second.read_text() == "mine"
        assert rt.runs.undo("k").restored == ()
        assert rt.runs.replay("k").status == "finished"
        assert rt.runs.verify("k")


def test_undo_includes_sub_runs(project: Project):
    write_skill(project.root, "outer", {"@s": ["end"]})
    with reopened(project, [act(file("write", "output/x.txt", content="1")), go("b"), finish()]) as rt:
        assert rt.run("outer", {"text": "in"}, run_id="o").ok
        assert rt.runs.undo("o").restored == ("output/x.txt",)
        assert not (project.root / "output/x.txt").exists()


# -- carrying runs elsewhere --------------------------------------------------------------------------


@pytest.mark.slow
def test_an_exported_run_can_be_imported_and_forked_elsewhere(project: Project, tmp_path: Path):
    answers = [act(file("write", "workspace:n.txt", content="1")), act(question("ok?")), go("b"), finish()]
    with reopened(project, answers) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
        lines = list(rt.runs.export("k"))
    elsewhere = Project(tmp_path / "elsewhere")
    elsewhere.root.mkdir()
    with elsewhere.open(answers) as rt:
        assert rt.runs.import_(lines).imported == ("k",)
        assert rt.runs.import_(lines).known == ("k",)
        assert list(rt.runs.events("k")) == list(project.journal.read("k"))
        assert (elsewhere.root / ".reyn/workspace/k/n.txt").read_text() == "1"
        assert rt.fork("k", at=1, run_id="f").status == "waiting"
        rt.answer("f", "1.2.1", "yes")
        assert rt.resume("f").ok
        assert rt.runs.replay("f").status == "finished"


def test_a_different_run_of_the_same_id_is_not_imported(project: Project, tmp_path: Path):
    with reopened(project, ANSWERS) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
        lines = list(rt.runs.export("k"))
    with reopened(project, ANSWERS) as rt:
        rt.run("s", {"text": "other"}, run_id="other")
        rt.runs.undo("k")
    elsewhere = Project(tmp_path / "elsewhere")
    elsewhere.root.mkdir()
    write_skill(elsewhere.root, "s", {"a": ["b"], "b": ["end"]}, ops={"a": "file, ask_user"})
    with elsewhere.open(ANSWERS) as rt:
        rt.run("s", {"text": "mine"}, run_id="k")
        with pytest.raises(RunIdTaken, match="different run `k` exists"):
            rt.runs.import_(lines)


def test_an_archive_contains_origins_and_sub_runs(project: Project, tmp_path: Path):
    write_skill(project.root, "outer", {"@s": ["end"]})
    with reopened(project, ANSWERS) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
    with reopened(project, [*ANSWERS[:2], finish()]) as rt:
        rt.fork("k", run_id="f")
        forked = list(rt.runs.export("f"))
        rt.run("outer", {"text": "in"}, run_id="o")
        nested = list(rt.runs.export("o"))
    elsewhere = Project(tmp_path / "elsewhere")
    elsewhere.root.mkdir()
    with elsewhere.open([]) as rt:
        assert rt.runs.import_(forked).imported == ("k", "f")
        assert rt.runs.import_(nested).imported == ("o", "o.1.1")
        for run in ("f", "o", "o.1.1"):
            rt.runs.verify(run)
            assert rt.runs.replay(run).status == "finished"


@pytest.mark.parametrize("damage", range(7))
def test_a_damaged_archive_imports_nothing(project: Project, tmp_path: Path, damage: int):
    with reopened(project, ANSWERS) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
        lines = list(rt.runs.export("k"))
    blob = next(number for number, line in enumerate(lines) if line.startswith(b'{"blob"'))
    event = next(number for number, line in enumerate(lines) if b'"llm_responded"' in line)
    broken = [
        lines[:-1],
        lines[1:],
        [*lines[:blob], *lines[blob + 1 :]],
        [*lines[:event], lines[event].replace(b'"call":"1.1"', b'"call":"9.9"'), *lines[event + 1 :]],
        [*lines, b"{}\n"],
        [b"not json\n"],
        [],
    ][damage]
    elsewhere = Project(tmp_path / "elsewhere")
    elsewhere.root.mkdir()
    with elsewhere.open([]) as rt:
        with pytest.raises(ArchiveInvalid):
            rt.runs.import_(broken)
        assert rt.runs.all() == []


def test_an_archive_with_a_path_as_run_id_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A run id is a folder name, so an archive must not contain one that leads elsewhere."""
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file"})
    project = Project(tmp_path)
    with project.open([act(file("write", "workspace:x.txt", content="1")), finish()]) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
        lines = list(rt.runs.export("k"))
    evil = with_new_checksum(
        [line.replace(b'"run":"k"', b'"run":"../../src"').replace(b'["k"]', b'["../../src"]') for line in lines]
    )
    elsewhere = Project(tmp_path / "elsewhere")
    elsewhere.root.mkdir()
    with elsewhere.open([]) as rt, pytest.raises(ArchiveInvalid, match="is not a valid run id"):
        rt.runs.import_(evil)
    assert list(elsewhere.root.rglob("*.txt")) == []


def with_new_checksum(lines: list[bytes]) -> list[bytes]:
    seal = hashlib.sha256(b"".join(lines[:-1])).hexdigest()
    return [*lines[:-1], json.dumps({"seal": seal}).encode() + b"\n"]


def test_an_id_with_the_prefix_of_another_run_does_not_make_a_sub_run(project: Project):
    answers = [act(file("write", "output/x.txt", content="1")), go("b"), finish()]
    with reopened(project, [act(question("ok?"))]) as rt:
        rt.run("s", {"text": "in"}, run_id="a.b")
    with reopened(project, answers) as rt:
        rt.run("s", {"text": "in"}, run_id="x.y")
        rt.run("s", {"text": "in"}, run_id="x")
        assert rt.runs.undo("x", dry_run=True).restored == ()
        assert rt.runs.changed_files("x") == {}
        assert rt.run("s", {"text": "in"}, run_id="a").ok
        rt.run("s", {"text": "in"}, run_id="a")
        assert rt.runs.result("a.b").status == "waiting"
    with reopened(project, [act(question("ok?"))]) as rt:
        rt.rerun("a.b", run_id="a.b.c")
        rt.cancel("a.b")
        assert rt.runs.result("a.b.c").status == "waiting"
