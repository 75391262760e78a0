"""Measure a call of an MCP tool, and an iteration over sub-runs that execute together.

The server of the MCP tool is another process and is not counted. The two sides of the ratio of an iteration are
measured in the same process; the model takes 50 ms for each answer.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from reyn import ModelAnswer, ModelRequest, OSRuntime

SERVER = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    results = {
        "initialize": {"protocolVersion": request.get("params", {}).get("protocolVersion"),
                       "capabilities": {"tools": {}}, "serverInfo": {"name": "bench", "version": "1"}},
        "tools/list": {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": "x" * 1000}]},
    }
    if "id" in request:
        result = results.get(request["method"])
        outcome = {"result": result} if result else {"error": {"code": -32601, "message": "unknown"}}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], **outcome}), flush=True)
"""
NOTE = "type: object\nadditionalProperties: true\n"


def _write_skill(root: Path, name: str, phase_keys: str, skill_keys: str = "") -> None:
    folder = root / "reyn" / "project" / name
    (folder / "phases").mkdir(parents=True)
    (folder / "artifacts").mkdir()
    (folder / "skill.md").write_text(
        f"---\ntype: skill\nname: {name}\nentry: a\nfinal_output: note\ngraph:\n  a: [end]\n{skill_keys}---\n"
    )
    (folder / "phases" / "a.md").write_text(f"---\ntype: phase\nname: a\ninput: note\n{phase_keys}---\nWork.\n")
    (folder / "artifacts" / "note.yaml").write_text(NOTE)


def _finish() -> str:
    reason = {"summary": "done"}
    control = {"type": "finish", "decision": "finish", "next_phase": None, "confidence": 1, "reason": reason}
    return json.dumps({"control": control, "artifact": {"type": "note", "data": {}}})


class _Caller:
    """Calls the tool a number of times in one turn, then finishes."""

    name = "bench"
    takes_time = False

    def __init__(self, calls: int) -> None:
        self._texts = [json.dumps({"control_ir": [{"kind": "mcp:bench/echo"}] * calls}), _finish()]

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        return ModelAnswer(self._texts[request.answered])


class _Slow:
    """Answers after 50 ms."""

    name = "bench"

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        await asyncio.sleep(0.05)
        return ModelAnswer(_finish())


async def measure_mcp(root: Path, count: int) -> dict[str, float]:
    """Return the CPU of one call, in milliseconds: runs with 1 and with 41 calls differ in 40 calls."""
    server = root / "server.py"
    server.write_text(SERVER)
    settings: dict[str, Any] = {
        "mcp": {"servers": {"bench": {"command": [sys.executable, str(server)]}}},
        "permissions": {"mcp": "allow"},
    }
    async with OSRuntime.open(root, **settings) as runtime:
        runtime.project.accept_mcp_tools(await runtime.project.mcp_tools("bench"))
    _write_skill(root, "call", "allowed_ops: ['mcp:bench/echo']\n", "permissions: {mcp: [bench]}\n")
    rounds, cpu = max(3, count // 40), {1: 0.0, 41: 0.0}
    for calls in cpu:
        async with OSRuntime.open(root, model=_Caller(calls), **settings) as runtime:
            assert (await runtime.run("call", {})).ok  # starts the server
            before = time.process_time()
            for _ in range(rounds):
                assert (await runtime.run("call", {})).ok
            cpu[calls] = time.process_time() - before
    return {"call_ms": (cpu[41] - cpu[1]) / (40 * rounds) * 1000}


async def measure_iteration(root: Path, items: int) -> dict[str, float]:
    """Return how much faster an iteration over sub-runs is with `concurrency: 10`: the median of five rounds."""
    _write_skill(root, "item", "")
    for concurrency in (1, 10):
        step = (
            f"{{over: data.items, concurrency: {concurrency}, into: data.all, apply: {{run_skill: {{skill: item}}}}}}"
        )
        _write_skill(root, f"many{concurrency}", f"preprocessor:\n  - iterate: {step}\n")
    value = {"items": [{"number": number} for number in range(items)]}
    async with OSRuntime.open(root, model=_Slow()) as runtime:

        async def seconds(skill: str) -> float:
            before = time.perf_counter()
            assert (await runtime.run(skill, value)).ok
            return time.perf_counter() - before - 0.05  # the parent's own answer

        await seconds("many10")  # compiles the skills
        rounds = [(await seconds("many1"), await seconds("many10")) for _ in range(5)]
    one, ten = sorted(rounds, key=lambda pair: pair[0] / pair[1])[2]
    return {"ratio": one / ten, "one_s": one, "ten_s": ten}
