"""Commands for authors: init, new, skills, lint, frame, graph, completion."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from reyn.skills.files import MAX_BYTES, MAX_FILES


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_new_project_has_a_skill_that_runs(reyn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    output = reyn("init", "mine")
    assert output.code == 0
    assert "next: cd mine && reyn run hello" in output.out
    monkeypatch.chdir(tmp_path / "mine")
    assert reyn("lint").out == "hello: OK\n"
    assert reyn("run", "hello", '{"name": "Ada"}').code == 0
    assert reyn("test", "hello").out == "hello: 1 of 1 case passed\n"


def test_init_overwrites_no_file(reyn, tmp_path: Path):
    (tmp_path / "answers.jsonl").write_text("mine")
    output = reyn("init")
    assert (output.code, "RYN703" in output.err) == (2, True)
    assert not (tmp_path / "reyn.yaml").exists()
    (tmp_path / "answers.jsonl").unlink()
    (tmp_path / ".gitignore").write_text("mine\n")
    assert reyn("init").code == 0
    assert (tmp_path / ".gitignore").read_text() == "mine\n"


@pytest.mark.parametrize("template", ["linear", "loop", "branch"])
def test_a_new_skill_lints_clean_and_runs_with_its_scripted_answers(reyn, template: str):
    output = reyn("new", "skill", "menu_line", "--template", template)
    assert output.code == 0
    assert reyn("lint", "menu_line").out == "menu_line: OK\n"
    assert reyn("test", "menu_line").out == "menu_line: 1 of 1 case passed\n"
    script = "scripted:reyn/project/menu_line/cases/first/answers.jsonl"
    ran = reyn("run", "menu_line", "Please greet me.", "--model", script, "--json")
    assert ran.json["status"] == "finished"
    assert ran.json["warnings"] == []
    assert reyn("new", "skill", "menu_line").code == 2


@pytest.mark.parametrize("name", ["end", "a b", "../x", "", "1a"])
def test_new_rejects_an_invalid_skill_name(reyn, name: str, tmp_path: Path):
    assert reyn("new", "skill", name).code == 2
    assert list(tmp_path.iterdir()) == []


def test_skills_lists_skills_and_describes_one(reyn):
    reyn("new", "skill", "mine", "--local")
    rows = reyn("skills", "--json").json
    assert rows[0] == {"name": "mine", "shelf": "local", "description": "Answer a message from the facts in it."}
    assert {"direct_llm", "summarize", "draft_review", "triage", "extract_fields"} <= {row["name"] for row in rows}
    assert reyn("skills").out.startswith("mine ")
    described = reyn("skills", "mine", "--json").json
    assert (described["input"], described["output"], described["phases"]) == (
        ["user_message"],
        "answer",
        ["note_facts", "write_answer"],
    )
    assert "phases       note_facts, write_answer" in reyn("skills", "mine").out


def test_skills_and_lint_report_a_broken_skill(reyn, tmp_path: Path):
    folder = tmp_path / "reyn/project/broken"
    folder.mkdir(parents=True)
    (folder / "skill.md").write_bytes(b"\xff")
    assert "(invalid; lint lists its errors)" in reyn("skills").out
    output = reyn("lint")
    assert output.code == 1
    assert "skill.md:1:1: RYN110" in output.out
    findings = reyn("lint", "--json").json
    assert (findings[0]["skill"], findings[0]["code"], findings[0]["severity"]) == ("broken", "RYN110", "error")


@pytest.mark.parametrize("place", ["", "reyn", "reyn/project/hello/phases", "../elsewhere"])
def test_the_paths_of_findings_open_from_the_current_folder(
    reyn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
):
    root = tmp_path / "project"
    reyn("init", str(root))
    (root / "reyn/shared/artifacts").mkdir(parents=True)
    (root / "reyn/shared/artifacts/guest.yaml").write_text("type: nothing\n")
    (root / "reyn/project/hello/artifacts/guest.yaml").unlink()
    (root / "reyn/project/hello/phases/polish.md").write_text("no front matter")
    reyn("--project", str(root), "agent", "new", "poet")
    (root / "reyn/agents/poet.md").write_text("no front matter")
    (root / place).resolve().mkdir(exist_ok=True)
    monkeypatch.chdir((root / place).resolve())
    files = {finding["file"] for finding in reyn("--project", str(root), "lint", "--json").json}
    assert {str(Path(file).resolve().relative_to(root)) for file in files} == {
        "reyn/agents/poet.md",
        "reyn/project/hello/phases/polish.md",
        "reyn/shared/artifacts/guest.yaml",
    }
    assert all(Path(file).is_file() for file in files)
    assert all(Path(file).is_absolute() != Path(file).resolve().is_relative_to(Path.cwd()) for file in files)
    printed = {line.partition(":")[0] for line in reyn("--project", str(root), "lint").out.splitlines()}
    assert files <= printed


def test_the_standard_library_lints_clean(reyn):
    for name in ("direct_llm", "summarize", "draft_review", "triage", "extract_fields"):
        assert reyn("lint", name).out == f"{name}: OK\n"


def test_frame_shows_the_first_prompt_of_a_skill(reyn):
    reyn("new", "skill", "mine")
    output = reyn("frame", "mine", "Hello there.")
    assert output.out.startswith("[system]\n")
    assert "[user]\nHello there." in output.out
    assert output.err == ""
    empty = reyn("frame", "mine", "--json")
    assert empty.err == "note: no INPUT; the prompt has an empty `user_message`\n"
    frame = empty.json
    assert frame["current_phase"] == "note_facts"
    assert frame["input_artifact"] == {"type": "user_message", "data": {}}
    assert reyn("frame", "mine", "{}").code == 2


def test_frame_shows_the_answer_form_of_the_model(reyn):
    reyn("new", "skill", "mine")
    script = "scripted:reyn/project/mine/cases/first/answers.jsonl"
    full = reyn("frame", "mine", "Hello there.", "--model", script).out
    assert reyn("frame", "mine", "Hello there.").out == full
    assert reyn("frame", "mine", "Hello there.", "--model", "local").out != full


def test_frame_shows_the_prompt_of_a_phase(reyn):
    reyn("new", "skill", "mine")
    frame = reyn("frame", "mine", '{"facts": ["one"]}', "--phase", "write_answer", "--json").json
    assert frame["current_phase"] == "write_answer"
    assert frame["input_artifact"] == {"type": "facts", "data": {"facts": ["one"]}}
    assert reyn("frame", "mine", "--phase", "nothing").code == 2


def test_graph_draws_text_mermaid_svg_and_json(reyn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    reyn("new", "skill", "mine", "--template", "loop")
    assert "review" in reyn("graph", "mine").out
    assert reyn("graph", "mine", "--format", "mermaid").out.startswith("flowchart TD")
    monkeypatch.setenv("PATH", str(tmp_path))  # no format needs a program
    svg = ElementTree.fromstring(reyn("graph", "mine", "--format", "svg").out)
    assert svg.tag == "{http://www.w3.org/2000/svg}svg"
    assert json.loads(reyn("graph", "mine", "--json").out)["entry"] == "write"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(reyn, shell: str):
    assert "_REYN_COMPLETE" in reyn("completion", shell).out


@pytest.mark.slow
def test_completion_completes_command_names():
    environ = os.environ | {"_REYN_COMPLETE": "bash_complete", "COMP_WORDS": "reyn re", "COMP_CWORD": "1"}
    done = subprocess.run([sys.executable, "-m", "reyn"], env=environ, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["plain,resume", "plain,replay", "plain,rerun"]


def test_an_option_raises_the_size_of_an_imported_skill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reyn):
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "canvas"
    (source / "fonts").mkdir(parents=True)
    (source / "SKILL.md").write_text("---\nname: canvas\ndescription: Draws.\n---\nDraw it.\n")
    (source / "fonts/a.ttf").write_bytes(b"f" * (MAX_BYTES - 10))
    for limit in (str(MAX_BYTES), "10"):
        refused = reyn("import-skill", "canvas", "--max-bytes", limit)
        assert refused.code == 2
        assert f"{int(limit):,} bytes" in refused.err
        assert "fix: Raise the limit, or remove files" in refused.err
        assert "`--max-bytes N` and `--max-files N` of `reyn import-skill`" in refused.err
    assert "more than 1 files" in reyn("import-skill", "canvas", "--max-files", "1", "--max-bytes", "6000000").err
    assert f"Default: {MAX_BYTES:,}." in reyn("import-skill", "--help").out
    assert f"Default: {MAX_FILES:,}." in reyn("import-skill", "--help").out
    assert reyn("import-skill", "canvas", "--max-bytes", "6000000").code == 0
    assert reyn("lint", "canvas").code == 0
    assert "Raise the limit" in reyn("export-skill", "canvas", "--to", "out").err
    assert reyn("export-skill", "canvas", "--to", "out", "--max-bytes", "6000000").code == 0
    assert (tmp_path / "out/canvas/fonts/a.ttf").stat().st_size == MAX_BYTES - 10


def test_an_imported_skill_has_one_line_about_literals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reyn):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pdf").mkdir()
    body = "".join(f"See https://example.org/{number} and /tmp/x{number}/out.pdf\n" for number in range(40))
    (tmp_path / "pdf/SKILL.md").write_text(f"---\nname: pdf\ndescription: Reads.\n---\n{body}")
    assert reyn("import-skill", "pdf").code == 0
    lines = [line for line in reyn("lint", "pdf").out.splitlines() if "RYN131" in line]
    [line] = lines
    assert "phases/work.md:7:5: RYN131 warning: small models may copy 80 literals of the imported instructions" in line
    skill = tmp_path / "reyn/local/pdf/skill.md"
    skill.write_text(skill.read_text().replace("imported_from: agentskills\n", ""))
    assert reyn("lint", "pdf").out.count("RYN131") == 80
