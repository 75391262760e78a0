"""Write the project in which the tasks run: its skills and agents, files, memories, and tools with fixed answers."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from bench.acts.tasks import Task
from reyn.ops import Call, Env, Plan
from reyn.ops.mcp import shown_to_model
from reyn.ops.mcp.connections import McpToolDefinition
from reyn.ops.memory_files import MemoryFile, format_memory
from reyn.vocabulary.schemas import STRING, single_form

_ALLOWED = {"mcp": "allow", "memory": "allow", "run_skill": "allow"}


class CannedTool:
    """A tool whose result depends on its arguments alone: the first entry of `results` that they contain."""

    def __init__(self, kind: str, tool: dict[str, Any]) -> None:
        self._results: dict[str, str] = {str(key): text for key, text in tool["results"].items()}
        self._otherwise = tool.get("otherwise", "nothing found")
        fields = tool["arguments"]
        summary, advice, example = tool["about"], "", {name: _example(field) for name, field in fields.items()}
        if kind.startswith("mcp:"):
            schema = _closed(fields)
            server, _, name = kind.removeprefix("mcp:").partition("/")
            summary, advice, *_ = shown_to_model(server, McpToolDefinition(name, summary, schema))
            fields, example = {"args": schema}, {"args": dict.fromkeys(fields, "…")}
        self.spec = single_form(
            kind, summary, "idempotent", fields, results={"content": STRING}, example=example, advice=advice
        )

    def plan(self, call: Call, env: Env) -> Plan:
        return Plan("bench: no permission needed")

    async def perform(self, call: Call, plan: Plan, env: Env) -> dict[str, Any]:
        given = json.dumps(call.args, ensure_ascii=False).casefold()
        found = (text for key, text in self._results.items() if key.casefold() in given)
        return call.ok(content=next(found, self._otherwise))


def tools_of(tasks: list[Task]) -> list[CannedTool]:
    """Return the tools of all tasks."""
    return [CannedTool(kind, tool) for task in tasks for kind, tool in task.definition.get("tools", {}).items()]


def make_project(root: Path, tasks: list[Task]) -> None:
    """Write skills, agents, files and memories. Sub-skills and the phases after an exit need no model."""
    for name in ("reyn", "output"):
        shutil.rmtree(root / name, ignore_errors=True)
    models: dict[str, Any] = {}
    for task in tasks:
        definition = task.definition
        for name, skill in definition.get("skills", {}).items():
            _write_skill(root, name, skill["about"], skill["input"], skill["result"], f"Do this: {skill['about']}.")
            models[f"fixed_{name}"] = _fixed(root, f"fixed_{name}", skill["result"])
        for path, text in definition.get("files", {}).items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text + "\n")
        for name, text in definition.get("memories", {}).items():
            memory = MemoryFile(name, task.name, text, text, "")
            (root / memory.path).parent.mkdir(parents=True, exist_ok=True)
            (root / memory.path).write_text(format_memory(memory))
        if task.is_agent:
            _write_agent(root, task)
        else:
            output = dict.fromkeys(definition["output"], "Done.")
            _write_task(root, task)
            models[f"fixed_{task.name}"] = _fixed(root, f"fixed_{task.name}", output)
    (root / "reyn.yaml").write_text(json.dumps({"models": models, "permissions": _ALLOWED}))


def _write_agent(root: Path, task: Task) -> None:
    folder = root / "reyn" / "agents"
    folder.mkdir(parents=True, exist_ok=True)
    definition = task.definition
    front = {
        "type": "agent",
        "name": task.name,
        "skills": list(definition.get("skills", {})),
        "allowed_ops": definition["ops"],
    }
    (folder / f"{task.name}.md").write_text(f"---\n{json.dumps(front)}\n---\n{definition['task']}\n")


def _write_task(root: Path, task: Task) -> None:
    definition = task.definition
    exits = definition.get("exits", {})
    folder = _write_skill(root, task.name, task.name, definition["input"], definition["output"], definition["task"])
    after = [name for name in exits if name != "end"]
    graph = {"work": exits or ["end"], **{name: ["end"] for name in after}}
    front = {"type": "skill", "name": task.name, "entry": "work", "final_output": "result", "graph": graph}
    front |= {"description": task.name.replace("_", " "), "permissions": {"run_skill": True, "ask_user": True}}
    (folder / "skill.md").write_text(f"---\n{json.dumps(front)}\n---\n")
    phase = {"type": "phase", "name": "work", "input": "request", "allowed_ops": definition["ops"], "max_act_turns": 4}
    phase |= {"allowed_skills": list(definition["skills"])} if "skills" in definition else {}
    phase |= {"must": definition["must"]} if "must" in definition else {}
    (folder / "phases" / "work.md").write_text(f"---\n{json.dumps(phase)}\n---\n{definition['task']}\n")
    for name in after:
        phase = {"type": "phase", "name": name, "input": "result", "model_class": f"fixed_{task.name}"}
        (folder / "phases" / f"{name}.md").write_text(f"---\n{json.dumps(phase)}\n---\nDo it.\n")


def _write_skill(
    root: Path, name: str, about: str, fields: dict[str, Any], result: dict[str, Any], instructions: str
) -> Path:
    folder = root / "reyn" / "project" / name
    (folder / "phases").mkdir(parents=True)
    (folder / "artifacts").mkdir()
    front = {"type": "skill", "name": name, "description": about, "entry": "work", "final_output": "result"}
    (folder / "skill.md").write_text(f"---\n{json.dumps(front | {'graph': {'work': ['end']}})}\n---\n")
    phase: dict[str, Any] = {"type": "phase", "name": "work", "input": "request", "model_class": f"fixed_{name}"}
    phase["allowed_ops"] = []  # a model that is measured answers for sub-skills, too
    (folder / "phases" / "work.md").write_text(f"---\n{json.dumps(phase)}\n---\n{instructions}\n")
    for artifact, names in (("request", fields), ("result", result)):
        schema = _closed({name: {"type": "string"} for name in names})
        (folder / "artifacts" / f"{artifact}.yaml").write_text(json.dumps(schema))
    return folder


def _fixed(root: Path, name: str, data: dict[str, Any]) -> dict[str, str]:
    """Write a script that always finishes with the same data, and return the model that reads it."""
    control = {"reason": {"summary": "Done."}, "type": "finish", "decision": "finish", "next_phase": None}
    answer = {"control": control | {"confidence": 1}, "artifact": {"type": "result", "data": data}}
    # A script has one answer for each that the run and its sub-runs have recorded.
    (root / f"{name}.jsonl").write_text(f"{json.dumps(answer)}\n" * 50)
    return {"model": f"scripted:{name}.jsonl"}


def _closed(fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": list(fields), "additionalProperties": False, "properties": fields}


def _example(field: dict[str, Any]) -> Any:
    if "enum" in field:
        return field["enum"][0]
    return 1 if field["type"] == "integer" else "…"
