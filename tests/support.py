"""Small skills, and the answers to execute them with."""

from __future__ import annotations

import gc
import json
import select
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from reyn.ops import standard_ops
from reyn.skills import Library, LoadResult, Skill
from reyn.skills import load_skill as _load_skill
from reyn.skills import read_skill as _read_skill

VOCABULARY = standard_ops().vocabulary

NOTE = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def write_skill(
    root: Path,
    name: str,
    graph: Mapping[str, list[str] | dict[str, str]],
    *,
    entry: str | None = None,
    artifacts: dict[str, Any] | None = None,
    inputs: dict[str, str] | None = None,
    phase_keys: dict[str, str] | None = None,
    skill_keys: str = "",
    final_output: str = "note",
    ops: dict[str, str] | None = None,
) -> Path:
    """Write a skill whose phases accept a `note` and have no ops, unless the arguments say otherwise."""
    folder = root / "reyn" / "project" / name
    (folder / "phases").mkdir(parents=True, exist_ok=True)
    (folder / "artifacts").mkdir(exist_ok=True)
    edges = json.dumps(graph)
    begin = entry or next(iter(graph))
    begin = f"'{begin}'" if begin.startswith("@") else begin
    (folder / "skill.md").write_text(
        f"---\ntype: skill\nname: {name}\nentry: {begin}\nfinal_output: {final_output}\n"
        f"graph: {edges}\n{skill_keys}---\nFor people.\n"
    )
    for phase in graph:
        input_type = (inputs or {}).get(phase, "note")
        extra = (phase_keys or {}).get(phase, "")
        if phase.startswith("@"):
            continue
        allowed = (ops or {}).get(phase, "")
        (folder / "phases" / f"{phase}.md").write_text(
            f"---\ntype: phase\nname: {phase}\ninput: {input_type}\nallowed_ops: [{allowed}]\n{extra}---\n"
            f"Do what {phase} does.\n"
        )
    for artifact, schema in ({"note": NOTE} | (artifacts or {})).items():
        (folder / "artifacts" / f"{artifact}.yaml").write_text(json.dumps(schema))
    return folder


def go(next_phase: str, text: str = "on", type: str = "note", **control: Any) -> dict[str, Any]:
    """A transition."""
    return {
        "control": {
            "type": "transition",
            "decision": "continue",
            "next_phase": next_phase,
            "confidence": 0.5,
            "reason": {"summary": f"to {next_phase}"},
        }
        | control,
        "artifact": {"type": type, "data": {"text": text}},
        "control_ir": [],
    }


def finish(text: str = "done", type: str = "note") -> dict[str, Any]:
    return {
        "control": {
            "type": "finish",
            "decision": "finish",
            "next_phase": None,
            "confidence": 1,
            "reason": {"summary": "complete"},
        },
        "artifact": {"type": type, "data": {"text": text}},
    }


def act(*ops: dict[str, Any]) -> dict[str, Any]:
    return {"control_ir": list(ops)}


def with_ops(decision: dict[str, Any], *ops: dict[str, Any]) -> dict[str, Any]:
    """A decision that carries ops."""
    return decision | {"control_ir": list(ops)}


def file(op: str, path: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "file", "op": op, "path": path} | fields


def question(text: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "ask_user", "question": text} | fields


def abort(reason: str = "impossible") -> dict[str, Any]:
    return {
        "control": {
            "type": "abort",
            "decision": "abort",
            "next_phase": None,
            "confidence": 1,
            "reason": {"summary": reason},
        },
        "artifact": {},
    }


def two_phases(root: Path) -> None:
    write_skill(root, "pair", {"first": ["second"], "second": ["end"]})


def load_skill(folder: Path, library: Library | None = None) -> Skill:
    return _load_skill(folder, VOCABULARY, library)


def read_skill(folder: Path, library: Library | None = None) -> LoadResult:
    return _read_skill(folder, VOCABULARY, library)


def is_readable(descriptor: int, seconds: float | None = 0) -> bool:
    """Return whether a descriptor can be read now, or within some seconds; `None` waits until it can."""
    poll = select.poll()  # unlike `select`, it takes descriptors above 1,023
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(None if seconds is None else seconds * 1000))


def seconds_of(work: Callable[[], object]) -> float:
    """Return the CPU time that this thread spends, without collections of what earlier tests of the process left."""
    gc.collect()
    gc.freeze()
    started = time.thread_time()
    try:
        work()
        return time.thread_time() - started
    finally:
        gc.unfreeze()


def grows_too_fast(look: Callable[[int], object], size: int) -> bool:
    """Return whether four times the size takes clearly more than four times as long, in each of three tries.

    Quadratic time is sixteen times as long.
    """
    look(10)
    return all(seconds_of(lambda: look(4 * size)) > 8 * seconds_of(lambda: look(size)) + 0.5 for _ in range(3))
