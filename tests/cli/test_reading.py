"""show, frame and config."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.support import IN, write_answers
from tests.support import act, file, finish, go, question, with_ops, write_skill


def test_show_lists_turns_ops_questions_and_decisions(here: Path, reyn):
    write_answers(
        here,
        act(file("write", "workspace:a.txt", content="x"), file("read", "gone.txt"), file("read", ".reyn/journal.db")),
        "no JSON",
        act(question("Sure?")),
        with_ops(finish("done"), file("edit", "workspace:a.txt", old_string="x", new_string="y")),
    )
    reyn("run", "asking", IN, "--run-id", "r")
    reyn("answer", "r", "1.3.1", "yes")
    timeline = reyn("show", "r")
    lines = [re.sub(r"^ +(\d+) +\d+\.\d s  ", r"\1 ", line) for line in timeline.out.splitlines()]
    assert lines[0].startswith("r · asking · finished · started ")
    assert [re.sub(r" · \d\.\d s$", "", line) for line in lines[1:] if re.match(r"\d+ ", line)] == [
        "1 run r · asking · scripted:answers.jsonl",
        "2   work (visit 1)",
        "5     turn 1",
        "7     file write workspace:a.txt · ok",
        "10     file read gone.txt · error: there is no file `gone.txt`",
        *[line for line in lines if " denied: " in line],
        "14     turn 2",
        *[line for line in lines if "rejected" in line],
        "18     turn 3",
        "20     asks: Sure?",
        "21 run r · resumed at work",
        "22     reply: yes",
        "26     turn 4",
        "28     file edit workspace:a.txt · ok",
        "30     → finish (1.00) complete",
        "32     used file.write, file.read (error), file.read (denied), ask_user, file.edit",
        "33   finished",
    ]
    assert "path: work" in lines
    assert "files: workspace:a.txt (new)" in lines
    steps = reyn("show", "r", "--json").json["steps"]
    assert [step["type"] for step in steps if step["type"] == "op"] == ["op"] * 4
    assert steps[3] | {"seconds": 0} == {
        "seq": 7,
        "seconds": 0,
        "type": "op",
        "text": "file write workspace:a.txt · ok",
        "op": "file write workspace:a.txt",
        "status": "ok",
    }


WRITE = file("write", "workspace:a.txt", content="x")
ENDS = [
    ([finish()], "no op used", []),
    ([act(WRITE, WRITE), finish()], "used file.write 2 times", [("file.write", "ok", 2)]),
    ([act(file("read", "gone.txt")), finish()], "used file.read (error)", [("file.read", "error", 1)]),
    ([with_ops(finish(), WRITE)], "used file.write", [("file.write", "ok", 1)]),
    (["no JSON"], "no op used", []),
]


@pytest.mark.parametrize(("answers", "text", "ops"), ENDS)
def test_a_visit_of_a_phase_with_ops_ends_with_the_ops_that_it_used(here: Path, reyn, answers, text: str, ops):
    write_skill(here, "two", {"a": ["work"], "work": ["end"]}, ops={"work": "file"})
    write_answers(here, go("work"), *answers)
    how = ("two", IN, "--max-phase-retries", "0")
    line = next(
        line for line in reyn("run", *how, "--run-id", "r").out.splitlines() if " op used" in line or "used f" in line
    )
    assert line.endswith(text)
    shown = [line for line in reyn("show", "r").out.splitlines() if text in line]
    assert len(shown) == 1, "the phase without ops has no such line"
    ended = {"phase": "work", "visit": 1, "ops": [dict(zip(("op", "status", "times"), op, strict=True)) for op in ops]}
    [step] = [step for step in reyn("show", "r", "--json").json["steps"] if "ops" in step]
    assert {key: step[key] for key in ended} == ended
    assert step["type"] == ("visit_failed" if answers == ["no JSON"] else "visit_end")
    assert reyn("run", *how, "--json").json["visits"] == [ended]


def test_a_node_that_runs_branches_has_no_ops(here: Path, reyn):
    write_skill(here, "child", {"c": ["end"]}, inputs={"c": "note"})
    nodes = "nodes: {fan: {all: {one: '@child'}, as: both}}\n"
    write_skill(here, "s", {"fan": ["last"], "last": ["end"]}, inputs={"last": "both"}, skill_keys=nodes)
    (here / "reyn/project/s/phases/fan.md").write_text("---\ntype: phase\nname: fan\ninput: note\n---\n")
    write_answers(here, finish(), finish())
    assert "finished" in reyn("run", "s", IN, "--run-id", "r").out
    shown = reyn("show", "r").out
    assert "op used" not in shown


def test_ops_of_steps_are_not_ops_that_the_model_used(here: Path, reyn):
    step = "preprocessor:\n  - run_op: {op: {kind: file, op: write, path: workspace:s, content: x}, into: data.w}\n"
    write_skill(here, "two", {"work": ["end"]}, ops={"work": "file"}, phase_keys={"work": step})
    write_answers(here, finish())
    assert "no op used" in reyn("run", "two", IN).out


def test_a_visit_that_another_command_continues_ends_with_its_ops(here: Path, reyn):
    write_answers(here, act(question("Sure?")), finish())
    reyn("run", "asking", IN, "--run-id", "r")
    assert "used ask_user" in reyn("answer", "r", "1.1.1", "yes").out


def test_show_lists_rejections_rollbacks_and_restored_files(here: Path, reyn):
    write_skill(
        here,
        "careful",
        {"a": ["b"], "b": ["end"]},
        skill_keys="on_phase_failure: rollback\n",
        ops={"b": "file"},
    )
    write_answers(
        here,
        go("b", "one"),
        act(file("write", "workspace:x.txt", content="x")),
        "nonsense",
        go("b", "two"),
        finish(),
    )
    output = reyn("run", "careful", IN, "--run-id", "r", "--max-phase-retries", "0")
    assert output.code == 0
    for text in ("rejected at $", "restored: workspace:x.txt", "visit failed: ", "rolled back from b to a: "):
        assert text in output.out
        assert text in reyn("show", "r").out
    assert "path: a → b → a → b" in output.out
    assert "files:" not in output.out


def test_frame_shows_the_prompt_at_an_event(here: Path, reyn):
    reyn("run", "pair", IN, "--run-id", "r")
    seen = reyn("frame", "r", "13")
    assert "Do what second does." in seen.out
    assert seen.out.startswith("[system]\n")
    first, second, answer = reyn("frame", "r", "13", "--json", "--messages").json
    assert (answer["role"], json.loads(answer["text"])["control"]["type"]) == ("answer", "finish")
    assert reyn("frame", "r").out == reyn("frame", "r", "16").out
    assert (first["role"], second["role"]) == ("system", "user")
    assert first["text"] in seen.out
    early = reyn("frame", "r", "1")
    assert (early.code, "no frame at or before event 1" in early.err) == (2, True)


def test_the_frame_of_a_run_as_json_is_the_frame_of_its_skill(here: Path, reyn):
    reyn("run", "pair", IN, "--run-id", "r")
    assert reyn("frame", "r", "3", "--json").out == reyn("frame", "pair", IN, "--json").out
    assert reyn("frame", "r", "--json").json["execution"]["path"] == ["first", "second"]


def test_the_language_and_the_limit_of_visits_come_from_the_file_or_the_command_line(here: Path, reyn):
    def frame(run: str, *options: str) -> tuple[object, object]:
        assert reyn("run", "pair", IN, "--run-id", run, *options).code == 0
        value = reyn("frame", run, "--json").json
        return value["output_language"], value["constraints"]["max_phase_visits"]

    assert frame("default") == (None, 25)
    (here / "reyn.yaml").write_text("model: scripted:answers.jsonl\noutput_language: fr\nmax_phase_visits: null\n")
    assert frame("file") == ("fr", None)
    assert frame("option", "--output-language", "de", "--max-phase-visits", "7") == ("de", 7)


def test_frame_rejects_an_event_beyond_the_end(here: Path, reyn):
    reyn("run", "pair", IN, "--run-id", "r")
    output = reyn("frame", "r", "17")
    assert (output.code, output.out) == (2, "")
    assert "run `r` has no event 17\n  fix: The last event of the run is 16." in output.err


def test_frame_takes_a_number_after_a_skill_as_input(here: Path, reyn):
    write_skill(here, "talk", {"only": ["end"]}, inputs={"only": "user_message"})
    reyn("run", "talk", "7", "--run-id", "talk-1")
    assert reyn("frame", "talk", "5").out.endswith("[user]\n5\n")
    assert "[user]\n7\n" in reyn("frame", "talk-", "5").out


# -- settings -----------------------------------------------------------------------------------------------


def test_config_shows_the_origin_of_every_setting(here: Path, reyn, monkeypatch: pytest.MonkeyPatch):
    (here / "reyn.yaml").write_text("model: scripted:answers.jsonl\nlimits:\n  tokens: 9\n  run_seconds: 5\n")
    (here / "reyn.local.yaml").write_text("\nlimits: {tokens: 7}\n")
    monkeypatch.setenv("REYN_SIZES", "{answer_depth: 3}")
    flags = ("--max-phase-visits", "4")
    settings = {setting["key"]: setting for setting in reyn("config", "explain", *flags, "--json").json}
    assert {
        key: (settings[key]["value"], settings[key]["origin"])
        for key in settings
        if settings[key]["origin"] != "default"
    } == {
        "model": ("scripted:answers.jsonl", "reyn.yaml:1"),
        "max_phase_visits": (4, "flag"),
        "limits.tokens": (7, "reyn.local.yaml:2"),
        "limits.run_seconds": (5, "reyn.yaml:4"),
        "sizes.answer_depth": (3, "REYN_SIZES"),
    }
    for option, key in (("--max-phase-visits", "max_phase_visits"), ("--max-act-turns", "max_act_turns")):
        [setting] = reyn("config", "explain", key, option, "none", "--json").json
        assert (setting["value"], setting["origin"]) == (None, "flag")
    assert reyn("config", "explain", "limits.tokens").out == "limits.tokens  7  reyn.local.yaml:2\n"
    assert all(line.startswith("limits.") for line in reyn("config", "explain", "limits").out.splitlines())
    assert re.search(r"^sizes\.answer_depth +3 +REYN_SIZES$", reyn("config").out, re.M)
    assert reyn("config", "--json").json == reyn("config", "explain", "--json").json


def test_config_suggests_the_nearest_key(here: Path, reyn):
    output = reyn("config", "explain", "limts")
    assert output.code == 2
    assert "error RYN719: no setting `limts`" in output.err
    assert "  fix: Did you mean `limits`?" in output.err


def test_max_act_turns_limits_the_act_turns_of_a_run(here: Path, reyn):
    write_answers(here, act(file("read", "reyn.yaml")), finish())
    output = reyn("run", "asking", IN, "--max-act-turns", "0", "--run-id", "r")
    assert "rejected" in output.out


def test_an_ambiguous_prefix_lists_the_runs(here: Path, reyn):
    for run in ("order-1", "order-2"):
        reyn("run", "pair", IN, "--run-id", run)
    output = reyn("show", "ord")
    assert output.code == 2
    assert "`ord` is the beginning of 2 run ids: `order-2`, `order-1`\n" in output.err


def test_a_file_that_cannot_be_read_is_reported_without_an_error_number(here: Path, reyn):
    (here / "binary").write_bytes(b"\xff\xfe")
    for arguments in (
        ("run", "pair", "@missing.json"),
        ("run", "pair", IN, "--model", "scripted:missing.jsonl"),
        ("import", "missing.jsonl"),
    ):
        assert reyn(*arguments).err.splitlines()[0].endswith(": No such file or directory")
    assert reyn("run", "pair", "@binary").err.splitlines()[0].endswith(": it is not UTF-8 text")


def test_events_are_filtered_by_the_kinds_of_ops(here: Path, reyn):
    write_skill(here, "writer", {"write": ["end"]}, ops={"write": "file"})
    write_answers(here, act(file("write", "workspace:a.txt", content="x")), finish())
    reyn("run", "writer", IN, "--run-id", "w")
    assert [line.split()[3] for line in reyn("events", "w", "--kind", "file_started").out.splitlines()] == [
        "file_started"
    ]
    assert reyn("events", "w", "--kind", "run_skill_started").out == ""
    assert reyn("events", "w", "--kind", "fil_started").code == 2


# -- watch ----------------------------------------------------------------------------------------------------


def test_watch_prints_what_a_run_did_and_its_result_and_exits_with_its_code(here: Path, reyn):
    executed = reyn("run", "pair", IN, "--run-id", "r")
    watched = reyn("watch", "r")
    assert watched.code == 0
    assert watched.out.splitlines()[:-1] == executed.out.splitlines()[:-1]  # the last line has the time
    assert "phase first" not in reyn("watch", "r", "--after", "9").out
    events = [json.loads(line) for line in reyn("watch", "r", "--json", "--after", "3").out.splitlines()]
    assert events == [json.loads(line) for line in reyn("events", "r", "--json", "--after", "3").out.splitlines()]
    write_answers(here, act(question("which?")))
    reyn("run", "asking", IN, "--run-id", "q")
    assert reyn("watch", "q").code == reyn("watch", "q", "--json").code == 4
    assert reyn("watch", "unknown").code == 2
