"""Every state has its exit code and the command that moves it on, and the command does."""

from __future__ import annotations

import shlex
import sqlite3
from pathlib import Path

import pytest

from reyn.journal.kinds import Usage
from reyn.models import ModelReply
from reyn.testing import ScriptedModel
from tests.cli.support import IN, write_answers
from tests.support import abort, act, file, finish, go, question, write_skill

READ = act(file("read", "reyn.yaml"))


class Counting(ScriptedModel):
    """Every answer costs 100 tokens."""

    async def complete(self, request):
        return ModelReply((await super().complete(request)).text, Usage(60, 40))


@pytest.fixture
def counting(here: Path, monkeypatch: pytest.MonkeyPatch) -> list:
    answers: list = []
    monkeypatch.setattr(
        "reyn.models.catalog.open_model", lambda *args, **names: Counting(answers, "scripted:answers.jsonl")
    )
    return answers


def next_of(said) -> list[str]:
    """The words of the command that a run says is next."""
    [line] = [line for line in said.out.splitlines() if line.startswith("next: reyn ")]
    return shlex.split(line.removeprefix("next: reyn "))


def test_a_finished_run_needs_nothing(here: Path, reyn):
    said = reyn("run", "pair", IN)
    assert (said.code, "next:" in said.out) == (0, False)


def test_a_failed_run_is_tried_again(here: Path, reyn):
    write_answers(here, go("second"))
    said = reyn("run", "pair", IN, "--run-id", "r")
    assert (said.code, next_of(said)) == (1, ["resume", "r", "--retry"])
    write_answers(here, go("second"), finish())
    assert reyn(*next_of(said)).code == 0


def test_a_run_that_the_model_aborted_is_forked(here: Path, reyn):
    write_answers(here, abort("no"))
    said = reyn("run", "pair", IN, "--run-id", "r")
    assert (said.code, next_of(said)) == (5, ["fork", "r"])
    write_answers(here, go("second"), finish())
    assert reyn(*next_of(said)).code == 0


def test_a_run_that_was_cancelled_is_forked(here: Path, reyn):
    write_answers(here, act(question("Sure?")), finish())
    assert reyn("run", "asking", IN, "--run-id", "r").code == 4
    said = reyn("cancel", "r", "--reason", "enough")
    assert (said.code, next_of(said)) == (0, ["fork", "r"])
    shown = reyn("show", "r")
    assert "cancelled: enough" in shown.out
    assert reyn("resume", "r").code == 6
    assert reyn("cancel", "r").code == 2
    assert reyn("fork", "r", "--json").json["status"] == "waiting"


def test_cancel_with_json_tells_the_state(here: Path, reyn):
    write_answers(here, act(question("Sure?")), finish())
    reyn("run", "asking", IN, "--run-id", "r")
    assert reyn("cancel", "r", "--json").json == {"run_id": "r", "status": "cancelled", "is_over": True}


def test_a_cap_on_visits_is_raised_by_as_much_again(here: Path, reyn):
    write_skill(here, "spin", {"turn": ["turn", "end"]})
    write_answers(here, *[go("turn")] * 3, finish())
    said = reyn("run", "spin", IN, "--run-id", "r", "--max-phase-visits", "2")
    assert (said.code, next_of(said)) == (3, ["resume", "r", "--raise", "max_phase_visits=4"])
    assert reyn(*next_of(said)).code == 0


def test_a_cap_on_act_turns_is_raised_whoever_set_it(here: Path, reyn):
    (here / "reyn.yaml").write_text("model: scripted:answers.jsonl\nlimits: {on_limit: stop}\n")
    write_answers(here, READ, READ, finish())
    said = reyn("run", "asking", IN, "--run-id", "r", "--max-act-turns", "1")
    assert (said.code, next_of(said)) == (3, ["resume", "r", "--raise", "max_act_turns=2"])
    again = reyn(*next_of(said))
    assert (again.code, next_of(again)) == (3, ["resume", "r", "--raise", "max_act_turns=4"])
    assert reyn("resume", "r", "--raise", "max_act_turns=none").code == 0


def test_a_cap_on_tokens_is_raised_beyond_what_is_used(here: Path, counting: list, reyn):
    (here / "reyn.local.yaml").write_text("limits: {tokens: 70}\n")
    counting += [go("second"), finish()]
    said = reyn("run", "pair", IN, "--run-id", "r")
    assert (said.code, next_of(said)) == (3, ["resume", "r", "--raise", "tokens=170"])
    assert "    turn 1 · 100 tokens · " in said.out
    assert "used: 100 tokens (60 in, 40 out)" in said.out
    assert reyn(*next_of(said)).code == 0


def test_a_cap_that_stopped_a_sub_run_is_raised_at_the_run_above(here: Path, counting: list, reyn):
    (here / "reyn.local.yaml").write_text("limits: {tokens: 150}\n")
    child = {"kind": "run_skill", "skill": "asking", "input": {"text": "x"}}
    counting += [act(child), READ, finish(), finish()]
    said = reyn("run", "above", IN, "--run-id", "r")
    assert (said.code, next_of(said)) == (3, ["resume", "r", "--raise", "tokens=350"])
    assert reyn(*next_of(said)).code == 0


@pytest.mark.parametrize("limit", ["max_phase_visits", "max_act_turns", "phase_seconds", "run_seconds", "tokens"])
def test_every_limit_can_be_named(here: Path, reyn, limit: str):
    reyn("run", "pair", IN, "--run-id", "r")
    assert limit in reyn("resume", "--help").out
    write_answers(here, go("second"))
    reyn("run", "pair", IN, "--run-id", "s")
    said = reyn("resume", "s", "--retry", "--raise", f"{limit}=1")
    assert (said.code, f"`{limit}` is" in said.err) == (2, True)


def test_the_command_names_the_project_that_was_named(here: Path, reyn, monkeypatch: pytest.MonkeyPatch):
    write_answers(here, abort())
    monkeypatch.chdir("/")
    said = reyn("--project", str(here), "run", "pair", IN, "--run-id", "r")
    assert next_of(said) == ["--project", str(here), "fork", "r"]


# -- lists --------------------------------------------------------------------------------------------------


def stopped_runs(here: Path, reyn) -> None:
    """One run of each state, by the name of the state."""
    child = {"kind": "run_skill", "skill": "asking", "input": {"text": "x"}}
    reyn("run", "pair", IN, "--run-id", "finished")
    write_answers(here, abort("no"))
    reyn("run", "pair", IN, "--run-id", "aborted")
    write_answers(here, go("second"))
    reyn("run", "pair", IN, "--run-id", "failed")
    write_answers(here, act(child), act(question("Sure?")), finish(), finish())
    reyn("run", "above", IN, "--run-id", "waiting")
    write_skill(here, "spin", {"turn": ["turn", "end"]})
    write_answers(here, *[go("turn")] * 3, finish())
    reyn("run", "spin", IN, "--run-id", "limited", "--max-phase-visits", "1")


WAYS = {
    "failed": "reyn resume failed --retry",
    "limited": "reyn resume limited --raise max_phase_visits=2",
    "waiting": "reyn answer waiting 1.1.1/1.1.1 VALUE",
    "waiting.1.1.1": "reyn answer waiting 1.1.1/1.1.1 VALUE",
}


def test_doctor_lists_every_run_that_is_not_over_with_its_way_on(here: Path, reyn):
    stopped_runs(here, reyn)
    said = reyn("doctor", "--json")
    assert said.code == 0
    assert {run["run_id"]: run["next"] for run in said.json["runs"]} == WAYS
    assert [check["name"] for check in said.json["checks"]] == [
        "python", "sqlite", "state", "disk", "config", "journal",
    ]  # fmt: skip
    told = reyn("doctor").out
    assert "waiting.1.1.1  waiting: Sure?\n    next: reyn answer waiting 1.1.1/1.1.1 VALUE\n" in told
    assert "failed  failed: the script" in told


def test_the_list_of_runs_shows_sub_runs_questions_and_ways_on(here: Path, reyn):
    stopped_runs(here, reyn)
    reyn("fork", "finished", "--at", "5", "--run-id", "forked")
    lines = reyn("runs").out.splitlines()
    assert lines[0].startswith("forked  ")
    assert " · fork of finished at 4" in lines[0]
    at = next(number for number, line in enumerate(lines) if line.startswith("waiting  "))
    assert lines[at + 1] == "    asks: Sure?"
    assert lines[at + 2] == "    next: reyn answer waiting 1.1.1/1.1.1 VALUE"
    assert lines[at + 3].startswith("  waiting.1.1.1  ")
    assert "waiting.1.1.1" not in reyn("runs", "--top").out
    rows = {row["run_id"]: row for row in reyn("runs", "--json").json}
    assert {run: rows[run]["next"] for run in WAYS} == WAYS
    assert rows["forked"]["fork_of"] == "finished"
    assert rows["waiting.1.1.1"]["depth"] == 1


def test_a_sub_run_of_a_run_that_is_over_needs_nobody(here: Path, reyn):
    child = {"kind": "run_skill", "skill": "asking", "input": {"text": "x"}}
    write_answers(here, act(child), "no answer", "no answer", "no answer", finish())
    assert reyn("run", "above", IN, "--run-id", "r").code == 0
    rows = {row["run_id"]: row for row in reyn("runs", "--json").json}
    assert (rows["r.1.1.1"]["status"], rows["r.1.1.1"]["next"]) == ("failed", "")
    assert "every run is over" in reyn("doctor").out


def test_a_run_that_only_looks_like_a_sub_run_is_not_taken_for_one(here: Path, reyn):
    write_answers(here, act(question("Sure?")), finish())
    reyn("run", "asking", IN, "--run-id", "a.b")
    write_answers(here, go("second"))
    said = reyn("run", "pair", IN, "--run-id", "a")
    assert next_of(said) == ["resume", "a", "--retry"]
    assert "next: reyn answer a.b 1.1.1 VALUE" in reyn("runs").out


# -- what is broken -----------------------------------------------------------------------------------------


def test_doctor_leaves_nothing_behind(here: Path, reyn):
    said = reyn("doctor")
    assert (said.code, "nothing is recorded yet" in said.out) == (0, True)
    assert not (here / ".reyn").exists()


def test_doctor_tells_a_broken_configuration_and_the_runs_all_the_same(here: Path, reyn):
    write_answers(here, go("second"))
    reyn("run", "pair", IN, "--run-id", "r")
    (here / "reyn.local.yaml").write_text("max_phase_visit: 3\n")
    said = reyn("doctor")
    assert said.code == 1
    assert "reyn.local.yaml:1:1: RYN701 unknown key `max_phase_visit`" in said.out
    assert "next: reyn resume r --retry" in said.out
    assert reyn("doctor", "--json").json["is_broken"] is True


def test_doctor_tells_a_broken_journal(here: Path, reyn):
    reyn("run", "pair", IN)
    with sqlite3.connect(here / ".reyn" / "journal.db") as db:
        db.execute("PRAGMA user_version = 99")
    said = reyn("doctor")
    assert (said.code, "has format 99" in said.out) == (1, True)
    (here / ".reyn" / "journal.db").write_bytes(b"no database" * 1000)
    assert reyn("doctor").code == 1


def test_a_state_folder_that_is_none_is_told(here: Path, reyn):
    (here / ".reyn").write_text("")
    said = reyn("doctor")
    assert (said.code, "`.reyn` is not a folder" in said.out) == (1, True)


@pytest.mark.parametrize(
    ("version", "health"), [((3, 40, 1), "warning"), ((3, 51, 2), "warning"), ((3, 51, 3), "ok"), ((4, 0, 0), "ok")]
)
def test_an_old_sqlite_is_a_warning(version, health: str):
    from reyn.cli.checkup import check_sqlite

    assert check_sqlite(version).health == health


@pytest.mark.parametrize(("free", "health"), [(5, "broken"), (500_000_000, "warning"), (10**12, "ok")])
def test_little_room_is_told_before_it_is_gone(free: int, health: str):
    from reyn.cli.checkup import check_room

    assert check_room(free).health == health
