"""Ops that a visit must do before it can end, and fields of the artifact that ops fill."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reyn import SyncRuntime
from reyn.errors import ForkImpossible
from reyn.journal import MemoryJournal
from reyn.models.acting import act_contract, act_prompt
from reyn.testing import ScriptedModel
from tests.kernel.support import Project
from tests.kernel.test_native_tools import NativeModel, calls
from tests.support import abort, act, file, finish, go, question, with_ops, write_skill

LETTER = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "path": {"type": "string", "maxLength": 30}},
    "required": ["text", "path"],
}
SAVE = file("write", "output/letter.md", content="Dear Ada")
LOOK = file("read", "prices.csv")
SHORT_END = {"reason": "it is done", "choice": "end", "confidence": 1, "data": {"text": "done"}}


def letters(root: Path, keys: str = "must: [file.write]\n", **options: Any) -> Project:
    """Write a skill with one phase, which fills the path of the letter."""
    options = {"skill_keys": "nodes: {letter: {fill: {path: ops.file.write.path}}}\n"} | options
    write_skill(
        root,
        "post",
        {"letter": ["end"]},
        artifacts={"sent": LETTER},
        final_output="sent",
        ops={"letter": "file, ask_user"},
        phase_keys={"letter": keys},
        **options,
    )
    (root / "prices.csv").write_text("noodles,3.1\n")
    return Project(root)


def sent(text: str = "done") -> dict[str, Any]:
    return finish(text, "sent")


def offered(project: Project, call: int) -> tuple[set[str], bool]:
    """The forms of `file` and `ask_user` in the contract of a call, and whether it has an exit."""
    branches = project.model.requests[call].contract["anyOf"]
    forms = {
        ".".join(alternative["properties"][key]["const"] for key in ("kind", "op") if key in alternative["properties"])
        for branch in branches
        for alternative in branch["properties"].get("control_ir", {}).get("items", {}).get("anyOf", ())
    }
    types = {
        branch["properties"]["control"]["properties"]["type"]["const"]
        for branch in branches
        if "control" in branch["properties"]
    }
    return forms, bool(types - {"abort"})


# -- what the model may answer -------------------------------------------------------------------------


def test_no_exit_is_a_candidate_before_the_work_is_done(tmp_path: Path):
    project = letters(tmp_path)
    result = project.run("post", [sent(), act(SAVE), sent()])
    assert result.artifact == {"type": "sent", "data": {"text": "done", "path": "output/letter.md"}}
    assert [(event["class"], event["path"]) for event in project.events("validation_error")] == [
        ("candidate", "$.control.type")
    ]
    assert [offered(project, call)[1] for call in range(3)] == [False, False, True]
    assert offered(project, 0)[0] == {"file.write"}
    assert offered(project, 2)[0] >= {"file.write", "file.read", "ask_user"}
    assert not project.model.requests[0].candidates
    assert "Choices" not in project.model.system_message(0)
    assert "Left to do before anything else: file write." in project.model.turn_message(0)
    assert "Done: file write." in project.model.turn_message(2)
    assert project.is_sound()


def test_a_decision_may_do_the_work_itself(tmp_path: Path):
    project = letters(tmp_path)
    assert project.run("post", [with_ops(sent(), SAVE)]).artifact["data"]["path"] == "output/letter.md"
    assert project.is_sound()


def test_a_decision_whose_own_op_fails_does_not_end_the_visit(tmp_path: Path):
    project = letters(tmp_path, "must: [file.edit]\n", skill_keys="")
    edit = file("edit", "output/letter.md", old_string="Dear", new_string="Hello")
    (tmp_path / "output").mkdir()
    decision = finish(type="sent") | {"artifact": {"type": "sent", "data": {"text": "t", "path": "p"}}}
    wrong = with_ops(decision, edit | {"old_string": "nowhere"})
    (tmp_path / "output/letter.md").write_text("Dear Ada")
    assert project.run("post", [wrong, decision, act(edit), decision]).ok
    assert len(project.events("decision_deferred")) == 1
    assert len(project.events("validation_error")) == 1


def test_abort_stays_possible(tmp_path: Path):
    project = letters(tmp_path)
    assert project.run("post", [abort("there is no paper")]).status == "aborted"


def test_only_what_is_left_is_offered(tmp_path: Path):
    project = letters(tmp_path, "must: [file.read, ask_user, file.write]\n")
    with project.open([act(LOOK), act(LOOK), act(question("sure?")), act(SAVE), sent()]) as rt:
        rt.run("post", {"text": "in"}, run_id="k")
        rt.answer("k", None, "yes")
        assert rt.resume("k").ok
    assert [offered(project, call)[0] for call in range(4)] == [
        {"file.read", "ask_user", "file.write"},
        {"ask_user", "file.write"},
        {"ask_user", "file.write"},
        {"file.write"},
    ]
    assert "Done: file read, ask_user.\nLeft to do before anything else: file write." in project.model.turn_message(3)
    assert project.is_sound()


@pytest.mark.parametrize("first", ["file.write", "ask_user"])
def test_one_of_several_is_enough(tmp_path: Path, first: str):
    project = letters(tmp_path, "must: {any: [ask_user, file.write]}\n", skill_keys="")
    op = SAVE if first == "file.write" else question("sure?")
    decision = finish(type="sent") | {"artifact": {"type": "sent", "data": {"text": "t", "path": "p"}}}
    with project.open([act(op), decision]) as rt:
        result = rt.run("post", {"text": "in"}, run_id="k")
        if result.status == "waiting":
            rt.answer("k", None, "yes")
            result = rt.resume("k")
    assert result.ok
    assert offered(project, 0)[0] == {"ask_user", "file.write"}
    assert "Done: ask_user or file write." in project.model.turn_message(1)


def test_an_op_of_a_step_is_no_work_of_the_model(tmp_path: Path):
    step = "preprocessor:\n  - run_op: {op: {kind: file, op: write, path: output/a.md, content: x}, into: data.w}\n"
    project = letters(tmp_path, f"must: [file.write]\n{step}")
    assert project.run("post", [sent(), act(SAVE), sent()]).ok
    assert len(project.events("validation_error")) == 1


def test_work_of_an_earlier_visit_does_not_count(tmp_path: Path):
    write_skill(tmp_path, "loop", {"a": ["a", "end"]}, ops={"a": "file"}, phase_keys={"a": "must: [file.write]\n"})
    project = Project(tmp_path)
    assert project.run("loop", [act(SAVE), go("a"), finish(), act(SAVE), finish()]).ok
    assert len(project.events("validation_error")) == 1
    assert project.is_sound()


def test_after_a_rollback_the_work_is_done_again(tmp_path: Path):
    write_skill(
        tmp_path,
        "back",
        {"a": ["b"], "b": ["end"]},
        ops={"a": "file"},
        phase_keys={"a": "must: [file.write]\n"},
        skill_keys="on_phase_failure: rollback\n",
    )
    project = Project(tmp_path)
    answers = [act(SAVE), go("b"), "no JSON", "no JSON", go("b"), act(SAVE), go("b", "better"), finish()]
    assert project.run("back", answers, max_phase_retries=1).ok
    assert [event["class"] for event in project.events("validation_error")] == ["not_json", "not_json", "candidate"]
    assert len(project.events("phase_rolled_back")) == 1
    assert project.is_sound()


# -- why a visit cannot do its work ---------------------------------------------------------------------


DENIED = "permissions: {file.write: [{deny: output/}]}\n"


def test_an_op_that_the_operator_denies_fails_the_visit(tmp_path: Path):
    project = letters(tmp_path)
    (tmp_path / "reyn.yaml").write_text(DENIED)
    result = project.run("post", [act(SAVE)])
    assert (result.status, result.code) == ("failed", "RYN205")
    assert "must do file write, which was denied: the operator denies" in result.reason


def test_an_op_that_a_person_rejects_fails_the_visit(tmp_path: Path):
    project = letters(tmp_path)
    (tmp_path / "reyn.yaml").write_text(DENIED.replace("deny", "ask"))
    with project.open([act(SAVE)]) as rt:
        asked = rt.run("post", {"text": "in"}, run_id="k").question
        assert asked is not None
        rt.answer("k", asked.id, {"decision": "reject", "remark": "not today"})
        result = rt.resume("k")
    assert result.code == "RYN205"
    assert "not approved: not today" in result.reason


def test_an_op_without_a_grant_fails_the_visit(tmp_path: Path):
    keys = {"phase_keys": {"a": "must: [shell]\n"}, "skill_keys": "permissions: {shell: true}\n"}
    write_skill(tmp_path, "net", {"a": ["end"]}, ops={"a": "shell"}, **keys)
    result = Project(tmp_path).run("net", [act({"kind": "shell", "cmd": "true"})])
    assert (result.status, result.code) == ("failed", "RYN205")


@pytest.mark.parametrize("retries", [0, 1, 2])
def test_a_path_outside_of_the_zones_can_be_corrected_like_a_rejected_answer(tmp_path: Path, retries: int):
    wrong = act(SAVE | {"path": "reyn.yaml"})
    project = letters(tmp_path)
    assert project.run("post", [wrong] * retries + [act(SAVE), sent()], max_phase_retries=retries).ok
    result = project.run("post", [wrong] * (retries + 1), max_phase_retries=retries, run_id="other")
    assert (result.status, result.code) == ("failed", "RYN205")
    assert "must do file write, which was denied" in result.reason


def test_a_denied_op_of_several_leaves_the_others(tmp_path: Path):
    project = letters(tmp_path, "must: {any: [file.write, file.read]}\n", skill_keys="")
    decision = finish(type="sent") | {"artifact": {"type": "sent", "data": {"text": "t", "path": "p"}}}
    (tmp_path / "reyn.yaml").write_text(DENIED)
    assert project.run("post", [act(SAVE), act(LOOK), decision]).ok


def test_used_up_turns_fail_the_visit(tmp_path: Path):
    project = letters(tmp_path, "must: [file.edit]\nmax_act_turns: 2\n", skill_keys="")
    wrong = act(file("edit", "output/none.md", old_string="a", new_string="b"))
    result = project.run("post", [wrong, wrong])
    assert (result.status, result.code) == ("failed", "RYN205")
    assert "has no act turns left" in result.reason
    assert len(project.model.requests) == 2


def test_a_model_that_keeps_deciding_fails_the_visit(tmp_path: Path):
    result = letters(tmp_path).run("post", [sent()] * 3, max_phase_retries=2)
    assert (result.status, result.code) == ("failed", "RYN205")
    assert "file write has to be done first" in result.reason


def test_answers_that_are_no_json_fail_as_before(tmp_path: Path):
    result = letters(tmp_path).run("post", ["no"] * 3, max_phase_retries=2)
    assert result.code == "RYN202"


def test_with_on_limit_stop_the_run_goes_on_when_the_limit_is_raised(tmp_path: Path):
    project = letters(tmp_path, "max_act_turns: 1\nmust: [file.write, file.read]\n")
    answers = [act(SAVE), act(LOOK), sent()]
    (tmp_path / "reyn.yaml").write_text("limits: {on_limit: stop}\n")
    assert project.run("post", answers).status == "limited"
    assert project.resume(answers, raise_limits={"max_act_turns": 3}).ok
    assert project.is_sound()


# -- the forms of an answer ------------------------------------------------------------------------------


class ShortModel(ScriptedModel):
    answer_form = "short"

    def __init__(self, answers: list[Any]) -> None:
        super().__init__(answers, "short")
        self.requests: list[Any] = []

    async def complete(self, request: Any) -> Any:
        self.requests.append(request)
        return await super().complete(request)


SHORT = [SHORT_END, {"reason": "it has to be written", "ops": [SAVE]}, SHORT_END]
NATIVE = [SHORT_END, calls(("file_write", {"path": "output/letter.md", "content": "Dear Ada"})), SHORT_END]


@pytest.mark.parametrize(("make", "answers"), [(ShortModel, SHORT), (NativeModel, NATIVE)])
def test_every_form_asks_for_the_work_first(tmp_path: Path, make: Any, answers: list[Any]):
    letters(tmp_path)
    model = make(answers)
    with SyncRuntime.open(tmp_path, model=model, journal=MemoryJournal(), trust=True) as rt:
        result = rt.run("post", {"text": "in"}, run_id="k")
        assert result.artifact["data"] == {"text": "done", "path": "output/letter.md"}
        assert rt.runs.replay("k").events == rt.runs.verify("k").events
        frames = [event.seq for event in rt.runs.events("k") if event.kind == "frame_built"]
        shown = [rt.runs.context_frame("k", seq) for seq in frames]
        assert [frame.warnings for frame in shown] == [()] * 3, "the recorded prompt is found again"
        assert [len(frame.stable.candidate_outputs) for frame in shown] == [0, 0, 1]
    first, last = model.requests[0], model.requests[-1]
    choices = [branch["properties"].get("choice") for branch in first.contract["anyOf"]]
    assert {"const": "end"} not in choices
    assert {"const": "abort"} in choices
    assert not first.candidates
    assert [tool.name for tool in first.tools] == (["file_write"] if make is NativeModel else [])
    assert "path" not in str(last.candidates[0].artifact_schema)
    assert any("Done: file write." in message.text for message in last.messages)


def test_a_small_model_fills_in_arguments_only(tmp_path: Path):
    letters(tmp_path)
    model = ShortModel(SHORT)
    with SyncRuntime.open(tmp_path, model=model, journal=MemoryJournal(), trust=True) as rt:
        assert rt.run("post", {"text": "in"}).ok
    request = model.requests[0]
    prompt = act_prompt(request)
    assert prompt is not None
    assert not prompt.may_decide
    [only] = prompt.acts
    [branch] = act_contract(request, only)["anyOf"]
    ops = branch["properties"]["ops"]
    assert (ops["minItems"], ops["maxItems"]) == (1, 1)
    [call] = ops["items"]["anyOf"]
    free = {name for name, field in call["properties"].items() if "const" not in field}
    assert free == {"path", "content"}


def test_a_conversation_does_the_work_of_each_turn(tmp_path: Path):
    write_skill(
        tmp_path,
        "desk",
        {"talk": ["talk"]},
        inputs={"talk": "user_message"},
        ops={"talk": "file"},
        phase_keys={"talk": "conversation: {stays_open: true}\nmust: [file.write]\n"},
    )
    save = calls(("file_write", {"path": "output/letter.md", "content": "Dear Ada"}))
    model = NativeModel(["Sure!", save, "It is saved.", "Sure!", save, "Saved again."])
    with SyncRuntime.open(tmp_path, model=model, journal=MemoryJournal(), trust=True) as rt:
        rt.run("desk", "Save it.", run_id="k")
        rt.answer("k", None, "Again.")
        rt.resume("k")
        kinds = [event.kind for event in rt.runs.events("k")]
        assert kinds.count("file_completed") == kinds.count("validation_error") == 2
        assert rt.runs.replay("k").events == rt.runs.verify("k").events


# -- fields that ops fill --------------------------------------------------------------------------------


def test_the_model_does_not_see_the_field_and_cannot_set_it(tmp_path: Path):
    project = letters(tmp_path)
    lie = sent() | {"artifact": {"type": "sent", "data": {"text": "t", "path": "output/elsewhere.md"}}}
    result = project.run("post", [act(SAVE), lie])
    assert result.artifact["data"]["path"] == "output/letter.md"
    assert "path" not in str(project.model.requests[1].candidates[0].artifact_schema)
    assert "data: text (text)\n" in project.model.system_message(1)


def test_the_last_successful_op_fills_the_field(tmp_path: Path):
    project = letters(tmp_path)
    other, denied = SAVE | {"path": "output/other.md"}, SAVE | {"path": "reyn.yaml"}
    assert project.run("post", [act(SAVE, other, denied), sent()]).artifact["data"]["path"] == "output/other.md"


@pytest.mark.parametrize(
    ("source", "value"),
    [("file.write.path", "output/letter.md"), ("file.write.content", "Dear Ada"), ("file.write.status", "ok")],
)
def test_a_field_comes_from_the_result_else_from_the_arguments(tmp_path: Path, source: str, value: str):
    project = letters(tmp_path, skill_keys=f"nodes: {{letter: {{fill: {{path: ops.{source}}}}}}}\n")
    assert project.run("post", [act(SAVE), sent()]).artifact["data"]["path"] == value


def test_without_the_op_a_required_field_fails_the_visit(tmp_path: Path):
    result = letters(tmp_path, "").run("post", [act(LOOK), sent()])
    assert (result.status, result.code) == ("failed", "RYN206")
    assert "`path` cannot be filled: `file.write` did not happen in the visit" in result.reason


def test_without_the_op_an_optional_field_is_left_out(tmp_path: Path):
    project = letters(tmp_path, "")
    (tmp_path / "reyn/project/post/artifacts/sent.yaml").write_text(json.dumps(LETTER | {"required": ["text"]}))
    lie = sent() | {"artifact": {"type": "sent", "data": {"text": "t", "path": "output/none.md"}}}
    assert project.run("post", [lie]).artifact["data"] == {"text": "t"}
    assert project.is_sound()


def test_a_value_that_does_not_fit_fails_the_visit(tmp_path: Path):
    long = SAVE | {"path": f"output/{'long' * 10}.md"}
    result = letters(tmp_path).run("post", [act(long), sent()])
    assert (result.status, result.code) == ("failed", "RYN206")
    assert "data.path" in result.reason


def test_arguments_that_a_person_edited_fill_the_field(tmp_path: Path):
    project = letters(tmp_path, skill_keys="nodes: {letter: {fill: {path: ops.file.write.content}}}\n")
    (tmp_path / "reyn.yaml").write_text("permissions: {file.write: [{ask: output/}]}\n")
    with project.open([act(SAVE), sent()]) as rt:
        result = rt.run("post", {"text": "in"}, run_id="k")
        for reply in ({"decision": "edit", "args": SAVE | {"content": "Dear Bob"}}, {"decision": "approve"}):
            assert result.question is not None
            rt.answer("k", result.question.id, reply)
            result = rt.resume("k")
    assert result.artifact["data"]["path"] == "Dear Bob"
    assert project.is_sound()


# -- recovery --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answers", [[sent(), act(LOOK, SAVE), sent()], [act(LOOK), with_ops(sent(), SAVE)]])
def test_a_run_that_continues_after_any_event_ends_in_the_same_way(tmp_path: Path, answers: list[Any]):
    """Work is a fold of events: it does not matter where a process died."""
    project = letters(tmp_path, "must: [file.read, file.write]\n")
    whole = project.run("post", answers)
    continued = 0
    for seq in range(2, len(project.kinds())):
        with project.open(answers) as rt:
            try:
                fork = rt.fork("k", at=seq, run_id=f"f{seq}")
            except ForkImpossible:
                continue
            assert fork.artifact == whole.artifact
            assert rt.runs.replay(f"f{seq}").events == rt.runs.verify(f"f{seq}").events
            continued += 1
    assert continued > 10
