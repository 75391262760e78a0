"""Every op result and artifact of a run can be read by a file op below `workspace:.full/`: a view of the journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reyn.journal import MemoryJournal, kinds
from reyn.journal.registry import chain_events
from reyn.testing import ScriptedModel
from reyn.workspace import RecordedFiles
from reyn.workspace.paths import RECORDED
from tests.kernel.support import Project
from tests.properties import examples
from tests.support import act, file, finish, go, question, write_skill

GRAPH = {"a": ["b"], "b": ["end"]}
RUN_INNER = {"kind": "run_skill", "skill": "inner", "input": {"text": "for inner"}}


def make(root: Path, **keys: Any) -> Project:
    ops = {"a": "file, run_skill", "b": "file, run_skill"}
    write_skill(root, "inner", {"x": ["y"], "y": ["end"]}, ops={"x": "file"})
    write_skill(root, "s", GRAPH, **{"ops": ops} | keys)
    (root / "menu.txt").write_text("soup\n")
    return Project(root)


def read(name: str, **more: Any) -> dict[str, Any]:
    return file("read", f"{RECORDED}{name}", **more)


def listed(pattern: str = "**") -> dict[str, Any]:
    return {"kind": "file", "op": "glob", "pattern": f"{RECORDED}{pattern}"}


def names(result: dict[str, Any]) -> list[str]:
    return [path.removeprefix(RECORDED) for path in result["matches"]]


def test_results_and_artifacts_of_earlier_visits_and_of_the_same_turn_are_files(tmp_path: Path):
    project = make(tmp_path)
    wanted = ("input", "1.1.1", "1.1.2", "1.artifact", "2.1.1")
    answers = [
        act(file("read", "menu.txt"), file("read", ".env")),
        go("b", "first"),
        act(file("write", "workspace:x", content="y"), *map(read, wanted)),
        act(listed()),
        finish(),
    ]
    assert project.run("s", answers).ok
    read_results = project.results()[3:8]
    given, menu, denied, artifact, written = [json.loads(result["content"]) for result in read_results]
    assert given == {"type": "note", "data": {"text": "in"}}
    assert (menu["status"], menu["content"], denied["status"]) == ("ok", "soup\n", "denied")
    assert artifact == {"type": "note", "data": {"text": "first"}}
    assert written == project.results()[2]
    assert names(project.results()[-1]) == sorted(
        ["input", "1.1.1", "1.1.2", "1.artifact", *(f"2.1.{n}" for n in range(1, 7))]
    )
    assert project.is_sound()


def test_a_sub_run_is_a_folder_and_the_result_of_run_skill_names_its_paths(tmp_path: Path):
    project = make(tmp_path)
    inner = [act(file("read", "menu.txt")), go("y", "middle"), finish("inner")]
    answers = [act(RUN_INNER), *inner, act(listed("1.1.1.run/*"), read("1.1.1.run/1.1.1")), go("b")]
    with project.open([*answers, finish()]) as rt:
        assert rt.run("s", {"text": "in"}, run_id="k").ok
    ran, found, menu = project.results()
    assert ran["folder"] == f"{RECORDED}1.1.1.run"
    named = {one["phase"]: one["path"] for one in ran["phase_artifacts"]}
    assert named == {"x": f"{RECORDED}1.1.1.run/1.artifact", "y": f"{RECORDED}1.1.1.run/2.artifact"}
    assert names(found) == [f"1.1.1.run/{name}" for name in ("1.1.1", "1.artifact", "2.artifact", "input")]
    assert json.loads(menu["content"])["content"] == "soup\n"
    assert project.is_sound()


def test_sub_runs_of_sub_runs_and_of_nodes_are_folders_in_folders(tmp_path: Path):
    write_skill(tmp_path, "deep", {"z": ["end"]})
    write_skill(tmp_path, "inner", {"@deep": ["end"]})
    write_skill(tmp_path, "s", {"@inner": ["b"], "b": ["end"]}, ops={"b": "file"})
    project = Project(tmp_path)
    assert project.run("s", [finish("deep"), act(listed(), read("1.1.run/1.1.run/1.artifact")), finish()]).ok
    found, artifact = project.results()
    expected = ["1.1.run/1.1.run/1.artifact", "1.1.run/1.1.run/input", "1.1.run/1.artifact", "1.1.run/input"]
    assert names(found) == [*expected, "1.artifact", "input"]
    assert json.loads(artifact["content"])["data"] == {"text": "deep"}
    assert project.is_sound()


@pytest.mark.parametrize(
    "op",
    [
        file("write", f"{RECORDED}1.artifact", content="x"),
        file("write", f"{RECORDED}new", content="x"),
        file("write", "workspace:a/../.full/new", content="x"),
        file("edit", f"{RECORDED}1.artifact", old_string="on", new_string="off"),
        file("delete", f"{RECORDED}input"),
        {"kind": "file", "op": "regenerate_index", "path": ".", "output_path": f"{RECORDED}i", "entry_template": "x"},
    ],
)
def test_the_view_is_read_only(tmp_path: Path, op: dict[str, Any]):
    project = make(tmp_path)
    assert project.run("s", [go("b"), act(op), finish()]).ok
    [result] = project.results()
    assert (result["status"], result["rule"]) == ("denied", "default: recorded content is read-only")
    assert "write to another path in `workspace:`" in result["error"]
    assert not (tmp_path / ".reyn/workspace/k/.full").exists()


@pytest.mark.parametrize(
    "name",
    [
        "../x",
        "../../journal.db",
        "/etc/passwd",
        "1.1.1.run/../../../k2/input",
        "..",
        ".",
        "nothing",
        "1.artifact/x",
        "k2",
    ],
)
def test_no_path_leaves_the_view(tmp_path: Path, name: str):
    project = make(tmp_path)
    assert project.run("s", [go("b", "other"), finish("secret")], run_id="k2").ok
    assert project.run("s", [go("b"), act(read(name)), finish()]).ok
    [result] = project.results()
    assert result["status"] in ("error", "denied")
    assert "secret" not in json.dumps(result)


def test_a_planted_link_or_folder_does_not_replace_the_view(tmp_path: Path):
    project = make(tmp_path)
    own = tmp_path / ".reyn/workspace/k"
    own.mkdir(parents=True)
    (own / ".full").mkdir()
    (own / ".full/1.artifact").write_text("planted")
    (own / "link").symlink_to(own / ".full")
    assert project.run(
        "s", [go("b", "mine"), act(read("1.artifact"), file("read", "workspace:link/1.artifact")), finish()]
    ).ok
    assert [json.loads(result["content"])["data"] for result in project.results()] == [{"text": "mine"}] * 2


def test_the_view_counts_towards_no_limit_of_files(tmp_path: Path):
    (tmp_path / "reyn.yaml").write_text("sizes: {file_bytes: 50, visit_read_bytes: 1}\n")
    project = make(tmp_path)
    reads = [act(read("1.artifact")) for _ in range(5)]
    answers = [go("b", "long " * 40), act(file("read", "menu.txt")), *reads, finish()]
    assert project.run("s", answers, max_act_turns=2).ok
    assert [result["status"] for result in project.results()] == ["ok"] * 6
    # A loop of such reads ends nevertheless: after ten, they are act turns.
    loop = project.run("s", [go("b"), *(act(read("input")) for _ in range(30))], run_id="loop", max_act_turns=2)
    assert loop.status == "failed"


# -- who may read it ----------------------------------------------------------------------------------


class FormModel(ScriptedModel):
    """A scripted model that answers in one of the forms; in the form `tools`, ops are native calls."""

    def __init__(self, form: str, answers: list[Any]) -> None:
        super().__init__([native(one) if form == "tools" else one for one in answers])
        self.answer_form = form


def native(answer: Any) -> Any:
    if set(answer) != {"control_ir"}:
        return answer
    calls = [
        {"name": f"{op['kind']}_{op['op']}", "arguments": {key: op[key] for key in op if key not in ("kind", "op")}}
        for op in answer["control_ir"]
    ]
    return {"tool_calls": calls}


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project whose phase `b` allows no ops."""
    root = tmp_path_factory.mktemp("quiet")
    write_skill(root, "s", GRAPH, ops={"a": "file"})
    (root / "menu.txt").write_text("only for phase a\n")
    (root / "reyn.yaml").write_text("sizes: {input_bytes: 2000}\n")
    return root


NAMES = ["input", "1.1.1", "1.artifact", "1.input", "2.input", "2.artifact", "2.1.1", "2.1.answer", "result", ".", ".."]


@examples(35)
@given(
    st.sampled_from(NAMES) | st.from_regex(r"[0-9a-z._-]{1,12}", fullmatch=True),
    st.sampled_from(["full", "short", "tools"]),
)
@example("2.input", "tools")
@example("1.artifact", "full")
def test_a_phase_without_file_reads_only_the_content_that_its_own_frame_truncates(quiet: Path, name: str, form: str):
    project, long = Project(quiet), "soup and " * 500
    answers = [act(file("read", "menu.txt")), go("b", long), act(read(name, start=9, length=30)), finish()]
    assert project.run("s", answers, model=FormModel(form, answers)).ok
    rejected = project.events("validation_error")
    if name == "2.input":
        assert rejected == []
        assert project.results()[-1]["content"] == json.dumps({"data": {"text": long}}, separators=(",", ":"))[9:39]
    else:
        assert [error["class"] for error in rejected] == ["ops"]
        assert rejected[0]["path"].endswith(".path")
        assert f"use '{RECORDED}2.input'" in rejected[0]["message"]
        assert len(project.results()) == 1
    assert project.is_sound()


def test_a_conversation_without_file_reads_what_earlier_turns_truncated(tmp_path: Path):
    write_skill(
        tmp_path,
        "talk",
        {"chat": ["chat", "end"]},
        inputs={"chat": "user_message"},
        phase_keys={"chat": "conversation: true\n"},
    )
    (tmp_path / "reyn.yaml").write_text("sizes: {input_bytes: 500}\n")
    project = Project(tmp_path)
    answers = [go("chat", "and?"), act(read("1.input"), read("input")), act(read("1.input")), finish()]
    with project.open(answers) as rt:
        waiting = rt.run("talk", "many words " * 200, run_id="k")
        rt.answer("k", waiting.question.id, "read it again")
        assert rt.resume("k").ok
    [rejected] = project.events("validation_error")
    assert rejected["path"] == "$.control_ir[1].path"
    assert project.results()[-1]["content"].count("many words") == 200
    assert project.is_sound()


@pytest.mark.parametrize("ops", ["file", ""])
@pytest.mark.parametrize("pattern", ["workspace:.full/**", "workspace:.full/*.input", "workspace:**", "**"])
def test_a_rule_denies_recorded_content(tmp_path: Path, pattern: str, ops: str):
    write_skill(tmp_path, "s", GRAPH, ops={"b": ops} if ops else {})
    project = Project(tmp_path)
    answers = [go("b", "long " * 6_000), act(read("2.input")), finish()]
    assert project.run("s", answers, permissions={"file.read": [{"deny": pattern}]}).ok
    [result] = project.results()
    assert (result["status"], result["rule"]) == ("denied", f"permissions.file.read: deny {pattern}")
    assert project.kinds().count("permission_denied") == 1
    assert project.is_sound()


def test_a_rule_hides_recorded_content_from_lists_and_searches(tmp_path: Path):
    project = make(tmp_path)
    search = {"kind": "file", "op": "grep", "pattern": ".", "path": RECORDED, "output_mode": "files_with_matches"}
    answers = [act(file("read", "menu.txt")), go("b"), act(listed(), search), finish()]
    assert project.run("s", answers, permissions={"file.read": [{"deny": "workspace:.full/*.artifact"}]}).ok
    found, searched = project.results()[-2:]
    assert names(found) == ["1.1.1", "input"]
    assert searched["files"] == [f"{RECORDED}{name}" for name in ("1.1.1", "2.1.1", "input")]


@pytest.mark.parametrize("reply", ["approve", "reject"])
def test_a_rule_asks_about_recorded_content(tmp_path: Path, reply: str):
    project, rules = make(tmp_path), {"file.read": [{"ask": "workspace:.full/**"}]}
    answers = [go("b", "first"), act(read("1.artifact")), finish()]
    waiting = project.run("s", answers, permissions=rules)
    assert waiting.status == "waiting"
    assert f"{RECORDED}1.artifact" in waiting.question.message
    with project.open(answers, permissions=rules) as rt:
        rt.answer("k", waiting.question.id, reply)
        assert rt.resume("k").ok
    assert [result["status"] for result in project.results()] == (["ok"] if reply == "approve" else [])
    assert ('"data":{"text":"first"}' in project.model.turn_message(0).replace("\\", "")) is (reply == "approve")


def test_a_fork_reads_what_its_origin_recorded(tmp_path: Path):
    project = make(tmp_path)
    inner = [act(file("read", "menu.txt")), go("y"), finish("inner")]
    assert project.run("s", [act(RUN_INNER), *inner, go("b", "first"), finish()]).ok
    start = next(event.seq for event in project.journal.read("k") if event.kind == "phase_completed")
    reads = act(read("1.artifact"), read("1.1.1.run/2.artifact"))
    with project.open([*[""] * 5, reads, finish()]) as rt:
        assert rt.fork("k", at=start, run_id="f").ok
    mine, theirs = [json.loads(result["content"])["data"]["text"] for result in project.results("f")[-2:]]
    assert (mine, theirs) == ("first", "inner")
    assert project.is_sound("f")


def test_a_run_that_is_resumed_reads_the_same(tmp_path: Path):
    project = make(tmp_path, ops={"a": "file", "b": "file, ask_user"})
    answers = [act(file("read", "menu.txt")), go("b"), act(question("Go on?")), act(read("1.1.1"), listed()), finish()]
    assert project.run("s", answers).status == "waiting"
    with project.open(answers) as rt:
        rt.answer("k", "2.1.1", "yes")
        assert rt.resume("k").ok
    content, found = project.results()[-2:]
    assert json.loads(content["content"])["content"] == "soup\n"
    assert "2.1.1" in names(found)
    assert project.is_sound()


def test_recorded_content_is_searched(tmp_path: Path):
    project = make(tmp_path)
    search = {
        "kind": "file",
        "op": "grep",
        "pattern": "soup",
        "path": f"{RECORDED}",
        "output_mode": "files_with_matches",
    }
    assert project.run("s", [act(file("read", "menu.txt")), go("b"), act(search), finish()]).ok
    assert project.results()[-1]["files"] == [f"{RECORDED}1.1.1"]


def test_another_run_in_the_place_of_a_sub_run_is_not_shown():
    """An import can name any run as its sub-run; only the recorded hash of the last event makes it one."""
    journal, digest = MemoryJournal(), "0" * 64
    started = kinds.RunStarted("victim", "s", digest, kinds.ArtifactRef("note", digest), "m", digest, 1, 1)
    events = chain_events("victim", [started], 0, digest, 1)
    journal.append("victim", 0, events, [])
    for head, expected in (("1" * 64, False), (events[0].hash, True)):
        ended = kinds.ChildEnded("1.1.1", "skill", "s", "victim", seq=1, head=head)
        view = RecordedFiles(journal, "k", lambda body=ended: chain_events("k", [body], 0, digest, 1))
        assert (view.find(("1.1.1.run", "input")) == digest) is expected
        assert view.is_folder(("1.1.1.run",)) is expected


def test_a_long_run_is_read_once_and_then_only_what_is_new(tmp_path: Path):
    project = make(tmp_path)
    counted: list[int] = []

    class Counting(MemoryJournal):
        def read(self, run_id: str, after: int = 0):
            counted.append(after)
            return super().read(run_id, after)

    project.journal = Counting()
    turns = [act(read("input")) for _ in range(8)]
    assert project.run("s", [go("b"), *turns, finish()]).ok
    reads = [after for after in counted if after]
    assert len(reads) >= 4
    assert reads == sorted(set(reads))
