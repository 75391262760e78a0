"""Agent Skills become skills of Reyn and back; what cannot be converted is listed, and broken folders are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from reyn.documents import parse_front_matter
from reyn.errors import AgentSkillInvalid, SkillNotExportable
from reyn.lint import lint_skill
from reyn.skills import Skill
from reyn.skills.agentskills import AgentSkill, from_reyn, parse_agent_skill, to_reyn, tools_of
from reyn.skills.files import read_folder
from reyn.skills.resolve import STDLIB
from tests.support import load_skill, write_skill

MINIMAL = "---\nname: minimal\ndescription: Do one thing. Use it for that.\n---\n"
FULL = """---
name: pdf-processing
description: >-
  Extract text from PDF files, fill forms and merge files.
  Use when the user mentions PDFs.
license: Apache-2.0
compatibility: Requires Python 3.12 and poppler
metadata:
  author: example-org
  version: "1.0"
allowed-tools: Bash(pdftotext:*) Bash(git status:*) Read WebFetch
---

# PDF processing

Run `scripts/extract.py FILE`, then see [the reference](references/REFERENCE.md).
"""
ODD = """---
name: odd
description: "Odd: but valid"
allowed-tools:
  - Read
  - Task
  - mcp__github__create_issue
  - "Bash(rm -rf *; echo)"
  - Bash
model: opus
disable-model-invocation: true
argument-hint: "[file]"
hooks: {Stop: [{command: ./run.sh}]}
---
Look at $ARGUMENTS and !`git status`.
"""
SHAPES: dict[str, dict[str, bytes]] = {
    "only SKILL.md": {"SKILL.md": MINIMAL.encode()},
    "with a body": {"SKILL.md": f"{MINIMAL}# Steps\n\n1. Read.\n2. Answer.\n".encode()},
    "with scripts": {
        "SKILL.md": FULL.encode(),
        "scripts/extract.py": b"print('text')\n",
        "scripts/run.sh": b"echo hi\n",
        "LICENSE.txt": b"terms\n",
    },
    "with references and assets": {
        "SKILL.md": FULL.encode(),
        "references/REFERENCE.md": "# Größe\n".encode(),
        "references/deep/er/FORMS.md": b"forms\n",
        "assets/logo.png": bytes(range(256)),
        "phases/work.md": b"not a phase\n",
        "artifacts/result.yaml": b"not: an artifact\n",
    },
    "odd front matter": {"SKILL.md": ODD.encode()},
    "CRLF and BOM": {"SKILL.md": b"\xef\xbb\xbf" + MINIMAL.replace("\n", "\r\n").encode() + b"One.\r\nTwo.\r\n"},
    "lower-case file name": {"skill.md": f"{MINIMAL}Body.\n".encode()},
}


def write(folder: Path, files: dict[str, bytes]) -> Path:
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return folder


def imported(root: Path, files: dict[str, bytes], name: str = "") -> tuple[Skill, tuple[str, ...]]:
    conversion = to_reyn(parse_agent_skill(files), name)
    folder = write(root / "reyn/local" / conversion.name, conversion.files)
    assert [one for one in lint_skill(folder) if one.severity == "error"] == []
    return load_skill(folder), conversion.unconverted


@pytest.mark.parametrize("shape", SHAPES)
def test_an_agent_skill_becomes_a_skill_and_comes_back_as_it_was(tmp_path: Path, shape: str):
    files = SHAPES[shape]
    skill, _ = imported(tmp_path, files)
    read, left_out = read_folder(tmp_path / "reyn/local" / skill.name)
    assert left_out == []
    back = from_reyn(skill, read)
    assert back.unconverted == ()
    before, after = parse_agent_skill(files), parse_agent_skill(back.files)
    assert after == before


def test_the_instructions_are_those_of_the_file(tmp_path: Path):
    skill, notes = imported(tmp_path, SHAPES["with scripts"])
    [phase] = skill.phases.values()
    assert phase.instructions.startswith("\n# PDF processing\n\nRun `scripts/extract.py FILE`")
    assert "reyn/local/pdf-processing/files/" in phase.instructions
    assert phase.allowed_ops == ("file", "ask_user", "sandboxed_exec", "web_fetch")
    assert skill.permissions == {"exec": ["pdftotext", "git", "python3", "sh"], "web": True}
    assert skill.description.startswith("Extract text from PDF files, fill forms and merge files. Use when")
    assert any("`exec`" in note for note in notes)
    assert any("Requires Python 3.12" in note for note in notes)


def test_an_agent_skill_without_instructions_has_its_description(tmp_path: Path):
    skill, notes = imported(tmp_path, SHAPES["only SKILL.md"])
    assert skill.phases["work"].instructions == "Do one thing. Use it for that.\n"
    assert notes == ()
    assert skill.permissions == {}


def test_everything_that_is_not_converted_is_listed(tmp_path: Path):
    skill, notes = imported(tmp_path, SHAPES["odd front matter"])
    text = "\n".join(notes)
    for word in ("`Task`", "`mcp:github/create_issue`", "`Bash(rm -rf *; echo)`", "`Bash`", "`model`", "`hooks`",
                 "`argument-hint`", "`disable-model-invocation`", "$ARGUMENTS", "!`"):  # fmt: skip
        assert word in text
    assert skill.permissions == {"exec": ["rm"]}
    prose = (tmp_path / "reyn/local/odd/skill.md").read_text()
    assert all(note in prose for note in notes)


def test_files_of_an_agent_skill_never_become_files_of_the_language(tmp_path: Path):
    skill, _ = imported(tmp_path, SHAPES["with references and assets"])
    folder = tmp_path / "reyn/local/pdf-processing"
    assert (folder / "files/phases/work.md").read_bytes() == b"not a phase\n"
    assert (folder / "files/assets/logo.png").read_bytes() == bytes(range(256))
    assert list(skill.phases) == ["work"]


def test_a_skill_can_be_imported_under_another_name(tmp_path: Path):
    skill, _ = imported(tmp_path, SHAPES["with scripts"], "pdf")
    assert skill.name == "pdf"
    assert from_reyn(skill, read_folder(tmp_path / "reyn/local/pdf")[0]).name == "pdf-processing"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, "no `SKILL.md`"),
        ({"README.md": b"x"}, "no `SKILL.md`"),
        ({"SKILL.md": b"# no front matter\n"}, "no front matter"),
        ({"SKILL.md": b"---\nname: x\n"}, "not closed"),
        ({"SKILL.md": b"---\ndescription: x\n---\n"}, "`name` is missing"),
        ({"SKILL.md": b"---\nname: x\n---\n"}, "`description` is missing"),
        ({"SKILL.md": b"---\nname: x\ndescription:\n---\n"}, "`description` is missing"),
        ({"SKILL.md": b"---\nname: [x]\ndescription: y\n---\n"}, "must be a text"),
        ({"SKILL.md": b"---\n- name\n---\n"}, "must be a mapping"),
        ({"SKILL.md": b"---\nname: x\ndescription: use: it\n---\n"}, "invalid YAML"),
        ({"SKILL.md": b"---\nname: x\nname: y\ndescription: z\n---\n"}, "RYN111"),
        ({"SKILL.md": b"---\nname: caf\xe9\ndescription: z\n---\n"}, "line 2: it is not UTF-8 text"),
        ({"SKILL.md": MINIMAL.encode() + b"x" * 1_000_001}, "larger than 1,000,000 bytes"),
        ({"SKILL.md": b"---\ntype: skill\nname: x\nentry: y\ndescription: z\n---\n"}, "a skill of Reyn already"),
    ],
)
def test_a_broken_agent_skill_is_refused_with_the_reason(files: dict[str, bytes], expected: str):
    with pytest.raises(AgentSkillInvalid) as caught:
        parse_agent_skill(files)
    assert expected in caught.value.message


@pytest.mark.parametrize("name", ["../up", "a/b", "3d-print", "-x", "end", "a b", "", "x\ny", "x" * 65])
def test_a_name_that_reyn_cannot_have_is_refused(name: str):
    text = f"---\nname: {name!r}\ndescription: y\n---\n"
    with pytest.raises(AgentSkillInvalid):
        to_reyn(parse_agent_skill({"SKILL.md": text.encode()}))


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path):
    folder = write(tmp_path / "skill", SHAPES["with a body"])
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "references").symlink_to(tmp_path)
    with pytest.raises(AgentSkillInvalid, match="leads out of the folder"):
        read_folder(folder)


def test_hidden_files_inner_links_and_pipes_are_left_out(tmp_path: Path):
    folder = write(
        tmp_path / "skill",
        SHAPES["with a body"] | {".env": b"KEY=1", ".git/config": b"x", "__pycache__/count.pyc": b""},
    )
    (folder / "again.md").symlink_to(folder / "SKILL.md")
    os.mkfifo(folder / "pipe")
    files, left_out = read_folder(folder)
    assert list(files) == ["SKILL.md"]
    assert len(left_out) == 5
    assert any("`again.md` is a symbolic link" in note for note in left_out)
    assert any("`pipe` is not a regular file" in note for note in left_out)


@pytest.mark.parametrize("files", [{"big": b"x" * 5_000_001}, {f"f{number}": b"" for number in range(201)}])
def test_a_huge_folder_is_refused(tmp_path: Path, files: dict[str, bytes]):
    with pytest.raises(AgentSkillInvalid, match=r"more than 200 files|larger than"):
        read_folder(write(tmp_path / "skill", files))


def test_a_folder_that_cannot_be_read_is_refused(tmp_path: Path):
    with pytest.raises(AgentSkillInvalid, match="No such file"):
        read_folder(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(AgentSkillInvalid, match="Not a directory"):
        read_folder(tmp_path / "file")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Read Write", ["Read", "Write"]),
        ("Read, Write,Bash(git status:*)", ["Read", "Write", "Bash(git status:*)"]),
        (["Read", " Bash(a b) "], ["Read", "Bash(a b)"]),
        (None, []),
        (3, []),
        ("", []),
    ],
)
def test_allowed_tools_are_a_list_or_a_text(value: object, expected: list[str]):
    assert tools_of(value) == expected


# -- export -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["draft_review", "triage", "skill_builder", "chat"])
def test_a_skill_of_reyn_becomes_an_agent_skill_that_can_be_imported(tmp_path: Path, name: str):
    folder = STDLIB / "skills" / name
    skill = load_skill(folder)
    conversion = from_reyn(skill, read_folder(folder)[0])
    agent = parse_agent_skill(conversion.files)
    assert agent.name == name.replace("_", "-")
    assert agent.description == skill.description.strip()
    for phase in skill.phases.values():
        assert phase.instructions.strip() in agent.body
    for texts in skill.edge_texts.values():
        assert all(text in agent.body for text in texts.values())
    assert skill.final_output.name in conversion.files["references/artifacts.md"].decode()
    again, _ = imported(tmp_path, conversion.files)
    assert skill.phases[skill.entry].instructions.strip() in again.phases["work"].instructions


def test_what_an_agent_skill_cannot_express_is_listed(tmp_path: Path):
    folder = write_skill(
        tmp_path,
        "Loud_One",
        {"a": {"b": "always"}, "b": ["end"]},
        ops={"a": "file"},
        phase_keys={"b": "requires_approval: true\npreprocessor:\n  - lint_plan: {into: data.found}\n"},
        skill_keys="on_phase_failure: rollback\npermissions: {file.write: [x/]}\nrequired_credentials: [KEY]\n",
    )
    conversion = from_reyn(load_skill(folder), read_folder(folder)[0])
    assert conversion.name == "loud-one"
    text = "\n".join(conversion.unconverted)
    for word in ("`lint_plan`", "ops of `a`", "`requires_approval`", "`file.write`", "`on_phase_failure`",
                 "`required_credentials`", "`loud-one`", "no program enforces"):  # fmt: skip
        assert word in text


@pytest.mark.parametrize("name", ["x--y", "-x", "x-", "UP", "x" * 65, "a/b", "a.b"])
def test_an_export_under_an_invalid_name_is_refused(tmp_path: Path, name: str):
    folder = write_skill(tmp_path, "s", {"a": ["end"]})
    with pytest.raises(SkillNotExportable):
        from_reyn(load_skill(folder), read_folder(folder)[0], name)


def test_a_long_description_is_truncated_and_listed(tmp_path: Path):
    folder = write_skill(tmp_path, "s", {"a": ["end"]}, skill_keys=f"description: {'word ' * 300}\n")
    conversion = from_reyn(load_skill(folder), read_folder(folder)[0])
    front = parse_front_matter(conversion.files["SKILL.md"].decode(), "x").value
    assert len(front["description"]) == 1_024
    assert any("truncated" in note for note in conversion.unconverted)


@pytest.mark.parametrize(
    ("body", "is_command"),
    [
        ("Look at !`git status`.", True),
        ("!`git status`", True),
        ("No `#REF!` or `#DIV/0!` in `A1`.", False),
        ("Stop!`x`", False),
        ("It says `hello!` and `bye`", False),
        ("Run ! `x`", False),
    ],
)
def test_only_a_command_before_the_prompt_is_reported_as_one(body: str, is_command: bool):
    skill = AgentSkill("s", "d", body)
    assert any("commands in the instructions" in note for note in to_reyn(skill).unconverted) is is_command
