"""Parse lists of steps into step values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import msgspec

from reyn.documents import check_keys, nearest, usable_keys
from reyn.jsonschema import SchemaInvalid, compile_schema
from reyn.skills import values
from reyn.skills.codes import BAD_STEP, FRONT_MATTER, schema_code
from reyn.skills.front_matter import STEP_ARGUMENTS

if TYPE_CHECKING:
    from reyn.documents import Document
    from reyn.errors import Finding
    from reyn.skills.values import AnyStep

_APPLICABLE = ("run_op", "run_skill", "python", "ask_user")
_SCHEMA_KEYS = {"validate": "schema", "python": "output_schema", "ask_user": "schema"}


def parse_steps(document: Document) -> tuple[dict[int, AnyStep], list[Finding]]:
    """Parse the list of steps in a part of a file.

    Returns:
        The valid steps by their index in the list, and every finding.
    """
    steps: dict[int, AnyStep] = {}
    findings: list[Finding] = []
    for index in range(len(document.value)):
        step, step_findings = _parse(document.part(index))
        findings += step_findings
        if step is not None:
            steps[index] = step
    return steps, findings


def invalid_step_target(step: Any) -> str | None:
    """Return the `into` of a step that could not be parsed; `None` if it is unreadable."""
    arguments = next(iter(step.values()), None) if isinstance(step, dict) and len(step) == 1 else None
    into = arguments.get("into") if isinstance(arguments, dict) else None
    return into if isinstance(into, str) else None


def _parse(document: Document) -> tuple[AnyStep | None, list[Finding]]:
    kind, findings = _kind_of(document)
    if kind is None:
        return None, findings
    arguments = document.part(kind)
    if arguments.value is None:
        arguments = msgspec.structs.replace(arguments, value={})
    shape = STEP_ARGUMENTS[kind]
    findings = check_keys(arguments, shape, FRONT_MATTER)
    usable = usable_keys(arguments, shape)
    if kind in _SCHEMA_KEYS and isinstance(arguments.value, dict) and _SCHEMA_KEYS[kind] in arguments.value:
        findings += _check_schema(arguments, _SCHEMA_KEYS[kind])
    if usable is None:
        return None, findings
    if usable.get("on_error") == "result" and kind != "run_op":
        message = f"`on_error: result` needs the result of an op; `{kind}` has none"
        fix = "write `fail`, `skip` or `empty`"
        return None, [*findings, arguments.finding(BAD_STEP, message, "on_error", fix=fix)]
    if kind == "iterate":
        inner, inner_findings = _parse(arguments.part("apply"))
        findings += inner_findings
        if inner is None:
            return None, findings
        if not isinstance(inner, values.RunOp | values.RunSkill | values.PythonCall | values.AskUser):
            kinds = ", ".join(f"`{name}`" for name in _APPLICABLE)
            return None, [*findings, arguments.finding(BAD_STEP, f"`apply` must be one of {kinds}", "apply")]
        if usable.get("concurrency", 1) > 1 and not isinstance(inner, values.RunSkill):
            message = "`concurrency` needs `apply: {run_skill: …}`; other steps run one after the other"
            return None, [*findings, arguments.finding(BAD_STEP, message, "concurrency")]
        usable["apply"] = inner
    return cast("AnyStep", values.STEP_TYPES[kind](**usable)), findings


def _check_schema(arguments: Document, key: str) -> list[Finding]:
    schema = arguments.value[key]
    if not isinstance(schema, dict | bool):
        return []  # `check_keys` has reported the type
    try:
        compile_schema(schema)
    except SchemaInvalid as error:
        return [arguments.finding(schema_code(error), f"invalid JSON Schema: {error}", key, *error.place)]
    return []


def _kind_of(document: Document) -> tuple[str | None, list[Finding]]:
    if not isinstance(document.value, dict) or len(document.value) != 1:
        message = "expected a step: a mapping with one key, the step's kind"
        return None, [document.finding(BAD_STEP, message, fix="write `- python: {…}`")]
    [kind] = document.value
    if kind not in STEP_ARGUMENTS:
        return None, [document.finding(BAD_STEP, f"unknown step `{kind}`", kind, fix=nearest(kind, STEP_ARGUMENTS))]
    return kind, []
