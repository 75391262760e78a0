"""Errors as text and as JSON: usage errors, `reyn explain`, links that an installed user can follow."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reyn.cli.hints import NO_PROJECT
from reyn.errors import FINDINGS, ReynError, all_errors
from tests.cli.support import IN

CODES = sorted({cls.code for cls in all_errors() if cls is not ReynError} | set(FINDINGS))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run",), "missing argument 'SKILL'"),
        (("sing",), "no such command `sing`"),
        (("run", "pair", "--colour"), "no such option"),
        (("fork", "r", "--at", "0"), "invalid value for '--at'"),
        (("events", "r", "--kind", "x"), "invalid value for --kind: no event kind `x`"),
        (("show", "\udcff"), "the command line is not UTF-8"),
    ],
)
def test_a_usage_error_is_a_json_object_with_json(here: Path, reyn, arguments, message: str):
    output = reyn(*arguments, "--json")
    assert (output.code, output.err) == (2, "")
    error = output.json["error"]
    assert (error["code"], error["message"][: len(message)]) == ("RYN710", message)
    assert set(error) == {"code", "message", "hint", "more", "usage"}


def test_a_usage_error_prints_usage_and_help_command(here: Path, reyn):
    output = reyn("run")
    assert (output.code, output.out) == (2, "")
    assert output.err.splitlines() == [
        "error RYN710: missing argument 'SKILL'",
        "  usage: reyn run [OPTIONS] SKILL [INPUT]",
        "  fix: See `reyn run --help`.",
        "  more: reyn explain RYN710",
    ]


def test_an_unknown_command_suggests_the_nearest(here: Path, reyn):
    assert "error RYN710: no such command `rnus`; did you mean `runs`?\n" in reyn("rnus").err


@pytest.mark.parametrize("group", ["agent", "chats", "memory", "secret"])
@pytest.mark.parametrize("word", ["rm", "delete", "remove"])
def test_every_word_for_remove_is_the_same_command(here: Path, reyn, group: str, word: str):
    missing = reyn(group, word, "no_such_thing")
    assert missing.code != 0
    assert "RYN710" not in missing.err
    assert missing.err == reyn(group, "delete" if group == "chats" else "rm", "no_such_thing").err


@pytest.mark.parametrize(
    ("arguments", "fix"),
    [
        (("run", "pear", IN), "Did you mean `pair`?"),
        (("ops", "fil"), "Did you mean `file`?"),
        (("agent", "show", "defalt"), "Did you mean `default`?"),
    ],
)
def test_a_fix_is_a_sentence(here: Path, reyn, arguments: tuple[str, ...], fix: str):
    assert f"  fix: {fix}" in reyn(*arguments).err


@pytest.mark.parametrize(
    ("arguments", "suggestion"),
    [
        (("status",), "did you mean `runs`?"),
        (("help",), "did you mean `reyn --help`?"),
        (("version",), "did you mean `reyn --version`?"),
        (("memory", "forget", "tea"), "did you mean `rm`?"),
        (("memory", "serch"), "did you mean `search`?"),
        (("new", "agent", "x"), "did you mean `reyn agent new`?"),
        (("completion",), "missing argument '{bash|zsh|fish}'; choose from bash, zsh, fish\n"),
        (("permissions", "pair"), "did you mean `reyn permissions explain pair`?"),
        (("models", "zzz"), "the only command is `pull`"),
        (("secret", "zzz"), "the commands are `allow`, `list`, `revoke`, `rm`, `set`"),
    ],
)
def test_an_unknown_command_of_a_group_names_what_was_meant(
    arguments: tuple[str, ...], suggestion: str, here: Path, reyn
):
    output = reyn(*arguments)
    assert (output.code, suggestion in output.err) == (2, True)


def test_an_option_with_the_name_of_an_argument_is_called_an_argument(here: Path, reyn):
    message = "no such option '--input': INPUT is an argument; pass its value without '--input'"
    assert f"error RYN710: {message}\n" in reyn("run", "pair", "--input", "{}").err


def test_json_after_a_double_dash_is_an_argument(here: Path, reyn):
    output = reyn("run", "--", "--json", "a", "b")
    assert (output.code, output.out) == (2, "")
    assert "error RYN710" in output.err


def test_an_error_has_the_lines_message_fix_more(here: Path, reyn):
    assert reyn("show", "nobody").err.splitlines() == [
        "error RYN401: no run `nobody`",
        "  fix: Use the id of a run of this project, or a prefix that only one run has. `reyn runs` lists the runs.",
        "  more: reyn explain RYN401",
    ]


def test_findings_of_an_error_are_indented_below_its_message(here: Path, reyn):
    (here / "reyn.yaml").write_text("modle: x\n")
    first, finding, *_ = reyn("usage").err.splitlines()
    assert first.startswith("error RYN701: ")
    assert finding.startswith("  reyn.yaml:1:1: RYN701 ")


@pytest.mark.parametrize("code", CODES)
def test_every_code_is_explained(reyn, code: str):
    output = reyn("explain", code)
    assert output.code == 0
    assert output.out.startswith(f"{code} ")
    entry = reyn("explain", code, "--json").json
    assert entry["code"] == code
    assert entry["meaning"]
    assert "docs/" not in output.out, "documentation files are not installed"


def test_explain_prints_meaning_exit_code_and_fix(reyn):
    lines = reyn("explain", "RYN401").out.splitlines()
    assert lines[0] == "RYN401 RunNotFound (exit code 2)"
    assert lines[1].startswith("  ")
    assert (
        "  fix: Use the id of a run of this project, or a prefix that only one run has. `reyn runs` lists the runs."
        in lines
    )


def test_explain_covers_a_code_that_is_an_error_and_a_finding(reyn):
    assert f"  as a finding: {FINDINGS['RYN701'].meaning}" in reyn("explain", "RYN701").out.splitlines()


@pytest.mark.parametrize("spelling", ["RYN201", "ryn201", "201"])
def test_explain_accepts_a_code_in_any_spelling(reyn, spelling: str):
    assert reyn("explain", spelling).out.startswith("RYN201 InputInvalid")


def test_explain_guesses_no_code(reyn):
    output = reyn("explain", "RYN2011")
    assert output.code == 2
    assert "error RYN710: no error code `RYN2011`\n  fix: `reyn explain` lists all codes." in output.err
    assert reyn("explain", "nonsense", "--json").json["error"]["code"] == "RYN710"


def test_explain_without_a_code_lists_all_codes(reyn):
    assert [entry["code"] for entry in reyn("explain", "--json").json] == CODES
    header, *rows = reyn("explain").out.splitlines()
    assert header.split() == ["CODE", "MEANING"]
    assert [row.split()[0] for row in rows] == CODES


def test_no_message_of_the_package_refers_to_a_file_that_is_not_installed():
    for cls in all_errors():
        assert "docs/" not in cls.hint
    source = Path(__file__).parents[2] / "src/reyn/cli"
    assert [path.name for path in source.rglob("*.py") if "docs/" in path.read_text(encoding="utf-8")] == []


def test_the_more_line_of_a_failed_run_names_a_command(here: Path, reyn):
    (here / "answers.jsonl").write_text("")
    assert "\nmore: reyn explain RYN503\n" in reyn("run", "pair", IN, "--run-id", "r").out
    assert json.loads(reyn("show", "r", "--json").out)["code"] == "RYN503"


@pytest.mark.parametrize(
    ("command", "error"),
    [
        (("run", "pair"), "skill `pair` needs an input of type `note`: 'text' is missing"),
        (("run", "pair", IN, "--model", "gpt-4"), "For a model of a server with OpenAI's API, write `openai:gpt-4`."),
        (("run", "pair", IN, "--max-phase-visits", "few"), "'few' is not an integer\n"),
        (("run", "pair", "plain text"), "fix: Pass a JSON object with the fields of `note`: `text` (required)."),
        (("run", "pair", '{"txt": "hello"}'), "fix: `txt`: did you mean `text`? Pass a JSON object"),
        (("explain", "E1"), "no error code `E1`\n  fix: `reyn explain` lists all codes."),
    ],
)
def test_a_common_mistake_is_explained(here: Path, reyn, command: tuple[str, ...], error: str):
    output = reyn(*command)
    assert (output.code, output.out) == (2, "")
    assert error in output.err


@pytest.mark.parametrize("command", [("run", "hello"), ("lint", "hello"), ("frame", "hello")])
def test_a_missing_skill_in_a_folder_without_a_project_suggests_init(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reyn, command: tuple[str, ...]
):
    monkeypatch.chdir(tmp_path)
    hint = f"fix: {NO_PROJECT}"
    assert "`reyn init` creates one with the skill `hello`" in hint
    assert hint in reyn(*command).err


OF_A_RUN = (
    "answer",
    "cancel",
    "context",
    "diff",
    "events",
    "fork",
    "replay",
    "rerun",
    "resume",
    "show",
    "undo",
    "verify",
    "watch",
)
OF_A_NAME = [("agent", "show"), ("chats", "show"), ("index", "drop"), ("mcp", "test"), ("memory", "show"), ("test",)]
OF_ALL = [
    ("chats",),
    ("lint",),
    ("memory", "list"),
    ("permissions", "list"),
    ("queue",),
    ("resume", "--all"),
    ("runs",),
]


@pytest.mark.parametrize("command", [*((verb,) for verb in OF_A_RUN), *OF_A_NAME])
def test_a_name_that_is_not_found_outside_a_project_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reyn, command: tuple[str, ...]
):
    more = {"answer": ("yes",), "diff": ("order-18",)}.get(command[0], ())
    monkeypatch.chdir(tmp_path)
    output = reyn(*command, "order-17", *more)
    assert output.code == 2
    assert NO_PROJECT in output.err
    (tmp_path / "reyn.yaml").touch()
    assert "has no project" not in reyn(*command, "order-17", *more).err


@pytest.mark.parametrize("command", OF_ALL)
def test_an_empty_list_outside_a_project_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reyn, command: tuple[str, ...]
):
    monkeypatch.chdir(tmp_path)
    output = reyn(*command)
    assert (output.code, output.err) == (0, f"{NO_PROJECT}\n")
    assert list(tmp_path.iterdir()) == []
    assert reyn(*command, *(() if command[0] == "resume" else ("--json",))).out in ("[]\n", output.out)
    (tmp_path / "reyn.yaml").touch()
    assert reyn(*command).err == ""


def test_secrets_belong_to_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reyn):
    monkeypatch.chdir(tmp_path)
    assert reyn("secret", "list").err == ""


def test_a_missing_skill_of_a_project_suggests_no_new_project(here: Path, reyn):
    assert "reyn init" not in reyn("run", "nothing").err


def test_an_unknown_search_provider_is_an_error_of_the_configuration(here: Path, reyn):
    (here / "reyn.yaml").write_text("web:\n  search: {provider: altavista}\n")
    output = reyn("doctor")
    assert output.code == 1
    assert "`web.search.provider` must be `brave`, `tavily` or `searxng`, not 'altavista'" in output.out
