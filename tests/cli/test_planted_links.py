"""Commands that write files do not follow planted links."""

from __future__ import annotations

import os
from pathlib import Path

from tests.cli.support import write_answers
from tests.support import finish, go, write_skill


def test_export_does_not_write_through_a_planted_link(reyn, here: Path):
    write_skill(here, "own", {"first": ["second"], "second": ["end"]})
    write_answers(here, go("second"), finish())
    assert reyn("run", "own", '{"text": "x"}', "--model", "scripted:answers.jsonl", "--run-id", "k").code == 0
    victim = here / "victim.txt"
    victim.write_text("precious")
    (here / f".k.jsonl.{os.getpid()}").symlink_to(victim)
    (here / "k.jsonl").symlink_to(victim)
    assert reyn("export", "k", "k.jsonl").code == 0
    assert victim.read_text() == "precious"
    assert not (here / "k.jsonl").is_symlink()
    assert (here / "k.jsonl").read_text().startswith('{"reyn_export"')


def test_init_does_not_write_through_a_link_that_leads_nowhere(reyn, tmp_path: Path):
    target, victim = tmp_path / "p", tmp_path / "victim.yaml"
    target.mkdir()
    (target / "reyn.yaml").symlink_to(victim)
    assert "already exists" in reyn("init", str(target)).err
    assert not victim.exists()


def test_new_does_not_write_through_a_linked_folder(reyn, here: Path, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (here / "reyn").mkdir(exist_ok=True)
    (here / "reyn" / "local").symlink_to(elsewhere)
    (here / "reyn" / "project").rename(here / "before") if (here / "reyn" / "project").exists() else None
    (here / "reyn" / "project").symlink_to(elsewhere)
    result = reyn("new", "skill", "mine")
    assert (result.code != 0, "cannot write" in result.err) == (True, True), result.err
    assert list(elsewhere.iterdir()) == []


def test_json_contains_no_character_that_steers_a_terminal(reyn, here: Path):
    write_skill(here, "own", {"first": ["second"], "second": ["end"]})
    text = "a\x9b31m\u2028\u202e\x7f"
    write_answers(here, go("second"), finish(text))
    shown = reyn("run", "own", '{"text": "x"}', "--model", "scripted:answers.jsonl", "--json")
    assert shown.out.rstrip("\n").isprintable()
    assert shown.json["artifact"]["data"]["text"] == text
