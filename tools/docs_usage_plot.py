"""Draw docs/guides/usage.svg: what `reyn usage --format svg` prints for a project with two weeks of runs.

The runs are real, with a provider that answers at once and a clock that jumps from day to day. With `--check`, compare
the file instead of writing it.
"""

from __future__ import annotations

import random
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from reyn import ModelAnswer, ModelRequest, SyncRuntime, Usage
from reyn.cli.charts import usage_svg
from reyn.config.budgets import PriceSettings
from reyn.models import Model
from reyn.testing import ScriptedModel

PLOT = Path(__file__).parent.parent / "docs" / "guides" / "usage.svg"
_FIRST_DAY = datetime(2026, 11, 2, 9, tzinfo=UTC)
_DAYS = 14
_BUDGETS: dict[str, Any] = {"day": {"cost": 2.5}}
_SKILL = "---\ntype: skill\nname: {0}\nentry: answer\nfinal_output: note\ngraph: {{answer: [end]}}\n---\nFor people.\n"
_PHASE = "---\ntype: phase\nname: answer\ninput: note\nallowed_ops: []\n---\nAnswer the message.\n"
_NOTE = '{"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}'
_ANSWER = {
    "control": {
        "type": "finish",
        "decision": "finish",
        "next_phase": None,
        "confidence": 0.9,
        "reason": {"summary": "answered"},
    },
    "artifact": {"type": "note", "data": {"text": "done"}},
}


class Calendar:
    """A clock that the program sets."""

    def __init__(self) -> None:
        self.time = _FIRST_DAY

    def now(self) -> int:
        self.time += timedelta(milliseconds=7)
        return int(self.time.timestamp() * 1_000_000)


class Provider(ScriptedModel):
    """A provider with a price and random usage."""

    takes_time = True
    price = PriceSettings(25.0, 100.0, 12.5)

    def __init__(self, chance: random.Random) -> None:
        super().__init__([_ANSWER])
        self._chance = chance

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        tokens = self._chance.randrange(400, 1900)
        reply = await super().complete(request)
        return ModelAnswer(reply.text, Usage(tokens, self._chance.randrange(200, 1000), tokens // 3))


def draw() -> str:
    """Return the plot."""
    chance, clock = random.Random(7), Calendar()  # noqa: S311 - not a secret
    model: Model = Provider(chance)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("triage", "reply"):
            _write_skill(Path(folder) / "reyn" / "project" / name, name)
        with SyncRuntime.open(folder, model=model, clock=clock, budgets=_BUDGETS) as runtime:
            for day in range(_DAYS):
                clock.time = _FIRST_DAY + timedelta(days=day)
                is_weekend = clock.time.weekday() >= 5
                for number in range(chance.randrange(1, 4) if is_weekend else chance.randrange(9, 22)):
                    runtime.run(("triage", "reply")[number % 2], {"text": "hello"}, run_id=f"{day}-{number}")
            return usage_svg(runtime.runs.usage("day"))


def _write_skill(folder: Path, name: str) -> None:
    (folder / "phases").mkdir(parents=True)
    (folder / "artifacts").mkdir()
    (folder / "skill.md").write_text(_SKILL.format(name))
    (folder / "phases" / "answer.md").write_text(_PHASE)
    (folder / "artifacts" / "note.yaml").write_text(_NOTE)


def main() -> int:
    """Write the plot, or with `--check` compare it."""
    plot = draw()
    if "--check" in sys.argv:
        return int(PLOT.read_text(encoding="utf-8") != plot)
    PLOT.write_text(plot, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
