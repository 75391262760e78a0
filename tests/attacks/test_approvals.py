"""Approval of something else. The attacker is a model: it times its actions and chooses every text around a question.

A reply authorises an effect only if it names the question, whose id comes from the hash of what was shown. The oracle
is the file that the action would write.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reyn import OSRuntime
from reyn.chat.services.intervention_handler import InterventionHandler
from reyn.cli import people
from reyn.cli.chat.commands import ChatCommands
from reyn.cli.chat.printing import describe
from reyn.cli.writer import out
from reyn.errors import ApprovalUnnamed, QuestionUnknown
from reyn.journal.kinds import Question
from reyn.kernel.runtime_types import LATER
from reyn.kernel.visit.waits import action_id
from reyn.kernel.world.op_performer import bound_rule
from reyn.models import ModelAnswer, ModelRequest
from reyn.ops import Call
from reyn.ops.asking import AskAgentOp
from tests.chat.support import Agent, run_skill, skills, start_skill
from tests.kernel.support import Project
from tests.support import act, file, finish, write_skill

TARGET = "output/wiped.txt"
WIPE = act(file("write", TARGET, content="gone\n"))
ASK = {"permissions": {"file.write": [{"ask": "output/"}]}}
CHOICE = "preprocessor:\n  - ask_user: {question: Which one?, suggestions: [approve, reject], into: data.choice}\n"
PLAIN = [
    "1",
    "2",
    "approve",
    "yes",
    "y",
    "ok",
    "approve always",
    '{"decision": "approve"}',
    "1\n",
    " approve ",
    "go on",
]


class Wiper(Agent):
    """Starts a run in the background that wants to write a file, and asks numbered questions of its own."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        if request.phase == "wipe":
            return ModelAnswer(json.dumps(WIPE if request.call == "1.1" else finish("done")))
        return await super().complete(request)


async def reach(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - the code under test has no event to wait for
            await asyncio.sleep(0.001)


def converse(root: Path, talk: Callable[..., Any], **rules: Any) -> Any:
    """Talk while an approval of a background run is open."""
    keys = "description: Tidy up\n"
    write_skill(
        root, "wiper", {"wipe": ["end"]}, inputs={"wipe": "user_message"}, ops={"wipe": "file"}, skill_keys=keys
    )
    skills(root, "asking", asking=CHOICE)

    async def conversation() -> Any:
        model = Wiper(tidy=start_skill("wiper"), **rules)
        async with OSRuntime.open(root, model=model, **ASK) as rt, rt.chat() as chat:
            await chat.say("tidy up")
            await reach(lambda: len(chat.questions))
            [approval] = chat.questions
            assert approval.question.reason == "approval"
            return await talk(rt, chat, approval)

    return asyncio.run(conversation())


@pytest.mark.parametrize("text", PLAIN)
def test_text_in_a_conversation_approves_nothing(tmp_path: Path, text: str):
    """Such as the reply to a numbered list in what the agent said: it goes to the agent."""

    async def talk(rt, chat, approval):
        said = asyncio.get_running_loop().create_future()
        handler = InterventionHandler(chat, lambda words: chat.post(words, said))
        assert handler.handle(text) == "message"
        assert (await said).text == f"You said: {text.strip()}"
        assert handler.reply(text) == f"approval {approval.number} is not named"
        assert rt.runs.find(approval.run).status == "waiting"

    converse(tmp_path, talk)
    assert not (tmp_path / TARGET).exists()


@pytest.mark.parametrize("text", ["1", "2", "approve"])
def test_the_reply_to_a_later_question_is_not_taken_by_an_older_approval(tmp_path: Path, text: str):
    async def talk(rt, chat, approval):
        replied = asyncio.ensure_future(chat.say("choose"))
        await reach(lambda: len(chat.questions) == 2)
        handler = InterventionHandler(chat)
        assert handler.hold(text).meaning.question.number == 2
        assert handler.send() == ""
        await replied
        assert [one.question.id for one in chat.questions] == [approval.question.id]
        assert rt.runs.find(approval.run).status == "waiting"

    converse(tmp_path, talk, choose=run_skill("asking"))
    assert not (tmp_path / TARGET).exists()


@pytest.mark.parametrize(
    ("line", "is_written"),
    [
        ("/approve {number}", True),
        ("/approve {id}", True),
        ("/approve {number} always", True),
        ('/answer {number} {{"decision": "approve"}}', True),
        ("/reject {number} not that", False),
        ("/deny {number}", False),
        ("/approve", False),
        ("/approve 7", False),
        ("/approve ask-000000000000", False),
        ("/approve {number} {number}", False),
        ("/approve approve {number}", False),
        ("/reply approve", False),
        ("/answer approve", False),
        ("/say /approve {number}", False),
    ],
)
def test_an_approval_in_a_conversation_is_named(tmp_path: Path, line: str, is_written: bool):
    async def talk(rt, chat, approval):
        typed = line.format(number=approval.number, id=approval.question.id)
        ChatCommands(chat, rt, lambda _: None, InterventionHandler(chat)).execute(typed)
        is_decided = not any(one.question.id == approval.question.id for one in chat.questions)
        if is_decided:
            await chat.runs.settle()
        assert is_decided == (is_written or line.startswith(("/reject", "/deny")))

    converse(tmp_path, talk)
    assert (tmp_path / TARGET).exists() == is_written


def test_a_number_never_names_another_question(tmp_path: Path):
    """The first approval is decided; its number is refused although the same run asks again."""

    async def talk(rt, chat, approval):
        (tmp_path / "output").mkdir()
        (tmp_path / TARGET).write_text("new by now\n")  # so that the approved action is not the one that was shown
        commands = ChatCommands(chat, rt, lambda _: None, InterventionHandler(chat))
        commands.execute(f"/approve {approval.number}")
        await reach(lambda: [one.number for one in chat.questions] == [2])
        commands.execute(f"/approve {approval.number}")
        commands.execute(f"/approve {approval.question.id}")
        assert [one.number for one in chat.questions] == [2]
        assert "new by now" in "\n".join(describe(next(iter(chat.questions))))

    converse(tmp_path, talk)
    assert (tmp_path / TARGET).read_text() == "new by now\n"


def test_an_approval_in_a_conversation_shows_how_to_name_it(tmp_path: Path):
    async def talk(rt, chat, approval):
        return "\n".join(describe(approval))

    shown = converse(tmp_path, talk)
    assert "\n    /approve 1, /edit 1, /reject 1 REMARK, or /answer 1 VALUE" in shown
    assert "1. approve" not in shown


# -- everywhere else --------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Project:
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file, ask_user"})
    return Project(tmp_path)


ANSWERS = [WIPE, finish()]


@pytest.mark.parametrize("value", ["approve", {"decision": "approve"}, {"decision": "approve", "always": True}])
@pytest.mark.parametrize("is_text", [False, True])
def test_an_answer_without_a_name_is_refused_with_the_question(project: Project, value: Any, is_text: bool):
    waiting = project.run("s", ANSWERS, **ASK)
    with project.open(ANSWERS, **ASK) as rt, pytest.raises(ApprovalUnnamed) as refused:
        rt.answer("k", None, json.dumps(value) if is_text and not isinstance(value, str) else value, is_text=is_text)
    assert f"`{waiting.question.id}`: Approve `file write`?" in refused.value.message
    assert not (project.root / TARGET).exists()


@pytest.mark.parametrize(
    "change",
    [
        {"answers": [act(file("write", TARGET, content="other\n")), finish()]},
        {"answers": [act(file("write", "output/other.txt", content="gone\n")), finish()]},
        {"permissions": {"file.write": [{"ask": "output/*.txt"}]}},
        {"run_id": "other"},
        {"before": "already there\n"},
    ],
    ids=["content", "path", "rule", "run", "file"],
)
def test_the_id_of_a_question_depends_on_everything_that_it_shows(tmp_path: Path, change: dict[str, Any]):
    """An answer that was typed for one action is refused for any other one, and names the one that waits."""
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file, ask_user"})
    shown = Project(tmp_path).run("s", ANSWERS, **ASK).question.id
    if before := change.pop("before", None):
        (tmp_path / "output").mkdir()
        (tmp_path / TARGET).write_text(before)
    answers, run_id = change.pop("answers", ANSWERS), change.pop("run_id", "k")
    other = Project(tmp_path)
    options = ASK | change
    now = other.run("s", answers, run_id=run_id, **options).question.id
    assert now != shown
    with other.open(answers, **options) as rt, pytest.raises(QuestionUnknown, match=f"it waits for `{now}`: Approve"):
        rt.answer(run_id, shown, "approve")
    assert other.journal.drain(run_id) == []


@given(st.text("0123456789abcdef", min_size=64, max_size=64), st.integers(0, 31), st.sampled_from("0123456789abcdef"))
def test_actions_have_different_names_if_the_first_128_bits_of_their_digests_differ(digest: str, at: int, other: str):
    """With 48 bits, a model can search for a harmless and a harmful action with one name."""
    assume(digest[at] != other)
    changed = digest[:at] + other + digest[at + 1 :]
    assert action_id(digest, 1) != action_id(changed, 1)
    assert bound_rule("ask", digest) != bound_rule("ask", changed)


def test_the_answer_to_an_older_question_is_refused_after_the_next_one_is_asked(project: Project):
    waiting = project.run("s", ANSWERS, **ASK)
    (project.root / "output").mkdir()
    (project.root / TARGET).write_text("precious\n")
    with project.open(ANSWERS, **ASK) as rt:
        rt.answer("k", waiting.question.id, "approve")
        again = rt.resume("k")
        assert (again.status, "-precious" in again.question.message) == ("waiting", True)
        with pytest.raises(QuestionUnknown):
            rt.answer("k", waiting.question.id, "approve")
        assert (project.root / TARGET).read_text() == "precious\n"
        rt.answer("k", again.question.id, "approve")
        assert rt.resume("k").ok
    assert (project.root / TARGET).read_text() == "gone\n"


def test_a_standing_approval_holds_only_if_the_action_is_the_one_that_was_shown(project: Project):
    waiting = project.run("s", ANSWERS, **ASK)
    (project.root / "output").mkdir()
    (project.root / TARGET).write_text("precious\n")
    with project.open(ANSWERS, **ASK) as rt:
        rt.answer("k", waiting.question.id, {"decision": "approve", "always": True})
        assert rt.resume("k").status == "waiting"
        assert rt.permissions.approvals() == []
        assert rt.run("s", {"text": "x"}, run_id="second").status == "waiting"
    assert (project.root / TARGET).read_text() == "precious\n"


@pytest.mark.parametrize("reason", ["approval", "decision", "unsafe"])
def test_a_prompt_takes_a_reply_only_if_nothing_followed_the_question(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], reason: str
):
    """A run beside it prints a list with numbers while the person types."""
    schema = {"enum": ["approve", "reject"]}
    typed = iter([b"1\n", b"1\n", None])
    noise = iter(["Which city?\n 1. Rome", ""])

    async def read_line() -> bytes | None:
        if text := next(noise, ""):
            out.line(text)
        return next(typed)

    monkeypatch.setattr(people, "_read_line", read_line)
    asked = Question("ask-1", reason, "Approve `file delete`?", schema, suggestions=("approve", "reject"))
    assert asyncio.run(people.TerminalPeople().ask("r", asked)) == "approve"
    assert capsys.readouterr().err.count("Approve `file delete`?") == 2
    assert asyncio.run(people.TerminalPeople().ask("r", asked)) is LATER


def test_a_reply_typed_for_a_sub_run_reaches_no_other_action(tmp_path: Path):
    """Two sub-runs with the same op: the id of one question is refused for the other."""
    write_skill(tmp_path, "child", {"c": ["end"]}, ops={"c": "file"})
    write_skill(tmp_path, "s", {"@child": ["@child2"], "@child2": ["end"]})
    write_skill(tmp_path, "child2", {"c": ["end"]}, ops={"c": "file"})
    project = Project(tmp_path)
    answers = [WIPE, finish(), WIPE, finish()]
    first = project.run("s", answers, **ASK)
    with project.open(answers, **ASK) as rt:
        rt.answer("k", first.question.id, "reject")
        second = rt.resume("k")
        assert second.status == "waiting"
        with pytest.raises(QuestionUnknown):
            rt.answer("k", first.question.id, "approve")
    assert not (tmp_path / TARGET).exists()


# -- what gets a name later ------------------------------------------------------------------------------------


class Runner:
    """Runs the skill `helper`, which finishes."""

    name = "runner"

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        is_first = request.phase == "a" and request.call == "1.1"
        op = {"kind": "run_skill", "skill": "helper", "input": {"text": "x"}}
        return ModelAnswer(json.dumps(act(op) if is_first else finish("done")))


@pytest.mark.parametrize("change", ["none", "instructions", "ops", "removed and a new one", "another graph"])
def test_a_standing_approval_covers_no_other_skill_of_the_same_name(tmp_path: Path, change: str):
    rules = {"permissions": {"run_skill": [{"ask": "helper"}]}}
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "run_skill"})
    folder = write_skill(tmp_path, "helper", {"b": ["end"]})
    project = Project(tmp_path)
    waiting = project.run("s", [], model=Runner(), **rules)
    assert waiting.status == "waiting"
    with project.open([], model=Runner(), **rules) as rt:
        rt.answer("k", waiting.question.id, {"decision": "approve", "always": True})
        assert rt.resume("k").ok
    match change:
        case "instructions":
            write_skill(tmp_path, "helper", {"b": ["end"]}, phase_keys={"b": "role: other\n"})
        case "ops":
            write_skill(tmp_path, "helper", {"b": ["end"]}, ops={"b": "file"})
        case "removed and a new one":
            shutil.rmtree(folder)
            write_skill(tmp_path, "helper", {"c": ["end"]})
        case "another graph":
            write_skill(tmp_path, "helper", {"b": ["c"], "c": ["end"]})
    again = project.run("s", [], run_id="again", model=Runner(), **rules)
    assert again.status == ("finished" if change == "none" else "waiting")
    assert [row.run_id for row in project.journal.runs("again.")] == (["again.1.1.1"] if change == "none" else [])


@pytest.mark.parametrize("keys", ["permissions: {shell: true}\n", "agents: [other]\n", "description: Else\n"])
def test_an_approval_names_the_version_of_an_agent(tmp_path: Path, keys: str):
    file_ = tmp_path / "reyn/agents/boss.md"
    file_.parent.mkdir(parents=True)
    env: Any = SimpleNamespace(roots=SimpleNamespace(project=tmp_path))
    call = Call("k/1", {"kind": "ask_agent", "agent": "boss", "message": "x"})

    def version(more: str) -> str:
        file_.write_text(f"---\ntype: agent\nname: boss\n{more}---\nYou are the boss.\n")
        return AskAgentOp().version(call, env)

    assert version("") == version("") != version(keys)
    file_.unlink()
    assert AskAgentOp().version(call, env) == ""
