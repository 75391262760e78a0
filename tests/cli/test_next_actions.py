"""The next command of each status, `reyn runs` and `reyn doctor`."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from reyn.journal.kinds import Usage
from reyn.models import ModelAnswer
from reyn.testing import ScriptedModel
from tests.cli.support import IN, write_answers
from tests.journal.stored import change_event, editing
from tests.support import abort, act, file, finish, go, question, write_skill

READ = act(file("read", "reyn.yaml"))


class Counting(ScriptedModel):
    """Every answer costs 100 tokens."""

    async def complete(self, request):
        return ModelAnswer((await super().complete(request)).text, Usage(60, 40))


@pytest.fixture
def counting(here: Path, monkeypatch: pytest.MonkeyPatch) -> list:
    answers: list = []
    monkeypatch.setattr(
        "reyn.models.catalog.open_model", lambda *args, **names: Counting(answers, "scripted:answers.jsonl")
    )
    return answers


def next_of(output) -> list[str]:
    """Return the arguments of the next command that a command printed."""
    [line] = [line for line in output.out.splitlines() if line.startswith("next: reyn ")]
    return shlex.split(line.removeprefix("next: reyn "))


def test_a_finished_run_has_no_next_command(here: Path, reyn):
    output = reyn("run", "pair", IN)
    assert (output.code, "next:" in output.out) == (0, False)


def test_resume_of_an_ended_run_reports_its_status_and_what_can_be_done(here: Path, reyn):
    assert reyn("run", "pair", IN, "--run-id", "done").code == 0
    again = reyn("resume", "done")
    assert again.code == 0
    assert again.err.splitlines() == [
        "run done has ended (finished); nothing was executed. Its result:",
        "  reyn show done shows its events",
        "  reyn fork done continues from one of them in a new run",
        "  reyn rerun done starts a new run with the same input",
    ]
    assert "finished\n" in again.out
    assert reyn("resume", "done", "--json").json["status"] == "finished"
    write_answers(here, go("second"))
    reyn("run", "pair", IN, "--run-id", "stopped")
    reyn("cancel", "stopped")
    cancelled = reyn("resume", "stopped")
    assert (cancelled.code, "run stopped has ended (cancelled)" in cancelled.err) == (6, True)


def test_a_failed_run_is_resumed_with_retry(here: Path, reyn):
    write_answers(here, go("second"))
    output = reyn("run", "pair", IN, "--run-id", "r")
    assert (output.code, next_of(output)) == (1, ["resume", "r", "--retry"])
    write_answers(here, go("second"), finish())
    assert reyn(*next_of(output)).code == 0


def test_an_aborted_run_is_forked(here: Path, reyn):
    write_answers(here, abort("no"))
    output = reyn("run", "pair", IN, "--run-id", "r")
    assert (output.code, next_of(output)) == (5, ["fork", "r"])
    write_answers(here, go("second"), finish())
    assert reyn(*next_of(output)).code == 0


def test_a_cancelled_run_is_forked(here: Path, reyn):
    write_answers(here, act(question("Sure?")), finish())
    assert reyn("run", "asking", IN, "--run-id", "r").code == 4
    output = reyn("cancel", "r", "--reason", "enough")
    assert (output.code, next_of(output)) == (0, ["fork", "r"])
    timeline = reyn("show", "r")
    assert "cancelled: enough" in timeline.out
    assert reyn("resume", "r").code == 6
    assert reyn("cancel", "r").code == 2
    assert reyn("fork", "r", "--json").json["status"] == "waiting"


def test_cancel_with_json_prints_the_status(here: Path, reyn):
    write_answers(here, act(question("Sure?")), finish())
    reyn("run", "asking", IN, "--run-id", "r")
    assert reyn("cancel", "r", "--json").json == {"run_id": "r", "status": "cancelled", "is_cancelled": True}


def test_a_visit_limit_is_raised_by_its_previous_value(here: Path, reyn):
    write_skill(here, "spin", {"turn": ["back", "end"], "back": ["turn"]})
    write_answers(here, *[go("back"), go("turn")] * 2, finish())
    output = reyn("run", "spin", IN, "--run-id", "r", "--max-phase-visits", "2")
    assert (output.code, next_of(output)) == (3, ["resume", "r", "--raise", "max_phase_visits=4"])
    assert reyn(*next_of(output)).code == 0


def test_an_act_turn_limit_set_by_an_option_is_raised(here: Path, reyn):
    (here / "reyn.yaml").write_text("model: scripted:answers.jsonl\nlimits: {on_limit: stop}\n")
    write_answers(here, READ, READ, finish())
    output = reyn("run", "asking", IN, "--run-id", "r", "--max-act-turns", "1")
    assert (output.code, next_of(output)) == (3, ["resume", "r", "--raise", "max_act_turns=2"])
    again = reyn(*next_of(output))
    assert (again.code, next_of(again)) == (3, ["resume", "r", "--raise", "max_act_turns=4"])
    assert reyn("resume", "r", "--raise", "max_act_turns=none").code == 0


def test_a_token_limit_is_raised_beyond_the_current_usage(here: Path, counting: list, reyn):
    (here / "reyn.local.yaml").write_text("limits: {tokens: 70}\n")
    counting += [go("second"), finish()]
    output = reyn("run", "pair", IN, "--run-id", "r")
    assert (output.code, next_of(output)) == (3, ["resume", "r", "--raise", "tokens=170"])
    assert "    turn 1 · 100 tokens · " in output.out
    assert "used: 100 tokens (60 in, 40 out)" in output.out
    assert reyn(*next_of(output)).code == 0


def test_a_limit_that_stopped_a_sub_run_is_raised_for_its_parent(here: Path, counting: list, reyn):
    (here / "reyn.local.yaml").write_text("limits: {tokens: 150}\n")
    child = {"kind": "run_skill", "skill": "asking", "input": {"text": "x"}}
    counting += [act(child), READ, finish(), finish()]
    output = reyn("run", "above", IN, "--run-id", "r")
    assert (output.code, next_of(output)) == (3, ["resume", "r", "--raise", "tokens=350"])
    assert reyn(*next_of(output)).code == 0


@pytest.mark.parametrize(
    "limit", ["max_phase_visits", "max_act_turns", "phase_seconds", "run_seconds", "tokens", "no_progress"]
)
def test_every_limit_can_be_raised(here: Path, reyn, limit: str):
    reyn("run", "pair", IN, "--run-id", "r")
    assert limit in reyn("resume", "--help").out
    write_answers(here, go("second"))
    reyn("run", "pair", IN, "--run-id", "s")
    output = reyn("resume", "s", "--retry", "--raise", f"{limit}=1")
    assert (output.code, f"`{limit}` is" in output.err) == (2, True)


def test_the_next_command_repeats_the_project_option(here: Path, reyn, monkeypatch: pytest.MonkeyPatch):
    write_answers(here, abort())
    monkeypatch.chdir("/")
    output = reyn("--project", str(here), "run", "pair", IN, "--run-id", "r")
    assert next_of(output) == ["--project", str(here), "fork", "r"]


# -- lists --------------------------------------------------------------------------------------------------


def stopped_runs(here: Path, reyn) -> None:
    """Create one run of each status, with the status as its id."""
    child = {"kind": "run_skill", "skill": "asking", "input": {"text": "x"}}
    reyn("run", "pair", IN, "--run-id", "finished")
    write_answers(here, abort("no"))
    reyn("run", "pair", IN, "--run-id", "aborted")
    write_answers(here, go("second"))
    reyn("run", "pair", IN, "--run-id", "failed")
    write_answers(here, act(child), act(question("Sure?")), finish(), finish())
    reyn("run", "above", IN, "--run-id", "waiting")
    write_skill(here, "spin", {"turn": ["back", "end"], "back": ["turn"]})
    write_answers(here, go("back"), go("turn"), finish())
    reyn("run", "spin", IN, "--run-id", "limited", "--max-phase-visits", "1")


NEXT = {
    "failed": "reyn resume failed --retry",
    "limited": "reyn resume limited --raise max_phase_visits=2",
    "waiting": "reyn answer waiting 1.1.1/1.1.1 'your reply'",
    "waiting.1.1.1": "reyn answer waiting 1.1.1/1.1.1 'your reply'",
}


def test_doctor_lists_open_runs_with_their_next_command(here: Path, reyn):
    stopped_runs(here, reyn)
    output = reyn("doctor", "--json")
    assert output.code == 0
    assert {run["run_id"]: run["next"] for run in output.json["runs"]} == NEXT
    assert [check["name"] for check in output.json["checks"]] == [
        "python", "sqlite", "state", "disk", "sandbox", "models", "config", "trust", "journal", "engine", "budgets",
    ]  # fmt: skip
    text = reyn("doctor").out
    assert "waiting.1.1.1  waiting: Sure?\n    next: reyn answer waiting 1.1.1/1.1.1 'your reply'\n" in text
    assert "failed  failed: the script" in text


def test_runs_is_a_table_with_sub_runs_and_questions(here: Path, reyn):
    stopped_runs(here, reyn)
    reyn("fork", "finished", "--at", "5", "--run-id", "forked")
    assert reyn("runs").out.splitlines() == [
        "RUN              SKILL   STATUS    SINCE     WAITING FOR",
        "forked           pair    failed    just now",
        "limited          spin    limited   just now",
        "waiting          above   waiting   just now  Sure?",
        "  waiting.1.1.1  asking  waiting   just now  Sure?",
        "failed           pair    failed    just now",
        "aborted          pair    aborted   just now",
        "finished         pair    finished  just now",
    ]
    assert "waiting.1.1.1" not in reyn("runs", "--top").out
    rows = {row["run_id"]: row for row in reyn("runs", "--json").json}
    assert {run: rows[run]["next"] for run in NEXT} == NEXT
    assert rows["forked"]["fork_of"] == "finished"
    assert rows["waiting.1.1.1"]["depth"] == 1


@pytest.mark.parametrize("run", ["limited", "waiting", "failed", "finished"])
def test_a_damaged_run_does_not_hide_the_others(here: Path, reyn, run: str):
    stopped_runs(here, reyn)
    change_event(here / ".reyn" / "journal.db", 1, run, ts=b"1")
    rows = {row["run_id"]: row for row in reyn("runs", "--json").json}
    assert rows.keys() == {"finished", "aborted", "failed", "waiting", "waiting.1.1.1", "limited"}
    expected = NEXT | ({run: f"reyn verify {run}"} if run in ("limited", "failed") else {})
    assert {name: rows[name]["next"] for name in NEXT} == expected
    assert {one["run_id"] for one in reyn("doctor", "--json").json["runs"]} == NEXT.keys()
    assert reyn("verify", run).code == 1


def test_a_sub_run_of_an_ended_run_is_not_open(here: Path, reyn):
    child = {"kind": "run_skill", "skill": "asking", "input": {"text": "x"}}
    write_answers(here, act(child), "no answer", "no answer", "no answer", finish())
    assert reyn("run", "above", IN, "--run-id", "r").code == 0
    rows = {row["run_id"]: row for row in reyn("runs", "--json").json}
    assert (rows["r.1.1.1"]["status"], rows["r.1.1.1"]["next"]) == ("failed", "")
    assert "all runs have ended" in reyn("doctor").out


def test_a_run_id_with_a_dot_is_not_a_sub_run(here: Path, reyn):
    write_answers(here, act(question("Sure?")), finish())
    reyn("run", "asking", IN, "--run-id", "a.b")
    write_answers(here, go("second"))
    output = reyn("run", "pair", IN, "--run-id", "a")
    assert next_of(output) == ["resume", "a", "--retry"]
    assert [row["next"] for row in reyn("runs", "--json").json if row["run_id"] == "a.b"] == [
        "reyn answer a.b 1.1.1 'your reply'"
    ]


# -- doctor -----------------------------------------------------------------------------------------


def test_doctor_creates_no_state_folder(here: Path, reyn):
    output = reyn("doctor")
    assert (output.code, "no runs yet" in output.out) == (0, True)
    assert not (here / ".reyn").exists()


@pytest.mark.parametrize("is_empty", [False, True])
def test_doctor_reports_a_journal_that_is_gone(here: Path, reyn, is_empty: bool):
    assert reyn("run", "pair", IN, "--run-id", "r").code == 0
    for path in (here / ".reyn").glob("journal.db*"):
        path.unlink()
    if is_empty:
        (here / ".reyn/journal.db").touch(0o600)
    output = reyn("doctor")
    assert "no runs yet" not in output.out
    assert "journal.db` is gone or empty; only `" in output.out
    checks = {check["name"]: check for check in reyn("doctor", "--json").json["checks"]}
    assert checks["journal"]["health"] == "warning"
    assert "reyn import" in checks["journal"]["hint"]


def test_doctor_reports_an_invalid_configuration_and_still_lists_runs(here: Path, reyn):
    write_answers(here, go("second"))
    reyn("run", "pair", IN, "--run-id", "r")
    (here / "reyn.local.yaml").write_text("max_phase_visit: 3\n")
    output = reyn("doctor")
    assert output.code == 1
    assert "reyn.local.yaml:1:1: RYN701 unknown key `max_phase_visit`" in output.out
    assert "next: reyn resume r --retry" in output.out
    assert reyn("doctor", "--json").json["is_broken"] is True


@pytest.mark.parametrize("address", ["mysql://u:secret@h/d", "postgres//h/d", "./journal"])
def test_a_journal_with_an_invalid_address_is_never_replaced_by_the_one_of_the_folder(
    address: str, here: Path, reyn, monkeypatch: pytest.MonkeyPatch
):
    reyn("run", "pair", IN, "--run-id", "r")
    monkeypatch.setenv("REYN_JOURNAL", address)
    for command in (("runs",), ("show", "r"), ("usage",), ("queue",), ("workers",), ("submit", "pair", IN)):
        output = reyn(*command)
        assert output.code != 0
        assert "REYN_JOURNAL:1:1: RYN701 `journal` must be" in output.err
        assert "secret@" not in output.err + output.out
    output = reyn("doctor")
    assert (output.code, "REYN_JOURNAL:1:1: RYN701" in output.out) == (1, True)


def test_doctor_reports_a_broken_journal(here: Path, reyn):
    reyn("run", "pair", IN)
    with editing(here / ".reyn" / "journal.db") as db:
        db.execute("PRAGMA user_version = 99")
    output = reyn("doctor")
    assert (output.code, "has format 99" in output.out) == (1, True)
    (here / ".reyn" / "journal.db").write_bytes(b"no database" * 1000)
    assert reyn("doctor").code == 1


def test_doctor_reports_a_state_folder_that_is_a_file(here: Path, reyn):
    (here / ".reyn").write_text("")
    output = reyn("doctor")
    assert (output.code, ".reyn` is not a folder" in output.out) == (1, True)


@pytest.mark.parametrize(
    ("version", "health"), [((3, 40, 1), "warning"), ((3, 51, 2), "warning"), ((3, 51, 3), "ok"), ((4, 0, 0), "ok")]
)
def test_an_old_sqlite_is_a_warning(version, health: str):
    from reyn.cli.checks import check_sqlite

    assert check_sqlite(version).health == health


@pytest.mark.parametrize(("free", "health"), [(5, "broken"), (500_000_000, "warning"), (10**12, "ok")])
def test_low_disk_space_is_a_warning_before_it_is_broken(free: int, health: str):
    from reyn.cli.checks import check_disk

    assert check_disk(free).health == health
