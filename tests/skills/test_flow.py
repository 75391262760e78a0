"""Schemas through steps: existing paths, bindings, open schemas."""

from __future__ import annotations

import pytest

from reyn.skills import ArtifactType
from reyn.skills.flow import follow, schema_at
from reyn.skills.step_types import Iterate, LintPlan, PythonCall, RunOp, RunSkill, Validate

CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "list": {"type": "array", "items": {"type": "object"}}},
}


def check(schema, *steps):
    whole, errors = follow(ArtifactType("x", schema), steps, lambda name: ArtifactType("found", {"type": "object"}))
    return schema_at(whole, "data"), errors


@pytest.mark.parametrize(
    ("schema", "path", "exists"),
    [
        (CLOSED, "a", True),
        (CLOSED, "b", False),
        (CLOSED, "a.b", False),
        ({"type": "object"}, "anything.at.all", True),
        ({"type": "object", "properties": {}, "additionalProperties": {"type": "string"}}, "b", True),
        ({"type": "object", "properties": {}, "additionalProperties": {"type": "string"}}, "b.c", False),
        ({"$ref": "#/x", "properties": {}}, "b", True),
        (True, "b", True),
        (False, "b", False),
        (CLOSED, "", True),
    ],
)
def test_a_path_exists_if_the_schema_names_it_or_is_open(schema, path: str, exists: bool):
    assert (schema_at(schema, path) is not False) == exists


def test_each_step_sees_earlier_bindings():
    steps = (
        PythonCall(module="./m.py", function="f", into="data.made", output_schema=CLOSED),
        Validate(schema=True, target="data.made.a", into="data.made.findings"),
        LintPlan(over="data.made.findings", into="data.plan"),
        RunSkill(skill="s", into="data.other"),
        Iterate(
            over="data.list", apply=RunOp(op={}, args_from={"x": "_iter.item.y", "n": "_iter.index"}), into="data.all"
        ),
        RunOp(op={}, args_from={"x": "data.other.data.z", "y": "data.all"}, into="data.result"),
    )
    schema, errors = check(CLOSED, *steps)
    assert errors == []
    assert set(schema["properties"]) == {"a", "list", "made", "plan", "other", "all", "result"}
    assert schema["properties"]["all"]["type"] == "array"


@pytest.mark.parametrize(
    ("step", "key"),
    [
        (RunOp(op={}, args_from={"x": "data.no"}), ("args_from", "x")),
        (Iterate(over="data.no", apply=RunOp(op={})), ("over",)),
        (Iterate(over="data.a", apply=RunOp(op={})), ("over",)),
        (
            Iterate(over="data.list", apply=RunOp(op={}, args_from={"x": "_iter.no"})),
            ("apply", "run_op", "args_from", "x"),
        ),
        (Validate(schema=True, target="data.no"), ("target",)),
        (LintPlan(over="data.no"), ("over",)),
        (Validate(schema=True, into="data.no.more"), ("into",)),
        (Validate(schema=True, into="data.a.more"), ("into",)),
    ],
)
def test_a_path_that_cannot_exist_is_an_error(step, key: tuple):
    _, errors = check(CLOSED, step)
    assert [error.key for error in errors] == [key]


def test_a_result_may_replace_all_data():
    schema, errors = check(
        CLOSED, PythonCall(module="./m.py", function="f", into="data", output_schema={"type": "object"})
    )
    assert (schema, errors) == ({"type": "object"}, [])


def test_an_open_schema_accepts_any_path():
    schema, errors = check(True, Validate(schema=True, into="data.x.y"))
    assert (schema, errors) == (True, [])
    assert check(False, Validate(schema=True, into="data.x.y"))[1]
