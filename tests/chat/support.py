"""An agent for tests: a model that answers by what it sees, and skills that it can run."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from reyn import OSRuntime, SyncRuntime
from reyn.journal import decode, kinds
from reyn.models import ModelAnswer, ModelRequest
from reyn.skills.resolve import STDLIB
from tests.support import act, finish, write_skill


def reply(text: str) -> dict[str, Any]:
    """A reply, after which the conversation goes on."""
    return {
        "control": {
            "type": "transition",
            "decision": "continue",
            "next_phase": "converse",
            "confidence": 0.9,
            "reason": {"summary": "answered"},
        },
        "artifact": {"type": "reply", "data": {"text": text}},
    }


def ending_chat(root: Path) -> None:
    """Replace the skill `chat` of a project by one in which the model can end the conversation."""
    folder = root / "reyn" / "project" / "chat"
    shutil.copytree(STDLIB / "skills" / "chat", folder)
    path = folder / "skill.md"
    front, edge, rest = path.read_text().partition("    converse:")
    path.write_text(f"{front}    end: the user says goodbye\n{edge}{rest}")


def bye(text: str) -> dict[str, Any]:
    """The last reply."""
    return finish(text, "reply")


def run_skill(skill: str, **input: Any) -> dict[str, Any]:
    return act({"kind": "run_skill", "skill": skill, "input": input or {"text": "x"}})


def start_skill(skill: str, **input: Any) -> dict[str, Any]:
    return act({"kind": "start_skill", "skill": skill, "input": input or {"text": "x"}})


def ask_agent(agent: str, message: str) -> dict[str, Any]:
    return act({"kind": "ask_agent", "agent": agent, "message": message})


Answer = dict[str, Any] | Callable[[ModelRequest], dict[str, Any] | Awaitable[dict[str, Any]]]


class Agent:
    """Answers messages of the user by the first rule whose text the last message contains; other phases finish.

    Attributes:
        seen: The last message of every request.
        work: Set it to let the phases of other skills answer.
    """

    name = "agent"

    def __init__(self, **rules: Answer) -> None:
        self._rules = rules
        self.seen: list[str] = []
        self.systems: list[str] = []
        self.work = asyncio.Event()
        self.work.set()

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        if request.phase != "converse":
            await self.work.wait()
            return ModelAnswer(json.dumps(finish(f"done by {request.phase}")))
        last = request.messages[-1].text
        self.seen.append(last)
        self.systems.append(request.messages[0].text)
        if last.startswith("# Results"):
            return ModelAnswer(json.dumps(reply(f"Result: {last}")))
        for word, answer in self._rules.items():
            if word in last:
                found = answer(request) if callable(answer) else answer
                return ModelAnswer(json.dumps(await found if isinstance(found, Awaitable) else found))
        said, _, _ = last.partition("Open questions, which this message does not answer:")
        return ModelAnswer(json.dumps(reply(f"You said: {said.rstrip()}")))


def skills(root: Path, *names: str, **keys: str) -> None:
    """Write skills with one phase that takes a message."""
    for name in names:
        extra = {"work": keys.get(name, "")}
        write_skill(root, name, {"work": ["end"]}, inputs={"work": "user_message"}, phase_keys=extra,
                    skill_keys=f"description: Make a {name}\n")  # fmt: skip


def recorded_replies(rt: OSRuntime | SyncRuntime, run_id: str) -> list[str]:
    """Return the replies to the questions of a run."""
    bodies = (decode(event) for event in rt.runs.events(run_id))
    return [json.loads(rt.runs.content(body.value)) for body in bodies if isinstance(body, kinds.WaitAnswered)]
