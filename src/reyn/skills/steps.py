"""What an author wrote as a list of steps becomes step values; each slip a finding at its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import msgspec

from reyn.documents import check_keys, nearest, usable_keys
from reyn.jsonschema import SchemaInvalid, compile_schema
from reyn.skills import values
from reyn.skills.codes import BAD_SCHEMA, BAD_STEP, MISSING_KEY, UNKNOWN_KEY, WRONG_VALUE
from reyn.skills.fronts import STEP_FRONTS

if TYPE_CHECKING:
    from reyn.documents import Document
    from reyn.errors import Finding
    from reyn.skills.values import AnyStep

_APPLICABLE = ("run_op", "run_skill", "python")
_SCHEMAS = {"validate": "schema", "python": "output_schema"}


def parse_steps(document: Document) -> tuple[dict[int, AnyStep], list[Finding]]:
    """The steps of a part of a file that holds a list of them, each under its number in the list."""
    steps: dict[int, AnyStep] = {}
    findings: list[Finding] = []
    for index in range(len(document.value)):
        step, wrong = _parse(document.part(index))
        findings += wrong
        if step is not None:
            steps[index] = step
    return steps, findings


def _parse(document: Document) -> tuple[AnyStep | None, list[Finding]]:
    kind, wrong = _kind_of(document)
    if kind is None:
        return None, wrong
    arguments = document.part(kind)
    if arguments.value is None:
        arguments = msgspec.structs.replace(arguments, value={})
    front = STEP_FRONTS[kind]
    wrong = check_keys(arguments, front, unknown=UNKNOWN_KEY, missing=MISSING_KEY, wrong=WRONG_VALUE)
    usable = usable_keys(arguments, front)
    if usable is None:
        return None, wrong
    if kind == "iterate":
        inner, more = _parse(arguments.part("apply"))
        wrong += more
        if inner is None:
            return None, wrong
        if not isinstance(inner, values.RunOp | values.RunSkill | values.PythonCall):
            names = ", ".join(f"`{name}`" for name in _APPLICABLE)
            return None, [*wrong, arguments.finding(BAD_STEP, f"what is applied must be one of {names}", "apply")]
        usable["apply"] = inner
    if kind in _SCHEMAS and _SCHEMAS[kind] in usable:
        try:
            compile_schema(usable[_SCHEMAS[kind]])
        except SchemaInvalid as error:
            message = f"is not a usable JSON Schema: {error}"
            wrong.append(arguments.finding(BAD_SCHEMA, message, _SCHEMAS[kind], *error.place))
    step: AnyStep = cast("AnyStep", values.STEP_VALUES[kind](**usable))
    return step, wrong


def _kind_of(document: Document) -> tuple[str | None, list[Finding]]:
    if not isinstance(document.value, dict) or len(document.value) != 1:
        message = "a step is a mapping with one key, its kind"
        return None, [document.finding(BAD_STEP, message, fix="Write `- python: {…}`.")]
    [kind] = document.value
    if kind not in STEP_FRONTS:
        return None, [document.finding(BAD_STEP, f"unknown step `{kind}`", kind, fix=nearest(kind, STEP_FRONTS))]
    return kind, []
