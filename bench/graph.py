"""Measure what the graph decides without a model: rules, expressions, fan-out, and the lint of many rules."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reyn import ModelAnswer, ModelRequest, OSRuntime
from reyn.expressions import Scope, compile_expression
from reyn.expressions.types import of_schema
from reyn.lint import lint_skill

Results = dict[str, float]

CONDITION = "data.score >= 0.8 && data.tags.exists(t, t == 'urgent') && size(data.items) > 3 && data.kind in ['a', 'b']"
"""What an author decides with: comparisons, a macro, a size and a list."""
DATA = {"score": 0.9, "tags": ["new", "large", "urgent"], "items": [1, 2, 3, 4], "kind": "b"}
SCHEMA = {
    "type": "object",
    "properties": {
        "score": {"type": "number"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "items": {"type": "array", "items": {"type": "integer"}},
        "kind": {"type": "string"},
    },
    "required": ["score", "tags", "items", "kind"],
}
LATENCY = 0.1
"""Seconds that the model of a branch takes."""


def write_skill(
    root: Path, name: str, front: dict[str, Any], phases: dict[str, str], artifacts: dict[str, Any]
) -> Path:
    """Write a skill; phases are their front matter and instructions."""
    folder = root / "reyn" / "project" / name
    for part in ("phases", "artifacts"):
        (folder / part).mkdir(parents=True)
    (folder / "skill.md").write_text(f"---\n{json.dumps({'type': 'skill', 'name': name} | front)}\n---\n")
    for phase, text in phases.items():
        (folder / "phases" / f"{phase}.md").write_text(f"---\ntype: phase\nname: {phase}\n{text}")
    for artifact, schema in artifacts.items():
        (folder / "artifacts" / f"{artifact}.yaml").write_text(json.dumps(schema))
    return folder


def write_rules(root: Path, name: str, rules: Sequence[dict[str, str]]) -> Path:
    """Write a skill whose only node visits itself, by some rules."""
    front = {"entry": "decide", "final_output": "order", "graph": {"decide": list(rules)}}
    return write_skill(root, name, front, {"decide": "input: order\n---\n"}, {"order": SCHEMA})


async def measure_visits(count: int) -> Results:
    """Measure the CPU of a visit that decides with three expressions, and of one that decides nothing."""
    decides = [
        {"when": f"data.score > 1.0 && {CONDITION}", "to": "end"},
        {"when": f"visits.decide >= {count}", "to": "end"},
    ]
    decides += [{"when": CONDITION, "to": "decide"}, {"else": "decide"}]
    empty = [{"when": f"visits.decide >= {count}", "to": "end"}, {"else": "decide"}]
    spent: dict[str, list[float]] = {"decides": [], "empty": []}
    with tempfile.TemporaryDirectory() as folder:
        for name, rules in (("decides", decides), ("empty", empty)):
            write_rules(Path(folder), name, rules)
        async with OSRuntime.open(
            folder, model=Writers(), max_phase_visits=count + 1, limits={"no_progress": None}
        ) as rt:
            for number in range(5):
                for name, times in spent.items():
                    started = time.process_time()
                    result = await rt.run(name, DATA, run_id=f"{name}-{number}")
                    times.append((time.process_time() - started) / count)
                    assert result.ok, result
    costs = {f"{name}_us": min(times) * 1e6 for name, times in spent.items()}
    return costs | {"added_us": costs["decides_us"] - costs["empty_us"]}


def measure_expression(count: int) -> Results:
    """Measure the CPU of evaluating an expression."""
    expression = compile_expression(CONDITION, Scope(artifacts=(("order", of_schema(SCHEMA)),)))
    values = {"data": DATA}
    rounds = []
    for _ in range(5):
        started = time.process_time()
        for _ in range(count):
            expression.is_true(values)
        rounds.append((time.process_time() - started) / count)
    return {"expression_us": min(rounds) * 1e6}


class Writers:
    """A model that takes some time for each branch."""

    name = "writers"
    takes_time = True

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        await asyncio.sleep(LATENCY)
        control = {
            "type": "finish",
            "decision": "finish",
            "next_phase": None,
            "confidence": 1,
            "reason": {"summary": "r"},
        }
        return ModelAnswer(json.dumps({"control": control, "artifact": {"type": "note", "data": {"text": "done"}}}))


async def measure_fan_out(count: int) -> Results:
    """Measure the time of branches, one after the other and ten at once."""
    note = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    plan = {"type": "object", "properties": {"items": {"type": "array", "items": note}}, "required": ["items"]}
    seconds: Results = {}
    with tempfile.TemporaryDirectory() as folder:
        for parallel in (1, 10):
            each = {"in": "data.items", "do": "write", "output": "note", "max_parallel": parallel}
            nodes = {"split": {"each": each, "as": "notes"}}
            front = {"entry": "split", "final_output": "notes", "graph": {"split": ["end"]}, "nodes": nodes}
            phases = {"split": "input: plan\n---\n", "write": "input: note\nallowed_ops: []\n---\nWrite.\n"}
            write_skill(Path(folder), f"fan{parallel}", front, phases, {"note": note, "plan": plan})
        async with OSRuntime.open(folder, model=Writers()) as rt:
            items = {"items": [{"text": str(number)} for number in range(count)]}
            for parallel in (10, 1):
                started, cpu = time.perf_counter(), time.process_time()
                result = await rt.run(f"fan{parallel}", items)
                seconds[f"parallel_{parallel}_s"] = time.perf_counter() - started
                seconds["branch_ms"] = (time.process_time() - cpu) / count * 1e3
                assert result.ok, result
    return seconds | {"ratio": seconds["parallel_1_s"] / seconds["parallel_10_s"]}


def measure_lint(count: int) -> Results:
    """Measure the CPU of linting a skill with many rules."""
    rules = [
        {"when": f"data.score >= {number / count} && visits.decide < {number + 1}", "to": "end"}
        for number in range(count)
    ]
    rounds = []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as folder:
            skill = write_rules(Path(folder), "many", [*rules, {"else": "end"}])
            started = time.process_time()
            findings = lint_skill(skill)
            rounds.append(time.process_time() - started)
            assert not [one for one in findings if one.severity == "error"], findings[:3]
    return {"lint_s": min(rounds)}


async def measure_graph(count: int) -> Results:
    """Measure all of it: `count` visits and evaluations, a hundred branches, a thousand rules."""
    visits = await measure_visits(count)
    branches = await measure_fan_out(min(count, 100))
    return visits | measure_expression(count) | branches | measure_lint(min(count, 1000))
