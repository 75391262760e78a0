"""Sub-runs: linked journals, derived ids, nested limits, stops that propagate to the parent."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from reyn.journal.kinds import Usage
from reyn.models import ModelAnswer
from tests.kernel.support import IN, Project
from tests.support import abort, act, file, finish, go, question, write_skill

RUN = {"kind": "run_skill", "skill": "inner", "input": {"text": "for inner"}}


def make(root: Path, *, inner_ops: str = "", **keys) -> Project:
    """`outer` may run skills; `inner` has one phase."""
    write_skill(root, "inner", {"x": ["x", "end"]}, ops={"x": inner_ops}, **keys)
    write_skill(root, "outer", {"a": ["b"], "b": ["end"]}, ops={"a": "run_skill, file"})
    return Project(root)


def test_run_skill_returns_the_result_of_a_sub_run(tmp_path: Path):
    project = make(tmp_path)
    result = project.run("outer", [act(RUN), finish("from inner"), go("b"), finish("end")])
    assert result.ok
    assert '"final_output":{"text":"from inner"}' in project.model.turn_message(2)
    [begun] = project.events("child_started")
    assert begun["run"] == "k.1.1.1"
    [started] = project.events("run_started", run_id="k.1.1.1")
    parent = {"run": "k", "call": "1.1.1", "depth": 1, "answered": 1, "path": "1.1.1", "background": False}
    assert started["parent"] == parent
    assert project.journal.find("k.1.1.1").parent == "k"
    assert project.is_sound()
    assert project.is_sound("k.1.1.1")


def test_a_prefix_finds_the_parent_and_not_its_sub_runs(tmp_path: Path):
    project = make(tmp_path)
    project.run("outer", [act(RUN), finish(), go("b"), finish()], run_id="abcdef")
    with project.open([]) as rt:
        assert rt.runs.result("abc").run_id == "abcdef"
        assert rt.runs.result("abcdef.1").run_id == "abcdef.1.1.1"


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (RUN | {"skill": "nowhere"}, "RYN101"),
        (RUN | {"input": {"txt": 1}}, "RYN201"),
    ],
)
def test_a_skill_that_cannot_run_is_an_op_error(tmp_path: Path, op: dict, expected: str):
    project = make(tmp_path)
    assert project.run("outer", [act(op), go("b"), finish()]).ok
    assert f'"error":"{expected}' in project.model.turn_message(1)
    assert len(project.journal.runs()) == 1
    assert project.is_sound()


START = {"kind": "start_skill", "skill": "inner", "input": {"text": "x"}}
STEP = "preprocessor:\n  - {}\n"
BELOW = "run_skill: {skill: inner, input: {txt: 1}, on_error: skip, into: data.sub}"
REFUSED: dict[str, dict[str, Any]] = {
    "an op that awaits with another input": {"answers": [act(RUN | {"input": {"txt": 1}})]},
    "a background skill that no chat executes": {"answers": [act(START)]},
    "a step": {"step": STEP.format(BELOW)},
    "an iteration": {
        "step": STEP.format(f"iterate: {{over: data.items, concurrency: 2, into: data.all, apply: {{{BELOW}}}}}"),
        "ends": 3,
    },
    "an agent that is unknown": {
        "answers": [act({"kind": "ask_agent", "agent": "nobody", "message": "hello"})],
        "permissions": {"agent": [{"allow": "*"}]},
    },
    "a skill that the gate denies": {
        "answers": [act(RUN)],
        "permissions": {"run_skill": [{"deny": "inner"}]},
        "ends": 0,
    },
    "a skill in a step that the gate denies": {
        "step": STEP.format(BELOW.replace("txt: 1", "text: x")),
        "permissions": {"run_skill": [{"deny": "inner"}]},
        "ends": 0,
    },
}


@pytest.mark.parametrize("refusal", REFUSED)
def test_a_child_that_is_refused_has_ended_and_has_not_started(tmp_path: Path, refusal: str):
    how = dict(REFUSED[refusal])
    write_skill(tmp_path, "inner", {"x": ["end"]})
    write_skill(
        tmp_path,
        "talk",
        {"chat": ["chat", "end"]},
        inputs={"chat": "note | user_message"},
        skill_keys='permissions: {agent: ["*"]}\n',
        phase_keys={"chat": f"conversation: true\n{how.pop('step', '')}"},
        ops={"chat": "run_skill, start_skill, ask_agent"},
        artifacts={"note": {"type": "object", "additionalProperties": True}},
    )
    project, answers, ends = Project(tmp_path), how.pop("answers", []), how.pop("ends", 1)
    value = {"type": "note", "data": {"text": "in", "items": [1, 2, 3]}}
    assert project.run("talk", [*answers, finish("That did not work.")], value, **how).ok
    assert project.events("child_started") == []
    ended = [(one["state"], bool(one["error"])) for one in project.events("child_ended")]
    assert ended == [("rejected", True)] * ends
    assert len(project.journal.runs()) == 1
    assert project.is_sound()


def test_an_aborted_or_failed_sub_run_is_an_op_error(tmp_path: Path):
    project = make(tmp_path)
    answers = [act(RUN), abort("too hard"), act(RUN), "no", "no", go("b"), finish()]
    assert project.run("outer", answers, max_phase_retries=1).ok
    assert "is aborted: too hard" in project.model.turn_message(2)
    assert "2 answers rejected" in project.model.turn_message(5)
    assert project.is_sound()


def test_a_model_error_in_a_sub_run_stops_both_runs_and_both_continue(tmp_path: Path):
    project = make(tmp_path)
    result = project.run("outer", [act(RUN)])
    assert result.status == "failed"
    assert "sub-run `k.1.1.1`" in result.reason
    assert project.journal.find("k.1.1.1").status == "failed"
    assert project.resume([act(RUN), finish(), go("b"), finish()], retry=True).ok
    assert project.journal.find("k.1.1.1").status == "finished"
    assert project.is_sound()
    assert project.is_sound("k.1.1.1")


def test_a_question_of_a_sub_run_can_be_answered_through_either_run(tmp_path: Path):
    project = make(tmp_path, inner_ops="ask_user")
    answers = [act(RUN), act(question("Deep?")), finish(), go("b"), finish()]
    result = project.run("outer", answers)
    assert (result.status, result.reason) == ("waiting", "Deep?")
    assert result.question.run == "k.1.1.1"
    with project.open(answers) as rt:
        assert {row.status for row in rt.runs.all()} == {"waiting"}
        with pytest.raises(Exception, match="waits for a reply"):
            rt.resume("k")
        assert rt.answer("k", "1.1.1/1.1.1", "yes").run_id == "k.1.1.1"
        assert rt.resume("k").ok
    assert project.is_sound()
    assert project.is_sound("k.1.1.1")


def test_a_sub_run_that_was_resumed_separately_is_used_as_it_is(tmp_path: Path):
    project = make(tmp_path, inner_ops="ask_user")
    answers = [act(RUN), act(question("Deep?")), finish("alone"), go("b"), finish()]
    project.run("outer", answers)
    with project.open(answers) as rt:
        rt.answer("k.1.1.1", "1.1.1/1.1.1", "yes")
        assert rt.resume("k.1.1.1").ok
        assert rt.resume("k").ok
    assert '"final_output":{"text":"alone"}' in project.model.turn_message(1)
    assert project.is_sound()


def test_the_visit_limit_of_a_sub_run_is_raised_through_its_parent(tmp_path: Path):
    project = make(tmp_path)
    answers = [act(RUN), *(go("x", str(n)) for n in range(4)), finish(), go("b"), finish()]
    result = project.run("outer", answers, max_phase_visits=2, max_phase_retries=0)
    assert result.status == "limited"
    assert result.reason.startswith("sub-run `k.1.1.1`: `x` reached `max_phase_visits`")
    assert project.resume(answers, raise_limits={"max_phase_visits": 3}).status == "limited"
    assert project.resume(answers, raise_limits={"max_phase_visits": 9}).ok
    assert project.is_sound()
    assert project.is_sound("k.1.1.1")


class Counting:
    """A model that reports token usage."""

    name = "scripted"

    def __init__(self, model) -> None:
        self._model = model

    async def complete(self, request):
        reply = await self._model.complete(request)
        return ModelAnswer(reply.text, Usage(90, 10))


def test_sub_runs_use_the_token_limit_of_their_parent(tmp_path: Path):
    project = make(tmp_path)
    answers = [act(RUN), go("x"), go("x"), finish(), go("b"), finish()]
    with project.open(answers, limits={"tokens": 250}) as rt:
        rt.async_form.services.model = Counting(project.model)
        result = rt.run("outer", IN, run_id="k")
        assert result.status == "limited"
        assert "200 tokens used; `tokens` is 150" in result.reason
        result = rt.resume("k", raise_limits={"tokens": 10_000})
        assert result.ok
        assert result.usage == Usage(540, 60)
    assert project.is_sound()


def test_a_node_of_the_graph_can_be_a_skill(tmp_path: Path):
    write_skill(tmp_path, "inner", {"x": ["end"]})
    write_skill(tmp_path, "outer", {"a": ["@inner"], "@inner": ["b"], "b": ["end"]})
    project = Project(tmp_path)
    result = project.run("outer", [go("@inner", "to inner"), finish("inner says"), finish("end")])
    assert result.ok
    assert result.path == ("a", "@inner", "b")
    assert project.model.turn_message(1) == "to inner"
    assert project.model.turn_message(2) == "inner says"
    assert project.is_sound()


def test_a_skill_can_consist_of_skill_nodes_only(tmp_path: Path):
    write_skill(tmp_path, "inner", {"x": ["end"]})
    write_skill(tmp_path, "outer", {"@inner": ["end"]})
    project = Project(tmp_path)
    result = project.run("outer", [finish("only")])
    assert result.artifact == {"type": "note", "data": {"text": "only"}}
    assert project.is_sound()


def test_a_failed_skill_node_fails_the_visit_and_can_be_retried(tmp_path: Path):
    write_skill(tmp_path, "inner", {"x": ["end"]})
    write_skill(tmp_path, "outer", {"@inner": ["b"], "b": ["end"]})
    project = Project(tmp_path)
    result = project.run("outer", [abort("no")])
    assert result.status == "failed"
    assert "node `@inner`" in result.reason
    assert project.resume([abort("no"), finish(), finish()], retry=True).ok
    assert [row.status for row in project.journal.runs("k.")] == ["finished", "aborted"]
    assert project.is_sound()


def test_a_run_skill_step_resolves_paths_in_its_input(tmp_path: Path):
    write_skill(tmp_path, "inner", {"x": ["end"]})
    write_skill(
        tmp_path,
        "outer",
        {"b": ["end"]},
        artifacts={"note": {"type": "object", "additionalProperties": True}},
        phase_keys={
            "b": "preprocessor:\n"
            "  - run_skill: {skill: inner, input: {text: data.title}, into: data.one}\n"
            "  - iterate: {over: data.items, apply: {run_skill: {skill: inner}}, into: data.all}\n"
        },
    )
    project = Project(tmp_path)
    given = {"title": "T", "items": [{"text": "i"}, {"text": "j"}]}
    assert project.run("outer", [finish("1"), finish("2"), finish("3"), finish()], given).ok
    shown = [project.model.turn_message(number) for number in range(4)]
    assert shown[:3] == ["T", "i", "j"]
    assert 'one: {"data": {"text": "1"}, "type": "note"}' in shown[3]
    assert project.is_sound()


def test_a_sub_run_has_its_own_workspace_unless_it_is_shared(tmp_path: Path):
    write_skill(tmp_path, "inner", {"x": ["end"]}, ops={"x": "file"})
    write_skill(tmp_path, "outer", {"@inner": ["@inner[shared]"], "@inner[shared]": ["end"]})
    project = Project(tmp_path)
    write = act(file("write", "workspace:f.txt", content="f"))
    assert project.run("outer", [write, finish(), write, finish()]).ok
    assert (tmp_path / ".reyn/workspace/k.1.1/f.txt").exists()
    assert (tmp_path / ".reyn/workspace/k/f.txt").exists()


PATHS = ("inner", "inner/skill.md", "reyn/project/inner", "reyn/project/inner/skill.md")


@pytest.mark.parametrize("skill", PATHS)
@pytest.mark.parametrize("workspace", ["isolated", "shared"])
def test_a_model_runs_a_skill_by_path_and_in_its_workspace_as_in_the_older_form(
    tmp_path: Path, skill: str, workspace: str
):
    project = make(tmp_path, inner_ops="file")
    write = act(file("write", "workspace:f.txt", content="f"))
    call = act(RUN | {"skill": skill, "workspace": workspace})
    assert project.run("outer", [call, write, finish("from inner"), go("b"), finish("end")]).ok
    [result] = project.results()
    assert (result["skill"], result["final_output"]) == ("inner", {"text": "from inner"})
    assert (tmp_path / ".reyn/workspace/k/f.txt").exists() is (workspace == "shared")
    assert "isolated" not in project.model.turn_message(0)
    assert project.is_sound()
    assert project.is_sound("k.1.1.1")


@pytest.mark.parametrize("skill", PATHS)
def test_a_step_in_the_older_form_runs_a_skill_by_path(tmp_path: Path, skill: str):
    step = f"{{type: run_op, op: {{kind: run_skill, skill: {skill}, input: {{text: x}}, workspace: shared}}}}"
    write_skill(tmp_path, "inner", {"x": ["end"]}, ops={"x": "file"})
    write_skill(
        tmp_path,
        "outer",
        {"a": ["end"]},
        phase_keys={"a": f"preprocessor:\n  - {step}\n"},
    )
    project = Project(tmp_path)
    write = act(file("write", "workspace:f.txt", content="f"))
    assert project.run("outer", [write, finish("from inner"), finish("end")]).ok
    assert (tmp_path / ".reyn/workspace/k/f.txt").exists()
    assert project.is_sound()


@pytest.mark.parametrize(
    "skill", ["reyn/local/inner", "../inner", "output/inner/skill.md", "/inner", "reyn/shared/inner"]
)
def test_no_other_path_runs_a_skill(tmp_path: Path, skill: str):
    project = make(tmp_path)
    assert project.run("outer", [act(RUN | {"skill": skill}), go("b"), finish("end")]).ok
    assert [one["status"] for one in project.results()] == ["denied"]


def test_a_path_of_a_skill_that_another_one_hides_is_no_name_of_the_other(tmp_path: Path):
    project = make(tmp_path)
    (tmp_path / "reyn/local").mkdir()
    shutil.copytree(tmp_path / "reyn/project/inner", tmp_path / "reyn/local/inner")
    calls = [act(RUN | {"skill": f"reyn/{shelf}/inner"}) for shelf in ("project", "local")]
    assert project.run("outer", [*calls, finish(), go("b"), finish("end")]).ok
    assert [one["status"] for one in project.results()] == ["denied", "ok"]


def test_cancelling_a_run_cancels_its_sub_runs(tmp_path: Path):
    project = make(tmp_path, inner_ops="ask_user")
    project.run("outer", [act(RUN), act(question("Deep?"))])
    with project.open([]) as rt:
        rt.cancel("k", "enough")
        assert {row.status for row in rt.runs.all()} == {"cancelled"}
    assert project.is_sound()
    assert project.is_sound("k.1.1.1")


def test_recursive_sub_runs_end_at_the_depth_limit(tmp_path: Path):
    write_skill(tmp_path, "self", {"a": ["end"]}, ops={"a": "run_skill"})
    project = Project(tmp_path)
    again = act({"kind": "run_skill", "skill": "self", "input": {"text": "again"}})
    assert project.run("self", [again] * 9 + [finish()] * 9).ok
    assert len(project.journal.runs()) == 9
    assert "deeper than 8 levels" in project.model.requests[9].messages[1].text


def test_the_result_of_run_skill_names_the_run_and_the_artifacts_of_its_phases(tmp_path: Path):
    write_skill(tmp_path, "inner", {"x": ["y"], "y": ["end"]})
    write_skill(tmp_path, "outer", {"a": ["end"]}, ops={"a": "run_skill"})
    project = Project(tmp_path)
    call = act({"kind": "run_skill", "skill": "inner", "input": {"text": "in"}})
    assert project.run("outer", [call, go("y", "halfway"), finish("there"), finish()]).ok
    [result] = project.results()
    assert result["run"] == "1.1.1"
    assert [(one["phase"], one["artifact"]["data"]["text"]) for one in result["phase_artifacts"]] == [
        ("x", "halfway"),
        ("y", "there"),
    ]
    assert project.is_sound()


def test_a_phase_that_names_its_skills_offers_each_with_its_input(tmp_path: Path):
    project = make(tmp_path)
    write_skill(tmp_path, "other", {"x": ["end"]})
    keys = {"a": "allowed_skills: [inn*]\n"}
    write_skill(tmp_path, "outer", {"a": ["b"], "b": ["end"]}, ops={"a": "run_skill, file"}, phase_keys=keys)
    foreign = act(RUN | {"skill": "other"})
    result = project.run("outer", [foreign, act(RUN), finish("from inner"), go("b"), finish("end")])
    assert result.ok
    [rejected] = project.events("validation_error")
    assert rejected["message"] == "'other' is not offered here; use 'inner'"
    assert [event["run"] for event in project.events("child_started")] == ["k.1.2.1"]
    assert project.is_sound()
