"""What an answer comes to: a decision, ops to perform first, or a rejection with its class, place and reason."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Accepted(msgspec.Struct, frozen=True):
    """A decision the OS may carry out. `artifact` is `None` only for an abort; `dropped` counts the characters around
    the object that were left aside."""

    type: Literal["transition", "finish", "abort"]
    decision: Literal["continue", "finish", "abort"]
    next_phase: str | None
    confidence: float
    reason: str
    artifact: dict[str, Any] | None
    ops: tuple[dict[str, Any], ...] = ()
    dropped: int = 0


class Acting(msgspec.Struct, frozen=True):
    """Ops to perform before the model is asked again; no decision yet."""

    ops: tuple[dict[str, Any], ...]
    dropped: int = 0


class Rejected(msgspec.Struct, frozen=True):
    """Why not, where, and in words that the model can act on."""

    rule: str
    path: str
    message: str
    dropped: int = 0


Verdict = Accepted | Acting | Rejected

CLASSES = (
    "empty",
    "size",
    "depth",
    "not_json",
    "not_object",
    "shape",
    "consistency",
    "candidate",
    "artifact_type",
    "schema",
    "placeholder",
    "ops",
)
"""The classes of rules by which an answer can be rejected."""


def short(message: str) -> str:
    """A message that a journal and a prompt can bear, whatever it quotes."""
    return message if len(message) <= _LONGEST_MESSAGE else message[: _LONGEST_MESSAGE - 1] + "…"


_LONGEST_MESSAGE = 500
