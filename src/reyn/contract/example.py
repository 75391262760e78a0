"""One example of an answer, built from the candidates themselves, and the placeholders in it that must not come back.

A small model follows an example better than a rule, and copies from it; so its texts are marked, and an answer that
still holds one of the marks is rejected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.contract.candidates import Candidate
    from reyn.skills.values import Schema

WHY = "<why, in one sentence>"
_DEEPEST = 4


def example_answer(candidates: tuple[Candidate, ...]) -> dict[str, Any]:
    """The answer that chooses a candidate: the finish where there is one. A model too small to choose takes what it is
    shown, and a loop then ends instead of going round until its limit."""
    candidate = next((one for one in candidates if one.control_type == "finish"), candidates[0])
    finish = candidate.control_type == "finish"
    return {
        "control": {
            "type": candidate.control_type,
            "decision": "finish" if finish else "continue",
            "next_phase": None if finish else candidate.next_phase,
            "confidence": 0.8,
            "reason": {"summary": WHY},
        },
        "artifact": {"type": candidate.schema_name, "data": _example(candidate.artifact_schema, "value", _DEEPEST)},
    }


def copied_placeholder(value: Any, path: str) -> tuple[str, str] | None:
    """Where a placeholder of an example stands in a value, and which."""
    return next(_copied(value, path, ""), None)


def _copied(value: Any, path: str, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        if value.strip() in (f"<{name}>", WHY):
            yield path, value.strip()
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _copied(item, f"{path}.{key}", key)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _copied(item, f"{path}[{index}]", name)


def _example(schema: Schema, name: str, depth: int) -> Any:
    """A value that shows the shape of a schema; it need not satisfy it."""
    if not isinstance(schema, dict) or depth == 0:
        return f"<{name}>"
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if schema.get(key):
            return _example(schema[key][0], name, depth)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    match kind:
        case "object":
            fields = schema.get("properties", {})
            required = schema.get("required") or list(fields)
            shown = [key for key in fields if key in required]
            return {key: _example(fields[key], key, depth - 1) for key in shown}
        case "array":
            items = schema.get("items", {})
            return [_example(items, name, depth - 1)] if items is not False else []
        case "integer" | "number":
            return schema.get("minimum", 1)
        case "boolean":
            return True
        case "null":
            return None
    return f"<{name}>"
