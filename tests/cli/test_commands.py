"""Commands about runs: input, output, exit codes, errors."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reyn.cli.app import COMMANDS
from tests.cli.support import IN, write_answers
from tests.journal.stored import change_event
from tests.support import abort, finish, go, write_skill


def test_run_prints_its_id_then_its_steps_then_its_result(here: Path, reyn):
    output = reyn("run", "pair", IN, "--run-id", "r1")
    assert output.code == 0
    lines = output.out.splitlines()
    assert lines[0] == "run r1 · pair · scripted:answers.jsonl"
    assert lines[1:6] == [
        "  first (visit 1)",
        "    → second (0.50) to second",
        "  second (visit 1)",
        "    → finish (1.00) complete",
        "finished",
    ]
    assert json.loads("\n".join(lines[6:-2])) == {"type": "note", "data": {"text": "end"}}
    assert lines[-2] == "path: first → second"
    assert re.fullmatch(r"used: tokens not reported, \d\.\d s", lines[-1])


def test_run_with_json_prints_only_the_result_to_stdout(here: Path, reyn):
    output = reyn("run", "pair", IN, "--run-id", "r1", "--json")
    assert output.json == {
        "run_id": "r1",
        "status": "finished",
        "reason": "",
        "artifact": {"type": "note", "data": {"text": "end"}},
        "usage": {"input_tokens": 0, "output_tokens": 0, "cached_tokens": 0, "cache_write_tokens": 0},
        "path": ["first", "second"],
        "warnings": [],
        "question": None,
        "code": "",
        "hint": "",
        "cost": None,
        "visits": [],
    }
    assert "run r1" in output.err


def test_input_is_read_from_a_file_or_from_stdin(here: Path, reyn, monkeypatch: pytest.MonkeyPatch):
    (here / "in.json").write_text(IN)
    assert reyn("run", "pair", "@in.json").code == 0
    import io

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbf" + IN.encode())))
    assert reyn("run", "pair", "-").code == 0
    assert reyn("run", "pair", "@missing.json").code == 2
    output = reyn("run", "pair", "{not json")
    assert (output.code, "starts with a brace but is not valid JSON: line 1, column 2: expecting" in output.err) == (
        2,
        True,
    )


def test_reading_commands_print_text_or_json(here: Path, reyn):
    reyn("run", "pair", IN, "--run-id", "r1")
    assert reyn("runs").out.splitlines()[1].startswith("r1   pair   finished  ")
    assert reyn("runs", "--json").json[0]["display_status"] == "finished"
    assert "→ second (0.50) to second" in reyn("show", "r1").out
    timeline = reyn("show", "r", "--json").json
    assert [step["next"] for step in timeline["steps"] if step["type"] == "decided"] == ["second", "finish"]
    events = [json.loads(line) for line in reyn("events", "r1", "--json").out.splitlines()]
    assert [event["seq"] for event in events] == list(range(1, 17))
    assert set(events[0]) == {"seq", "run_id", "ts", "kind", "v", "data", "prev", "hash"}
    assert len(reyn("events", "r1", "--kind", "phase_started", "--after", "3").out.splitlines()) == 1
    assert reyn("replay", "r1").out == "r1: replayed 16 of 16 events, no differences\n"
    assert reyn("replay", "r1", "--json").json["visits"] == 2
    assert "r1: OK (16 events, 12 blobs)" in reyn("verify", "r1").out
    assert reyn("verify", "r1", "--json").json["events"] == 16


def test_a_failed_run_prints_the_command_that_continues_it(here: Path, reyn):
    (here / "answers.jsonl").write_text(json.dumps(go("second")))
    failed = reyn("run", "pair", IN, "--run-id", "r1")
    assert failed.code == 1
    assert "next: reyn resume r1 --retry" in failed.out
    assert reyn("resume", "r1").code == 2
    (here / "answers.jsonl").write_text("\n".join(json.dumps(a) for a in (go("second"), finish("end"))))
    assert reyn("resume", "r1", "--retry").code == 0
    timeline = reyn("show", "r1").out
    assert "failed: the script `scripted:answers.jsonl` has 1 answer;" in timeline
    assert "resumed at second to retry" in timeline


def test_strict_enforces_required_fields_at_every_depth(here: Path, reyn):
    inner = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
    nested = {"type": "object", "properties": {"text": {"type": "string"}, "inner": inner}, "required": ["text"]}
    write_skill(here, "nested", {"a": ["end"]}, artifacts={"note": nested})
    answer = finish()
    answer["artifact"]["data"]["inner"] = {}
    write_answers(here, answer)
    assert reyn("run", "nested", IN, "--run-id", "lenient").code == 0
    assert reyn("run", "nested", IN, "--run-id", "strict", "--strict", "--max-phase-retries", "0").code == 1
    assert "$.artifact.data.inner" in reyn("events", "strict", "--kind", "validation_error").out


def test_the_exit_code_reflects_the_status_of_the_run(here: Path, reyn):
    (here / "answers.jsonl").write_text(json.dumps(abort("no")))
    assert reyn("run", "pair", IN).code == 5
    write_skill(here, "spin", {"turn": ["back", "end"], "back": ["turn"]})
    (here / "answers.jsonl").write_text("\n".join(json.dumps(a) for a in (go("back"), go("turn"), finish())))
    limited = reyn("run", "spin", IN, "--run-id", "s", "--max-phase-visits", "1")
    assert limited.code == 3
    assert "next: reyn resume s --raise max_phase_visits=2" in limited.out
    assert reyn("resume", "s", "--raise", "max_phase_visits=many").code == 2
    assert reyn("resume", "s", "--raise", "max_phase_visits=9").code == 0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("run", "nothing"), "RYN101"),
        (("run", "pair", "plain text"), "RYN201"),
        (("run", "pair", IN, "--model", "oracle"), "RYN501"),
        (("run", "pair", IN, "--model", "scripted:missing.jsonl"), "RYN502"),
        (("show", "nobody"), "RYN401"),
        (("--project", "/nonexistent", "runs"), "RYN702"),
    ],
)
def test_an_error_has_a_code_a_fix_an_explanation_and_exit_code_2(here: Path, reyn, arguments, code: str):
    output = reyn(*arguments)
    assert output.code == 2
    assert f"error {code}: " in output.err
    assert "\n  fix: " in output.err
    assert f"\n  more: reyn explain {code}\n" in output.err
    assert "Traceback" not in output.err
    as_json = reyn(*arguments, "--json")
    assert as_json.json["error"]["code"] == code


def test_a_modified_journal_gives_exit_code_1(here: Path, reyn):
    reyn("run", "pair", IN, "--run-id", "r1")
    change_event(here / ".reyn" / "journal.db", 7, ts=b"1")
    for verb in ("verify", "replay"):
        output = reyn(verb, "r1")
        assert (output.code, "error RYN404: event 7 `artifact_stored`" in output.err) == (1, True)


def test_usage_errors_give_exit_code_2(here: Path, reyn):
    assert reyn("run").code == 2
    assert reyn("sing").code == 2
    assert reyn("run", "pair", "--colour").code == 2


def test_every_command_explains_itself_with_an_example(reyn):
    assert reyn("--help").code == 0
    for name in COMMANDS:
        output = reyn(name, "--help")
        assert output.code == 0
        assert f"Example: reyn {name}" in output.out


def test_the_project_is_found_from_a_subfolder(here: Path, reyn, monkeypatch: pytest.MonkeyPatch):
    below = here / "some" / "folder"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    assert reyn("run", "pair", IN).code == 0
    assert (here / ".reyn").is_dir()
    assert not (below / ".reyn").exists()


def test_runs_without_runs_suggests_reyn_run(here: Path, reyn):
    assert "reyn run SKILL" in reyn("runs").out
    assert reyn("runs", "--json").json == []
    assert not (here / ".reyn").exists()  # reading creates no state folder


def test_debug_shows_the_traceback(here: Path, reyn):
    output = reyn("--debug", "run", "nothing")
    assert output.code == 2
    assert "Traceback" in output.err
    assert "error RYN101" in output.err


@pytest.mark.slow
def test_a_run_interrupted_by_ctrl_c_can_be_resumed(here: Path, reyn):
    write_skill(here, "spin", {"turn": ["turn", "end"]})
    answers = [json.dumps(go("turn", str(number))) for number in range(20_000)] + [json.dumps(finish())]
    (here / "answers.jsonl").write_text("\n".join(answers))
    arguments = ["run", "spin", IN, "--run-id", "long", "--max-phase-visits", "100000"]
    child = subprocess.Popen(
        [sys.executable, "-m", "reyn", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=here
    )
    assert child.stdout.readline().startswith("run long")
    for _ in range(200):
        child.stdout.readline()
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    assert "next: reyn resume long" in err
    assert "Traceback" not in err
    assert "running (interrupted)" in reyn("runs").out


def test_help_imports_nothing_heavy():
    code = (
        "import sys; from reyn.cli.app import run_app; run_app(['--help']); "
        "print(','.join(sorted({name.split('.')[0] for name in sys.modules})), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=dict(os.environ)
    )
    loaded = set(done.stderr.strip().split(","))
    heavy = {"openai", "litellm", "httpx", "aiohttp", "requests", "flask", "starlette", "pytest", "hypothesis"}
    ours = {"rich", "yaml", "jsonschema_rs", "sqlite3", "asyncio"}
    assert not loaded & (heavy | ours)


@pytest.mark.parametrize(
    "arguments",
    [
        ("show", "\udcff"),
        ("events", "r1", "--after", "9" * 30),
        ("resume", "r1", "--raise", "max_phase_visits=²"),
        ("resume", "r1", "--raise", "max_phase_visits=" + "9" * 5000),
        ("run", "pair", '{"type":["a"],"data":{}}'),
        ("run", "pair", '{"text":' + "[" * 5000),
        ("run", "pair", '{"text":' + "[" * 900 + "]" * 900 + "}"),
        ("run", "~nobody/x"),
        ("run", "x" * 5000),
        ("--project", "x" * 5000, "runs"),
        ("run", "pair", IN, "--run-id", ""),
        ("run", "pair", IN, "--run-id", "a/b"),
        ("run", "pair", IN, "--model", "recorded:nobody"),
        ("events", "r1", "--kind", "phase_startet"),
        ("answer", "r1", "1.1.1", "x"),
        ("answer", "r1", "\x00", "["),
        ("fork", "r1", "--at", "0"),
        ("fork", "r1", "--at", "1", "--input", "{"),
        ("frame", "r1", "9" * 30),
        ("frame", "nobody", "²"),
        ("diff", "r1", ""),
        ("undo", "x" * 5000),
        ("export", "r1", "x" * 5000),
        ("import", "x" * 5000),
        ("import", "."),
        ("config", "explain", ""),
        ("config", "explain", "limits.", "--max-phase-visits", "0"),
    ],
)
def test_invalid_arguments_never_give_a_traceback(here: Path, reyn, arguments):
    reyn("run", "pair", IN, "--run-id", "r1")
    output = reyn(*arguments)
    assert output.code == 2
    assert "Traceback" not in output.err
    assert "RYN900" not in output.err


def test_a_bug_is_reported_as_an_internal_error(here: Path, reyn, monkeypatch: pytest.MonkeyPatch):
    from reyn.runtime import SyncRuntime

    def fail(*args, **kwargs):
        raise ZeroDivisionError("oops")

    monkeypatch.setattr(SyncRuntime, "run", fail)
    output = reyn("run", "pair", IN)
    assert output.code == 1
    assert "error RYN900: ZeroDivisionError: oops" in output.err


@pytest.mark.slow
def test_a_closed_pipe_does_not_stop_the_run(here: Path, reyn):
    write_skill(here, "spin", {"turn": ["turn", "end"]})
    answers = [json.dumps(go("turn", str(number))) for number in range(400)] + [json.dumps(finish())]
    (here / "answers.jsonl").write_text("\n".join(answers))
    arguments = f"{sys.executable} -m reyn run spin '{IN}' --run-id piped --max-phase-visits 1000 | head -1"
    done = subprocess.run(arguments, shell=True, cwd=here, capture_output=True, text=True)
    assert done.stdout.startswith("run piped")
    assert "Traceback" not in done.stderr
    assert reyn("show", "piped", "--json").json["status"] == "finished"
    listing = subprocess.run(
        f"{sys.executable} -m reyn events piped | head -1", shell=True, cwd=here, capture_output=True
    )
    assert listing.stderr == b""


def test_a_rejected_run_creates_no_state_folder(here: Path, reyn):
    assert reyn("run", "nothing").code == 2
    assert reyn("run", "pair", "{}", "--run-id", "x").code == 2
    assert not (here / ".reyn").exists()


def test_control_characters_from_a_model_are_escaped(here: Path, reyn):
    evil = finish()
    evil["control"]["reason"]["summary"] = "\x1b[2Jgone\nfinished: all is well"
    (here / "answers.jsonl").write_text("\n".join(json.dumps(a) for a in (go("second"), evil)))
    output = reyn("run", "pair", IN, "--run-id", "r1")
    assert "\x1b" not in output.out
    assert "\\x1b[2Jgone\\nfinished: all is well" in output.out
    assert "\x1b" not in reyn("show", "r1").out


def test_an_error_that_quotes_a_model_cannot_steer_the_terminal(here: Path, reyn):
    evil = abort("\x1b[2J\x9b2J gone")
    (here / "answers.jsonl").write_text(json.dumps(evil))
    reyn("run", "pair", IN, "--run-id", "r1")
    for arguments in (("resume", "r1", "--retry"), ("show", "r1"), ("runs",), ("doctor",)):
        output = reyn(*arguments)
        assert not {"\x1b", "\x9b"} & set(output.out + output.err)


def test_commands_about_unknown_runs_create_no_state_folder(here: Path, reyn):
    arguments = (("resume",), ("fork",), ("rerun",), ("cancel",), ("undo",), ("export",), ("show",), ("frame", "1"))
    for verb, *more in (*arguments, ("answer", "1.1.1", "x")):
        assert reyn(verb, "nobody", *more).code == 2
    assert reyn("diff", "nobody", "nobody").code == 2
    assert not (here / ".reyn").exists()


def test_paths_are_relative_to_the_current_folder(here: Path, reyn, monkeypatch: pytest.MonkeyPatch):
    (here / "sub").mkdir()
    (here / "sub" / "other.jsonl").write_text("\n".join(json.dumps(a) for a in (go("second"), finish("sub"))))
    monkeypatch.chdir(here / "sub")
    output = reyn("run", "../reyn/project/pair", IN, "--model", "scripted:other.jsonl", "--run-id", "r1", "--json")
    assert output.json["artifact"]["data"] == {"text": "sub"}
    monkeypatch.chdir(here)
    assert reyn("events", "r1", "--kind", "run_started", "--json").json["data"]["model"] == "scripted:sub/other.jsonl"


def test_a_run_can_be_resumed_with_another_model(here: Path, reyn):
    (here / "short.jsonl").write_text(json.dumps(go("second")))
    assert reyn("run", "pair", IN, "--run-id", "r1", "--model", "scripted:short.jsonl").code == 1
    assert reyn("resume", "r1", "--retry", "--model", "scripted:answers.jsonl").code == 0


def test_an_empty_or_invalid_state_folder_is_reported(here: Path, reyn):
    (here / ".reyn").mkdir()
    (here / ".reyn" / "journal.db").touch()
    assert reyn("runs", "--json").json == []
    assert (here / ".reyn" / "journal.db").stat().st_size == 0
    (here / ".reyn" / "journal.db").unlink()
    (here / ".reyn").rmdir()
    (here / ".reyn").write_text("")
    assert "RYN425" in reyn("runs").err
