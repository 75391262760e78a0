"""Answer forms: the full form is the contract's object; the short form is expanded into it before the verdict.

The short form says each thing once: `{"reason", "choice", "confidence", "data"}` to decide, `{"reason", "ops"}` to act.
A choice is the label of a candidate, or `abort`. A model that is asked for the short form may also answer in full.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from reyn.contract.verdicts import Rejected, short
from reyn.jsonschema import compile_schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reyn.contract.candidates import Candidate

ABORT = "abort"
"""The choice that gives up. A phase cannot have this name."""

_TEXT = {"type": "string"}
_DECISION = compile_schema(
    {
        "type": "object",
        "properties": {
            "reason": _TEXT,
            "choice": _TEXT,
            "confidence": {"type": "number", "minimum": 0, "maximum": 1},
            "data": {},
        },
        "required": ["reason", "choice"],
        "additionalProperties": False,
    }
)
_ACT = compile_schema(
    {
        "type": "object",
        "properties": {"reason": _TEXT, "ops": {"type": "array", "minItems": 1}},
        "required": ["ops"],
        "additionalProperties": False,
    }
)
_FULL_KEYS = {"control", "control_ir", "artifact"}
_SHORT_PATHS = (
    (re.compile(r"^\$\.artifact\.data"), "$.data"),
    (re.compile(r"^\$\.control_ir"), "$.ops"),
    (re.compile(r"^\$\.control\.reason\.summary"), "$.reason"),
    (re.compile(r"^\$\.control\.confidence"), "$.confidence"),
)


class ShortForm:
    """Expands short answers of one turn by its candidates."""

    def __init__(self, candidates: Iterable[Candidate], *, allows_abort: bool = True) -> None:
        self._candidates = {candidate.label: candidate for candidate in candidates}
        self._allows_abort = allows_abort

    def expand(self, value: dict[str, Any], probability: float | None) -> dict[str, Any] | Rejected:
        """Return the contract's object for a short answer; an answer in the full form is returned as it is.

        Args:
            value: The answer.
            probability: The probability that the engine measured for the choice; it replaces the stated confidence.
        """
        if not _FULL_KEYS.isdisjoint(value):
            return value
        if "ops" in value and "choice" not in value:
            return _shape_error(_ACT, value) or {"control_ir": value["ops"]}
        if "ops" in value:
            return Rejected("shape", "$.ops", "an answer has either `choice` or `ops`, not both")
        return _shape_error(_DECISION, value) or self._expand_decision(value, probability)

    def _expand_decision(self, value: dict[str, Any], probability: float | None) -> dict[str, Any] | Rejected:
        choice = value["choice"]
        candidate = self._candidates.get(choice)
        if candidate is None and not (choice == ABORT and self._allows_abort):
            return Rejected("candidate", "$.choice", short(f"{choice!r} is not a choice; use {self._labels()}"))
        confidence = value.get("confidence") if probability is None else probability
        if confidence is None:
            return Rejected("shape", "$.confidence", "it is missing; state a number from 0 to 1")
        if candidate is not None and "data" not in value:
            return Rejected("shape", "$.data", f"it is missing; {choice!r} needs its fields")
        kind = candidate.control_type if candidate else "abort"
        control = {
            "type": kind,
            "decision": "continue" if kind == "transition" else kind,
            "next_phase": candidate.next_phase if candidate and kind == "transition" else None,
            "confidence": confidence,
            "reason": {"summary": value["reason"]},
        }
        artifact = {"type": candidate.schema_name, "data": value["data"]} if candidate else None
        return {"control": control, "artifact": artifact}

    def _labels(self) -> str:
        return " or ".join(map(repr, (*self._candidates, *((ABORT,) if self._allows_abort else ()))))


def to_short_path(path: str) -> str:
    """Return the path in the short answer for a path in the contract's object."""
    for pattern, replacement in _SHORT_PATHS:
        path = pattern.sub(replacement, path)
    return path


def _shape_error(shape: Any, value: dict[str, Any]) -> Rejected | None:
    error = shape.first_error(value)
    return Rejected("shape", short(error.path("$")), short(error.message)) if error else None
