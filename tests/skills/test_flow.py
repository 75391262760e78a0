"""Types through steps: what exists, what is bound, what stays open."""

from __future__ import annotations

import pytest

from reyn.skills import ArtifactType
from reyn.skills.flow import enrich, look_up
from reyn.skills.values import Iterate, LintPlan, PythonCall, RunOp, RunSkill, Validate

CLOSED = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "list": {"type": "array", "items": {"type": "object"}}},
}


def follow(schema, *steps):
    return enrich(ArtifactType("x", schema), steps, lambda name: ArtifactType("found", {"type": "object"}))


@pytest.mark.parametrize(
    ("schema", "path", "there"),
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
def test_a_path_exists_where_the_schema_says_so_or_leaves_it_open(schema, path: str, there: bool):
    assert (look_up(schema, path) is not False) == there


def test_each_step_sees_what_the_earlier_ones_bound():
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
    schema, slips = follow(CLOSED, *steps)
    assert slips == []
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
def test_a_path_that_leads_nowhere_is_told(step, key: tuple):
    _, slips = follow(CLOSED, step)
    assert [slip.key for slip in slips] == [key]


def test_a_result_may_replace_the_whole_payload():
    schema, slips = follow(
        CLOSED, PythonCall(module="./m.py", function="f", into="data", output_schema={"type": "object"})
    )
    assert (schema, slips) == ({"type": "object"}, [])


def test_what_is_open_stays_open():
    schema, slips = follow(True, Validate(schema=True, into="data.x.y"))
    assert (schema, slips) == (True, [])
    assert follow(False, Validate(schema=True, into="data.x.y"))[1]
