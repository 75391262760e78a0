"""The author's order of properties holds wherever the model looks, and the hash of a skill covers it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reyn import SyncRuntime
from reyn.context.field_order import field_order
from reyn.contract import Contract, candidates_of
from reyn.journal import MemoryJournal
from reyn.models.decoding import decoding_schema
from reyn.models.narrowing import DecodingLimits
from reyn.skills import pin, unpin
from reyn.testing import ScriptedModel
from tests.kernel.support import Project
from tests.support import finish, go, load_skill, write_skill

NAMES = ["zeal", "answer", "meaning"]


def make(root: Path, names: list[str]) -> Path:
    fields = {name: {"type": "string"} for name in names}
    fields[names[0]] = {"type": "object", "properties": {"y": {"type": "string"}, "b": {"type": "string"}}}
    schema = {"type": "object", "properties": fields, "required": sorted(names)}
    return write_skill(root, "s", {"a": ["end"]}, artifacts={"note": schema}, inputs={"a": "user_message"})


def order_in(text: str) -> list[str]:
    return sorted(NAMES, key=lambda name: text.index(f'"{name}"'))


def test_a_reordering_by_the_author_is_a_change_of_the_skill(tmp_path: Path):
    one, other = load_skill(make(tmp_path / "a", NAMES)), load_skill(make(tmp_path / "b", ["zeal", *NAMES[:0:-1]]))
    assert one == other  # values compare without order
    assert pin(one).hash != pin(other).hash


def test_the_copy_of_a_run_keeps_the_order(tmp_path: Path):
    skill = unpin(pin(load_skill(make(tmp_path, NAMES))).content)
    assert list(skill.final_output.schema["properties"]) == NAMES
    assert list(skill.final_output.schema["properties"]["zeal"]["properties"]) == ["y", "b"]


def test_the_contract_and_the_decoding_schema_keep_the_order(tmp_path: Path):
    skill = load_skill(make(tmp_path, NAMES))
    contract = Contract(candidates_of(skill, "a")).schema
    for schema in (contract, *(decoding_schema(contract, DecodingLimits(is_small=small)) for small in (True, False))):
        [data] = [
            branch["properties"]["artifact"]["properties"]["data"]
            for branch in schema["anyOf"]
            if "properties" in branch["properties"].get("artifact", {})
        ]
        assert list(data["properties"]) == NAMES
        assert list(data["properties"]["zeal"]["properties"]) == ["y", "b"]


def test_the_prompt_the_recorded_contract_and_the_frame_keep_the_order(tmp_path: Path):
    make(tmp_path, NAMES)
    project = Project(tmp_path)
    answer = finish() | {"artifact": {"type": "note", "data": {"zeal": {}, "answer": "x", "meaning": "y"}}}
    assert project.run("s", [answer], {"text": "in"}).ok
    [request] = project.model.requests
    assert order_in(request.messages[0].text) == NAMES
    assert order_in(json.dumps(request.contract)) == NAMES
    [requested] = project.events("llm_requested")
    assert order_in(project.journal.blob(requested["contract"]).decode()) == NAMES
    with project.open([]) as rt:
        frame = rt.project.first_frame("s", {"text": "in"})
    assert list(frame.as_json()["candidate_outputs"][0]["artifact_schema"]["properties"]) == NAMES
    assert project.is_sound()


PET = {
    "type": "object",
    "properties": {
        "zeal": {"type": "string"},
        "answer": {"type": "string"},
        "inner": {"type": "array", "items": {"$ref": "#/$defs/inner"}},
    },
    "$defs": {"inner": {"type": "object", "properties": {"y": {"type": "integer"}, "b": {"type": "integer"}}}},
}
PET_TEXT = 'zeal: Z\nanswer: A\ninner: [{"y": 1, "b": 2}]\nmore: M'


@pytest.mark.parametrize("form", ["full", "short", "tools"])
def test_artifacts_in_a_prompt_have_the_order_of_the_author(tmp_path: Path, form: str):
    """Artifacts are stored with sorted keys; the input, what a phase reads and what was rejected are not shown so."""
    write_skill(
        tmp_path,
        "s",
        {"a": {"b": "on", "end": "done"}, "b": {"a": "back", "c": "on"}, "c": ["end"]},
        artifacts={"pet": PET},
        inputs={"b": "pet"},
        phase_keys={"c": "reads: [pet]\n"},
        skill_keys="on_phase_failure: rollback\n",
    )
    pet = {"answer": "A", "more": "M", "inner": [{"b": 2, "y": 1}], "zeal": "Z"}
    answers: list[Any] = [go("b", type="pet") | {"artifact": {"type": "pet", "data": pet}}, *["no"] * 3, go("b", "")]
    answers[-1]["artifact"] = {"type": "pet", "data": pet | {"more": "N"}}
    answers += [go("c"), finish()]
    seen: list[Any] = []

    class Model(ScriptedModel):
        async def complete(self, request: Any) -> Any:
            seen.append(request.messages[1].text)
            return await super().complete(request)

    if form == "tools":
        answers[-1] = "done"
    with SyncRuntime.open(tmp_path, model=Model(answers, answer_form=form), journal=MemoryJournal()) as rt:
        assert rt.run("s", {"text": "in"}, run_id="k").ok
        assert seen[1].startswith(PET_TEXT)
        assert f"produced before:\n{PET_TEXT}" in seen[4]
        assert f"# Earlier pet\n{PET_TEXT[:-1]}N" in seen[-1]
        assert rt.runs.prompt_at("k")[1][1].startswith("on\n\n# Earlier pet\nzeal: Z")
        report = rt.runs.replay("k")
        assert (report.events, report.reworded) == (rt.runs.verify("k").events, 0)


def test_an_order_follows_references_but_not_without_end():
    tree = {"type": "object", "properties": {"z": {"$ref": "#"}, "a": {"type": "array", "items": {"$ref": "#"}}}}
    order = field_order(tree)
    assert order is not None
    assert list(order) == ["z", "a"]
    doubling = {
        f"n{number}": {"allOf": [{"$ref": f"#/$defs/n{number + 1}"}] * 2, "properties": {"z": {}, "a": {}}}
        for number in range(60)
    }
    order = field_order({"$ref": "#/$defs/n0", "$defs": doubling})
    assert order == {"z": None, "a": None}
    sorted_fields = {"a": {}, "b": {"properties": {"c": {}, "d": {}}}}
    assert field_order({"properties": sorted_fields, "required": ["a", "b"]}) is None
    assert field_order({"properties": sorted_fields, "required": ["a"]}) is not None
