"""Verdicts on an answer: a decision, an act turn, or a rejection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from reyn.texts import truncated

if TYPE_CHECKING:
    from reyn.jsonschema.validation import SchemaError


class Accepted(msgspec.Struct, frozen=True):
    """A valid decision. `artifact` is `None` only for an abort; `dropped` counts characters around the object.

    `handoff` is the handoff object of the answer, if the phase asks for one. `artifact_json` is the canonical JSON of
    the artifact, if parsing the answer produced it.
    """

    type: Literal["transition", "finish", "abort"]
    decision: Literal["continue", "finish", "abort"]
    next_phase: str | None
    confidence: float
    reason: str
    artifact: dict[str, Any] | None
    ops: tuple[dict[str, Any], ...] = ()
    dropped: int = 0
    handoff: dict[str, Any] | None = None
    artifact_json: bytes | None = None


class Rejected(msgspec.Struct, frozen=True):
    """An invalid answer: the class of the violated rule, the JSON path, and a message for the model."""

    rule: str
    path: str
    message: str
    dropped: int = 0

    @classmethod
    def by(cls, rule: str, error: SchemaError, path: str) -> Rejected:
        """Return the rejection of a value that a schema does not allow; `path` leads to the value."""
        return cls(rule, bounded(error.path(path)), bounded(error.message))


class Acting(msgspec.Struct, frozen=True):
    """A valid act turn: ops to perform before the model is called again.

    Attributes:
        ops: The ops; of a native call that is invalid, as much as it names.
        dropped: Counts characters around the object.
        is_native: Whether they are native tool calls, which may be performed at the same time.
        errors: The errors of native calls that are invalid, by their position. At least one call is valid.
    """

    ops: tuple[dict[str, Any], ...]
    dropped: int = 0
    is_native: bool = False
    errors: dict[int, Rejected] = {}


Judgement = Accepted | Acting | Rejected

REJECTION_CLASSES = (
    "empty",
    "size",
    "depth",
    "not_json",
    "duplicate_key",
    "not_object",
    "shape",
    "consistency",
    "candidate",
    "artifact_type",
    "schema",
    "ops",
    "value",
)
"""The classes of rules that an answer can violate."""


def bounded(message: str) -> str:
    """Shorten a message, which may quote a long answer, for journal and prompt."""
    return truncated(message, _MAX_ERROR_CHARS)


_MAX_ERROR_CHARS = 500
