"""The `handoff` object that a phase may add to its decision, if its `context` asks for one."""

from __future__ import annotations

from typing import Any

_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}

HANDOFF_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "decisions_made": _TEXTS,
        "open_risks": _TEXTS,
        "artifacts_produced": _TEXTS,
        "verdicts": {"type": "object", "additionalProperties": _TEXT},
        "goal": _TEXT,
        "epic_id": _TEXT,
        "narrative": _TEXT,
    },
    "additionalProperties": False,
}
"""Every field is optional: Reyn derives the others."""
