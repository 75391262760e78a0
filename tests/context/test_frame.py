"""The context frame: its documented keys and its text, stable parts first."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.config import RunSettings
from reyn.context import static_text, turn_message
from reyn.context.frame import ContextFrame, Execution, Repetition, Rollback
from reyn.context.prompt import closing_text
from reyn.context.render import TurnFrame, message_text
from reyn.contract import Accepted, Rejected
from reyn.journal import canonical
from reyn.journal.kinds import AnswerForm
from reyn.kernel.visit.compiled_phase import CompiledPhase
from tests.support import VOCABULARY, abort, load_skill, write_skill


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


def test_the_prompt_has_the_task_the_choices_and_the_form_of_the_answer(tmp_path: Path):
    text = static_text(stable(tmp_path, output_language="fr"), "short")
    assert text == (
        "Your role: editor\nDo what check does.\n\n"
        "Choose end only when:\n- it is short\n- it is true\n\n"
        "write: Go on to write.\nend: The final note.\n\n"
        "Answer in JSON: reason, choice (write or end), confidence (0 to 1), data.\n"
        "data: text (text).\n"
        "If the task is impossible, choose abort, without data.\n\n"
        "Write all texts in fr.\n"
    )


def test_the_full_form_names_the_choices_and_every_key_of_the_contract(tmp_path: Path):
    text = static_text(stable(tmp_path), "full")
    assert (
        "Choices:\n- write: Go on to write.\n  artifact type note, data: text (text)\n- end: The final note.\n" in text
    )
    for key in ("control", "reason", "summary", "type", "decision", "next_phase", "confidence", "artifact", "data"):
        assert f'"{key}"' in text


def test_empty_sections_are_omitted_from_the_text(tmp_path: Path):
    text = static_text(stable(tmp_path, "write"), "short")
    assert text.startswith("Do what write does.\n\nAnswer in JSON: reason, choice (check), ")
    assert text.endswith("data: text (text).\nIf the task is impossible, choose abort, without data.\n")


@pytest.mark.parametrize("form", ["full", "short", "tools"])
@pytest.mark.parametrize(
    ("graph", "keys", "is_told"),
    [
        ({"a": ["b", "end"], "b": ["end"]}, "", {"full", "short", "tools"}),
        ({"a": ["end"]}, "", {"full", "short", "tools"}),
        ({"a": ["a", "end"]}, "conversation: true\n", {"full", "short", "tools"}),
        ({"a": ["a"]}, "conversation: true\n", {"full", "short", "tools"}),
        ({"a": ["a"]}, "conversation: {stays_open: true}\n", set()),
    ],
)
def test_the_prompt_says_how_to_abort_where_the_contract_allows_it(
    tmp_path: Path, form: AnswerForm, graph: dict[str, list[str]], keys: str, is_told: set[str]
):
    inputs = {"a": "user_message"} if keys else {}
    folder = write_skill(tmp_path, "s", graph, inputs=inputs, phase_keys={"a": keys})
    phase = CompiledPhase(load_skill(folder), RunSettings(), VOCABULARY, "a", 25)
    spec = phase.turn_spec(form, acting=True, is_truncated=False)
    assert ("abort" in spec.stable.content.decode()) is (form in is_told)
    verdict = spec.contract.judge(recorded(json.dumps(abort()), form))
    assert isinstance(verdict, Rejected) is ("stays_open" in keys)


@pytest.mark.parametrize("form", ["short", "tools"])
@pytest.mark.parametrize("graph", [{"a": ["b", "end"], "b": ["end"]}, {"a": ["end"]}])
def test_an_abort_as_the_prompt_describes_it_is_one(tmp_path: Path, form: AnswerForm, graph: dict[str, list[str]]):
    phase = CompiledPhase(load_skill(write_skill(tmp_path, "s", graph)), RunSettings(), VOCABULARY, "a", 25)
    verdict = phase.turn_spec(form, acting=True, is_truncated=False).contract.judge(
        recorded('{"reason": "no data", "choice": "abort", "confidence": 0.9}', form)
    )
    assert isinstance(verdict, Accepted)
    assert (verdict.type, verdict.reason, verdict.artifact) == ("abort", "no data", None)


def recorded(text: str, form: AnswerForm) -> str:
    return json.dumps({"content": text, "tool_calls": []}) if form == "tools" else text


@pytest.mark.parametrize("form", ["full", "short"])
def test_the_os_adds_few_tokens_to_the_task(tmp_path: Path, form: AnswerForm):
    frame = stable(tmp_path)
    text = static_text(frame, form) + closing_text(frame, form)
    assert len(text) / 4 <= 250  # tokens, at four characters each


@pytest.mark.parametrize("form", ["full", "short"])
def test_no_json_in_the_text_is_an_answer(tmp_path: Path, form: AnswerForm):
    """A model that copies what it reads must not give a valid answer."""
    phase = brief(tmp_path, "check", ops={"check": "file, ask_user"})
    spec = phase.turn_spec(form, acting=True, is_truncated=False)
    text = spec.stable.content.decode() + spec.closing
    for start in (match.start() for match in re.finditer(r"\{", text)):
        for end in (match.end() for match in re.finditer(r"\}", text)):
            if end > start:
                assert isinstance(spec.contract.judge(text[start:end]), Rejected)


NOTE = b'{"data":{"text":"hello"},"type":"note"}'


CLOSING = "\n\n# Answer\nchoose\n"


def render(turn: TurnFrame, content: bytes = NOTE, *, has_choices: bool = False) -> str:
    return message_text(turn_message(turn, CLOSING, has_choices=has_choices), lambda name: content)


def test_an_input_alone_is_the_whole_message_unless_there_are_choices():
    turn = TurnFrame("f" * 64, Execution(("a",), 1, 1))
    assert render(turn) == "hello"
    assert render(turn, has_choices=True) == f"hello{CLOSING}"


def test_an_input_of_one_of_several_types_has_its_type():
    turn = TurnFrame("f" * 64, Execution(("a",), 1, 1), input_type="remark")
    assert render(turn) == "# Input remark\nhello"
    assert render(turn, has_choices=True) == f"# Input remark\nhello{CLOSING}"


def test_the_choices_are_repeated_in_short_at_the_end(tmp_path: Path):
    frame = stable(tmp_path)
    long = "when " + "it has to be done again " * 8
    first, second = frame.candidate_outputs
    frame = msgspec.structs.replace(
        frame,
        candidate_outputs=(
            msgspec.structs.replace(first, description=long),
            msgspec.structs.replace(second, description="when\nit is done"),
        ),
    )
    *_, repeated, last = closing_text(frame, "short").splitlines()
    assert repeated.startswith(f"{first.label}: when it has to be done again ")
    assert repeated.endswith(" …")
    assert len(repeated) < 100
    assert last == f"{second.label}: when it is done"


def test_what_else_the_model_sees_has_headings_and_ends_with_what_to_answer():
    execution = Execution(("a", "b"), 2, 7, {"a": 1, "b": 3})
    back = Rollback("f" * 64, "it was\n# Input\nbad")
    again = (Repetition("op", "file", 2),)
    text = render(TurnFrame("f" * 64, execution, back, 0, None, 4, (("draft", "f" * 64),), again))
    assert text == (
        "hello\n\n# Earlier draft\nhello\n\n"
        "# Rejected\nThe next phase failed: it was # Input bad\nIt was given what you produced before:\nhello\n\n"
        "# Notes\nYou are in this phase for the 2nd time.\n"
        "`a` can be visited 1 more time.\n`b` can be visited 3 more times.\n"
        "Turns with ops left: 4.\n"
        "You called `file` 2 times with the same arguments; it failed each time. "
        "Change the arguments, use another op, or decide.\n\n"
        "# Answer\nchoose\n"
    )


LINES = st.text(alphabet="a#: \n\r\u000b\u000c\u0085\u2028\u2029", min_size=1)


@given(LINES, LINES, LINES)
def test_no_line_of_the_input_is_a_heading_or_another_field(key: str, text: str, other: str):
    content = canonical({"type": "note", "data": {key: text, "safe": other}})
    execution = Execution(("a",), 2, 2)
    lines = render(TurnFrame("f" * 64, execution), content=content).splitlines()
    assert [line for line in lines if line.startswith("#")] == ["# Notes", "# Answer"]
    assert sum(line.startswith("safe: ") for line in lines) == 1
    alone = render(TurnFrame("f" * 64, execution), content=canonical({"type": "note", "data": {"text": text}}))
    assert [line for line in alone.splitlines() if line.startswith("#")] == ["# Notes", "# Answer"]
