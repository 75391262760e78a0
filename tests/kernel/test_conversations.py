"""A phase with `conversation` keeps its transcript across visits, remembers, and is compacted by budget."""

from __future__ import annotations

import asyncio
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from reyn import RunResult, SyncRuntime
from reyn.context.histories import Histories
from reyn.context.messages import NormalizedMessage
from reyn.context.transcript import normalize
from reyn.errors import (
    HistoryInvalid,
    InputInvalid,
    MessageInvalid,
    ModelError,
    MutationInvalid,
    ReynError,
    RunNotResumable,
    SkillInvalid,
    TranscriptInvalid,
)
from reyn.journal.kinds import ExperienceForgotten, FrameMessage, HistoryPart, Part, TranscriptExtended
from reyn.kernel.core.run_state import apply, fold
from reyn.runs.frames import RecordedPrompt
from tests.kernel.support import Project
from tests.support import VOCABULARY, act, file, finish, go, load_skill, read_skill, write_skill

REMEMBER = {"kind": "remember", "text": "The user is called Ada."}


def write_talk(root: Path, keys: str = "conversation: true\n", ops: str = "remember, forget, compact, file") -> None:
    write_skill(
        root,
        "talk",
        {"chat": ["chat", "end"]},
        inputs={"chat": "user_message"},
        phase_keys={"chat": keys},
        ops={"chat": ops},
    )


@pytest.fixture
def project(tmp_path: Path) -> Project:
    write_talk(tmp_path)
    return Project(tmp_path)


def converse(project: Project, answers: list, *said: str, run_id: str = "k", **options: Any) -> RunResult:
    """Say the first text as the input of a run, and each other one as the answer to its open question."""
    with project.open(answers, **options) as rt:
        result = rt.run("talk", said[0], run_id=run_id)
        for text in said[1:]:
            result = say(rt, result, text)
    return result


def say(rt: SyncRuntime, waiting: RunResult, text: str) -> RunResult:
    """Answer the open question of a conversation, and let it go on."""
    assert waiting.question is not None, waiting
    rt.answer(waiting.run_id, waiting.question.id, text)
    return rt.resume(waiting.run_id)


def sent(project: Project, call: int) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in project.model.requests[call].messages]


def texts(project: Project, call: int) -> list[str]:
    return [text for _, text in sent(project, call)[1:]]


def test_a_phase_that_follows_itself_shows_its_reply_and_waits_for_the_user(project: Project):
    result = converse(project, [go("chat", "Hello!"), finish("Bye.")], "Hi")
    assert result.status == "waiting"
    assert result.question is not None
    assert result.question.message == "Hello!"
    with project.open([go("chat", "Hello!"), finish("Bye.")]) as rt:
        result = say(rt, result, "Goodbye")
    assert result.status == "finished"
    assert result.artifact == {"type": "note", "data": {"text": "Bye."}}
    assert project.is_sound()


def test_every_turn_shows_the_whole_conversation_after_a_stable_prefix(project: Project):
    answers = [go("chat", "one"), act(file("glob", "*.none")), go("chat", "two"), finish("three")]
    converse(project, answers, "first", "second", "third")
    assert texts(project, 0) == ["first"]
    assert texts(project, 1) == ["first", json.dumps(answers[0], separators=(",", ":")), "second"]
    last, earlier = sent(project, 3), sent(project, 2)
    assert [role for role, _ in last] == [
        "system",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
        "assistant",
        "user",
    ]
    assert last[: len(earlier)] == earlier
    assert [last[index][1] for index in (1, 3, 7)] == ["first", "second", "third"]
    assert last[5][1].startswith("# Results\n")
    assert project.is_sound()


def test_a_frame_refers_to_the_transcript_by_length_and_digest(project: Project):
    answers = [go("chat", str(number)) for number in range(30)]
    converse(project, answers, *(f"text {number}" for number in range(30)))
    sizes = [len(json.dumps(event)) for event in project.events("frame_built")]
    assert max(sizes) <= min(sizes) + 2  # two digits instead of one
    lengths = [event["transcript"]["length"] for event in project.events("frame_built")]
    assert lengths == list(range(1, 60, 2))
    assert project.is_sound()


def test_the_number_of_visits_of_a_conversation_is_not_limited(project: Project):
    answers = [go("chat", str(number)) for number in range(8)]
    assert converse(project, answers, *"abcdefgh", max_phase_visits=2).status == "waiting"


def test_corrections_are_not_part_of_the_conversation(project: Project):
    converse(project, [go("nowhere"), go("chat", "Hello!"), finish("Bye.")], "Hi", "Goodbye")
    assert [role for role, _ in sent(project, 1)] == ["system", "user", "assistant", "user"]
    assert "rejected" in sent(project, 1)[3][1]
    assert [role for role, _ in sent(project, 2)] == ["system", "user", "assistant", "user"]
    assert "rejected" not in "".join(texts(project, 2))
    assert project.is_sound()


def test_what_a_conversation_remembers_follows_its_system_prompt(project: Project):
    forget = {"kind": "forget", "id": "exp_1"}
    answers = [act(REMEMBER, REMEMBER), go("chat", "ok"), act(forget), act(REMEMBER, forget), finish("Bye.")]
    converse(project, answers, "I am Ada", "forget me")
    bare, known, again = (sent(project, call)[0][1] for call in (0, 2, 4))
    assert known == f"{bare}\n# Memory\n- [exp_1] The user is called Ada.\n"
    assert sent(project, 3)[0][1] == bare
    assert again == f"{bare}\n# Memory\n- [exp_2] The user is called Ada.\n"  # ids are never reused
    assert [event["id"] for event in project.events("experience_remembered")] == ["exp_1", "exp_2"]
    results = [event["status"] for event in project.events("forget_completed")]
    assert results == ["ok", "error"]
    assert project.is_sound()


def test_a_conversation_is_compacted_when_it_exceeds_its_budget(tmp_path: Path):
    write_talk(tmp_path, "conversation: {max_tokens: 300}\n")
    project = Project(tmp_path)
    answers = [act(REMEMBER), go("chat", "x" * 1_500), {"summary": "Ada talked."}, finish("Bye.")]
    converse(project, answers, "I am Ada", "And now?")
    request, after = sent(project, 2), sent(project, 3)
    assert "summarise" in request[0][1]
    assert [text for role, text in after[1:]] == ["# Summary of the conversation so far\nAda talked.", "And now?"]
    assert "called Ada" in after[0][1]
    [compacted] = project.events("context_compacted")
    assert compacted["tokens_after"] < 300 < compacted["tokens_before"]
    assert compacted["dropped"] == 4
    assert project.is_sound()


def test_the_model_can_ask_for_a_compaction(project: Project):
    answers = [go("chat", "one"), act({"kind": "compact"}), {"summary": "We talked."}, finish("Bye.")]
    assert converse(project, answers, "Hi", "Please compact").status == "finished"
    roles = [role for role, _ in sent(project, 3)]
    assert roles[:2] == ["system", "user"]
    assert "Please compact" in texts(project, 3)
    assert project.is_sound()


def test_a_summary_that_is_no_summary_is_asked_for_again_then_the_older_messages_are_left_out(tmp_path: Path):
    write_talk(tmp_path, "conversation: {max_tokens: 300}\n")
    project = Project(tmp_path)
    long = go("chat", "x" * 1_500)
    answers = [long, "no", {"summary": " "}, {"summary": "y" * 2_000}, finish("Bye.")]
    assert converse(project, answers, "Hi", "And?").status == "finished"
    assert [event["class"] for event in project.events("validation_error")] == ["not_json", "schema", "schema"]
    assert [text for _, text in sent(project, 4)[1:]] == [
        "# Summary of the conversation so far\n(The older messages were left out: they could not be summarised.)",
        "And?",
    ]
    [compacted] = project.events("context_compacted")
    assert "no valid summary" in compacted["error"]
    assert project.is_sound()


def test_tokens_of_a_compaction_count_towards_the_limits_of_the_run(tmp_path: Path):
    write_talk(tmp_path, "conversation: {max_tokens: 300}\n")
    project = Project(tmp_path)
    answers = [go("chat", "x" * 1_500), {"summary": "We talked."}, finish("Bye.")]
    converse(project, answers, "Hi", "And?")
    assert len(project.events("llm_responded")) == 3
    assert [event["call"] for event in project.events("llm_responded")] == ["1.1", "2.1", "2.2"]


class Unreachable:
    """A model without a connection."""

    name = "scripted"

    async def complete(self, request: Any) -> Any:
        raise ModelError("no connection")


def test_a_provider_error_keeps_what_the_user_said(project: Project):
    answers = [go("chat", "Hello!"), finish("Bye.")]
    waiting = converse(project, answers, "Hi")
    with project.open([], model=Unreachable()) as rt:
        assert say(rt, waiting, "Goodbye").status == "failed"
    assert project.resume(answers, retry=True).status == "finished"
    assert texts(project, 0)[-1] == "Goodbye"
    assert texts(project, 0).count("Goodbye") == 1
    assert project.is_sound()


def test_a_turn_without_a_usable_answer_keeps_the_message_and_the_conversation_goes_on(project: Project):
    answers = [go("chat", "Hello!"), *["no"] * 3, finish("Bye.")]
    result = converse(project, answers, "Hi", "Not lost", "Again")
    assert result.status == "finished"
    assert texts(project, 4)[-2:] == ["Not lost", "Again"]
    [aborted] = project.events("phase_aborted")
    assert (aborted["ends"], aborted["code"]) == (False, "RYN202")
    assert project.is_sound()


UNUSABLE: dict[str, tuple[list, str]] = {
    "no JSON": (["no"] * 3, "not one JSON object"),
    "empty": ([""] * 3, "the answer is empty"),
    "nowhere": ([go("nowhere")] * 3, "3 answers rejected"),
    "act turns used up": ([act(file("glob", "*.none"))] * 40, "no ops are offered"),
}


@pytest.mark.parametrize("said", [["Hi"], ["Hi", "And now?"], ["Hi", "And now?", "Still there?"]])
@pytest.mark.parametrize("unusable", UNUSABLE)
def test_a_turn_without_a_usable_answer_is_no_reply(project: Project, unusable: str, said: list[str]):
    answers, why = UNUSABLE[unusable]
    before = [go("chat", f"reply {number}") for number in range(1, len(said))]
    result = converse(project, [*before, *answers], *said)
    assert (result.status, result.code, result.exit_code) == ("waiting", "RYN202", 1)
    assert result.hint == "Say it in other words, or use a larger model."
    question = result.question
    assert question is not None
    assert (question.code, question.message) == ("RYN202", result.reason)
    assert result.reason.startswith("no reply to the last message: phase `chat`: 3 answers rejected")
    assert why in result.reason
    assert not any(text in result.reason for text in said)
    with project.open([*["used"] * len(project.events("llm_responded")), go("chat", "Better.")]) as rt:
        row = rt.runs.find("k")
        assert (row.reason, row.wait.code) == (result.reason, "RYN202")
        assert rt.runs.next_action(row).verb == "answer"
        after = say(rt, result, "Once more")
    assert (after.code, after.exit_code, after.question.message) == ("", 4, "Better.")
    assert [text for text in texts(project, 0) if text in (*said, "Once more")] == [*said, "Once more"]
    assert project.is_sound()


def test_a_turn_that_a_user_aborted_is_no_reply_and_no_error(project: Project):
    class Aborting(Unreachable):
        async def complete(self, request: Any) -> Any:
            rt.conversations.abort_turn("k", "enough")
            await asyncio.sleep(60)

    result = converse(project, [go("chat", "Hello!")], "Hi")
    with project.open([], model=Aborting()) as rt:
        result = say(rt, result, "Goodbye")
    assert (result.status, result.code, result.exit_code) == ("waiting", "", 4)
    assert result.reason == "no reply to the last message: the turn was aborted: enough"
    assert project.is_sound()


def seq_of(project: Project, kind: str, number: int) -> int:
    return [event.seq for event in project.journal.read("k") if event.kind == kind][number]


def test_a_conversation_can_be_forked_at_any_message(project: Project):
    answers = [go("chat", "one"), go("chat", "two"), go("chat", "three")]
    converse(project, answers, "first", "second", "third")
    at = seq_of(project, "phase_completed", 0)
    with project.open([*answers[:1], finish("other")]) as rt:
        result = rt.fork("k", at=at, input="instead", run_id="f")
        assert result.status == "finished"
    assert texts(project, 0)[0] == "first"
    assert texts(project, 0)[-1] == "instead"
    assert "second" not in texts(project, 0)
    at = seq_of(project, "llm_requested", 1)
    with project.open([*answers[:1], finish("again")]) as rt:
        assert rt.fork("k", at=at, run_id="g").status == "finished"
        assert rt.runs.replay("g").events > at
        assert rt.runs.replay("f").events
    assert texts(project, 0)[-1] == "second"


def test_the_recorded_frames_are_what_the_model_received(tmp_path: Path):
    write_talk(tmp_path, "conversation: {max_tokens: 300}\n")
    project = Project(tmp_path)
    answers = [go("nowhere"), act(REMEMBER), go("chat", "x" * 1_500), {"summary": "We talked."}, finish("Bye.")]
    converse(project, answers, "Hi", "And?")
    for call in range(5):
        seq = seq_of(project, "llm_requested", call)
        recorded = RecordedPrompt.at("k", project.journal.read("k"), seq, project.journal.blob)
        *messages, (role, _) = recorded.with_answer
        assert role == "answer"
        assert messages == sent(project, call)


def test_deltas_of_state_do_not_depend_on_the_length(project: Project):
    """The journal of a turn has the same size early and late."""
    answers = [go("chat", "ok") for _ in range(40)]
    converse(project, answers, *["and?"] * 40)
    events = list(project.journal.read("k"))
    starts = [index for index, event in enumerate(events) if event.kind == "phase_started"]
    sizes = [sum(len(event.raw) for event in events[a:b]) for a, b in itertools.pairwise(starts[1:])]
    assert max(sizes[20:]) <= 1.02 * min(sizes[2:])


def test_a_conversation_takes_what_the_user_says(tmp_path: Path):
    write_skill(tmp_path, "talk", {"chat": ["chat", "end"]}, phase_keys={"chat": "conversation: true\n"})
    with pytest.raises(SkillInvalid) as raised:
        load_skill(tmp_path / "reyn/project/talk")
    assert "add `user_message` to `input`" in str(raised.value)


def test_ops_of_conversations_are_errors_elsewhere(tmp_path: Path):
    write_talk(tmp_path, keys="")
    findings = read_skill(tmp_path / "reyn/project/talk").findings
    assert [finding.code for finding in findings if finding.severity == "error"] == ["RYN224"] * 3


@pytest.mark.parametrize("kind", sorted(op.kind for op in VOCABULARY.ops if op.is_for_conversations))
def test_the_error_about_an_op_of_conversations_holds_for_each_of_them(tmp_path: Path, kind: str):
    folder = write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": kind})
    [finding] = [one for one in read_skill(folder).findings if one.code == "RYN224"]
    assert finding.message == f"op `{kind}` is for conversations, but the phase is not one"
    assert "memory" not in f"{finding.message} {finding.fix}"


@pytest.mark.parametrize("value", ["maybe", "{max_tokens: 3}", "{size: 3}", "[]"])
def test_a_malformed_setting_is_an_error(tmp_path: Path, value: str):
    write_talk(tmp_path, f"conversation: {value}\n")
    with pytest.raises(SkillInvalid):
        load_skill(tmp_path / "reyn/project/talk")


def test_a_preview_shows_what_the_next_turn_sends_and_records_nothing(tmp_path: Path):
    write_talk(tmp_path, "conversation: {max_tokens: 300}\n")
    project = Project(tmp_path)
    answers = [act(REMEMBER), go("chat", "Hello, Ada."), finish("Bye.")]
    converse(project, answers, "I am Ada")
    before = len(project.kinds())
    with project.open(answers) as rt:
        preview = rt.runs.next_prompt("k", "Goodbye")
        assert len(project.kinds()) == before
        assert rt.runs.find("k").status == "waiting"
        say(rt, rt.runs.result("k"), "Goodbye")
        assert preview == sent(project, 0)
        with pytest.raises(RunNotResumable, match="finished"):
            rt.runs.next_prompt("k")


def test_a_preview_without_an_answer_says_that_the_run_waits(project: Project):
    converse(project, [go("chat", "Hello!")], "Hi")
    with project.open([]) as rt:
        with pytest.raises(RunNotResumable, match="waiting"):
            rt.runs.next_prompt("k")
        with pytest.raises(RunNotResumable, match="another answer"):
            rt.runs.next_prompt("k", 3)


def test_a_preview_of_a_failed_run_shows_the_request_that_is_sent_again(project: Project):
    with project.open([], model=Unreachable()) as rt:
        rt.run("talk", "Hi", run_id="k")
        assert rt.runs.next_prompt("k")[-1] == ("user", "Hi")


HISTORY: list[dict[str, Any]] = [
    {"role": "system", "content": "You know the files."},
    {"role": "user", "content": "What is in a.txt?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "noodles"},
    {"role": "assistant", "content": "Noodles."},
]


def test_a_run_can_start_with_a_history(project: Project):
    with project.open([finish("Bye.")]) as rt:
        assert rt.run("talk", "And now?", run_id="k", history=HISTORY).status == "finished"
        request = list(project.model.requests[0].messages)
        assert [message.role for message in request] == ["system", "user", "assistant", "tool", "assistant", "user"]
        assert request[0].text.startswith("You know the files.\n")
        assert "Do what chat does." not in request[0].text
        assert '"control"' in request[0].text  # the form of the answer follows
        assert project.model.requests[0].task == "You know the files."
        assert rt.runs.context_frame("k").stable.instructions == "You know the files."
        assert request[2].tool_calls[0].arguments == '{"at": 1}'
        assert request[-1].text == "And now?"
        out = rt.runs.transcript("k")
        assert [message.text for message in out][:3] == ["You know the files.", "What is in a.txt?", ""]
        assert [message.text for message in out][3:6] == ["noodles", "Noodles.", "And now?"]
        assert rt.runs.prompt_at("k")[1][1] == "What is in a.txt?"
    assert project.is_sound()


@pytest.mark.parametrize("system", [None, "You know the files.", "You sell noodles."])
@pytest.mark.parametrize("first", [None, "You know the files."])
def test_a_history_that_extends_another_has_its_own_system_message(
    project: Project, first: str | None, system: str | None
):
    """The system message of a transcript ranks third for the prompt, before the instructions of the phase."""
    history = normalize([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}])
    for number, text in enumerate((first, system, first)):
        message = NormalizedMessage("system", text) if text else None
        with project.open([finish("fine")]) as rt:
            rt.run("talk", "And?", run_id=f"k{number}", history=history.with_system(message))
            again = rt.rerun(f"k{number}", run_id=f"again{number}")
            assert again.ok
            assert rt.runs.transcript(f"k{number}").system == message
        prompts = [one.messages[0].text for one in project.model.requests]
        assert [prompt.startswith(f"{text or 'Do what chat does.'}\n") for prompt in prompts] == [True, True]
        assert project.is_sound(f"k{number}")


def test_a_system_message_stays_through_a_compaction(tmp_path: Path):
    write_talk(tmp_path, "conversation: {max_tokens: 300}\n")
    project = Project(tmp_path)
    history = [{"role": "system", "content": "Be a pirate."}, *({"role": "user", "content": "x" * 900} for _ in "12")]
    with project.open([{"summary": "Much was said."}, act(REMEMBER), finish("Bye.")]) as rt:
        assert rt.run("talk", "And now?", run_id="k", history=history).status == "finished"
        prompts = [one.messages[0].text for one in project.model.requests]
        assert [prompt.startswith("Be a pirate.\n") for prompt in prompts] == [False, True, True]
        assert "# Memory" in prompts[2]
    assert project.is_sound()


def test_histories_that_extend_each_other_share_their_content(project: Project):
    history: Any = HISTORY
    stored = []
    for number in range(12):
        with project.open([finish("fine")]) as rt:
            rt.run("talk", f"message {number}", run_id=f"k{number}", history=history)
            history = rt.runs.transcript(f"k{number}")
        [started] = project.events("run_started", run_id=f"k{number}")
        stored.append([part["content"] for part in started["history"]])
    assert all(later[: len(earlier)] == earlier for earlier, later in itertools.pairwise(stored))
    assert [len(parts) for parts in stored] == list(range(1, 13))
    assert history.length == 4 + 24
    assert history.system.text == "You know the files."
    with project.open([]) as rt:
        assert rt.runs.replay("k11").events
        assert len(rt.runs.prompt_at("k11")) == 1 + 4 + 23 + 1


def test_a_history_can_move_to_another_journal(tmp_path: Path):
    write_talk(tmp_path)
    history: Any = [
        {"role": role, "content": f"text {number}"} for number in range(100) for role in ("user", "assistant")
    ]
    for number in range(3):
        project = Project(tmp_path)
        with project.open([finish("fine")]) as rt:
            rt.run("talk", f"message {number}", run_id="k", history=history)
            history = rt.runs.transcript("k")
            assert rt.runs.verify("k").blobs
        assert project.is_sound()


def test_a_list_that_continues_the_callers_own_is_stored_in_parts(project: Project):
    history = normalize([{"role": role, "content": "x"} for _ in range(100) for role in ("user", "assistant")])
    for number in range(3):
        with project.open([finish("fine")]) as rt:
            rt.run("talk", "Hi", run_id=f"k{number}", history=history)
        history = history.append(NormalizedMessage("user", "Hi"), NormalizedMessage("assistant", "fine"))
    [started] = project.events("run_started", run_id="k2")
    assert [part["messages"] for part in started["history"]] == [200, 2, 2]


@pytest.mark.parametrize("summary", ["Much was said.", ""])
def test_the_most_recent_messages_of_a_history_stay_when_it_is_compacted(tmp_path: Path, summary: str):
    write_talk(tmp_path, "conversation: {max_tokens: 300}\n")
    project = Project(tmp_path)
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    recent = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "seen"},
        {"role": "assistant", "content": "Shall I pay?"},
    ]
    old = [{"role": role, "content": "x" * 900} for role in ("user", "assistant")]
    answers = [{"summary": summary}] * (1 if summary else 3)
    with project.open([*answers, finish("Bye.")]) as rt:
        assert rt.run("talk", "Yes.", run_id="k", history=[*old, *recent]).status == "finished"
        request = list(project.model.requests[-1].messages)[1:]
        first = summary or "(The older messages were left out: they could not be summarised.)"
        assert request[0].text == f"# Summary of the conversation so far\n{first}"
        assert [message.role for message in request[1:]] == ["user", "assistant", "tool", "assistant", "user"]
        assert [message.text for message in request[1:]] == ["Look.", "", "seen", "Shall I pay?", "Yes."]
        assert request[2].tool_calls[0].arguments == '{"at": 1}'
        assert [message.text for message in rt.runs.transcript("k")][:5] == [message.text for message in request[:5]]
    assert project.is_sound()


@pytest.mark.parametrize("size", [40, 900])
def test_the_recent_part_of_a_compacted_history_is_bounded(tmp_path: Path, size: int):
    write_talk(tmp_path, "conversation: {max_tokens: 1000}\n")
    project = Project(tmp_path)
    roles = ("user", "assistant")
    history = [{"role": role, "content": f"{number} " + "x" * size} for number in range(60) for role in roles]
    with project.open([{"summary": "Much was said."}, finish("Bye.")]) as rt:
        assert rt.run("talk", "And now?", run_id="k", history=history).status == "finished"
        kept = texts(project, 1)[1:-1]
        assert kept == [message["content"] for message in history][-len(kept) :]
        assert 0 < sum(map(len, kept)) <= 1000
    assert project.is_sound()


@pytest.mark.parametrize(
    ("history", "error"),
    [
        ([{"role": "wizard", "content": "x"}], MessageInvalid),
        ([{"role": "user", "content": "\ud800"}], MessageInvalid),
        (HISTORY[:3], TranscriptInvalid),
        ([*HISTORY, HISTORY[3]], TranscriptInvalid),
    ],
)
def test_an_invalid_history_starts_no_run(project: Project, history: list, error: type[ReynError]):
    with project.open([]) as rt:
        with pytest.raises(error):
            rt.run("talk", "Hi", run_id="k", history=history)
        assert not rt.runs.is_recorded("k")


def test_only_a_conversation_has_a_history(tmp_path: Path):
    write_skill(tmp_path, "plain", {"a": ["end"]})
    with Project(tmp_path).open([]) as rt, pytest.raises(InputInvalid, match="not a conversation"):
        rt.run("plain", {"text": "in"}, history=HISTORY)


def test_a_forged_transcript_is_an_error(project: Project):
    converse(project, [go("chat", "Hello!")], "Hi")
    state = fold(project.journal.read("k"))
    stray = FrameMessage("tool", (Part(text="x"),), call_id="no such call")
    with pytest.raises(HistoryInvalid, match="not open"):
        apply(state, TranscriptExtended("chat", (stray,), 1), 0)
    with pytest.raises(HistoryInvalid, match="exp_9"):
        apply(state, ExperienceForgotten("chat", "1.1.1", "exp_9"), 0)


def test_a_forged_history_is_an_error(project: Project):
    with project.open([finish("fine")]) as rt:
        rt.run("talk", "Hi", run_id="k", history=HISTORY)
        [started] = project.events("run_started")
        parts = tuple(HistoryPart(part["content"], 4, 1) for part in started["history"])
        with pytest.raises(HistoryInvalid):
            Histories().load(parts, lambda _: b'[{"role": "tool", "text": "x", "tool_call_id": "y"}]')
        with pytest.raises(HistoryInvalid):
            Histories().load(parts, lambda _: b"no JSON")


def test_a_program_can_change_what_a_stopped_conversation_remembers(project: Project):
    answers = [go("chat", "Hello!"), finish("Bye.")]
    waiting = converse(project, answers, "Hi")
    with project.open(answers) as rt:
        rt.conversations.remember("k", "The user is called Ada.")
        rt.conversations.remember("k", "Ada likes tea.")
        rt.conversations.forget("k", "exp_1")
        assert [(one.id, one.text) for one in rt.runs.memory("k")] == [("exp_2", "Ada likes tea.")]
        with pytest.raises(MutationInvalid, match="exp_1"):
            rt.conversations.forget("k", "exp_1")
        with pytest.raises(MutationInvalid, match="blank"):
            rt.conversations.remember("k", " ")
        assert rt.runs.find("k").status == "waiting"
        assert say(rt, waiting, "Goodbye").status == "finished"
        with pytest.raises(RunNotResumable):
            rt.conversations.remember("k", "too late")
    assert sent(project, 0)[0][1].endswith("# Memory\n- [exp_2] Ada likes tea.\n")
    assert project.is_sound()


def test_a_program_asks_for_a_compaction_which_happens_before_the_next_call(project: Project):
    summary = json.dumps({"summary": "They talked about numbers."})
    with project.open([go("chat", "r1"), go("chat", "r2"), summary, go("chat", "r3")]) as rt:
        result = rt.run("talk", "one " * 50, run_id="k")
        result = say(rt, result, "two " * 50)
        rt.conversations.compact("k")
        assert "context_compacted" not in [event.kind for event in rt.runs.events("k")]
        result = say(rt, result, "three")
        assert [event.kind for event in rt.runs.events("k")].count("context_compacted") == 1
        last = texts(project, -1)
        assert "They talked about numbers." in last[0]
        assert "three" in last[-1]
        assert "one one" not in "".join(last)
        say(rt, result, "four") if result.question is None else None
        assert rt.runs.replay("k").events == rt.runs.verify("k").events


def test_only_a_conversation_can_be_compacted(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "ask_user"})
    project = Project(tmp_path)
    with project.open([act({"kind": "ask_user", "question": "Which?"}), finish()]) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
        with pytest.raises(MutationInvalid, match="has no conversation"):
            rt.conversations.compact("k")
