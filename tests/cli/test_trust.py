"""`reyn trust`, and how commands treat a project that is not trusted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reyn.config.user import user_config
from tests.cli.support import IN, Terminal, write_answers
from tests.support import act, file, finish, question, write_skill

WANTS = "model: scripted:answers.jsonl\npermissions:\n  file.write:\n    - allow: tickets/\n"
WRITE = act(file("write", "tickets/a.md", content="x"))


@pytest.fixture
def cloned(here: Path) -> Path:
    """A project that grants itself a permission."""
    write_skill(
        here, "writing", {"work": ["end"]}, ops={"work": "file"}, skill_keys="permissions: {file.write: [tickets/]}\n"
    )
    (here / "reyn.yaml").write_text(WANTS)
    write_answers(here, WRITE, finish())
    return here


def test_without_trust_a_run_works_and_warns(cloned: Path, reyn):
    output = reyn("run", "writing", IN, "--run-id", "r")
    assert output.code == 0
    assert "permission_denied" in reyn("events", "r").out
    assert "not trusted" in reyn("show", "r").out
    assert not (cloned / "tickets").exists()
    [warning] = [line for line in output.out.splitlines() if line.startswith("warning: ")]
    assert "permissions.file.write: allow tickets/ (reyn.yaml:4)" in warning
    assert "`reyn trust`" in warning
    assert "allow tickets/" in reyn("run", "writing", IN, "--json").json["warnings"][0]


def test_trust_shows_what_a_project_wants_and_makes_it_work(cloned: Path, reyn):
    refused = reyn("trust")
    assert refused.code == 2
    assert "permissions.file.write: allow tickets/  (reyn.yaml:4)" in refused.out
    assert "run `reyn trust --yes`" in refused.err
    assert reyn("trust", "--json").json["state"] == "not trusted"
    assert reyn("trust", "--yes").out.splitlines()[-1] == f"trusted {cloned}"
    assert reyn("trust").out.splitlines()[-1] == "already trusted"
    output = reyn("run", "writing", IN)
    assert (output.code, "warning" in output.out) == (0, False)
    assert (cloned / "tickets/a.md").read_text() == "x"


def test_a_changed_project_is_not_trusted_any_more(cloned: Path, reyn):
    assert reyn("trust", "--yes", "--json").json["state"] == "trusted"
    (cloned / "reyn.yaml").write_text(WANTS.replace("tickets/", "tickets/\n    - allow: reports/"))
    assert reyn("trust", "--json").json["state"] == "not trusted"
    assert reyn("trust", "--list", "--json").json == [{"path": str(cloned), "state": "changed"}]


def test_decisions_are_listed_and_revoked(cloned: Path, reyn, tmp_path: Path):
    assert reyn("trust", "--list").out == "no decisions; `reyn trust` in a project lists the settings that need trust\n"
    assert reyn("trust", "--yes").code == 0
    assert reyn("trust", "--list").out == f"trusted     {cloned}\n"
    assert reyn("trust", "--revoke").out == f"revoked {cloned}\n"
    assert reyn("trust", str(cloned), "--revoke", "--json").json["revoked"] is False
    assert reyn("trust", "--json").json["state"] == "not trusted"
    assert reyn("trust", str(tmp_path / "nowhere")).code == 2
    assert reyn("trust", "--list", "--yes").code == 2


def test_revoking_trust_names_the_secrets_that_stay_bound(here: Path, reyn):
    (here / "reyn.yaml").write_text("models: {far: {model: openai:m, key: secret://FAR}}\n")
    assert reyn("trust", "--yes").code == 0
    assert reyn("trust", "--revoke").out.splitlines() == [
        f"revoked {here}",
        (
            "secret://FAR may still be sent to https://api.openai.com; "
            "remove that with: reyn secret revoke FAR https://api.openai.com"
        ),
    ]


def test_a_project_that_wants_nothing_needs_no_trust(here: Path, reyn):
    assert reyn("trust").out == f"{here} has no settings that need trust\n"
    assert reyn("trust", "--json").json["grants"] == []


def test_init_trusts_the_project_it_creates(tmp_path: Path, reyn, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert reyn("init", "fresh").code == 0
    assert reyn("trust", "--list", "--json").json == [{"path": str(tmp_path / "fresh"), "state": "trusted"}]


def test_init_works_where_nothing_can_be_stored(tmp_path: Path, reyn, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config").write_text("not a folder")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    output = reyn("init", "fresh")
    assert output.code == 0
    assert "note: the project could not be trusted" in output.err


def test_config_and_doctor_name_what_is_ignored(cloned: Path, reyn):
    assert "ignored, the project is not trusted: permissions.file.write: allow tickets/" in reyn("config").out
    setting = reyn("config", "explain", "permissions", "--json").json[-1]
    assert setting["ignored"] == ["permissions.file.write: allow tickets/"]
    checks = {check["name"]: check for check in reyn("doctor", "--json").json["checks"]}
    assert checks["trust"]["health"] == "warning"
    assert "allow tickets/" in checks["trust"]["text"]
    assert reyn("trust", "--yes").code == 0
    assert "ignored" not in reyn("config").out
    checks = {check["name"]: check for check in reyn("doctor", "--json").json["checks"]}
    assert (checks["trust"]["health"], checks["trust"]["text"]) == ("ok", "trusted")


def test_an_alias_of_a_model_needs_no_trust(here: Path, reyn):
    (here / "reyn.yaml").write_text("model: light\nmodels: {light: local}\n")
    assert reyn("config").code == 0
    assert "nothing needs trust" in reyn("doctor").out


def test_config_and_doctor_check_permission_rules(here: Path, reyn):
    (here / "reyn.yaml").write_text("permissions: {file.write: [{alow: x}]}\n")
    assert "unknown key `alow`" in reyn("config").err
    output = reyn("doctor")
    assert (output.code, "unknown key `alow`" in output.out) == (1, True)


def test_config_and_doctor_check_the_name_of_the_model(here: Path, reyn):
    (here / "reyn.yaml").write_text("model: foo:x\n")
    output = reyn("config")
    assert (output.code, output.err) == (0, "warning: unknown model `foo:x`\n")
    assert '"foo:x"' in output.out
    output = reyn("doctor")
    assert (output.code, "unknown model `foo:x`" in output.out) == (1, True)


def test_doctor_reports_a_state_directory_that_others_can_read(here: Path, reyn):
    assert reyn("run", "pair", IN).code == 0
    (here / ".reyn").chmod(0o755)
    [state] = [check for check in reyn("doctor", "--json").json["checks"] if check["name"] == "state"]
    assert state["health"] == "warning"
    assert "chmod -R go=" in state["hint"]


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "is_written"), [("y", True), ("n", False)])
def test_a_terminal_is_asked_once(cloned: Path, reyn, answer: str, is_written: bool):
    terminal = Terminal(cloned, "run", "writing", IN)
    asked = terminal.wait_for("Trust this project?")
    assert "permissions.file.write: allow tickets/" in asked
    terminal.type(f"{answer}\n")
    assert terminal.end().code == 0
    assert (cloned / "tickets/a.md").exists() == is_written
    again = Terminal(cloned, "run", "writing", IN).end()
    assert again.code == 0
    assert "Trust this project?" not in again.out
    assert ("warning:" in again.out) != is_written


def test_control_characters_of_a_project_do_not_reach_the_terminal(here: Path, reyn):
    (here / "reyn.yaml").write_text('permissions: {file.write: [{allow: "a\\e]0;x\\a/"}]}\n')
    for words in (("trust", "--yes"), ("config",), ("doctor",)):
        assert "\x1b]" not in reyn(*words).out


def test_an_invalid_user_configuration_is_reported(here: Path, reyn):
    path = user_config().path
    assert path is not None
    path.parent.mkdir(parents=True, mode=0o700)
    path.write_text("modles: {}\n")
    output = reyn("run", "pair", IN)
    assert output.code == 2
    assert f"{path}:1:1: RYN701 unknown key `modles`" in output.err
    assert "did you mean `models`" in output.err
    [config] = [check for check in reyn("doctor", "--json").json["checks"] if check["name"] == "config"]
    assert config["health"] == "broken"


def test_secrets_are_bound_listed_and_released(here: Path, reyn, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    monkeypatch.setenv("MY_KEY", "sk-0123456789")
    stored = reyn("secret", "set", "FAR", "--from-env", "MY_KEY", "--origin", "https://A.example:443/")
    assert stored.out.splitlines()[-1] == "FAR may be sent to https://a.example"
    assert reyn("secret", "set", "FAR", "--from-env", "MY_KEY", "--origin", "https://a.example/v1").code == 2
    assert reyn("secret", "allow", "FAR", "https://b.example").out == (
        "secret://FAR may be sent to https://a.example, https://b.example\n"
    )
    assert reyn("secret", "allow", "env://MY_KEY", "http://127.0.0.1:8000").code == 0
    assert reyn("secret", "allow", "lower", "http://127.0.0.1:8000").code == 2
    listed = {one["name"]: one["origins"] for one in reyn("secret", "list", "--json").json}
    assert listed == {"FAR": ["https://a.example", "https://b.example"], "env://MY_KEY": ["http://127.0.0.1:8000"]}
    assert "https://a.example https://b.example" in reyn("secret", "list").out
    assert reyn("secret", "revoke", "FAR", "https://a.example").code == 0
    assert reyn("secret", "revoke", "FAR", "https://a.example").out.startswith("secret://FAR was not bound")
    assert user_config().allowed("secret://FAR") == ("https://b.example",)
    assert reyn("secret", "rm", "FAR").code == 0
    assert user_config().allowed("secret://FAR") == ()
    assert "sk-0123456789" not in json.dumps(listed)


# -- a journal that came with the project -------------------------------------------------------------


@pytest.fixture
def shipped(here: Path, reyn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a run that another user recorded and that waits for an answer."""
    write_answers(here, act(question("How much?")), finish())
    with monkeypatch.context() as author:
        author.setenv("XDG_CONFIG_HOME", str(tmp_path / "author"))
        assert reyn("run", "asking", IN, "--run-id", "r").code == 4
    return here


def test_a_shipped_journal_is_read_but_not_continued_until_it_is_trusted(shipped: Path, reyn):
    assert reyn("show", "r").code == 0
    for words in (("answer", "r", "7"), ("resume", "r"), ("run", "asking", IN)):
        refused = reyn(*words)
        assert refused.code != 0
        assert "was not created by you" in refused.err
        assert "`reyn trust` makes the journal yours" in refused.err
    assert "not created by you" in reyn("doctor").out
    wanted = ".reyn/journal.db: continue 1 run, honour 0 approvals  (not created by you)"
    assert wanted in reyn("trust").out
    assert reyn("trust", "--json").json["journal"] == {"is_own": False, "runs": 1, "approvals": 0}
    assert reyn("trust", "--yes").out.splitlines()[-1] == f"trusted {shipped}"
    assert reyn("trust").out == f"{shipped} has no settings that need trust\n"
    assert reyn("answer", "r", "7").code == 0


@pytest.mark.slow
@pytest.mark.parametrize(("reply", "code"), [("y", 0), ("n", 1)])
def test_a_shipped_journal_is_asked_about_at_a_terminal(shipped: Path, reply: str, code: int):
    write_answers(shipped, finish())
    terminal = Terminal(shipped, "run", "asking", IN)
    asked = terminal.wait_for("Trust this project?")
    assert "honour 0 approvals" in asked
    terminal.type(f"{reply}\n")
    output = terminal.end()
    assert (output.code, "was not created by you" in output.out) == (code, code == 1)


def test_doctor_warns_if_the_origin_of_journals_cannot_be_checked(here: Path, reyn, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", "/proc/nowhere")
    reyn("run", "pair", IN, "--run-id", "r")
    assert "its origin is not checked: the user's key cannot be stored" in reyn("doctor").out
