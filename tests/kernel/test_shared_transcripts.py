"""Phases that name the same transcript share one conversation: handing over keeps what was said and remembered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reyn import RunResult
from reyn.lint import lint_skill
from reyn.skills import drawing
from tests.kernel.support import Project
from tests.support import act, go, load_skill, write_skill

SHARED = "conversation: {transcript: customer}\n"
REMEMBER = {"kind": "remember", "text": "The customer is called Ada."}


def write_desk(root: Path, front: str = SHARED, back: str = SHARED) -> Path:
    """A desk whose first phase hands over to billing, which may hand back."""
    return write_skill(
        root,
        "desk",
        {"front": ["front", "billing"], "billing": ["billing", "front", "end"]},
        inputs={"front": "user_message | note", "billing": "user_message | note"},
        phase_keys={"front": front, "billing": back},
        ops={"front": "remember, file", "billing": "remember, forget, compact"},
    )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    write_desk(tmp_path)
    return Project(tmp_path)


def converse(project: Project, answers: list, *said: str, run_id: str = "k", **options: Any) -> RunResult:
    with project.open(answers, **options) as rt:
        result = rt.run("desk", said[0], run_id=run_id, **({"history": HISTORY} if "system" in said[0] else {}))
        for text in said[1:]:
            assert result.question is not None, result
            rt.answer(run_id, result.question.id, text)
            result = rt.resume(run_id)
    return result


HISTORY = [{"role": "system", "content": "You sell lamps."}, {"role": "user", "content": "Before."}]


def texts(project: Project, call: int) -> list[str]:
    return [message.text for message in project.model.requests[call].messages[1:]]


def test_handing_over_keeps_the_conversation(project: Project):
    answers = [
        go("front", "Hello!"),
        go("billing", "about a bill"),
        go("billing", "Which bill?"),
        go("billing", "Paid."),
    ]
    result = converse(project, answers, "Hi", "My bill is wrong", "The last one")
    assert result.status == "waiting"
    shown = texts(project, 2)
    assert shown[0] == "Hi"
    assert "My bill is wrong" in shown
    assert "about a bill" in shown[-1]
    assert project.model.requests[2].phase == "billing"
    assert texts(project, 3)[: len(shown)] == shown
    assert "Do what billing does." in project.model.system_message(3)
    assert "Do what front does." not in project.model.system_message(3)
    assert project.is_sound()


def test_handing_back_keeps_the_conversation_as_well(project: Project):
    answers = [go("billing", "a bill"), go("front", "no bill"), go("front", "So what is it?")]
    converse(project, answers, "Hi")
    assert texts(project, 2)[: len(texts(project, 1))] == texts(project, 1)
    assert project.model.requests[2].phase == "front"
    assert project.is_sound()


def test_phases_of_other_names_share_nothing(tmp_path: Path):
    write_desk(tmp_path, SHARED, "conversation: {transcript: colleague}\n")
    project = Project(tmp_path)
    converse(project, [go("billing", "a bill"), go("billing", "Which?")], "Hi")
    assert len(texts(project, 1)) == 1
    assert "a bill" in texts(project, 1)[0]


def test_what_is_remembered_is_shared(project: Project):
    answers = [act(REMEMBER), go("billing", "a bill"), act({"kind": "forget", "id": "exp_1"}), go("billing", "Which?")]
    with project.open(answers) as rt:
        rt.run("desk", "Hi", run_id="k")
        assert "The customer is called Ada." in project.model.system_message(2)
        assert "The customer is called Ada." not in project.model.system_message(3)
        assert rt.runs.memory("k") == ()
        rt.conversations.remember("k", "The customer likes lamps.")
        assert [entry.text for entry in rt.runs.memory("k")] == ["The customer likes lamps."]
    assert project.is_sound()


def test_every_phase_reads_the_same_transcript(project: Project):
    converse(project, [go("billing", "a bill"), go("billing", "Which?")], "Hi")
    with project.open([]) as rt:
        whole = rt.runs.transcript("k")
        assert whole == rt.runs.transcript("k", "front") == rt.runs.transcript("k", "billing")
        assert whole[0].text == "Hi"
        assert "a bill" in whole[2].text


def test_a_shared_transcript_is_compacted_as_one(tmp_path: Path):
    small = "conversation: {transcript: customer, max_tokens: 200}\n"
    write_desk(tmp_path, small, small)
    project = Project(tmp_path)
    converse(project, [go("billing", "x" * 900), {"summary": "They said x."}, go("billing", "Which?")], "Hi")
    [compacted] = project.events("context_compacted")
    assert compacted["phase"] == "billing"
    assert "They said x." in texts(project, 2)[0]
    assert project.is_sound()


@pytest.mark.parametrize("at", range(1, 5))
def test_a_fork_continues_the_shared_transcript(project: Project, at: int):
    answers = [go("front", "Hello!"), go("billing", "a bill"), go("front", "no bill"), go("front", "So what?")]
    converse(project, answers, "Hi", "My bill")
    ends = [number for number, kind in enumerate(project.kinds(), start=1) if kind == "phase_completed"]
    reply = go("billing" if at == 2 else "front", "forked")
    with project.open([*answers[:at], *[reply] * (at < 4)]) as rt:
        forked = rt.fork("k", at=ends[at - 1], run_id="f")
        if at == 1:
            rt.answer("f", forked.question.id, "My bill")
            forked = rt.resume("f")
        assert forked.status == "waiting", forked.reason
        whole = [message.text for message in rt.runs.transcript("f")]
    assert whole[0] == "Hi"
    assert project.is_sound("f")


def test_a_copy_takes_messages_in_the_phase_that_holds_the_conversation(project: Project):
    answers = [go("billing", "a bill"), go("billing", "Which?"), go("billing", "Paid."), go("billing", "Again.")]
    converse(project, answers, "Hi")
    with project.open(answers) as rt:
        rt.conversations.copy("k", run_id="c")
        rt.conversations.say("c", "The last one")
        rt.resume("c")
        copied = [message.text for message in rt.runs.transcript("c")]
    assert copied[0] == "Hi"
    assert copied[-2] == "The last one"
    assert project.is_sound("c")


def test_instructions_of_a_history_end_with_the_phase_that_had_them(project: Project):
    answers = [go("front", "Hello!"), go("billing", "a bill"), go("billing", "Which?")]
    converse(project, answers, "system", "My bill")
    assert "You sell lamps." in project.model.system_message(1)
    assert "You sell lamps." not in project.model.system_message(2)
    assert "Do what billing does." in project.model.system_message(2)
    assert texts(project, 2)[0] == "Before."
    assert project.is_sound()


def test_handing_over_without_a_message_is_limited(project: Project):
    answers = [go("billing" if number % 2 == 0 else "front", str(number)) for number in range(12)]
    result = converse(project, answers, "Hi", max_phase_visits=3)
    assert result.status == "limited"
    assert "phase `front` was visited 3 times since the last message of the user" in result.reason
    assert project.is_sound()


def test_every_message_of_the_user_allows_further_visits(project: Project):
    steps = (("billing", "over"), ("front", "back"), ("front", "Reply."))
    answers = [go(phase, f"{text} {turn}") for turn in range(6) for phase, text in steps]
    assert converse(project, answers, *"abcdef", max_phase_visits=3).status == "waiting"


def test_an_upgrade_that_ends_the_sharing_takes_effect_with_the_next_visit(project: Project):
    answers = [go("billing", "one"), go("front", "two"), go("billing", "three"), go("billing", "Which?")]
    assert converse(project, answers, "Hi", max_phase_visits=1).status == "limited"
    write_desk(project.root, back="conversation: true\n")
    with project.open(answers) as rt:
        assert rt.resume("k", upgrade=True, raise_limits={"max_phase_visits": None}).status == "waiting"
        assert "one" in rt.runs.transcript("k", "front")[2].text
        assert "three" in rt.runs.transcript("k", "billing")[0].text
    assert project.is_sound()


def test_a_run_without_a_shared_transcript_records_nothing_of_it(tmp_path: Path):
    write_desk(tmp_path, "conversation: true\n", "conversation: true\n")
    project = Project(tmp_path)
    converse(project, [go("billing", "a bill"), go("billing", "Which?")], "Hi")
    assert all("transcript" not in event for event in project.events("phase_started"))


def test_the_graph_shows_which_phases_share_a_transcript(tmp_path: Path):
    write_desk(tmp_path)
    skill = load_skill(tmp_path / "reyn/project/desk")
    assert drawing.to_text(skill).count("│ transcript customer") == 2
    assert "front<br/>transcript customer" in drawing.to_mermaid(skill)


@pytest.mark.parametrize(
    ("front", "back", "finding"),
    [
        (SHARED, SHARED, ""),
        (SHARED, "conversation: true\n", "RYN225 no other phase has the transcript `customer`"),
        (
            SHARED,
            "conversation: {transcript: customer, max_tokens: 500}\n",
            "RYN225 the transcript `customer` has `max_tokens` 500 in phase",
        ),
        ("conversation: {transcript: a b}\n", SHARED, "RYN225 `a b` is not a valid name of a transcript"),
        ("conversation: {transcript: 5}\n", SHARED, "RYN114 `conversation"),
    ],
)
def test_lint_reports_a_transcript_that_is_not_shared_as_written(tmp_path: Path, front: str, back: str, finding: str):
    found = [f"{one.code} {one.message}" for one in lint_skill(write_desk(tmp_path, front, back))]
    found = [one for one in found if one[:6] in ("RYN225", "RYN114")]
    assert (not found) if not finding else any(one.startswith(finding) for one in found), found


def test_a_phase_that_only_branches_run_shares_no_transcript(tmp_path: Path):
    folder = write_skill(
        tmp_path,
        "desk",
        {"split": ["last"], "last": ["end"]},
        inputs={"last": "both"},
        skill_keys="nodes: {split: {all: {one: {do: extra, output: note}}, as: both}}\n",
    )
    head = "---\ntype: phase\nname: extra\ninput: user_message | note\n"
    (folder / "phases/extra.md").write_text(f"{head}{SHARED}---\nDo.\n")
    found = [one.message for one in lint_skill(folder) if one.code == "RYN225"]
    assert found == ["only branches run phase `extra`; each has a transcript of its own"]


def test_an_imported_run_has_the_shared_transcript_and_a_fork_continues_it(project: Project, tmp_path: Path):
    answers = [act(REMEMBER), go("billing", "a bill"), go("billing", "Which?"), go("billing", "Paid.")]
    converse(project, answers, "Hi")
    elsewhere = Project(tmp_path / "elsewhere")
    elsewhere.root.mkdir()
    with project.open([]) as rt:
        lines = list(rt.runs.export("k"))
        whole = rt.runs.transcript("k")
    with elsewhere.open(answers) as rt:
        rt.runs.import_(lines)
        assert rt.runs.transcript("k", "front") == whole
        assert rt.runs.replay("k").events == len(elsewhere.kinds())
        forked = rt.fork("k", at=len(elsewhere.kinds()), run_id="f")
        rt.answer("f", forked.question.id, "The last one")
        assert rt.resume("f").status == "waiting"
        assert [message.text for message in rt.runs.transcript("f")][-2] == "The last one"
        assert [entry.text for entry in rt.runs.memory("f")] == ["The customer is called Ada."]
