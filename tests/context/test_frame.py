"""The context frame: its documented keys and its text, stable parts first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from reyn.config import RunSettings
from reyn.context import ContextFrame, Execution, TurnFrame, closing_text, message_text, stable_text, turn_message
from reyn.contract import Rejected
from reyn.journal.kinds import AnswerForm
from reyn.kernel.compiled_skill import CompiledPhase
from tests.support import VOCABULARY, load_skill, write_skill


def brief(tmp_path: Path, phase: str = "check", ops: dict[str, str] | None = None, **settings) -> CompiledPhase:
    folder = write_skill(
        tmp_path,
        "s",
        {"write": ["check"], "check": ["write", "end"]},
        skill_keys="finish_criteria: [it is short, it is true]\nfinal_output_description: The final note.\n",
        phase_keys={"check": "role: editor\n"},
        ops=ops or {},
    )
    return CompiledPhase(load_skill(folder), RunSettings(**settings), VOCABULARY, phase, 25)


def stable(*args, **settings):
    return brief(*args, **settings).turn_spec("full", acting=True, is_truncated=False).frame


def test_the_frame_has_exactly_the_documented_keys(tmp_path: Path):
    frame = ContextFrame(stable(tmp_path), {"type": "note", "data": {}}, Execution(("write",), 1, 1)).as_json()
    assert set(frame) == {
        "current_phase",
        "current_phase_role",
        "instructions",
        "input_artifact",
        "execution",
        "candidate_outputs",
        "finish_criteria",
        "constraints",
        "available_control_ops",
        "output_language",
    }
    assert set(frame["execution"]) == {"path", "current_visit", "total_steps"}
    assert frame["constraints"] == {"max_phase_visits": 25}
    assert [set(entry) for entry in frame["candidate_outputs"]] == [
        {"next_phase", "control_type", "schema_name", "artifact_schema", "description"}
    ] * 2
    assert [(c["next_phase"], c["control_type"]) for c in frame["candidate_outputs"]] == [
        ("write", "transition"),
        ("end", "finish"),
    ]
    assert frame["instructions"] == "Do what check does.\n"


def test_finish_criteria_appear_only_in_phases_that_may_finish(tmp_path: Path):
    assert stable(tmp_path).finish_criteria == ("it is short", "it is true")
    assert stable(tmp_path, "write").finish_criteria == ()


def test_the_text_has_a_heading_per_section_and_verbatim_instructions(tmp_path: Path):
    text = stable_text(stable(tmp_path, output_language="fr"), "short")
    assert headings(text) == ["Task", "Choices", "Finish only when", "Language", "Answer"]
    assert "Your role: editor\nDo what check does.\n" in text
    assert "- end: The final note." in text


def headings(text: str) -> list[str]:
    return [line[2:] for line in text.splitlines() if line.startswith("# ")]


@pytest.mark.parametrize("form", ["full", "short"])
def test_the_os_adds_few_tokens_to_the_task(tmp_path: Path, form: AnswerForm):
    frame = stable(tmp_path)
    text = stable_text(frame, form) + closing_text(frame, form)
    assert len(text) / 4 <= 250  # tokens, at four characters each


def test_empty_sections_are_omitted_from_the_text(tmp_path: Path):
    assert headings(stable_text(stable(tmp_path, "write"), "short")) == ["Task", "Choices", "Answer"]


@pytest.mark.parametrize("form", ["full", "short"])
def test_no_json_in_the_text_is_an_answer(tmp_path: Path, form: AnswerForm):
    """A model that copies what it reads must not give a valid answer."""
    phase = brief(tmp_path, "write", ops={"write": "file, ask_user"})
    spec = phase.turn_spec(form, acting=True, is_truncated=False)
    text = spec.stable.content.decode() + spec.closing
    for start in (match.start() for match in re.finditer(r"\{", text)):
        for end in (match.end() for match in re.finditer(r"\}", text)):
            if end > start:
                assert isinstance(spec.contract.judge(text[start:end]), Rejected)


def test_the_turn_message_ends_with_the_choices(tmp_path: Path):
    message = turn_message(TurnFrame("f" * 64, Execution(("a", "b"), 2, 7)), closing_text(stable(tmp_path), "short"))
    text = message_text(message, lambda name: b'{"type":"note"}')
    assert text.startswith('# Input\n{"type":"note"}\n\n# Visits\nYou are in this phase for the 2nd time.\n')
    assert text.endswith("- write: Go on to write.\n- end: The final note.\n")
