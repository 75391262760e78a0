"""The author's order of properties holds wherever the model looks, and the hash of a skill covers it."""

from __future__ import annotations

import json
from pathlib import Path

from reyn.contract import Contract, candidates_of
from reyn.models.decoding import decoding_schema
from reyn.skills import pin, unpin
from tests.kernel.support import Project
from tests.support import finish, load_skill, write_skill

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
    for schema in (contract, *(decoding_schema(contract, is_small=small) for small in (True, False))):
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
        frame = rt.first_frame("s", {"text": "in"})
    assert list(frame.as_json()["candidate_outputs"][0]["artifact_schema"]["properties"]) == NAMES
    assert project.is_sound()
