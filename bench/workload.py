"""The benchmark workload: two phases in a loop, a validated artifact of 2 KB per visit, an instant model.

Answers are prepared before the measurement. Every visit has a different answer and artifact, so neither deduplication
nor caches help more than in a real run.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from reyn import ModelAnswer, ModelRequest

SCHEMA = {
    "type": "object",
    "properties": {
        "step": {"type": "integer"},
        "lines": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"what": {"type": "string"}, "grams": {"type": "number", "minimum": 0}},
                "required": ["what", "grams"],
            },
        },
    },
    "required": ["step", "lines"],
}


def item(step: int) -> dict[str, Any]:
    """Return the data of an artifact, slightly more than 2 KB of JSON."""
    return {
        "step": step,
        "lines": [
            {"what": f"ingredient {line} of step {step}, finely chopped", "grams": line * 2.5} for line in range(30)
        ],
    }


def answer(step: int, last: bool) -> str:
    """Return the answer of one visit."""
    control: dict[str, Any] = (
        {"type": "finish", "decision": "finish", "next_phase": None}
        if last
        else {"type": "transition", "decision": "continue", "next_phase": "b" if step % 2 == 0 else "a"}
    )
    control |= {"confidence": 0.9, "reason": {"summary": "the next step is clear"}}
    return json.dumps({"control": control, "artifact": {"type": "item", "data": item(step)}, "control_ir": []})


class Answers:
    """A model with prepared answers for any number of runs of one length."""

    name = "bench"
    takes_time = False

    def __init__(self, visits: int) -> None:
        self.texts = [answer(step, last=step == visits - 1) for step in range(visits)]

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        return ModelAnswer(self.texts[request.answered])


def write_project(root: Path) -> None:
    """Write a project with the skill `loop`."""
    folder = root / "reyn" / "project" / "loop"
    (folder / "phases").mkdir(parents=True)
    (folder / "artifacts").mkdir()
    (folder / "skill.md").write_text(
        "---\ntype: skill\nname: loop\nentry: a\nfinal_output: item\ngraph:\n  a: [b, end]\n  b: [a, end]\n---\n"
    )
    for name in ("a", "b"):
        (folder / "phases" / f"{name}.md").write_text(
            f"---\ntype: phase\nname: {name}\ninput: item\nallowed_ops: []\n---\nWork on the list, step {name}.\n"
        )
    (folder / "artifacts" / "item.yaml").write_text(json.dumps(SCHEMA))


def write_chain(root: Path, phases: int, edition: int = 1) -> None:
    """Write a skill of many phases, each with a self-loop, its own artifact and a preprocessor step.

    The schemas of another edition are others, so that none of them is in a cache.
    """
    folder = root / "chain"
    (folder / "phases").mkdir(parents=True)
    (folder / "artifacts").mkdir()
    names = [f"p{number}" for number in range(phases)]
    edges = {name: [names[number + 1], name] for number, name in enumerate(names[:-1])} | {names[-1]: ["end"]}
    (folder / "skill.md").write_text(
        f"---\ntype: skill\nname: chain\nentry: p0\nfinal_output: a0\ngraph: {json.dumps(edges)}\n---\n"
    )
    for number, name in enumerate(names):
        (folder / "phases" / f"{name}.md").write_text(
            f"---\ntype: phase\nname: {name}\ninput: a{number}\nallowed_ops: []\npreprocessor:\n"
            f"  - validate: {{schema: {{type: object}}, into: data.findings}}\n---\nWork on the list, step {number}.\n"
        )
        (folder / "artifacts" / f"a{number}.yaml").write_text(
            json.dumps(SCHEMA | {"title": f"a{number} of edition {edition}"})
        )


SETTINGS: dict[str, Any] = {"max_phase_visits": 1_000_000}
FIRST = item(-1)
