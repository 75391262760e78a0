"""The page on the context frame is compared with a frame that has every key, and with the prompt rendered from it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from reyn import SyncRuntime
from reyn.config import Config
from reyn.config.values import Sizes
from reyn.context import frame as frames
from reyn.context import handoff, static_text, turn_message
from reyn.context.frame import Constraints, ContextFrame, Execution
from reyn.context.prompt import MAX_REPEATED, closing_text
from reyn.context.render import TurnFrame
from reyn.journal.kinds import AnswerForm
from reyn.journal.summary import PATH_LENGTH
from reyn.kernel.core.history import MAX_DONE, MAX_HANDOFFS
from reyn.skills.values import DEFAULT_ACT_TURNS
from reyn.testing import MemoryJournal, ScriptedModel
from tests.support import act, file, finish, go, write_skill

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "context-frame.md"
DRAFT = {
    "type": "object",
    "properties": {"text": {"type": "string", "description": "schema-words"}},
    "required": ["text"],
}
MARKERS = {
    "current_phase_role": "role-words",
    "instructions": "instruction-words",
    "input_artifact": "input-words",
    "execution.current_visit": "for the 2nd time",
    "execution.remaining_visits": "can be visited 976 more times",
    "candidate_outputs.next_phase": "charlie",
    "candidate_outputs.schema_name": "artifact type draft",
    "candidate_outputs.artifact_schema": "schema-words",
    "candidate_outputs.description": "edge-words",
    "finish_criteria": "finish-words",
    "available_control_ops.kind": "- file",
    "available_control_ops.description": "Read, write, edit",
    "available_control_ops.example": '"op": "read", "path": ...',
    "output_language": "Esperanto",
    "read_artifacts": "read-words",
    "handoff": "narrative-words",
    "rollback.rejected_artifact": "rejected-words",
    "rollback.reason": "2 answers rejected",
    "control_ir_results": "result-words",
    "remaining_act_turns": "Turns with ops left: 9",
}
"""A text that the prompt has because of the value of a key."""


def table(heading: str) -> list[list[str]]:
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("| ").split(" | ")] for line in section.splitlines() if line[:1] == "|"
    ]
    return rows[2:]


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> ContextFrame:
    """A frame with every key: the second visit of a phase, after a rollback, with the result of an op."""
    root = tmp_path_factory.mktemp("frame")
    folder = write_skill(
        root,
        "s",
        {"alpha": ["bravo"], "bravo": {"charlie": "edge-words", "end": "the end"}, "charlie": ["end"]},
        inputs={"alpha": "user_message", "bravo": "draft", "charlie": "draft"},
        artifacts={"draft": DRAFT},
        phase_keys={"bravo": "role: role-words\nreads: [user_message]\ncontext: all\n"},
        ops={"bravo": "file"},
        skill_keys="finish_criteria: [finish-words]\non_phase_failure: rollback\n",
        final_output="draft",
    )
    phase = folder / "phases" / "bravo.md"
    phase.write_text(phase.read_text().replace("Do what bravo does.", "instruction-words"))
    (root / "known.txt").write_text("result-words")
    answers = [
        go("bravo", "input-words", type="draft", reason={"summary": "narrative-words"}),
        go("charlie", "rejected-words", type="draft"),
        "no",
        "no",
        act(file("read", "known.txt")),
        finish("done", "draft"),
    ]
    settings = {"output_language": "Esperanto", "max_phase_retries": 1, "max_phase_visits": 977}
    with SyncRuntime.open(root, model=ScriptedModel(answers), journal=MemoryJournal(), **settings) as rt:
        result = rt.run("s", "read-words", run_id="k")
        assert result.ok
        return rt.runs.context_frame("k")


def keys_of(frame: dict[str, Any]) -> list[str]:
    """Return the keys of a frame in their order; those of an object, or of the objects in a list, one level deeper."""
    found: dict[str, None] = {}
    for name, value in frame.items():
        inner = value[0] if isinstance(value, list | tuple) and value else value
        whole = name in ("input_artifact", "read_artifacts", "control_ir_results") or not isinstance(inner, dict)
        found |= dict.fromkeys([name] if whole else [f"{name}.{key}" for key in inner])
    return list(found)


def place_of(marker: str, frame: ContextFrame) -> str:
    """Return where a prompt has a text: the message, and in the user's message the heading above."""
    for role, text in frame.messages:
        if marker in text:
            heading = re.findall(r"^# \w+", text[: text.index(marker)], re.MULTILINE)
            return f"{role}, `{heading[-1]}`" if heading else role
    return "left out"


def test_the_page_lists_the_keys_of_a_frame_in_their_order(full: ContextFrame):
    assert [row[0].strip("`") for row in table("Keys")] == keys_of(full.as_json())


def test_the_keys_with_a_condition_are_those_that_a_first_frame_lacks(full: ContextFrame):
    first = ContextFrame(full.stable, full.input_artifact, Execution(("alpha",), 1, 1))
    absent = set(keys_of(full.as_json())) - set(keys_of(first.as_json()))
    assert {row[0].strip("`") for row in table("Keys") if row[2] != "always"} == absent


def test_every_key_is_where_the_page_says(full: ContextFrame):
    shown = {row[0].strip("`"): row[3] for row in table("Keys")}
    assert {name: place_of(marker, full) for name, marker in MARKERS.items()} == {
        name: place for name, place in shown.items() if place != "left out"
    }


@pytest.mark.parametrize("form", ["full", "short", "tools"])
def test_a_key_that_is_left_out_changes_no_text(full: ContextFrame, form: AnswerForm):
    def texts(stable: frames.StableFrame, execution: Execution) -> tuple[Any, ...]:
        turn = TurnFrame("0" * 64, execution, results=1, remaining_act_turns=9)
        closing = closing_text(stable, form)
        return static_text(stable, form), closing, turn_message(turn, closing, has_choices=True)

    replace = msgspec.structs.replace
    stable, execution = full.stable, full.execution
    other = {"transition": "finish", "finish": "transition"}
    turned = tuple(replace(one, control_type=other[one.control_type]) for one in stable.candidate_outputs)
    changed = {
        "current_phase": (replace(stable, current_phase="elsewhere"), execution),
        "execution.path": (stable, replace(execution, path=("elsewhere",))),
        "execution.total_steps": (stable, replace(execution, total_steps=977)),
        "candidate_outputs.control_type": (replace(stable, candidate_outputs=turned), execution),
        "constraints.max_phase_visits": (replace(stable, constraints=Constraints(3)), execution),
    }
    assert {name for name, values in changed.items() if texts(*values) == texts(stable, execution)} == {
        row[0].strip("`") for row in table("Keys") if row[3] == "left out"
    }
    assert texts(replace(stable, current_phase_role="other"), execution) != texts(stable, execution)


def test_the_bounds_are_those_of_the_code():
    config, sizes = Config(), Sizes()
    bounds = {row[0]: row[1] for row in table("Bounds")}
    assert bounds == {
        "input, each artifact of `reads`, rejected artifact, rejected answer": f"{sizes.input_bytes} bytes",
        "each result of an op": f"{sizes.result_bytes} bytes",
        "`execution.path`": f"{PATH_LENGTH} phases",
        "handoffs": f"{MAX_HANDOFFS} visits",
        "narrative of a handoff": f"{handoff.DEFAULT_NARRATIVE_CAP} characters",
        "act turns": f"{DEFAULT_ACT_TURNS} turns",
        "visits of a phase": f"{config.max_phase_visits} visits",
        "description of a choice where `# Answer` repeats it": f"{MAX_REPEATED} characters",
        "forms of ops that are listed one by one": f"{frames.MAX_LISTED_OPTIONS} choices and forms",
        "ops of failed visits that a retry lists": f"{MAX_DONE} ops",
        "whole prompt": "window of the model less its answer",
    }
