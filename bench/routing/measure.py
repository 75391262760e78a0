"""Send messages to an agent with six skills, and score what the model does with each."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from reyn import SyncRuntime
from reyn.errors import ChatStopped, ModelBroken
from reyn.journal import MemoryJournal
from reyn.models import ModelAnswer, ModelRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.models.local import LocalModel

HERE = Path(__file__).parent
ItemSet = Literal["held-back", "tuning"]
SETS: tuple[ItemSet, ...] = ("held-back", "tuning")
AGENT = "desk"
_OPEN = ("running", "waiting")
_PHASE = """---
type: phase
name: work
input: request
model_class: light
---
Do the work.
"""
_DONE = {
    "control": {
        "reason": {"summary": "The work is done."},
        "type": "finish",
        "decision": "finish",
        "next_phase": None,
        "confidence": 1,
    },
    "artifact": {"type": "result", "data": {"text": "Done."}},
}


class Item(NamedTuple):
    """A message, and the skill that does what it asks for; `None` if the agent should reply itself."""

    message: str
    skill: str | None


class Score(NamedTuple):
    """What a model did with one message.

    Attributes:
        skill: The first skill that it ran; `None` if it replied.
        is_right: Whether that is the expected one.
        has_valid_input: Whether the skill accepted its input; `None` if the model ran none.
        has_replied: Whether the turn ended with a reply.
        is_open: Whether the conversation can go on with the next message.
        rejected: Number of answers that the OS rejected.
        prompt_tokens: Prompt tokens of the turn.
        output_tokens: Output tokens of the turn.
        cpu: CPU seconds of this process.
    """

    skill: str | None
    is_right: bool
    has_valid_input: bool | None = None
    has_replied: bool = True
    is_open: bool = True
    rejected: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    cpu: float = 0.0


def items_of(item_set: ItemSet) -> list[Item]:
    """Return the messages of a set."""
    rows = json.loads((HERE / "sets" / f"{item_set}.json").read_text())["items"]
    return [Item(row["message"], row["skill"]) for row in rows]


def make_project(root: Path, item_set: ItemSet) -> None:
    """Write the skills of a set, and an agent that may run them. Their phases need no model."""
    skills = json.loads((HERE / "sets" / f"{item_set}.json").read_text())["skills"]
    shutil.rmtree(root / "reyn", ignore_errors=True)
    for skill in skills:
        folder = root / "reyn" / "project" / skill["name"]
        (folder / "phases").mkdir(parents=True)
        (folder / "artifacts").mkdir()
        front = {
            "type": "skill",
            "name": skill["name"],
            "description": skill["description"],
            "entry": "work",
            "final_output": "result",
            "graph": {"work": ["end"]},
        }
        (folder / "skill.md").write_text(f"---\n{json.dumps(front)}\n---\n{skill['description']}.\n")
        (folder / "phases" / "work.md").write_text(_PHASE)
        (folder / "artifacts" / "request.yaml").write_text(json.dumps(_schema(skill["input"])))
        (folder / "artifacts" / "result.yaml").write_text(json.dumps(_schema({"text": "string"})))
    agents = root / "reyn" / "agents"
    agents.mkdir(parents=True)
    front = {"type": "agent", "name": AGENT, "skills": [skill["name"] for skill in skills], "memory": "none"}
    (agents / f"{AGENT}.md").write_text(f"---\n{json.dumps(front)}\n---\n")
    # A script has one answer for each that the conversation and its sub-runs have recorded.
    (root / "done.jsonl").write_text(f"{json.dumps(_DONE)}\n" * 50)
    config = {"models": {"light": {"model": "scripted:done.jsonl"}}}
    (root / "reyn.yaml").write_text(json.dumps(config))


def _schema(fields: dict[str, str]) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(fields),
        "additionalProperties": False,
        "properties": {name: {"type": kind} for name, kind in fields.items()},
    }


class _Catcher:
    """A model that keeps the request and does not answer."""

    name = "catcher"
    answer_form = "short"
    request: ModelRequest | None = None

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.request = request
        raise ModelBroken("the benchmark needs no answer")


def request_of(root: Path, message: str) -> ModelRequest:
    """Return the first request of a conversation."""
    catcher = _Catcher()
    with (
        SyncRuntime.open(root, model=catcher, journal=MemoryJournal()) as rt,
        rt.chat(AGENT) as chat,
        suppress(ChatStopped),
    ):
        chat.say(message)
    assert catcher.request is not None
    return catcher.request


def choices(root: Path, model: LocalModel, items: list[Item]) -> Iterator[tuple[Item, Score]]:
    """Ask a local model for the choice alone, which is the first step of its turn."""
    for item in items:
        request = request_of(root, item.message)
        cpu = time.process_time()
        choice = asyncio.run(model.choose_act(request))
        cpu = time.process_time() - cpu
        skill = choice.act.fixed.get("skill", choice.act.label) if choice.act else None
        usage = choice.usage
        tokens = (usage.input_tokens, usage.output_tokens)
        yield item, Score(skill, skill == item.skill, prompt_tokens=tokens[0], output_tokens=tokens[1], cpu=cpu)


def turns(root: Path, model: str, items: list[Item]) -> Iterator[tuple[Item, Score]]:
    """Take one turn of a new conversation for each message."""
    with SyncRuntime.open(root, model=model) as rt:
        for item in items:
            yield item, _turn(rt, item)


def _turn(rt: SyncRuntime, item: Item) -> Score:
    cpu = time.process_time()
    has_replied = False
    with rt.chat(AGENT) as chat:
        with suppress(ChatStopped):
            has_replied = chat.say(item.message).status == "replied"
        run_id = chat.run_id
    cpu = time.process_time() - cpu
    events = [event for event in rt.runs.events(run_id) if event.run_id == run_id]
    calls = [rt.runs.content(event.data["args"]) for event in events if event.kind == "run_skill_started"]
    skill = json.loads(calls[0])["skill"] if calls else None
    refused = [event for event in events if event.kind == "child_ended" and event.data.get("state") == "rejected"]
    usage = [event.data.get("usage") or {} for event in events if event.kind == "llm_responded"]
    return Score(
        skill,
        skill == item.skill,
        not refused if calls else None,
        has_replied,
        rt.runs.find(run_id).status in _OPEN,
        sum(event.kind == "validation_error" for event in events),
        sum(entry.get("input_tokens", 0) for entry in usage),
        sum(entry.get("output_tokens", 0) for entry in usage),
        cpu,
    )
