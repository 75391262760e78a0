"""`reyn chat` in pipes and at a terminal, `reyn chats`, `reyn agent`, `reyn memory` and `reyn resume --all`."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from reyn.chat import OpFinished
from reyn.cli.chat.printing import describe
from reyn.models import ModelAnswer
from reyn.models.listing import ModelStatus
from reyn.runtime import SyncRuntime
from reyn.testing import ScriptedModel
from tests.building import plan, planned, summed_up
from tests.chat.support import bye, ending_chat, recorded_replies, reply, run_skill, skills, start_skill
from tests.cli.support import Terminal, write_answers
from tests.models.fake_server import FakeServer, Request, good
from tests.support import act, file, finish, go, question, write_skill


@pytest.fixture
def here(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose conversations are answered by a script, too: `reyn chat` takes none from reyn.yaml."""
    monkeypatch.setenv("REYN_MODEL", "scripted:answers.jsonl")
    return here


@pytest.fixture
def chat(here: Path, reyn, monkeypatch: pytest.MonkeyPatch):
    """Hold a conversation in a pipe."""

    def call(text: str, *arguments: str):
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        return reyn("chat", *arguments)

    return call


def test_every_line_of_a_pipe_is_a_message(here: Path, chat, reyn):
    write_answers(here, reply("Hello!"), reply("Fine."))
    output = chat("hi\n\nhow are you?\n", "--run-id", "c")
    assert (output.code, output.out) == (0, "Hello!\nFine.\n")
    assert reyn("chats", "show", "c").out == "1> hi\n   Hello!\n2> how are you?\n   Fine.\n"
    assert "c  " in reyn("chats").out
    assert reyn("replay", "c").code == 0


def test_a_conversation_is_continued_and_ends(here: Path, chat, reyn):
    ending_chat(here)
    write_answers(here, reply("Hello!"), bye("Goodbye!"))
    chat("hi\n", "--run-id", "c")
    output = chat("bye\n", "--continue")
    assert (output.code, output.out) == (0, "Goodbye!\n")
    assert chat("more\n", "--run-id", "c").code == 2
    assert chat("more\n", "designer", "--run-id", "c").code == 2
    assert chat("more\n", "--continue").code == 2


def test_json_is_one_object_a_line(here: Path, chat):
    write_answers(here, act(question("Which tone?", suggestions=["formal", "plain"])), reply("Done."))
    (here / "reyn/agents").mkdir(parents=True)
    (here / "reyn/agents/asker.md").write_text("---\ntype: agent\nname: asker\nallowed_ops: [ask_user]\n---\nAsk.\n")
    output = chat("hi\n2\n", "asker", "--json")
    items = [json.loads(line) for line in output.out.splitlines()]
    assert [item["item"] for item in items] == ["message", "op", "question", "op_result", "reply"]
    assert items[3]["result"]["answer"] == "plain"


@pytest.mark.slow
def test_a_skill_is_built_approved_and_run_in_a_conversation(here: Path, chat, reyn):
    build = act({"kind": "run_skill", "skill": "skill_builder", "input": {"text": "Greet me"}})
    use = act({"kind": "run_skill", "skill": "greeter", "input": {"text": "hello"}})
    greeting = finish("x", "greeting") | {"artifact": {"type": "greeting", "data": {"line": "Hello!"}}}
    answers = [build, planned(plan()), summed_up(), reply("I built it."), use, greeting, reply("Hello!")]
    write_answers(here, *answers)
    output = chat("build a greeter\n/approve 1\ngreet me\n", "--run-id", "c")
    assert output.out == "I built it.\nHello!\n"
    # The diff is shown line by line, and labelled so that no question can pass for it.
    assert "  ? approval: Approve `skill_install`?" in output.err
    assert "\n    | lint: OK\n    | 1 of 1 case passed\n" in output.err
    assert "\n    | +Do what greet does.\n" in output.err
    assert reyn("test", "greeter").code == 0
    assert reyn("replay", "c").code == 0


def test_a_proposed_op_is_edited_in_a_conversation(here: Path, chat):
    (here / "reyn.yaml").write_text("permissions: {file.write: {ask: ['output/**']}}\n")
    write_answers(here, act(file("write", "output/a.md", content="one")), reply("Done."))
    edited = json.dumps(file("write", "output/a.md", content="two"))
    output = chat(f"write\n/edit 1\n/edit 1 {edited}\n/approve 2\n", "--run-id", "c")
    assert "/approve 1, /edit 1, /reject 1 REMARK" in output.err
    assert '  /edit 1 {"content":"one","kind":"file","op":"write","path":"output/a.md"}\n' in output.err
    assert (output.out, (here / "output" / "a.md").read_text()) == ("Done.\n", "two")


def test_a_text_that_does_not_answer_a_question_goes_to_the_agent(here: Path, chat, reyn):
    steps = "preprocessor:\n  - ask_user: {question: How many?, schema: {type: integer}, into: data.count}\n"
    folder = here / "reyn/project/counting"
    (folder / "phases").mkdir(parents=True)
    (folder / "artifacts").mkdir()
    (folder / "skill.md").write_text(
        "---\ntype: skill\nname: counting\nentry: a\nfinal_output: note\ngraph: {a: [end]}\n---\n"
    )
    (folder / "phases/a.md").write_text(f"---\ntype: phase\nname: a\ninput: user_message\n{steps}---\nCount.\n")
    (folder / "artifacts/note.yaml").write_text('{"type": "object"}')
    run = act({"kind": "run_skill", "skill": "counting", "input": {"text": "x"}})
    write_answers(here, run, finish("counted"), reply("Counted."), reply("You asked why."))
    output = chat("count\nwhy do you ask?\n7\n", "--run-id", "c")
    assert output.out == "Counted.\nYou asked why.\n"
    said = reyn("chats", "show", "c").out
    assert "2> why do you ask?" in said


def test_another_model_answers_from_here_on(here: Path, chat):
    write_answers(here, reply("Hello!"))
    write_answers(here, reply("unused"), reply("From the other model."), name="other.jsonl")
    chat("hi\n", "--run-id", "c")
    assert chat("more\n", "--run-id", "c", "--model", "scripted:other.jsonl").out == "From the other model.\n"


def embedded(monkeypatch, *, is_installed: bool) -> None:
    """Let the embedded model be installed or not, and no variable name another one."""
    monkeypatch.delenv("REYN_MODEL")
    local = ModelStatus("local", (), is_available=is_installed, modes=(), why="" if is_installed else "not installed")
    monkeypatch.setattr("reyn.models.listing.list_models", lambda *_, **__: [local])


SCRIPTS = ["model: scripted:answers.jsonl\n", "model: a\nmodels: {a: b, b: {model: 'scripted:answers.jsonl'}}\n"]


@pytest.mark.parametrize("config", SCRIPTS)
def test_the_embedded_model_answers_if_the_projects_model_is_a_script(here: Path, chat, monkeypatch, config: str):
    (here / "reyn.yaml").write_text(config)
    embedded(monkeypatch, is_installed=True)
    opened = chat("")
    assert opened.code == 0
    assert "the project's model is a script (`scripted:answers.jsonl`), which cannot converse; the embed" in opened.err
    assert "choose another with --model NAME; reyn models lists them" in opened.err


@pytest.mark.parametrize("config", SCRIPTS)
def test_without_the_embedded_model_a_script_is_refused_with_a_next_step(here: Path, chat, monkeypatch, config: str):
    (here / "reyn.yaml").write_text(config)
    embedded(monkeypatch, is_installed=False)
    refused = chat("hi\n")
    assert (refused.code, "RYN511" in refused.err) == (2, True)
    assert "and the embedded model is not available: not installed" in refused.err
    assert "Run `reyn models pull smollm2`, pass `--model NAME`" in refused.err


def test_a_script_answers_if_the_user_or_the_agent_names_it(here: Path, chat, monkeypatch):
    write_answers(here, reply("One."), reply("Two."))
    embedded(monkeypatch, is_installed=True)
    assert chat("hi\n", "--model", "scripted:answers.jsonl", "--run-id", "c").out == "One.\n"
    continued = chat("more\n", "--run-id", "c")
    assert (continued.out, continued.err) == ("Two.\n", "")
    assert chat("other\n", "--fork", "c@2").out == "Two.\n"
    (here / "reyn/agents").mkdir(parents=True)
    (here / "reyn/agents/actor.md").write_text(
        "---\ntype: agent\nname: actor\nmodel: scripted:answers.jsonl\n---\nAct.\n"
    )
    acted = chat("hi\n", "actor")
    assert (acted.out, acted.err) == ("One.\n", "")


@pytest.mark.parametrize("is_installed", [True, False])
def test_the_embedded_model_answers_if_no_model_is_configured(here: Path, chat, monkeypatch, is_installed: bool):
    (here / "reyn.yaml").write_text("")
    embedded(monkeypatch, is_installed=is_installed)
    opened = chat("")
    assert (opened.code, "the embedded model answers" in opened.err) == (0, is_installed)
    if not is_installed:
        assert "no model is configured" in chat("hi\n").err


def test_an_agent_can_be_asked_one_question(here: Path, reyn):
    write_answers(here, bye("Forty-two."))
    assert "Forty-two." in reyn("run", "agent:default", "What is it?").out


def test_a_waiting_conversation_names_the_command_that_continues_it(here: Path, chat, reyn):
    write_answers(here, reply("Hello!"))
    chat("hi\n", "--run-id", "c")
    assert "next: reyn chat --run-id c" in reyn("show", "c").out


def test_a_fork_says_something_else_in_place_of_a_message(here: Path, chat, reyn):
    write_answers(here, reply("One."), reply("Two."))
    chat("a\nb\n", "--run-id", "c")
    assert chat("other\n", "--fork", "c@2").out == "Two.\n"
    [fork] = [row["run_id"] for row in reyn("runs", "--json").json if row["run_id"] != "c"]
    assert reyn("chats", "show", fork).out == "1> a\n   One.\n2> other\n   Two.\n"
    assert chat("x\n", "--fork", "c@9").code == 2
    assert chat("x\n", "--fork", "c@1").code == 2
    assert chat("x\n", "--fork", "c").code == 2
    assert chat("x\n", "--fork", f"c@{'9' * 5000}").code == 2


def test_a_fork_that_cannot_be_talked_in_is_not_made(here: Path, chat, reyn):
    write_answers(here, reply("One."), reply("Two."))
    reyn("agent", "new", "designer")
    chat("a\nb\n", "designer", "--run-id", "c")
    assert "is one with the agent `designer`" in chat("x\n", "default", "--fork", "c@2").err
    reyn("agent", "rm", "designer")
    assert "no file `reyn/agents/designer.md`" in chat("x\n", "--fork", "c@2").err
    assert "no file `reyn/agents/designer.md`" in chat("x\n", "--run-id", "c").err
    assert [row["run_id"] for row in reyn("runs", "--json").json] == ["c"]


def test_a_fork_of_a_run_that_is_no_conversation_is_refused(here: Path, chat, reyn):
    write_answers(here, finish("done"))
    reyn("run", "pair", '{"text": "hi"}', "--run-id", "p")
    assert "is a run of `pair`, not a conversation" in chat("x\n", "--fork", "p@2").err


@pytest.mark.slow
def test_the_difference_of_two_conversations_is_a_message(here: Path, chat, reyn):
    write_answers(here, reply("One."), reply("Two."), reply("Three."))
    chat("a\nb\nc\n", "--run-id", "c")
    chat("other\n", "--fork", "c@2", "--run-id", "d")
    assert reyn("diff", "c", "d").out.endswith("cause: the user's messages differ: 'b' and 'other'\n")
    long = (
        chat(f"{'x' * 200}1\n", "--fork", "c@2", "--run-id", "e"),
        chat(f"{'x' * 200}2\n", "--fork", "c@2", "--run-id", "f"),
    )
    assert [one.code for one in long] == [0, 0]
    assert reyn("diff", "e", "f", "--json").json["cause"] == "message"


def test_an_imported_conversation_is_not_the_latest_one_and_is_refused_once(here: Path, chat, reyn, tmp_path: Path):
    write_answers(here, reply("One."))
    chat("a\n", "--run-id", "c")
    reyn("export", "c", "c.jsonl")
    reyn("chats", "delete", "c", "--yes")
    reyn("import", "c.jsonl")
    refused = chat("b\n", "--run-id", "c")
    assert (refused.code, refused.err.count("was imported")) == (2, 1)
    assert "there is no conversation with `default` to continue" in chat("b\n", "--continue").err


def test_the_messages_of_another_run_are_refused(here: Path, reyn):
    from tests.support import finish, go

    write_answers(here, go("second"), finish())
    reyn("run", "pair", '{"text": "in"}', "--run-id", "p")
    output = reyn("chats", "show", "p")
    assert output.code == 2
    assert "RYN426" in output.err


def test_a_turn_without_a_usable_answer_is_told_from_a_reply_in_a_pipe(here: Path, chat, reyn):
    unusable = ["{}"] * 4  # the last attempt is without ops
    write_answers(here, *unusable, reply("Hello!"), *unusable)
    output = chat("hi\nagain\n", "--run-id", "c")
    assert (output.code, output.out) == (1, "Hello!\n")
    assert "(no answer: phase `converse`: 3 answers rejected" in output.err
    output = chat("hi\n", "--run-id", "c", "--json")
    *_, item = [json.loads(line) for line in output.out.splitlines()]
    assert (output.code, item["item"], item["status"], item["code"]) == (1, "reply", "unanswered", "RYN202")
    assert item["reason"].startswith("phase `converse`: 3 answers rejected")
    [listed] = reyn("runs", "--json").json
    assert (listed["question"]["code"], listed["next"]) == ("RYN202", "reyn chat --run-id c")


def test_a_turn_without_a_usable_answer_is_told_from_a_reply_in_a_run(here: Path, reyn):
    keys = {"chat": "conversation: true\n"}
    write_skill(here, "talk", {"chat": ["chat", "end"]}, inputs={"chat": "user_message"}, phase_keys=keys)
    write_answers(here, "no", "no", "no", go("chat", "Hello!"))
    output = reyn("run", "talk", "hi", "--run-id", "k")
    why = "no reply to the last message: phase `chat`: 3 answers rejected"
    assert output.code == 1
    assert f"waiting for input: {why}" in output.out
    assert "(RYN202)" in output.out
    assert "fix: Say it in other words, or use a larger model." in output.out
    assert "next: reyn answer k 2.message 'your message'" in output.out
    shown = reyn("show", "k", "--json").json
    assert (shown["status"], shown["code"], shown["question"]["code"]) == ("waiting", "RYN202", "RYN202")
    assert [step["code"] for step in shown["steps"] if step["type"] == "turn_failed"] == ["RYN202"]
    assert "no reply: phase `chat`: 3 answers rejected" in reyn("show", "k").out
    assert f"RYN202: {why}"[:60] in reyn("runs").out
    output = reyn("answer", "k", "2.message", "hi again", "--json")
    assert (output.code, output.json["code"], output.json["question"]["message"]) == (4, "", "Hello!")


def test_a_failed_model_is_reported_and_the_exit_code_says_so(here: Path, chat):
    write_answers(here)
    output = chat("hi\n")
    assert output.code == 1
    assert "! failed: " in output.err


def test_control_characters_of_a_reply_do_not_reach_the_terminal(here: Path, chat):
    write_answers(here, reply("a\x1b[2Jb\nc"))
    assert chat("hi\n").out == "a\\x1b[2Jb\nc\n"


@pytest.mark.slow
def test_a_terminal_has_a_prompt_and_renders_markdown(here: Path):
    write_answers(here, reply("Hello **Ada**!"), reply("Two."))
    terminal = Terminal(here, "chat", "--run-id", "c", env={"PROMPT_TOOLKIT_NO_CPR": "1"})
    terminal.wait_for(">")
    terminal.type("hi\r")
    terminal.wait_for("Ada")
    terminal.type("/usage\r")
    terminal.wait_for("tokens")
    terminal.type("/quit\r")
    output = terminal.end()
    assert output.code == 0
    assert "reyn chat --run-id c" in output.out


@pytest.mark.slow
def test_a_terminal_names_the_runs_that_were_interrupted(here: Path):
    write_answers(here, reply("Hello!"))
    left = ["run", "pair", '{"text": "forever"}', "--run-id", "left", "--no-input"]
    with subprocess.Popen([sys.executable, *holding(here), *left], cwd=here, stderr=subprocess.DEVNULL) as child:
        while not (here / "called").exists():
            assert child.poll() is None
            time.sleep(0.02)
        child.kill()
    terminal = Terminal(here, "chat", env={"PROMPT_TOOLKIT_NO_CPR": "1"})
    terminal.wait_for("interrupted: left; `reyn resume --all` continues them")
    terminal.type("/quit\r")
    assert terminal.end().code == 0


HOLDING = """
import asyncio
import pathlib

from reyn.cli import main
from reyn.models import ModelAnswer
from reyn.runtime import OSRuntime


class Model:
    name = "holding"

    async def complete(self, request):
        if "forever" in request.messages[-1].text:
            pathlib.Path("called").touch()
            await asyncio.Event().wait()
        return ModelAnswer(ANSWER)


original = OSRuntime.open.__func__
OSRuntime.open = classmethod(lambda cls, *args, **options: original(cls, *args, **(options | {"model": Model()})))
main()
"""


def holding(here: Path) -> tuple[str, ...]:
    """Return a program that runs `reyn` with a model that never answers a message with `forever` in it."""
    (here / "holding.py").write_text(f"ANSWER = {json.dumps(reply('Hello!'))!r}\n{HOLDING}")
    return ("holding.py",)


@pytest.mark.slow
def test_ctrl_c_stops_the_reply_and_the_conversation_goes_on(here: Path, reyn):
    terminal = Terminal(here, "chat", "--run-id", "c", program=holding(here), env={"PROMPT_TOOLKIT_NO_CPR": "1"})
    terminal.wait_for(">")
    terminal.type("talk forever\r")
    while not (here / "called").exists():  # the test's timeout bounds it
        time.sleep(0.01)
    terminal.type("\x03")
    terminal.wait_for("stopped")
    terminal.type("hi\r")
    terminal.wait_for("Hello!")
    terminal.type("/quit\r")
    output = terminal.end()
    assert output.code == 0
    assert [row["text"] for row in reyn("chats", "show", "c", "--json").json] == [
        "talk forever",
        "",
        "hi",
        "Hello!",
    ]


@pytest.mark.slow
def test_an_interrupt_does_not_wait_for_the_end_of_the_input(here: Path):
    with subprocess.Popen(
        [sys.executable, *holding(here), "chat", "--run-id", "c"],
        cwd=here, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as child:  # fmt: skip
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"hi\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"Hello!\n"
        child.send_signal(signal.SIGINT)
        assert child.wait(60) == 130  # the input is still open


@pytest.mark.slow
def test_a_second_process_on_a_conversation_is_refused(here: Path, chat):
    with subprocess.Popen(
        [sys.executable, *holding(here), "chat", "--run-id", "c"],
        cwd=here, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as child:  # fmt: skip
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"hi\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"Hello!\n"
        refused = chat("me too\n", "--run-id", "c")
        assert refused.code != 0
        assert "conversation `c` is open elsewhere" in refused.err
        child.stdin.write(b"again\n")
        child.stdin.close()
        assert child.stdout.read() == b"Hello!\n"
        assert child.wait(60) == 0


@pytest.mark.slow
def test_input_that_is_closed_or_no_text_is_an_error(here: Path, chat, reyn, monkeypatch):
    write_answers(here, reply("Hello!"))
    monkeypatch.setattr(sys, "stdin", None)
    closed = reyn("chat")
    assert (closed.code, "standard input is closed" in closed.err) == (2, True)
    child = subprocess.run(
        [sys.executable, "-m", "reyn", "chat", "--run-id", "b"],
        cwd=here, input=b"hi\n\xff\xfe\n", capture_output=True, timeout=60, check=False,
    )  # fmt: skip
    assert (child.returncode, child.stdout) == (2, b"Hello!\n")
    assert b"line 2 of standard input is not UTF-8" in child.stderr
    assert b"Convert the input to UTF-8" in child.stderr


@pytest.mark.slow
def test_a_message_after_the_reader_has_gone_is_not_sent(here: Path, reyn):
    with subprocess.Popen(
        [sys.executable, *holding(here), "chat", "--run-id", "c"],
        cwd=here, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    ) as child:  # fmt: skip
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdin.write(b"one\n")
        child.stdin.flush()
        assert child.stdout.readline() == b"Hello!\n"
        child.stdout.close()
        child.stdin.write(b"two\n")
        child.stdin.flush()
        assert child.wait(60) == 141  # the input is still open
    assert reyn("chats", "show", "c").out.count(">") == 2


@pytest.mark.parametrize("number", ["00010", "0002" + "9" * 5000])
def test_a_number_that_selects_no_suggestion_is_a_text(here: Path, chat, number: str):
    write_answers(here, act(question("Which code?", suggestions=["formal", "plain"])), reply("Done."))
    (here / "reyn/agents").mkdir(parents=True)
    (here / "reyn/agents/asker.md").write_text("---\ntype: agent\nname: asker\nallowed_ops: [ask_user]\n---\nAsk.\n")
    output = chat(f"hi\n{number}\n", "asker", "--json")
    answers = [
        item["result"]["answer"] for item in map(json.loads, output.out.splitlines()) if item["item"] == "op_result"
    ]
    assert answers == [number]


def test_the_end_of_the_input_leaves_a_question_open(here: Path, chat, reyn):
    write_answers(here, act(question("Which tone?")), reply("Done."))
    (here / "reyn/agents").mkdir(parents=True)
    (here / "reyn/agents/asker.md").write_text("---\ntype: agent\nname: asker\nallowed_ops: [ask_user]\n---\nAsk.\n")
    assert chat("hi\n", "asker", "--run-id", "c").code == 0
    assert chat("plain\n", "--run-id", "c").out == "Done.\n"


def test_an_error_of_several_lines_is_printed_in_one(here: Path, reyn):
    error = {"error": "the plan has errors:\n1) no entry\n2) no graph"}
    [line] = describe(OpFinished("1.1.1", "skill_draft", "error", error))
    assert line == "  ! skill_draft: error: the plan has errors: 1) no entry 2) no graph"
    write_skill(here, "broken", {"a": ["b", "end"]})
    write_skill(here, "checking", {"work": ["end"]}, ops={"work": "lint"})
    check = {"kind": "lint", "skill_path": "reyn/project/broken", "on_fail": "abort"}
    write_answers(here, act(check), finish())
    reyn("run", "checking", '{"text": "x"}', "--run-id", "r")
    [shown] = [line for line in reyn("show", "r").out.splitlines() if "lint reyn" in line]
    assert "the skill has errors: 1) " in shown


# -- agents and memories ------------------------------------------------------------------------------


def test_agents_are_created_listed_shown_and_removed(here: Path, reyn):
    assert reyn("agent", "new", "designer").code == 0
    assert reyn("agent", "new", "designer").code == 2
    assert reyn("agent", "new", "../x").code == 2
    assert [row["name"] for row in reyn("agent", "list", "--json").json] == ["default", "designer"]
    assert "You are designer" in reyn("agent", "show", "designer").out
    assert reyn("agent", "rm", "designer").code == 0
    assert reyn("agent", "show", "designer").code == 2
    (here / "reyn/agents/bad.md").write_text("---\ntype: agent\nname: other\n---\n")
    assert "`name` is `other`" in reyn("agent", "list").out


def test_memories_are_listed_shown_searched_and_removed(here: Path, reyn, monkeypatch):
    monkeypatch.setenv("EDITOR", f"{sys.executable} -c \"import sys; open(sys.argv[1], 'a').write('green tea')\"")
    assert reyn("memory", "edit", "tea").code == 0
    assert "green tea" in reyn("memory", "show", "tea").out
    assert reyn("memory", "search", "teas", "--json").json[0]["name"] == "tea"
    assert reyn("memory", "list").out.startswith("tea: ")
    assert reyn("memory", "rm", "tea").code == 0
    assert reyn("memory", "list").out == "no memories; `reyn memory edit NAME` creates one\n"
    assert reyn("memory", "show", "../../etc/passwd").code == 2
    assert reyn("memory", "edit", "tea\n").code == 2


def test_a_memory_that_is_no_text_is_not_edited(here: Path, reyn, monkeypatch):
    monkeypatch.setenv("EDITOR", f"{sys.executable} -c \"import sys; open(sys.argv[1], 'a').write('x')\"")
    (here / "reyn/memory/folder.md").mkdir(parents=True)
    (here / "reyn/memory/binary.md").write_bytes(b"\xff")
    for name in ("folder", "binary"):
        output = reyn("memory", "edit", name)
        assert (output.code, f"`reyn/memory/{name}.md` cannot be edited" in output.err) == (2, True)
    assert (here / "reyn/memory/binary.md").read_bytes() == b"\xff"


def test_a_folder_with_the_name_of_an_agents_file_is_no_agent(here: Path, reyn):
    (here / "reyn/agents/folder.md").mkdir(parents=True)
    (here / "reyn/agents/link.md").symlink_to("nowhere")
    [line] = reyn("agent", "list").out.splitlines()
    assert line.startswith("default ")


# -- interrupted runs ---------------------------------------------------------------------------------


def test_resume_all_continues_what_was_interrupted(here: Path, reyn):
    class Interrupted(ScriptedModel):
        async def complete(self, request: Any) -> ModelAnswer:
            raise KeyboardInterrupt

    for name in ("a", "b"):
        with (
            pytest.raises(KeyboardInterrupt),
            SyncRuntime.open(here, model=Interrupted([], "scripted:answers.jsonl")) as rt,
        ):
            rt.run("pair", {"text": "in"}, run_id=name)
    output = reyn("resume", "--all")
    assert [line for line in output.out.splitlines() if "finished" in line] == ["a: finished", "b: finished"]
    assert reyn("resume", "--all").out == "no interrupted runs\n"
    assert reyn("resume").code == 2
    assert reyn("resume", "--all", "a").code == 2


def test_usage_shows_the_budgets_that_hold(here: Path, chat):
    write_answers(here, reply("Hello!"))
    (here / "reyn.yaml").write_text(
        "model: scripted:answers.jsonl\nbudgets: {day: {tokens: 900000}, run: {tokens: 500000}}\n"
    )
    (here / "reyn/agents").mkdir(parents=True)
    (here / "reyn/agents/clerk.md").write_text(
        "---\ntype: agent\nname: clerk\nbudget: {tokens: 200000}\n---\nYou are a clerk.\n"
    )
    output = chat("/usage\nhi\n/usage\n", "clerk")
    assert output.code == 0, output.err
    assert output.err.startswith("  0 tokens\n")
    limits = [line.split(":")[0].strip() for line in output.err.splitlines() if " of " in line]
    assert {"tokens", "run_tokens", "day_tokens"} <= set(limits)
    assert "of 200,000 tokens" in output.err
    assert "of 900,000 tokens" in output.err


def test_a_fact_is_pinned_and_removed(here: Path, chat):
    write_answers(here, reply("Hello!"), reply("Bye!"))
    output = chat("/unpin 1\nhi\n/pin Tea, not coffee\n/memory\n/unpin 1\nbye\n/memory\n", "--run-id", "c")
    assert output.out == "Hello!\nBye!\n"
    assert "there are no pinned facts yet" in output.err
    assert output.err.count("Tea, not coffee") == 1


def test_a_message_can_be_sent_while_a_question_is_open(here: Path, chat, reyn):
    write_answers(here, act(question("Which tone?")), reply("Done."), reply("Because."))
    (here / "reyn/agents").mkdir(parents=True)
    (here / "reyn/agents/asker.md").write_text("---\ntype: agent\nname: asker\nallowed_ops: [ask_user]\n---\nAsk.\n")
    output = chat("hi\n/say why?\n/questions\nplain\n/questions\n/rename Tones\n", "asker", "--run-id", "c")
    assert output.out == "Done.\nBecause.\n"
    assert "Which tone?" in output.err
    assert "no open questions" in output.err
    [found] = reyn("chats", "--json").json
    assert (found["title"], found["messages"]) == ("Tones", 2)


def test_a_message_is_answered_before_the_input_ends_though_a_background_run_asks(here: Path, chat):
    skills(here, "poster", poster="preprocessor:\n  - ask_user: {question: Which colour?, into: data.colour}\n")
    write_answers(here, start_skill("poster"), reply("Started."), reply("Hello!"))
    assert chat("draw a poster\n", "--run-id", "c").out == "Started.\n"
    assert chat("/say hi\n", "--run-id", "c").out == "Hello!\n"


def test_a_fork_can_have_an_id(here: Path, chat, reyn):
    write_answers(here, reply("One."), reply("Two."))
    chat("a\nb\n", "--run-id", "c")
    assert chat("other\n", "--fork", "c@2", "--run-id", "d").out == "Two.\n"
    assert reyn("chats", "show", "d").out == "1> a\n   One.\n2> other\n   Two.\n"
    assert chat("x\n", "--fork", "c@2", "--run-id", "d").code == 2
    assert chat("x\n", "--continue", "--run-id", "d").code == 2


# -- a question of the user while a question is open --------------------------------------------------

COLOUR = "preprocessor:\n  - ask_user: {question: Which colour?, into: data.colour}\n"


def test_a_question_in_a_pipe_goes_to_the_agent_and_the_question_stays_open(here: Path, chat, reyn):
    skills(here, "poster", poster=COLOUR)
    write_answers(here, run_skill("poster"), finish("drawn"), reply("Drawn."), reply("Many."))
    output = chat("draw a poster\nWhich ones are there?\n/reply Blue, or not?\n", "--run-id", "c")
    assert output.out == "Drawn.\nMany.\n"
    assert "  → sent to the agent, which answers when this turn is over: it is a question\n" in output.err
    assert "    still open: Which colour? (/answer TEXT answers it)\n" in output.err
    with SyncRuntime.open(here) as rt:
        assert recorded_replies(rt, "c.1.1.1") == ["Blue, or not?"]
    assert reyn("verify", "c").code == 0
    assert reyn("replay", "c").code == 0


def test_a_pipe_answers_a_question_that_takes_any_text_by_a_command_alone(here: Path, chat, reyn):
    skills(here, "poster", poster=COLOUR)
    write_answers(here, run_skill("poster"), finish("drawn"), reply("Drawn."), reply("You are welcome."))
    output = chat("draw a poster\nThanks, that is all for now.\n/answer blue\n", "--run-id", "c")
    assert output.out == "Drawn.\nYou are welcome.\n"
    assert "the question takes any text, so an answer is marked as one\n" in output.err
    with SyncRuntime.open(here) as rt:
        assert recorded_replies(rt, "c.1.1.1") == ["blue"]


def test_reply_and_say_work_with_json(here: Path, chat):
    skills(here, "poster", poster=COLOUR)
    write_answers(here, run_skill("poster"), finish("drawn"), reply("Drawn."), reply("Many."), reply("Because."))
    output = chat("draw a poster\nWhich ones are there?\n/say blue\n/reply\n/reply blue\n/reply more\n", "--json")
    items = [json.loads(line) for line in output.out.splitlines()]
    shown = [item for item in items if item["item"] not in ("run_progress", "op", "op_result")]
    assert [item["item"] for item in shown] == [
        "message", "run_started", "question", "redirected", "run_ended", "reply", *["message", "reply"] * 2,
    ]  # fmt: skip
    assert [item["text"] for item in shown if item["item"] == "message"][1:] == ["Which ones are there?", "blue"]
    assert {"reason": "it is a question", "is_open": True, "is_delayed": True}.items() <= shown[3].items()
    first, last = output.err.splitlines()
    assert first.startswith("  ! not replied: the reply does not match the question's schema")
    assert last == "  ! not replied: no question is open"


def test_reply_takes_a_number_as_text(here: Path, chat):
    write_answers(here, act(question("Which?", suggestions=["one", "two"])), reply("Done."))
    (here / "reyn/agents").mkdir(parents=True)
    (here / "reyn/agents/asker.md").write_text("---\ntype: agent\nname: asker\nallowed_ops: [ask_user]\n---\nAsk.\n")
    items = [json.loads(line) for line in chat("hi\n/reply 2\n", "asker", "--json").out.splitlines()]
    assert [item["result"]["answer"] for item in items if item["item"] == "op_result"] == ["2"]


@pytest.mark.slow
@pytest.mark.sockets
def test_a_question_at_a_terminal_is_answered_while_a_skill_in_the_background_waits(here: Path, reyn):
    skills(here, "poster", poster=COLOUR)

    def answer(request: Request):
        last = request.body["messages"][-1]["content"]
        if "Do what work does." in str(request.body["messages"]):
            return finish("drawn")
        rules = {"draw a": start_skill("poster"), "Results": reply("Started."), "finished": reply("It is ready.")}
        return next((found for word, found in rules.items() if word in last), reply("Many colours."))

    with FakeServer(good(answer)) as server:
        model = f"{{model: openai:m, base_url: '{server.url}', answer_form: full}}"
        (here / "reyn.yaml").write_text(f"models:\n  far: {model}\n")
        assert reyn("trust", "--yes").code == 0
        terminal = Terminal(here, "chat", "--run-id", "c", "--model", "far", env={"PROMPT_TOOLKIT_NO_CPR": "1"})
        terminal.wait_for(">")
        terminal.type("draw a poster\r")
        seen = terminal.wait_for("Started.")
        if "Which colour?" not in seen:
            terminal.wait_for("Which colour?")
        terminal.wait_for("1. poster asks: Which colour?")
        terminal.type("Thanks, that is all for now.\r")
        terminal.wait_for("answer to poster: Thanks, that is all for now.")
        terminal.wait_for("Enter sends it, /say sends it to default instead, /back takes it back")
        terminal.type("/back\r")
        terminal.wait_for("taken back: Thanks, that is all for now.")
        terminal.type("no\r")
        terminal.wait_for("answer to poster: no")
        terminal.type("\x03")
        terminal.wait_for("taken back: no")
        terminal.type("Which ones are there?\r")
        terminal.wait_for("message to default: Which ones are there?")
        terminal.type("\r")
        terminal.wait_for("sent to the agent: it is a question")
        terminal.wait_for("Many colours.")
        terminal.type("blue and green\r")
        terminal.wait_for("answer to poster: blue and green")
        terminal.type("\r")
        terminal.wait_for("It is ready.")
        terminal.type("/quit\r")
        assert terminal.end().code == 0
    roles = [row["role"] for row in reyn("chats", "show", "c", "--json").json]
    assert roles == ["user", "agent", "user", "agent", "run", "agent"]
    with SyncRuntime.open(here) as rt:
        [background] = [row.run_id for row in rt.runs.all() if row.skill == "poster"]
        assert recorded_replies(rt, background) == ["blue and green"]
