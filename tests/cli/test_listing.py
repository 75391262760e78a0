"""Filters of `reyn runs`, old failures in `reyn doctor`, help of every command."""

from __future__ import annotations

import shlex
from pathlib import Path

import click
import pytest

from reyn.cli.app import COMMANDS, app
from reyn.cli.output import age_text
from reyn.kernel.runtime_types import SystemClock
from tests.cli.support import IN, write_answers
from tests.support import finish, go, write_skill

DAY = 86_400 * 1_000_000


@pytest.fixture
def runs(here: Path, reyn, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs `old` (failed, 8 days ago), `recent` (failed, 2 days ago) and `new` (finished, skill `solo`)."""
    now = SystemClock().now()
    write_skill(here, "solo", {"only": ["end"]})
    write_answers(here, go("second"))
    for run, days in (("old", 8), ("recent", 2)):
        monkeypatch.setattr(SystemClock, "now", lambda self, days=days: now - days * DAY)
        assert reyn("run", "pair", IN, "--run-id", run).code == 1
    monkeypatch.setattr(SystemClock, "now", lambda self: now)
    write_answers(here, finish())
    assert reyn("run", "solo", IN, "--run-id", "new").code == 0
    return here


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ["new", "recent", "old"]),
        (("--status", "failed"), ["recent", "old"]),
        (("--status", "failed", "--status", "finished"), ["new", "recent", "old"]),
        (("--status", "waiting"), []),
        (("--skill", "solo"), ["new"]),
        (("--since", "2h"), ["new"]),
        (("--since", "3d"), ["new", "recent"]),
        (("--since", "1w"), ["new", "recent"]),
        (("--since", "2020-01-01"), ["new", "recent", "old"]),
        (("--limit", "2"), ["new", "recent"]),
        (("--status", "failed", "--limit", "1"), ["recent"]),
    ],
)
def test_runs_filters_by_status_skill_age_and_number(runs: Path, reyn, options, expected: list[str]):
    assert [row["run_id"] for row in reyn("runs", *options, "--json").json] == expected
    lines = reyn("runs", *options).out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == expected if expected else lines == ["no matching runs"]


@pytest.mark.parametrize("age", ["soon", "3y", "-2h", "2026-13-01", "", "9" * 30 + "h"])
def test_an_invalid_age_is_a_usage_error(here: Path, reyn, age: str):
    output = reyn("runs", "--since", age, "--json")
    assert (output.code, output.json["error"]["code"]) == (2, "RYN710")


def test_limit_counts_root_runs_and_lists_their_sub_runs(here: Path, reyn):
    child = {"kind": "run_skill", "skill": "asking", "input": {"text": "x"}}
    write_answers(here, {"control_ir": [child]}, finish(), finish())
    for run in ("one", "two"):
        assert reyn("run", "above", IN, "--run-id", run).code == 0
    assert [row["run_id"] for row in reyn("runs", "--limit", "1", "--json").json] == ["two", "two.1.1.1"]


def test_runs_are_paged_and_found_by_the_words_of_their_input_result_and_reason(here: Path, reyn):
    write_skill(here, "solo", {"only": ["end"]})
    for run, text, answer in (
        *(("a", "Assam 1", finish("Grüner Tee")), ("b", "Darjeeling", finish())),
        ("c", "water", go("nowhere")),
    ):
        write_answers(here, answer)
        reyn("run", "solo", f'{{"text": "{text}"}}', "--run-id", run)
    first = reyn("runs", "--limit", "2")
    assert [line.split()[0] for line in first.out.splitlines()[1:]] == ["c", "b"]
    assert "more runs: add `--after b`" in first.err
    assert [row["run_id"] for row in reyn("runs", "--after", "b", "--json").json] == ["a"]
    assert reyn("runs", "--after", "gone", "--json").json["error"]["code"] == "RYN401"
    for text, expected in (
        ("gruner", ["a"]),
        ("assam tee", ["a"]),
        ("DARJ", ["b"]),
        ("tee darjeeling", []),
        ("coffee", []),
    ):
        assert [row["run_id"] for row in reyn("runs", "--search", text, "--json").json] == expected
    reason = reyn("runs", "--json").json[0]["reason"]
    assert [row["run_id"] for row in reyn("runs", "--search", reason, "--json").json] == ["c"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "just now"),
        (59, "just now"),
        (60, "1 min ago"),
        (7200, "2 h ago"),
        (3 * 86_400, "3 d ago"),
        (-5, "just now"),
    ],
)
def test_ages_in_tables(seconds: int, text: str):
    assert age_text(seconds * 1_000_000) == text


def test_doctor_counts_failed_runs_older_than_a_week(runs: Path, reyn):
    report = reyn("doctor", "--json").json
    assert ([run["run_id"] for run in report["runs"]], report["old_failures"]) == (["recent"], 1)
    text = reyn("doctor").out
    assert "1 failed run older than a week; list: reyn runs --status failed; delete: reyn prune --older-than 7d" in text
    assert "reyn resume old" not in text


def test_prune_deletes_old_runs_of_a_status(runs: Path, reyn):
    options = ("prune", "--older-than", "7d", "--status", "failed")
    assert reyn(*options, "--dry-run").out.startswith("would delete old\n1 run, ")
    assert len(reyn("runs", "--json").json) == 3
    assert reyn(*options, "--json").json["runs"] == ["old"]
    assert [row["run_id"] for row in reyn("runs", "--json").json] == ["new", "recent"]
    assert reyn(*options).out == "0 runs, 0 events, 0 blobs; freed 0 bytes\n"


def test_prune_deletes_only_ended_runs_by_default(runs: Path, reyn, monkeypatch: pytest.MonkeyPatch):
    tomorrow = SystemClock().now() + DAY
    monkeypatch.setattr(SystemClock, "now", lambda self: tomorrow)
    assert reyn("prune", "--older-than", "1h", "--json").json["runs"] == ["new"]


def test_prune_without_a_journal_deletes_nothing(here: Path, reyn):
    (here / ".reyn/workspace/r").mkdir(parents=True)
    assert reyn("prune", "--older-than", "0s", "--json").json["runs"] == []
    assert (here / ".reyn/workspace/r").is_dir()


@pytest.mark.parametrize("options", [(), ("--older-than", "2999-01-01"), ("--older-than", "1d", "--status", "running")])
def test_prune_rejects_invalid_options(here: Path, reyn, options):
    assert reyn("prune", *options, "--json").json["error"]["code"] == "RYN710"


# -- help ---------------------------------------------------------------------------------------------------


def commands() -> list[tuple[tuple[str, ...], click.Command]]:
    """Return every command and subcommand with its path."""
    context = click.Context(app, info_name="reyn")
    found: list[tuple[tuple[str, ...], click.Command]] = []
    for name in COMMANDS:
        command = app.get_command(context, name)
        assert command is not None
        found.append(((name,), command))
        if isinstance(command, click.Group):
            found += [((name, inner), sub) for inner, sub in command.commands.items()]
    return found


@pytest.mark.parametrize(("path", "command"), commands(), ids=lambda value: "-".join(value) if value is tuple else None)
def test_every_command_has_an_example_that_parses(path: tuple[str, ...], command: click.Command):
    assert command.epilog
    assert len(command.epilog) <= 76, "the example is wrapped on a terminal with 80 columns"
    assert command.epilog.startswith("Example: reyn ")
    for example in command.epilog.removeprefix("Example: ").split("; "):
        arguments = shlex.split(example.split(" >> ")[0].split(" < ")[0])
        assert tuple(arguments[: len(path) + 1])[:2] == ("reyn", path[0])
        parent = click.Context(app, info_name="reyn")
        parsed = app.get_command(parent, path[0])
        assert parsed is not None
        context = parsed.make_context(path[0], arguments[2:], parent=parent)
        if isinstance(parsed, click.Group) and len(arguments) > 2:
            name, sub, rest = parsed.resolve_command(context, arguments[2:])
            assert sub is not None
            sub.make_context(name, rest, parent=context)


READING = [
    "skills",
    "ops",
    "lint",
    "graph",
    "frame",
    "context",
    "runs",
    "show",
    "events",
    "replay",
    "diff",
    "verify",
    "models",
]
READING += ["config", "doctor", "explain"]


@pytest.mark.parametrize("name", READING)
def test_every_reading_command_has_json(reyn, name: str):
    assert "--json" in reyn(name, "--help").out


# -- project ------------------------------------------------------------------------------------------------


def test_run_without_a_reyn_yaml_names_the_folder_it_uses(here: Path, reyn):
    (here / "reyn.yaml").unlink()
    output = reyn("run", "pair", IN, "--model", "scripted:answers.jsonl", "--json")
    assert output.code == 0
    assert output.err.splitlines()[0] == f"no reyn.yaml found; using {here} as the project"
    assert output.json["status"] == "finished"
    named = reyn("--project", str(here), "run", "pair", IN, "--model", "scripted:answers.jsonl")
    assert "no reyn.yaml" not in named.err


def test_run_with_a_reyn_yaml_does_not_name_the_folder(here: Path, reyn):
    assert reyn("run", "pair", IN).err == ""


def test_no_summary_of_a_subcommand_is_truncated(reyn):
    for path, command in commands():
        if isinstance(command, click.Group):
            assert "..." not in reyn(*path, "--help").out.partition("Commands:")[2], path


def test_help_of_prune_names_the_statuses_that_it_deletes(reyn):
    assert "Default: finished, aborted, cancelled." in " ".join(reyn("prune", "--help").out.split())


def test_events_are_aligned(runs: Path, reyn):
    columns = {line.index(" {") for line in reyn("events", "new").out.splitlines()}
    assert len(columns) == 1
