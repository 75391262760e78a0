"""A model that takes a second for each answer, so that a worker can be killed in the middle of one."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reyn.models.scripted import ScriptedModel

if TYPE_CHECKING:
    from reyn.models import ModelAnswer, ModelRequest, ModelSetup

SECONDS = float(os.environ.get("SLOW_MODEL_SECONDS", "1"))


def _decide(next_phase: str | None, text: str, *ops: dict[str, Any]) -> dict[str, Any]:
    kind = "transition" if next_phase else "finish"
    control = {"type": kind, "decision": "continue" if next_phase else "finish", "next_phase": next_phase}
    control |= {"confidence": 0.9, "reason": {"summary": text}}
    return {"control": control, "artifact": {"type": "note", "data": {"text": text}}, "control_ir": list(ops)}


ANSWERS: list[dict[str, Any] | str] = [
    _decide("draft", "Three sources were found."),
    _decide("check", "The report has a page."),
    {"control_ir": [{"kind": "ask_user", "question": "Publish the report?", "suggestions": ["yes", "no"]}]},
    _decide(None, "The report was published."),
]


class SlowModel(ScriptedModel):
    """Gives the four answers of every run, and notes each call in the file `CALLS`, outside of the journal."""

    takes_time = True

    def __init__(self, setup: ModelSetup) -> None:
        super().__init__(ANSWERS, setup.name)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Answer after `SECONDS`."""
        _note({"run": request.run_id, "call": request.call, "pid": os.getpid()})
        await asyncio.sleep(SECONDS)
        return await super().complete(request)


def _note(call: dict[str, Any]) -> None:
    if path := os.environ.get("CALLS"):
        with Path(path).open("a") as file:
            file.write(json.dumps(call) + "\n")
