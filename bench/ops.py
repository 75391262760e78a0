"""Measure the CPU and the commits of one op, without its system calls.

Runs with one and with eleven ops per turn have the same number of model calls, so their difference is ten ops per turn.
The journal is in memory and counts commits. CPU inside system calls on files is measured and subtracted.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple, Self

from reyn import ModelAnswer, ModelRequest, OSRuntime
from reyn.journal import MemoryJournal
from reyn.ops import Call, Denied, Env, OpForm, OpSpec, Plan, Result
from reyn.ops.execution import perform_op, plan_op
from reyn.permissions import Gate, Policy, parse_requests, parse_rules
from reyn.vocabulary.schemas import arguments, path, result
from reyn.workspace import RecordedFiles, Roots, locate

TURNS = 5
"""Turns of a measured run."""
TEXT = "a line of a file that an op reads or writes\n" * 20


class CountingJournal(MemoryJournal):
    """Counts appends."""

    appends = 0

    def append(self, *batch: Any, **more: Any) -> int:
        self.appends += 1
        return super().append(*batch, **more)


class ActingModel:
    """Performs a number of ops in each of a number of turns, then finishes."""

    name = "bench"
    takes_time = False

    def __init__(self, op: str, turns: int, ops: int) -> None:
        self._texts = [
            json.dumps({"control_ir": [_op(op, turn * ops + number) for number in range(ops)]}) for turn in range(turns)
        ]
        reason = {"summary": "done"}
        control = {"type": "finish", "decision": "finish", "next_phase": None, "confidence": 1, "reason": reason}
        self._texts.append(json.dumps({"control": control, "artifact": {"type": "note", "data": {}}}))

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        return ModelAnswer(self._texts[request.answered])


def _op(op: str, number: int) -> dict[str, Any]:
    if op == "read":
        return {"kind": "file", "op": "read", "path": "notes.txt"}
    return {"kind": "file", "op": "write", "path": f"workspace:{number % 7}.txt", "content": f"{number}\n{TEXT}"}


def write_project(root: Path) -> None:
    folder = root / "reyn" / "project" / "act"
    (folder / "phases").mkdir(parents=True)
    (folder / "artifacts").mkdir()
    (folder / "skill.md").write_text(
        "---\ntype: skill\nname: act\nentry: a\nfinal_output: note\ngraph:\n  a: [end]\n---\n"
    )
    (folder / "phases" / "a.md").write_text(
        "---\ntype: phase\nname: a\ninput: note\nallowed_ops: [file]\nmax_act_turns: 1000\n---\nWork.\n"
    )
    (folder / "artifacts" / "note.yaml").write_text('{"type": "object"}')
    (root / "notes.txt").write_text(TEXT)


class SystemCalls:
    """Context manager that measures the CPU inside system calls on files."""

    NAMES = ("open", "close", "read", "write", "fsync", "rename", "unlink", "mkdir", "stat", "lstat", "fstat", "fchmod")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.calls = 0
        self._originals: dict[tuple[Any, str], Any] = {(os, name): getattr(os, name) for name in self.NAMES}
        self._originals[fcntl, "flock"] = fcntl.flock

    def __enter__(self) -> Self:
        for (module, name), call in self._originals.items():
            setattr(module, name, self._timed(call))
        return self

    def __exit__(self, *_: object) -> None:
        for (module, name), call in self._originals.items():
            setattr(module, name, call)

    def _timed(self, call: Any) -> Any:
        def timed(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            started = time.process_time()
            try:
                return call(*args, **kwargs)
            finally:
                self.seconds += time.process_time() - started

        return timed

    def overhead(self) -> float:
        """Return the CPU of the measurement itself."""
        probe = SystemCalls()
        no_op = probe._timed(lambda: None)
        started = time.process_time()
        for _ in range(self.calls):
            no_op()
        return time.process_time() - started - probe.seconds


class NoOp:
    """An op that needs a capability and the permission for a file, and does nothing."""

    spec = OpSpec(
        "nothing",
        "Do nothing.",
        "pure",
        "web",
        forms=(
            OpForm(
                None,
                "Do nothing.",
                arguments("nothing", None, {"path": path()}),
                "pure",
                result("nothing", None, {}),
                {"kind": "nothing", "path": "a"},
            ),
        ),
    )

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        verdict = env.gate.write(locate(call.args["path"], env.roots))
        return verdict if isinstance(verdict, Denied) else Plan(verdict.rule)

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        return call.ok()


async def measure_gate(root: Path, count: int) -> float:
    """Return the CPU of the gate and the dispatch of one op: what it costs before and after the op's own work."""
    roots = Roots(root, root / ".reyn", root / ".reyn" / "workspace" / "r")
    policy = Policy(parse_rules({"web": [{"allow": "nothing"}]}, ("web",)))
    gate = Gate(roots, policy, (parse_requests({"web": True}),), "act")
    env = Env(roots, gate, lambda name: b"", RecordedFiles(), 1_000_000)
    op, spent = NoOp(), []
    for _ in range(5):
        with SystemCalls() as calls:
            started = time.process_time()
            for number in range(count):
                call = Call(f"r/{number}", {"kind": "nothing", "path": f"output/reports/{number % 7}.txt"})
                plan = plan_op(op, call, env, is_foreign=False)
                assert isinstance(plan, Plan), plan
                done = await perform_op(op, call, plan, env, is_foreign=False)
            spent.append(time.process_time() - started - calls.seconds)
        assert done.result["status"] == "ok"
        spent[-1] -= calls.overhead()
    return sorted(spent)[2] / count


class Cost(NamedTuple):
    """Average cost of one op."""

    own_seconds: float
    total_seconds: float
    commits: float


async def measure_op(root: Path, op: str, runs: int) -> Cost:
    """Return the difference between runs with eleven and with one op per turn, per op.

    The runs are short: every prompt contains the results of all earlier turns of the run, and rendering them is not a
    part of the cost of an op.
    """
    own, total, commits = [], [], []
    for ops in (1, 11):
        journal, model = CountingJournal(), ActingModel(op, TURNS, ops)
        async with OSRuntime.open(root, model=model, journal=journal) as rt:
            with SystemCalls() as calls:
                started = time.process_time()
                for _ in range(runs):
                    result = await rt.run("act", {})
                    assert result.ok, result
                spent = time.process_time() - started
        overhead = calls.overhead()
        total.append(spent - overhead)
        own.append(spent - calls.seconds - overhead)
        commits.append(journal.appends)
    return Cost(*((many - one) / (10 * TURNS * runs) for one, many in (own, total, commits)))
