"""fork, rerun, diff, undo, export, import, upgrade."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import IN, write_answers
from tests.support import act, file, finish, go, question, write_skill

CHILD = {"kind": "run_skill", "skill": "asking", "input": {"text": "x"}}


@pytest.fixture
def ran(here: Path, reyn) -> Path:
    """A finished run `r`, and different answers in `other.jsonl`."""
    reyn("run", "pair", IN, "--run-id", "r")
    write_answers(here, go("second", "other words"), finish("other"), name="other.jsonl")
    return here


# -- fork, rerun, diff --------------------------------------------------------------------------------------


def test_diff_names_the_model_as_the_cause_for_a_fork_with_another_model(ran: Path, reyn):
    output = reyn("fork", "r", "--at", "5", "--model", "scripted:other.jsonl", "--run-id", "f")
    assert output.code == 0
    assert output.out.splitlines()[0] == "run f · forked from r at event 4 · scripted:other.jsonl"
    assert '"text": "other"' in output.out
    diff = reyn("diff", "r", "f")
    assert diff.code == 1
    assert diff.out.splitlines() == [
        "0 decisions in common, then they diverge",
        '  r: event 5, phase first: transition → second with {"data":{"text":"on"},"type":"note"}',
        '  f: event 6, phase first: transition → second with {"data":{"text":"other words"},"type":"note"}',
        ("cause: the same prompt was sent to different models: `scripted:answers.jsonl` and `scripted:other.jsonl`"),
    ]
    assert reyn("diff", "r", "f", "--json").json["cause"] == "model"
    assert "forked from r at event 4 · scripted:other.jsonl" in reyn("show", "f").out


def test_fork_replaces_the_input(ran: Path, reyn):
    output = reyn("fork", "r", "--at", "9", "--input", '{"text": "given"}', "--run-id", "f")
    assert output.code == 0
    assert reyn("frame", "f").out.count("[user]\ngiven\n") == 1
    assert reyn("fork", "r", "--input", '{"no": 1}').code == 2


def test_fork_continues_with_the_current_skill(ran: Path, reyn):
    (ran / "reyn/project/pair/phases/second.md").write_text(
        "---\ntype: phase\nname: second\ninput: note\nallowed_ops: []\n---\nDo it better.\n"
    )
    assert reyn("fork", "r", "--at", "9", "--skill", "pair", "--run-id", "f").code == 0
    assert "Do it better." in reyn("frame", "f").out
    assert "their skills differ" in reyn("diff", "r", "f").out


@pytest.mark.parametrize(
    "options", [("--run-id", "r"), ("--run-id", "a/b"), ("--model", "oracle"), ("--skill", "none")]
)
def test_an_invalid_fork_is_rejected(ran: Path, reyn, options):
    output = reyn("fork", "r", *options)
    assert (output.code, output.out) == (2, "")
    assert len(reyn("runs", "--json").json) == 1


def test_a_fork_takes_an_answer_that_fits_and_refuses_another(ran: Path, reyn):
    (ran / "own.json").write_text('{"control": {}}')
    refused = reyn("fork", "r", "--answer", "own.json", "--run-id", "f")
    assert (refused.code, refused.out) == (2, "")
    assert "the answer does not fit model call" in refused.err
    assert "The prompt at event" in refused.err
    assert [one["run_id"] for one in reyn("runs", "--json").json] == ["r"]
    (ran / "own.json").write_text(json.dumps(finish("mine")))
    assert '"text": "mine"' in reyn("fork", "r", "--answer", "own.json", "--run-id", "f").out


def test_a_rerun_is_identical_until_its_model_differs(ran: Path, reyn):
    assert reyn("rerun", "r", "--run-id", "again").out.startswith(
        "run again · pair · scripted:answers.jsonl · rerun of r"
    )
    same = reyn("diff", "r", "again")
    assert (same.code, same.out) == (0, "r and again are identical: 2 decisions\n")
    assert (
        reyn("rerun", "r", "--model", "scripted:other.jsonl", "--run-id", "other", "--json").json["status"]
        == "finished"
    )
    assert reyn("diff", "again", "other").code == 1


def test_diff_names_the_section_of_the_frame_that_differs(here: Path, reyn):
    (here / "output").mkdir(exist_ok=True)
    (here / "output" / "seen.txt").write_text("one")
    write_answers(here, act(file("read", "output/seen.txt")), finish("saw one"))
    reyn("run", "asking", IN, "--run-id", "one")
    (here / "output" / "seen.txt").write_text("two")
    write_answers(here, act(file("read", "output/seen.txt")), finish("saw two"))
    reyn("rerun", "one", "--run-id", "two")
    output = reyn("diff", "one", "two")
    assert "1 decision in common, then they diverge" in output.out
    assert "cause: their prompts differ" in output.out
    assert "frame section: " in output.out


def test_diff_reports_different_inputs(ran: Path, reyn):
    reyn("run", "pair", '{"text": "else"}', "--run-id", "s")
    output = reyn("diff", "r", "s")
    assert (output.code, output.out.splitlines()[0]) == (1, "2 decisions, all identical")
    inputs = '{"data":{"text":"in"},"type":"note"} and {"data":{"text":"else"},"type":"note"}'
    assert output.out.splitlines()[1] == f"difference: their inputs differ: {inputs}"


def test_diff_shows_a_rejected_answer(ran: Path, reyn):
    write_answers(ran, "not so", go("second"), finish("end"))
    reyn("rerun", "r", "--run-id", "again")
    output = reyn("diff", "r", "again")
    assert re.search(r"again: event 5, phase first: rejected: \w+: not so", output.out)
    assert "cause: the same model answered the same prompt differently" in output.out


# -- undo ---------------------------------------------------------------------------------------------------


@pytest.fixture
def wrote(here: Path, reyn) -> Path:
    (here / "output").mkdir()
    (here / "output" / "old.txt").write_text("before")
    ops = (file("write", "output/new.txt", content="x"), file("write", "output/old.txt", content="after"))
    write_answers(here, act(*ops), finish())
    output = reyn("run", "asking", IN, "--run-id", "w")
    assert "    file write output/new.txt · ok\n    file write output/old.txt · ok\n" in output.out
    assert "files: output/new.txt (new), output/old.txt (changed)" in output.out
    return here


def test_undo_restores_changed_files_and_deletes_created_ones(wrote: Path, reyn):
    dry = reyn("undo", "w", "--dry-run")
    assert (dry.code, dry.out) == (0, "would restore output/old.txt\nwould delete output/new.txt\n")
    assert (wrote / "output/old.txt").read_text() == "after"
    report = reyn("undo", "w", "--json").json
    assert (report["restored"], report["deleted"]) == (["output/old.txt", "output/new.txt"], ["output/new.txt"])
    assert (wrote / "output/old.txt").read_text() == "before"
    assert not (wrote / "output/new.txt").exists()
    assert reyn("undo", "w").out == "w: nothing to undo\n"
    assert "undone: output/old.txt, output/new.txt" in reyn("show", "w").out


def test_undo_skips_files_that_changed_since(wrote: Path, reyn):
    (wrote / "output/old.txt").write_text("mine")
    assert reyn("undo", "w", "--dry-run").code == 1
    output = reyn("undo", "w")
    assert (output.code, output.out) == (1, "deleted output/new.txt\nskipped output/old.txt: changed since the run\n")
    assert (wrote / "output/old.txt").read_text() == "mine"


# -- export and import --------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another project, or a folder that may become one."""
    return tmp_path_factory.mktemp("elsewhere")


def test_runs_are_exported_and_imported_with_sub_runs_and_files(here: Path, elsewhere: Path, reyn, monkeypatch):
    ops = act(file("write", "workspace:note.txt", content="kept"))
    write_answers(here, act(CHILD), act(question("Sure?")), ops, finish(), finish("above"))
    reyn("run", "above", IN, "--run-id", "r")
    reyn("answer", "r", "1.1.1/1.1.1", "yes")
    report = reyn("export", "r", str(elsewhere / "r.jsonl"), "--json").json
    assert report["bytes"] == (elsewhere / "r.jsonl").stat().st_size
    monkeypatch.chdir(elsewhere)
    assert reyn("import", "r.jsonl").out == "imported r\nimported r.1.1.1\n"
    for run in ("r", "r.1.1.1"):
        assert reyn("verify", run).code == 0
        assert reyn("replay", run).code == 0
    assert reyn("show", "r", "--json").json["artifact"]["data"] == {"text": "above"}
    assert (elsewhere / ".reyn/workspace/r.1.1.1/note.txt").read_text() == "kept"
    assert reyn("import", "r.jsonl", "--json").json == {"imported": [], "known": ["r", "r.1.1.1"]}


@pytest.mark.slow
def test_export_to_stdout_and_import_from_stdin(ran: Path, elsewhere: Path):
    command = f"{sys.executable} -m reyn export r | {sys.executable} -m reyn --project {elsewhere} import - --json"
    done = subprocess.run(command, shell=True, cwd=ran, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"imported": ["r"], "known": []}


def test_export_and_import_report_errors(ran: Path, reyn):
    assert reyn("export", "nobody").code == 2
    output = reyn("export", "r", "no/such/folder.jsonl")
    assert (output.code, "error RYN710: cannot write `no/such/folder.jsonl`" in output.err) == (2, True)
    assert reyn("export", "r", "--json").code == 2
    assert "RYN418" in reyn("import", "missing.jsonl").err
    reyn("export", "r", "r.jsonl")
    text = (ran / "r.jsonl").read_text()
    (ran / "r.jsonl").write_text(text.replace('"scripted:answers.jsonl"', '"scripted:better.jsonl"', 1))
    output = reyn("import", "r.jsonl")
    assert (output.code, "does not match its hash" in output.err) == (2, True)
    assert [entry.name for entry in ran.iterdir() if entry.name.startswith(".r.jsonl")] == []


# -- upgrade ------------------------------------------------------------------------------------------------


def test_resume_uses_the_current_skill_only_with_upgrade(here: Path, reyn):
    write_skill(here, "spin", {"turn": ["back", "end"], "back": ["turn"]})
    write_answers(here, go("back"), go("turn"), finish())
    for run in ("old", "new"):
        assert reyn("run", "spin", IN, "--run-id", run, "--max-phase-visits", "1").code == 3
    phase = here / "reyn/project/spin/phases/turn.md"
    phase.write_text(phase.read_text().replace("Do what", "Now do what"))
    more = ("--raise", "max_phase_visits=2")
    assert reyn("resume", "old", *more).code == 0
    output = reyn("resume", "new", *more, "--upgrade")
    assert output.code == 0
    assert "resumed at back · skill spin " in output.out
    assert "Now do what" not in reyn("frame", "old").out
    assert "Now do what" in reyn("frame", "new").out


# -- imported runs ------------------------------------------------------------------------------------------


@pytest.fixture
def imported(ran: Path, reyn, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Another project, into which the run `r` was imported."""
    assert reyn("export", "r", "mail.jsonl").code == 0
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "reyn.yaml").write_text("model: scripted:answers.jsonl\n")
    write_answers(elsewhere, go("second"), finish("again"))
    monkeypatch.chdir(elsewhere)
    output = reyn("import", str(ran / "mail.jsonl"))
    assert (output.code, output.out) == (0, "imported r\n")
    return elsewhere


def test_an_imported_run_is_shown_as_such(imported: Path, reyn):
    assert "finished (imported)" in reyn("runs").out
    shown = reyn("show", "r").out.splitlines()
    assert "finished (imported)" in shown[0]
    assert shown[1] == "imported from mail.jsonl"
    assert reyn("runs", "--json").json[0]["imported"] == "mail.jsonl"
    assert reyn("show", "r", "--json").json["imported"] == "mail.jsonl"


@pytest.mark.parametrize(
    "words", [("resume", "r"), ("undo", "r"), ("cancel", "r"), ("answer", "r", "w", "x"), ("run", "pair", IN)]
)
def test_an_imported_run_is_refused_with_the_next_command(imported: Path, reyn, words: tuple[str, ...]):
    output = reyn(*words, *(("--run-id", "r") if words[0] == "run" else ()))
    assert output.code == 2
    assert "RYN421" in output.err
    assert "reyn fork r" in output.err


def test_an_imported_run_can_be_repeated(imported: Path, reyn):
    assert '"text": "again"' in reyn("rerun", "r", "--run-id", "new").out
    assert "(imported)" not in reyn("show", "new").out


def test_verify_compares_with_a_noted_head(ran: Path, reyn):
    head = reyn("verify", "r", "--json").json["head"]
    output = reyn("verify", "r", "--head", head)
    assert output.out.splitlines()[-1].startswith("matches the noted hash at event")
    wrong = reyn("verify", "r", "--head", "0" * 64)
    assert wrong.code == 1
    assert "RYN424" in wrong.err
    assert reyn("verify", "r", "--head", "abc").code == 2


@pytest.mark.slow
def test_an_endless_file_is_not_imported(here: Path, reyn):
    output = reyn("import", "/dev/zero", "--max-bytes", "1000000")
    assert output.code == 2
    assert "RYN422" in output.err
