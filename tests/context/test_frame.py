"""The context frame: its documented keys and its text, stable parts first."""

from __future__ import annotations

import json
from pathlib import Path

from reyn.config import RunSettings
from reyn.context import ContextFrame, Execution, TurnFrame, message_text, stable_text, turn_message
from reyn.kernel.compiled_skill import CompiledPhase
from tests.support import VOCABULARY, load_skill, write_skill


def brief(tmp_path: Path, phase: str = "check", **settings) -> CompiledPhase:
    folder = write_skill(
        tmp_path,
        "s",
        {"write": ["check"], "check": ["write", "end"]},
        skill_keys="finish_criteria: [it is short, it is true]\nfinal_output_description: The final note.\n",
        phase_keys={"check": "role: editor\n"},
    )
    return CompiledPhase(load_skill(folder), RunSettings(**settings), VOCABULARY, phase, 25)


def stable(*args, **settings):
    return brief(*args, **settings).turn_spec(acting=True, is_truncated=False).frame


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


def test_the_text_has_a_heading_per_key_and_verbatim_instructions(tmp_path: Path):
    text = stable_text(stable(tmp_path, output_language="fr"))
    headings = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert headings == [
        "current_phase",
        "current_phase_role",
        "instructions",
        "candidate_outputs",
        "finish_criteria",
        "constraints",
        "output_language",
    ]
    assert "\nDo what check does.\n" in text
    assert "The final note." in text


def test_the_contract_is_short_enough_for_small_models(tmp_path: Path):
    from reyn.context.render import ACTING

    contract = stable_text(stable(tmp_path)).partition("\n## ")[0] + ACTING
    assert len(contract) / 4 <= 400  # tokens, at four characters each


def test_empty_keys_are_omitted_from_the_text(tmp_path: Path):
    text = stable_text(stable(tmp_path, "write"))
    assert "current_phase_role" not in text
    assert "output_language" not in text
    assert "none" not in text


def test_all_phases_share_a_prompt_prefix(tmp_path: Path):
    from reyn.context.render import CONTRACT

    assert all(stable_text(stable(tmp_path, phase)).startswith(CONTRACT) for phase in ("write", "check"))


def test_the_example_finishes_if_possible_and_uses_the_key_order_of_the_schema(tmp_path: Path):
    from reyn.contract.schema import answer_schema

    candidates = stable(tmp_path).candidate_outputs
    example = json.loads(stable_text(stable(tmp_path)).partition("\nFor example:\n")[2].splitlines()[0])
    assert example["control"] == {
        "type": "finish",
        "decision": "finish",
        "next_phase": None,
        "confidence": 0.8,
        "reason": {"summary": "<why, in one sentence>"},
    }
    branch = answer_schema(candidates)["anyOf"][-2]["properties"]
    assert list(example) == [name for name in branch if name != "control_ir"]
    assert list(example["control"]) == list(branch["control"]["properties"])
    assert list(example["artifact"]) == list(branch["artifact"]["properties"])
    assert '"next_phase":"check"' in stable_text(stable(tmp_path, "write")).partition("\n## ")[0]


def test_the_turn_message_holds_input_and_execution():
    message = turn_message(TurnFrame("f" * 64, Execution(("a", "b"), 2, 7)))
    text = message_text(message, lambda name: b'{"type":"note"}')
    assert text == (
        '## input_artifact\n{"type":"note"}\n\n## execution\n{"path":["a","b"],"current_visit":2,"total_steps":7}\n'
    )
