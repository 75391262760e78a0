"""A failed visit restores its files; with `on_phase_failure: rollback`, the previous phase is visited again."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from reyn import tool
from reyn.errors import ConversationInvalid
from tests.kernel.support import Project
from tests.support import act, file, finish, go, write_skill

WRITE = act(file("write", "workspace:a.txt", content="new"), file("write", "output/notes/deep/b.txt", content="b"))


def make(root: Path, keys: str = "") -> Project:
    write_skill(root, "s", {"a": ["b"], "b": ["end"]}, ops={"a": "file", "b": "file"}, skill_keys=keys)
    return Project(root)


def test_the_files_of_a_failed_visit_are_restored(tmp_path: Path):
    project = make(tmp_path)
    keep = tmp_path / "output" / "keep.txt"
    keep.parent.mkdir()
    keep.write_text("old")
    keep.chmod(0o640)
    change = act(file("edit", "output/keep.txt", old_string="old", new_string="new"), file("delete", "output/keep.txt"))
    result = project.run("s", [go("b"), WRITE, change, "no", "no"], max_phase_retries=1)
    assert result.status == "failed"
    assert keep.read_text() == "old"
    assert keep.stat().st_mode & 0o777 == 0o640
    assert not (tmp_path / "output/notes").exists()
    assert not (tmp_path / ".reyn/workspace/k/a.txt").exists()
    assert project.kinds()[-4:] == ["restore_started", "workspace_restored", "phase_failed", "run_failed"]
    with project.open([]) as rt:
        assert rt.runs.changed_files("k") == {}
    assert project.is_sound()


def test_a_file_that_was_changed_since_is_not_restored_and_is_a_warning(tmp_path: Path):
    project = make(tmp_path)

    class Meddling:
        name = "scripted"

        async def complete(self, request):
            if request.answered == 2:
                (tmp_path / "output/notes/deep/b.txt").write_text("mine")
            return await project.model.complete(request)

    with project.open([go("b"), WRITE, "no", "no"], max_phase_retries=1) as rt:
        rt.async_form.services.model = Meddling()
        result = rt.run("s", {"text": "in"}, run_id="k")
    assert result.status == "failed"
    assert (tmp_path / "output/notes/deep/b.txt").read_text() == "mine"
    assert "`output/notes/deep/b.txt` was not restored" in result.warnings[0]
    assert project.is_sound()


def test_after_a_failure_the_previous_phase_is_visited_again_with_the_reason(tmp_path: Path):
    project = make(tmp_path, "on_phase_failure: rollback\n")
    answers = [go("b", "first"), WRITE, "no", "no", "x", go("b", "second"), finish()]
    result = project.run("s", answers, max_phase_retries=1)
    assert result.ok
    assert result.path == ("a", "b", "a", "b")
    [back] = project.events("phase_rolled_back")
    assert (back["phase"], back["to"]) == ("b", "a")
    shown = [request.messages[1].text for request in project.model.requests]
    assert "# Rejected" not in shown[0]
    for attempt in (4, 5):  # every attempt of the visit
        assert "produced before:\nfirst" in shown[attempt]
        assert "2 answers rejected" in shown[attempt]
    assert "# Rejected" not in shown[6]
    assert shown[4].startswith("in\n")
    assert project.is_sound()


def pay(amount: int) -> dict[str, Any]:
    return act({"kind": "pay", "amount": amount})


def paying(root: Path, paid: list[int], answers: list[Any]) -> list[str]:
    """Run `a → b → end` with rollback and an unsafe op; return the first prompt of each visit."""

    @tool(name="pay", effect="unsafe", permission=None)
    def paying_op(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    ops = {"a": "pay, file", "b": "pay, file"}
    write_skill(root, "s", {"a": ["b"], "b": ["end"]}, ops=ops, skill_keys="on_phase_failure: rollback\n")
    project = Project(root)
    assert project.run("s", answers, max_phase_retries=0, ops=[paying_op]).ok
    firsts: dict[str, str] = {}
    for request in project.model.requests:
        firsts.setdefault(request.call.partition(".")[0], request.messages[1].text)
    assert project.is_sound()
    return list(firsts.values())


@pytest.mark.parametrize("amounts", [[], [1], [1, 2]])
def test_a_phase_that_is_visited_again_sees_which_unsafe_ops_it_has_completed(tmp_path: Path, amounts: list[int]):
    paid: list[int] = []
    answers = [*map(pay, amounts), WRITE, go("b", "1"), "no", go("b", "2"), "no", go("b", "3"), finish()]
    prompts = paying(tmp_path, paid, answers)
    assert paid == amounts
    line = "You have done this already, do not repeat it: "
    listed = "; ".join(f'{{"amount":{amount},"kind":"pay"}}' for amount in amounts)
    for prompt in (prompts[2], prompts[4]):
        assert (f"# Rejected\n{line}{listed}\nThe next phase failed: " if amounts else "# Rejected\nThe next") in prompt
    assert not any(line in prompt for prompt in (prompts[0], prompts[1], prompts[3], prompts[5]))


def test_a_phase_that_failed_sees_what_it_did_when_it_is_entered_again(tmp_path: Path):
    paid: list[int] = []
    prompts = paying(tmp_path, paid, [go("b", "1"), pay(3), "no", pay(4), go("b", "2"), "no", go("b", "3"), finish()])
    assert paid == [3, 4]
    shown = [re.findall("already, do not repeat it: (.*)", prompt) for prompt in prompts]
    three, four = ([f'{{"amount":{amount},"kind":"pay"}}'] for amount in (3, 4))
    assert shown == [[], [], [], three, four, three]


def test_the_same_artifact_after_a_rollback_aborts_the_run(tmp_path: Path):
    project = make(tmp_path, "on_phase_failure: rollback\n")
    result = project.run("s", [go("b", "same"), "no", "no", go("b", "same")], max_phase_retries=1)
    assert (result.status, result.exit_code) == ("aborted", 5)
    assert "no progress" in result.reason
    assert project.is_sound()


def test_the_entry_phase_has_nothing_to_roll_back_to(tmp_path: Path):
    project = make(tmp_path, "on_phase_failure: rollback\n")
    assert project.run("s", ["no", "no"], max_phase_retries=1).status == "failed"
    assert project.resume(["no", "no", go("b"), finish()], retry=True).ok


def test_rollbacks_can_go_back_several_phases(tmp_path: Path):
    write_skill(tmp_path, "t", {"a": ["b"], "b": ["c"], "c": ["end"]}, skill_keys="on_phase_failure: rollback\n")
    project = Project(tmp_path)
    answers = [go("b", "1"), go("c", "2"), "no", "no", go("b", "3"), go("c", "4"), finish()]
    result = project.run("t", answers, max_phase_retries=0)
    assert result.ok
    assert result.path == ("a", "b", "c", "b", "a", "b", "c")
    assert [event["to"] for event in project.events("phase_rolled_back")] == ["b", "a"]
    assert project.is_sound()


def test_rollbacks_are_limited_by_phase_visits(tmp_path: Path):
    project = make(tmp_path, "on_phase_failure: rollback\n")
    answers = [answer for number in range(5) for answer in (go("b", str(number)), "no")]
    result = project.run("s", answers, max_phase_retries=0, max_phase_visits=2)
    assert result.status == "limited"
    assert project.is_sound()


# -- nodes that are skills --------------------------------------------------------------------------------------------


def make_node(root: Path, inner: dict[str, list[str]], graph: dict[str, list[str]] | None = None) -> Project:
    write_skill(root, "inner", inner)
    graph = graph or {"a": ["@inner"], "@inner": ["b"], "b": ["end"]}
    write_skill(root, "s", graph, skill_keys="on_phase_failure: rollback\n")
    return Project(root)


def test_a_node_that_is_visited_again_receives_the_reason(tmp_path: Path):
    project = make_node(tmp_path, {"x": ["y"], "y": ["end"]})
    answers = [go("@inner"), go("y"), finish("first"), "no", go("y"), finish("second"), finish("done")]
    result = project.run("s", answers, max_phase_retries=0)
    assert (result.status, result.artifact["data"]["text"]) == ("finished", "done")
    prompts = [project.model.turn_message(call) for call in range(len(answers))]
    assert [("Rejected" in prompt, "1 answer rejected" in prompt) for prompt in prompts] == [
        (number == 4, number == 4) for number in range(len(answers))
    ]
    assert "first" in prompts[4]  # what it returned before
    assert project.is_sound()
    assert project.is_sound("k.4.1")


def test_a_node_in_a_node_receives_the_reason(tmp_path: Path):
    write_skill(tmp_path, "deep", {"z": ["end"]})
    project = make_node(tmp_path, {"@deep": ["end"]})
    answers = [go("@inner"), finish("first"), "no", finish("second"), finish("done")]
    assert project.run("s", answers, max_phase_retries=0).ok
    assert "1 answer rejected" in project.model.turn_message(3)
    assert project.is_sound()


def test_the_run_goes_one_phase_further_back_if_a_node_returns_the_same(tmp_path: Path):
    project = make_node(tmp_path, {"x": ["end"]})
    answers = [
        go("@inner", "one"),
        finish("same"),
        "no",
        finish("same"),
        go("@inner", "two"),
        finish("new"),
        finish("end"),
    ]
    result = project.run("s", answers, max_phase_retries=0)
    assert (result.status, result.path) == ("finished", ("a", "@inner", "b", "@inner", "a", "@inner", "b"))
    back = [(one["phase"], one["to"]) for one in project.events("phase_rolled_back")]
    assert back == [("b", "@inner"), ("@inner", "a")]
    prompt = project.model.turn_message(4)
    assert "`@inner`: it returned the same artifact again after a rollback: phase `b`: 1 answer rejected" in prompt
    assert "one" in prompt  # what it produced before
    assert "Rejected" not in project.model.turn_message(5)  # the node has another input
    assert project.is_sound()


def test_a_node_without_a_phase_before_it_makes_no_progress(tmp_path: Path):
    project = make_node(tmp_path, {"x": ["end"]}, {"@inner": ["b"], "b": ["end"]})
    result = project.run("s", [finish("same"), "no", finish("same")], max_phase_retries=0)
    assert result.status == "aborted"
    assert "no progress" in result.reason
    assert project.is_sound()


def test_an_artifact_of_a_sub_run_may_equal_the_rejected_one_before_its_end(tmp_path: Path):
    project = make_node(tmp_path, {"x": ["y"], "y": ["end"]})
    answers = [go("@inner"), go("y"), finish("same"), "no", go("y", "same"), finish("new"), finish("done")]
    assert project.run("s", answers, max_phase_retries=0).ok
    assert project.is_sound()


def test_a_node_receives_the_reason_after_a_crash(tmp_path: Path):
    project = make_node(tmp_path, {"x": ["end"]})
    answers = [go("@inner"), finish("first"), "no", finish("second"), finish("done")]
    assert project.run("s", answers[:3], max_phase_retries=0).status == "failed"  # the script has no answer left
    assert project.resume(answers, retry=True).ok
    assert "1 answer rejected" in project.model.turn_message(0)
    assert project.is_sound()


SAID, DONE = "pack the vase", act(file("write", "output/vase.txt", content="packed"))


def make_talk(root: Path, graph: dict[str, list[str]]) -> Project:
    keys = {"talk": "conversation: true\n"}
    inputs = {"talk": "user_message"}
    back = "on_phase_failure: rollback\n"
    note = {"type": "object", "required": ["text"], "properties": {"text": {"type": "string"}}}
    artifacts = {"note": note}
    write_skill(
        root, "s", graph, artifacts=artifacts, inputs=inputs, phase_keys=keys, ops={"talk": "file"}, skill_keys=back
    )
    return Project(root)


def test_a_run_that_has_left_its_conversation_has_its_transcript(tmp_path: Path):
    project = make_talk(tmp_path, {"talk": ["talk", "ship"], "ship": ["pack"], "pack": ["end"]})
    with project.open([go("ship", "first"), go("pack", "second"), finish()]) as rt:
        assert rt.run("s", "I am Kim", run_id="k").ok
        assert rt.runs.transcript("k") == rt.runs.transcript("k", "talk")
        assert [message.role for message in rt.runs.transcript("k")] == ["user", "assistant"]
        assert rt.runs.conversation_size("k").tokens > 0
        for phase in ("ship", "elsewhere", ""):
            with pytest.raises(ConversationInvalid, match=f"no conversation in phase `{phase}`"):
                rt.runs.transcript("k", phase)


def test_a_run_without_a_conversation_has_no_transcript(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]})
    with Project(tmp_path).open([finish()]) as rt:
        assert rt.run("s", {"text": "x"}, run_id="k").ok
        with pytest.raises(ConversationInvalid, match="run `k` has no conversation\n"):
            rt.runs.transcript("k")


def test_a_conversation_keeps_what_was_done_when_a_later_phase_fails(tmp_path: Path):
    project = make_talk(tmp_path, {"talk": ["talk", "ship"], "ship": ["end"]})
    answers = [go("talk", "Hello!"), DONE, go("ship", "first"), "no", "no", go("ship", "second"), finish()]
    with project.open(answers, max_phase_retries=1) as rt:
        result = rt.run("s", "I am Kim", run_id="k")
        assert result.question is not None
        rt.answer("k", result.question.id, SAID)
        result = rt.resume("k")
    assert result.ok, result
    assert result.path == ("talk", "talk", "ship", "talk", "ship")
    roles, texts = zip(*[(one.role, one.text) for one in project.model.requests[5].messages[1:]], strict=True)
    assert roles == ("user", "assistant", "user", "assistant", "user", "assistant", "user")
    assert (texts[0], texts[2]) == ("I am Kim", SAID)
    assert "vase.txt" in texts[4]
    assert texts[6].startswith("# Rejected\nThe next phase failed: phase `ship`: 2 answers rejected")
    assert not any("Hello!" in text for role, text in zip(roles, texts, strict=True) if role == "user")
    assert (tmp_path / "output/vase.txt").read_text() == "packed"
    assert project.is_sound()


def test_a_rejected_visit_of_a_conversation_keeps_what_was_done(tmp_path: Path):
    project = make_talk(tmp_path, {"plan": ["talk"], "talk": ["ship"], "ship": ["end"]})
    said, again = ({**go("talk", text)} for text in (SAID, "please"))
    for one in (said, again):
        one["artifact"]["type"] = "user_message"
    result = project.run("s", [said, DONE, "no", "no", again, go("ship", "first"), finish()], max_phase_retries=1)
    assert result.ok, result
    texts = [one.text for one in project.model.requests[5].messages[1:]]
    assert (texts[0], texts[-1], len(texts)) == (SAID, "please", 4)
    assert "vase.txt" in texts[2]
    assert (tmp_path / "output/vase.txt").read_text() == "packed"
    assert project.is_sound()


def test_a_turn_without_an_answer_after_a_rollback_waits_for_the_next_message(tmp_path: Path):
    project = make_talk(tmp_path, {"talk": ["talk", "ship"], "ship": ["end"]})
    with project.open([go("ship", "first"), "no", "no", "no", "no", go("talk", "Yes.")], max_phase_retries=1) as rt:
        result = rt.run("s", SAID, run_id="k")
        assert result.question is not None, result
        rt.answer("k", result.question.id, "Still there?")
        assert rt.resume("k").question is not None
    assert project.model.requests[-1].messages[-1].text == "Still there?"
    assert project.is_sound()
