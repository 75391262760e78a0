"""`reyn import-skill`, `reyn export-skill` and `reyn test`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.support import write_answers
from tests.support import finish, go

SKILL = """---
name: pdf-tools
description: Extract text from PDF files.
allowed-tools: Bash(pdftotext:*) Task
---
Run `scripts/extract.py`.
"""


@pytest.fixture(autouse=True)
def agent_skill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "downloads" / "pdf-tools"
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL)
    (folder / "scripts" / "extract.py").write_text("print()\n")
    return folder


def test_an_agent_skill_is_imported_listed_and_exported(reyn, tmp_path: Path, agent_skill: Path):
    imported = reyn("import-skill", "downloads/pdf-tools")
    assert imported.code == 0
    assert imported.out.startswith("created reyn/local/pdf-tools (4 files)\nnot converted:\n")
    assert "no op corresponds to `Task`" in imported.out
    assert "pdf-tools: " in reyn("lint", "pdf-tools").out
    exported = reyn("export-skill", "pdf-tools", "--to", "output", "--json")
    assert exported.json["unconverted"] == []
    assert exported.json["files"] == ["SKILL.md", "scripts/extract.py"]
    assert (tmp_path / "output/pdf-tools/SKILL.md").read_text() == SKILL
    assert (tmp_path / "output/pdf-tools/scripts/extract.py").read_text() == "print()\n"


def test_a_dry_run_writes_nothing(reyn, tmp_path: Path):
    output = reyn("import-skill", "downloads/pdf-tools/SKILL.md", "--dry-run", "--json")
    assert output.json["written"] is False
    assert "files/scripts/extract.py" in output.json["files"]
    assert not (tmp_path / "reyn").exists()
    assert "would write reyn/local/pdf-tools" in reyn("import-skill", "downloads/pdf-tools", "--dry-run").out


def test_an_existing_skill_is_not_overwritten(reyn, tmp_path: Path):
    assert reyn("import-skill", "downloads/pdf-tools").code == 0
    before = (tmp_path / "reyn/local/pdf-tools/skill.md").read_text()
    again = reyn("import-skill", "downloads/pdf-tools")
    assert (again.code, "RYN703" in again.err) == (2, True)
    assert (tmp_path / "reyn/local/pdf-tools/skill.md").read_text() == before
    assert reyn("import-skill", "downloads/pdf-tools", "--name", "pdf").code == 0
    assert reyn("export-skill", "pdf-tools", "--to", "output").code == 0
    assert reyn("export-skill", "pdf-tools", "--to", "output").code == 2


@pytest.mark.parametrize("name", ["chat", "skill_builder", "mine"])
def test_a_folder_does_not_choose_to_take_the_place_of_a_skill(reyn, tmp_path: Path, agent_skill: Path, name: str):
    reyn("import-skill", "downloads/pdf-tools", "--name", "mine")
    (tmp_path / "reyn/local").rename(tmp_path / "reyn/project")
    (agent_skill / "SKILL.md").write_text(SKILL.replace("pdf-tools", name))
    for options in ((), ("--dry-run",)):
        refused = reyn("import-skill", "downloads/pdf-tools", *options)
        assert (refused.code, "would take its place" in refused.err) == (2, True)
    assert not (tmp_path / "reyn/local" / name).exists()
    assert reyn("import-skill", "downloads/pdf-tools", "--name", name).code == 0


@pytest.mark.parametrize("name", ["../up", "a/b", "end", ""])
def test_an_invalid_name_is_refused(reyn, tmp_path: Path, name: str):
    output = reyn("import-skill", "downloads/pdf-tools", "--name", name or "1")
    assert (output.code, "RYN430" in output.err) == (2, True)
    assert not (tmp_path / "reyn").exists()


@pytest.mark.parametrize("content", [b"no front matter", b"---\nname: x\n---\n", b"\xff\xfe"])
def test_a_broken_agent_skill_is_an_error_with_a_hint(reyn, agent_skill: Path, content: bytes):
    (agent_skill / "SKILL.md").write_bytes(content)
    output = reyn("import-skill", "downloads/pdf-tools")
    assert (output.code, "error RYN430" in output.err, "fix: " in output.err) == (2, True, True)
    assert reyn("import-skill", "nowhere", "--json").json["error"]["code"] == "RYN430"


def test_a_standard_skill_is_exported_with_the_list_of_losses(reyn):
    output = reyn("export-skill", "draft_review", "--to", "output")
    assert output.code == 0
    assert "not converted:\n" in output.out
    assert "5 cases are not exported" in output.out
    assert reyn("export-skill", "nowhere").code == 2
    assert reyn("export-skill", "triage", "--to", "output", "--name", "Not Valid").code == 2


def test_the_cases_of_skills_are_run(reyn, tmp_path: Path):
    assert reyn("new", "skill", "menu").code == 0
    assert reyn("test").out == "menu: 1 of 1 case passed\n"
    assert reyn("test", "headline", "--json").json[0]["passed"] is True
    answers = tmp_path / "reyn/project/menu/cases/first"
    write_answers(answers, go("nowhere"), finish())
    failed = reyn("test", "menu")
    assert (failed.code, failed.out.splitlines()[0]) == (1, "menu: 0 of 1 case passed")
    assert "case `first`: it is failed" in failed.out
    listed = reyn("test", "--json")
    assert (listed.code, listed.json[0]["case"]) == (1, "first")
    assert not (tmp_path / ".reyn").exists()


def test_a_skill_without_cases_is_an_error_if_it_is_named(reyn, tmp_path: Path):
    reyn("import-skill", "downloads/pdf-tools")
    assert reyn("test").code == 0
    output = reyn("test", "pdf-tools", "--json")
    assert (output.code, json.loads(output.out)["error"]["code"]) == (2, "RYN433")
