"""`reyn permissions`, and the warning about requests in vain when a run starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from reyn.cli import people
from tests.cli.support import IN, Terminal, write_answers
from tests.support import act, file, finish, write_skill

TICKET = act(file("write", "tickets/1.md", content="x\n"))
CONFIG = "model: scripted:answers.jsonl\n"


@pytest.fixture
def tickets(here: Path) -> Path:
    """A run of `tickets` requests to write below `tickets/`."""
    keys = "permissions:\n  file.write: [tickets/]\n"
    write_skill(here, "tickets", {"work": ["end"]}, ops={"work": "file"}, skill_keys=keys)
    write_answers(here, TICKET, finish("written"))
    return here


def test_explain_prints_every_request_with_its_line_and_rule(tickets: Path, reyn):
    output = reyn("permissions", "explain", "tickets").out
    assert (
        "requests:\n  deny  file.write tickets/ (skill.md:8)\n    by default: no grant\n    no rule grants it: add "
        "`file.write: [{allow: tickets/}]` under `permissions` in reyn.yaml, and trust the project\nrules: none\n"
    ) in output
    assert output.startswith("skill: tickets\nzones:\n  read   ./ (default)\n  write  output/ (default)\n")
    (tickets / "reyn.yaml").write_text(f"{CONFIG}permissions:\n  file.write:\n    - allow: tickets/\n")
    reyn("trust", "--yes")
    output = reyn("permissions", "explain", "tickets").out
    rule = "permissions.file.write: allow tickets/ (reyn.yaml:4)"
    assert f"  allow  file.write tickets/ (skill.md:8)\n    by {rule}\nrules:\n  {rule}\n" in output
    report = reyn("permissions", "explain", "tickets", "--json").json
    assert (report["skill"], report["requests"][0]["effect"]) == ("tickets", "allow")


def test_explain_decides_about_one_op(tickets: Path, reyn):
    def explain(op: object) -> str:
        text = op if isinstance(op, str) else json.dumps(op)
        return reyn("permissions", "explain", "tickets", "--op", text).out

    assert explain(file("write", "output/a", content="x")) == "allow: default: write output/\n  allowed in work\n"
    denied = explain(file("write", "tickets/a", content="x"))
    assert denied.startswith("deny: default: no grant\n  the operator must grant it: add ")
    assert explain("ask_user") == "allow: default: no permission needed\n  no phase allows this op kind\n"
    assert explain("file").splitlines()[1] == (
        "  zones, requests and rules for `file.read` and `file.write` decide about each call"
    )
    assert not (tickets / ".reyn").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("explain", "nowhere"), "RYN101"),
        (("explain", "tickets", "--op", "{"), "RYN201"),
        (("explain", "tickets", "--op", "sing"), "RYN709"),
        (("explain", "tickets", "--op", '{"kind": "file", "op": "sing"}'), "RYN201"),
        (("revoke", "7"), "RYN302"),
        (("revoke",), "RYN710"),
        (("revoke", "1", "--all"), "RYN710"),
    ],
)
def test_a_wrong_argument_is_an_error(tickets: Path, reyn, arguments: tuple[str, ...], code: str):
    output = reyn("permissions", *arguments, "--json")
    assert (output.code, output.json["error"]["code"]) == (2, code)


@pytest.mark.slow
def test_a_run_reports_a_request_in_vain_before_it_does_anything(tickets: Path, reyn):
    output = reyn("run", "tickets", IN)
    warning = "skill `tickets` requests `file.write: tickets/`, but no rule grants it: add "
    assert output.err.startswith(f"warning: {warning}")
    assert warning not in output.out
    assert reyn("run", "tickets", IN, "--json").json["warnings"][0].startswith(warning)
    terminal = Terminal(tickets, "run", "tickets", IN)
    assert "file write · denied" not in terminal.wait_for(warning)
    terminal.wait_for("file write · denied")
    assert terminal.end().code == 0


def open_question(reyn, run: str) -> str:
    """The id of the question that a run waits for; an approval is answered by it."""
    return reyn("answer", run, "--show", "--json").json["question"]["id"]


def test_standing_approvals_are_listed_and_revoked(tickets: Path, reyn):
    (tickets / "reyn.yaml").write_text(f"{CONFIG}permissions: {{file.write: [{{ask: tickets/}}]}}\n")
    assert reyn("permissions", "list").out == "no standing approvals\n"
    reyn("run", "tickets", IN, "--run-id", "r")
    assert reyn("answer", "r", open_question(reyn, "r"), '{"decision": "approve", "always": true}').code == 0
    [approval] = reyn("permissions", "list", "--json").json
    assert (approval["skill"], approval["op"], approval["by"]) == ("tickets", "file write", people.user_name())
    header, row = reyn("permissions", "list").out.splitlines()
    assert header.split() == ["ID", "SKILL", "VERSION", "OP", "RULE", "BY", "AT", "RUN"]
    assert "file write  permissions.file.write: ask tickets/" in row
    (tickets / "tickets" / "1.md").unlink()
    assert reyn("run", "tickets", IN, "--run-id", "again").code == 0
    assert reyn("permissions", "revoke", str(approval["id"])).out == f"revoked {approval['id']}\n"
    (tickets / "tickets" / "1.md").unlink()
    assert reyn("run", "tickets", IN, "--run-id", "asked").code == 4
    reyn("answer", "asked", open_question(reyn, "asked"), '{"decision": "approve", "always": true}')
    assert reyn("permissions", "revoke", "--all", "--json").json["revoked"] == [approval["id"] + 1]
    assert reyn("permissions", "revoke", "--all").out == "no standing approvals\n"
