"""Findings about `must`, `fill` and instructions that ask for an op."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reyn.lint import lint_skill
from tests.support import NOTE, VOCABULARY, write_skill

SENT = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "path": {"type": "string"}},
    "required": ["text", "path"],
}


def findings(root: Path, **options: Any) -> list[tuple[str, str, str]]:
    """Code, severity, and message with fix of the findings about the skill `s` with the phase `a`."""
    shape: dict[str, Any] = {"ops": {"a": "file, ask_user"}, "artifacts": {"sent": SENT}, "final_output": "sent"}
    text = options.pop("text", None)
    folder = write_skill(root, "s", {"a": ["end"]}, **shape | options)
    if text is not None:
        (folder / "phases/a.md").write_text(text)
    found = lint_skill(folder, vocabulary=VOCABULARY)
    return [(one.code, one.severity, f"{one.message}; {one.fix}") for one in found]


@pytest.mark.parametrize(
    ("must", "code", "says"),
    [
        ("[file.wirte]", "RYN122", "did you mean `file.write`?"),
        ("[file_write]", "RYN122", "did you mean `file.write`?"),
        ("[flie]", "RYN122", "did you mean `file`?"),
        ("[nothing.like.this]", "RYN122", "install the package"),
        ("{any: [file.write, ask_usr]}", "RYN122", "did you mean `ask_user`?"),
        ("[web_fetch]", "RYN147", "add `web_fetch` to `allowed_ops`"),
        ("{any: [file.read, run_skill]}", "RYN147", "add `run_skill` to `allowed_ops`"),
        ("[index_merge]", "RYN147", "reserved for a later version"),
        ("file.write", "RYN114", "`must` must be"),
        ("{all: [file.write]}", "RYN112", "unknown key `must.all`"),
        ("{any: []}", "RYN114", "`must.any` must"),
        ("[7]", "RYN114", "`must[0]` must be a string"),
    ],
)
def test_an_entry_of_must_that_no_visit_can_do_is_an_error(tmp_path: Path, must: str, code: str, says: str):
    found = findings(tmp_path, phase_keys={"a": f"must: {must}\n"})
    assert [one for one in found if one[0] == code and one[1] == "error" and says in one[2]], found


@pytest.mark.parametrize("must", ["[file]", "[file.write, ask_user]", "{any: [file.write, file.edit]}", "[]"])
def test_ops_that_the_phase_allows_are_fine(tmp_path: Path, must: str):
    assert findings(tmp_path, phase_keys={"a": f"must: {must}\n"}) == []


def test_without_act_turns_nothing_can_be_done(tmp_path: Path):
    found = findings(tmp_path, phase_keys={"a": "must: [file.write]\nmax_act_turns: 0\n"})
    assert [(code, severity) for code, severity, _ in found] == [("RYN147", "error")]


@pytest.mark.parametrize(
    ("nodes", "severity", "says"),
    [
        ("{b: {fill: {path: ops.file.write.path}}}", "error", "no phase `b` in the graph"),
        ("{a: {fill: {pth: ops.file.write.path}}}", "error", "has no field `pth`; did you mean `path`?"),
        ("{a: {fill: {path: ops.file.wrte.path}}}", "error", "did you mean `file.write`?"),
        ("{a: {fill: {path: ops.file.path}}}", "error", "name a form of `file`"),
        ("{a: {fill: {path: file.write.path}}}", "error", "is not a field of an op"),
        ("{a: {fill: {path: ops}}}", "error", "is not a field of an op"),
        ("{a: {fill: {path: ops.file.write}}}", "error", "is not a field of an op"),
        ("{a: {fill: {path: ops.file.write.pth}}}", "error", "`file.write` has no field `pth`; did you mean `path`?"),
        ("{a: {fill: {path: ops.web_fetch.url}}}", "error", "does not allow `web_fetch`"),
        ("{a: {fill: {path: ops.file.edit.path}}}", "warning", "can end without `file.edit`"),
    ],
)
def test_a_field_that_no_op_can_fill_is_reported(tmp_path: Path, nodes: str, severity: str, says: str):
    found = findings(tmp_path, phase_keys={"a": "must: [file.write]\n"}, skill_keys=f"nodes: {nodes}\n")
    assert [one for one in found if one[:2] == ("RYN148", severity) and says in one[2]], found


@pytest.mark.parametrize("key", ["fil", "must"])
def test_an_unknown_key_of_a_node_is_reported(tmp_path: Path, key: str):
    found = findings(tmp_path, skill_keys=f"nodes: {{a: {{{key}: {{path: ops.file.write.path}}}}}}\n")
    assert [one for one in found if one[0] == "RYN112" and f"unknown key `nodes.a.{key}`" in one[2]], found


@pytest.mark.parametrize("must", ["[file.write]", "[file.read, file.write]"])
def test_a_field_that_an_op_always_fills_is_fine(tmp_path: Path, must: str):
    fill = "nodes: {a: {fill: {path: ops.file.write.path}}}\n"
    assert findings(tmp_path, phase_keys={"a": f"must: {must}\n"}, skill_keys=fill) == []


@pytest.mark.parametrize("must", ["", "must: {any: [file.write, file.read]}\n", "must: [file]\n"])
def test_a_required_field_that_an_op_may_not_fill_is_a_warning(tmp_path: Path, must: str):
    fill = "nodes: {a: {fill: {path: ops.file.write.path}}}\n"
    assert [one[:2] for one in findings(tmp_path, phase_keys={"a": must}, skill_keys=fill)] == [("RYN148", "warning")]


def test_an_optional_field_may_stay_empty(tmp_path: Path):
    fill = "nodes: {a: {fill: {path: ops.file.write.path}}}\n"
    assert findings(tmp_path, artifacts={"sent": SENT | {"required": ["text"]}}, skill_keys=fill) == []


def test_every_artifact_that_can_follow_has_the_field(tmp_path: Path):
    folder = write_skill(
        tmp_path,
        "s",
        {"a": {"b": "it goes on", "end": "it is over"}, "b": ["end"]},
        ops={"a": "file"},
        artifacts={"sent": SENT, "note": NOTE},
        final_output="sent",
        phase_keys={"a": "must: [file.write]\n"},
        skill_keys="nodes: {a: {fill: {path: ops.file.write.path}}}\n",
    )
    [found] = lint_skill(folder, vocabulary=VOCABULARY)
    assert (found.code, found.message) == ("RYN148", "`note`, which can follow `a`, has no field `path`")


@pytest.mark.parametrize(
    ("instructions", "op"),
    [
        ("Write the reply to a file.", "file.write"),
        ("Find the price, then write it to output/price.md.", "file.write"),
        ("1. Read the letter.\n2. Read the file that the letter names.", "file.read"),
        ("Decide what is wrong.\nAlways ask the user which colour they want.", "ask_user"),
        ("Make a list,\nand write it to the\nfile of the day.", "file.write"),
    ],
)
def test_instructions_that_ask_for_an_op_get_a_hint(tmp_path: Path, instructions: str, op: str):
    text = f"---\ntype: phase\nname: a\ninput: note\n---\n{instructions}\n"
    hints = [one for one in findings(tmp_path, text=text) if one[0] == "RYN149"]
    assert [(severity, f"`must: [{op}]`" in message) for _, severity, message in hints] == [("info", True)]


@pytest.mark.parametrize(
    "instructions",
    [
        "Write a reply.",
        "If something is missing, ask the user.",
        "Ask the user only when the date is unclear.",
        "You may read the file that the letter names.",
        "Do not write to files.",
        "Say which file the user should read.",
        "Someone wants to write a file; decide who can help.",
        "Read the letter. Name the file that it is about.",
        "Answer the question. If the note is empty, read the file first.",
    ],
)
def test_instructions_that_leave_it_open_get_no_hint(tmp_path: Path, instructions: str):
    text = f"---\ntype: phase\nname: a\ninput: note\n---\n{instructions}\n"
    assert findings(tmp_path, text=text) == []


@pytest.mark.parametrize("key", ["must: [file.write]", "allowed_ops: []", "max_act_turns: 0"])
def test_a_phase_that_must_do_it_or_cannot_gets_no_hint(tmp_path: Path, key: str):
    text = f"---\ntype: phase\nname: a\ninput: note\n{key}\n---\nWrite the reply to a file.\n"
    assert findings(tmp_path, text=text) == []
