"""Execute items as real runs and conversations, and score them by their events."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench.acts.project import make_project, tools_of
from bench.acts.tasks import Act, Item, Task, has_right_arguments, has_right_fields, performs, some_value
from bench.scoring import StoredScores, first_answers
from reyn import SyncRuntime
from reyn.config import ModelSettings
from reyn.errors import ChatStopped
from reyn.journal import Event, digest
from reyn.journal.kinds import AnswerForm, Usage
from reyn.models import Model, ModelAnswer, ModelRequest
from reyn.models.local import LocalModel

SETTINGS: dict[str, Any] = {"strict": True}
SCRIPTED = "scripted"
_REPLY = "Sure."


class RunScore(NamedTuple):
    """The score of one item.

    Attributes:
        needs: Number of acts that the item needs.
        calls: The ops that the run performed, or that were denied, as JSON.
        right: Number of the needed acts whose op was performed.
        complete: Number of the needed acts that were performed with the right arguments.
        first_op: Whether the first op is one that the item needs; `None` without an op, or if it needs none.
        first_args: Whether its arguments are right; `None` if `first_op` is not true.
        repeated: Number of calls with the same op and arguments as an earlier one that succeeded.
        exit: The exit that the run chose; empty if there was none.
        has_right_exit: Whether that is the expected one.
        has_right_fields: Whether the decision has the expected fields; `None` if the item expects none.
        faulty: Number of acts with invalid arguments: the OS or the sub-skill rejected them.
        valid: Number of calls of the model whose first answer was valid.
        answered: Number of calls of the model.
        input_tokens: Prompt tokens.
        cached_tokens: The part of them that the prompt cache served.
        output_tokens: Tokens of all answers.
        cpu: CPU seconds of this process.
        wall: Seconds.
        reasons: The recorded reasons.
    """

    needs: int
    calls: list[str]
    right: int
    complete: int
    first_op: bool | None
    first_args: bool | None
    repeated: int
    exit: str
    has_right_exit: bool
    has_right_fields: bool | None
    faulty: int
    valid: int
    answered: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cpu: float
    wall: float
    reasons: list[str]


class _User:
    """Answers every question of a run with the next reply of the task."""

    replies: tuple[str, ...] = ("yes",)

    async def ask(self, run_id: str, question: Any) -> Any:
        return self.replies[0]


class _Right:
    """A model that does what is right for one item. It also answers for sub-skills and the phases after an exit."""

    name = SCRIPTED

    def __init__(self, task: Task, item: Item) -> None:
        self._answers = right_answers(task, item)

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        answer = next(self._answers, None) if "." not in request.run_id else None
        if answer is None:
            [candidate] = request.candidates
            assert isinstance(candidate.artifact_schema, dict)
            answer = _answer("end", "result", dict.fromkeys(candidate.artifact_schema["properties"], "Done."))
        return ModelAnswer(json.dumps(answer))


class ActsOnly(LocalModel):
    """A local model that acts as it would, and decides without generating an answer, which takes most of the time."""

    answer_form: AnswerForm = "short"

    def _decide(self, request: ModelRequest, *_: Any) -> ModelAnswer:
        candidate = request.candidates[0]
        assert isinstance(candidate.artifact_schema, dict)
        data = dict.fromkeys(candidate.artifact_schema["properties"], "text")
        answer = {"reason": "", "choice": candidate.label, "confidence": 1, "data": data}
        return ModelAnswer(json.dumps(answer), Usage())


class Bench:
    """A project in which items are run. Scores are stored, so that an interrupted benchmark can be continued."""

    def __init__(self, root: Path, model: str, tasks: list[Task], *, acts_only: bool = False) -> None:
        root.mkdir(parents=True, exist_ok=True)
        make_project(root, tasks)
        self._root = root
        self._model = model
        self._acts_only = acts_only
        self._tasks = {task.name: task for task in tasks}
        self._tools = tools_of(tasks)
        self._user = _User()
        self._stored = StoredScores(root, RunScore)

    def scores(self, items: list[Item]) -> Iterator[tuple[Item, RunScore]]:
        """Run the items that have no score yet. Items of one task follow each other, so that the prompt cache hits."""
        named: Model | str | None = None if self._model == SCRIPTED else self._model
        if self._acts_only:
            source = self._model.partition(":")[2]
            named = ActsOnly.locate(self._model, source, ModelSettings(self._model), self._root)
        with self._open(named) as rt:
            for item in items:
                yield item, self._stored.get(self._key(rt, item), partial(self._run, rt, item))

    def _open(self, model: Model | str | None) -> SyncRuntime:
        return SyncRuntime.open(self._root, model=model, ops=self._tools, people=self._user, **SETTINGS)

    def _key(self, rt: SyncRuntime, item: Item) -> str:
        """Identify an item, the model, and the first prompt, which changes with the skill and the wording."""
        task = self._tasks[item.task]
        prompt: Any = task.definition if task.is_agent else rt.project.first_frame(item.task, item.input).messages
        return digest(json.dumps([self._model, self._acts_only, item, prompt], default=str).encode())[:16]

    def _run(self, rt: SyncRuntime, item: Item) -> RunScore:
        task = self._tasks[item.task]
        self._user.replies = tuple(task.definition.get("replies", _User.replies))
        if self._model != SCRIPTED:
            return run_score(rt, task, item)
        with self._open(_Right(task, item)) as scripted:
            return run_score(scripted, task, item)


def run_score(rt: SyncRuntime, task: Task, item: Item) -> RunScore:
    """Execute an item and score the run."""
    cpu, wall = time.process_time(), time.monotonic()
    if task.is_agent:
        with rt.chat(task.name) as chat, suppress(ChatStopped):
            chat.say(item.input)
        run_id = chat.run_id
    else:
        run_id = rt.run(task.name, item.input).run_id
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    events = [event for event in rt.runs.events(run_id) if event.run_id == run_id]
    calls = _calls(rt, events)
    chosen, data = _decision(rt, events)
    expected = "converse" if task.is_agent else item.exit
    first = calls[0] if calls and item.acts else None
    is_first = None if first is None else any(performs(act, first) for act in item.acts)
    usage = [event.data.get("usage") or {} for event in events if event.kind == "llm_responded"]
    valid, answered = first_answers(events)
    texts = [json.dumps(call, ensure_ascii=False) for call in calls]
    return RunScore(
        needs=len(item.acts),
        calls=texts,
        right=sum(any(performs(act, call) for call in calls) for act in item.acts),
        complete=sum(any(has_right_arguments(act, call) for call in calls) for act in item.acts),
        first_op=is_first,
        first_args=any(has_right_arguments(act, first) for act in item.acts) if is_first and first else None,
        repeated=len(texts) - len(set(texts)),
        exit=chosen,
        has_right_exit=chosen == expected,
        has_right_fields=has_right_fields(item.fields, data) if item.fields else None,
        faulty=sum(_is_faulty(event) for event in events),
        valid=valid,
        answered=answered,
        input_tokens=sum(entry.get("input_tokens", 0) for entry in usage),
        cached_tokens=sum(entry.get("cached_tokens", 0) for entry in usage),
        output_tokens=sum(entry.get("output_tokens", 0) for entry in usage),
        cpu=cpu,
        wall=wall,
        reasons=[event.data["reason"] for event in events if event.kind == "control_decided"],
    )


def _calls(rt: SyncRuntime, events: list[Event]) -> list[dict[str, Any]]:
    """Return the arguments of all ops that were started; of one that was denied, its kind and form."""
    calls: list[dict[str, Any]] = []
    for event in events:
        if event.kind.endswith("_started") and "args" in event.data:
            calls.append(json.loads(rt.runs.content(event.data["args"])))
        elif event.kind == "permission_denied":
            calls.append({"kind": event.data["op_kind"], "op": event.data["op"], "denied": event.data["call"]})
    return calls


def _is_faulty(event: Event) -> bool:
    """Return whether an event rejects the arguments of an op."""
    if event.kind == "child_ended":
        return bool(event.data.get("state") == "rejected")
    return event.kind == "validation_error" and event.data["class"] == "ops"


def _decision(rt: SyncRuntime, events: list[Event]) -> tuple[str, Any]:
    """Return the choice and the artifact's data of the first accepted decision."""
    for number, event in enumerate(events):
        if event.kind == "control_decided":
            choice = {"finish": "end", "abort": "abort"}.get(event.data["type"], event.data["next_phase"])
            stored = next((later for later in events[number:] if later.kind == "artifact_stored"), None)
            data = json.loads(rt.runs.content(stored.data["artifact"]["hash"])) if stored else None
            return choice, data.get("data") if isinstance(data, dict) else data
    return "", None


def right_answers(task: Task, item: Item) -> Iterator[dict[str, Any]]:
    """Yield the right answers to an item: its acts one by one, then the decision."""
    for act in item.acts:
        yield {"control_ir": [_call(task, act)]}
    fields = {"text": _REPLY} if task.is_agent else dict.fromkeys(task.definition["output"], "text")
    fields |= {name: str(some_value(value)) for name, value in item.fields.items()}
    yield _answer("converse", "reply", fields) if task.is_agent else _answer(item.exit, "result", fields)


def _answer(exit_: str, kind: str, data: dict[str, Any]) -> dict[str, Any]:
    """Return a decision in the full form."""
    is_finish = exit_ == "end"
    control_type, decision = ("finish", "finish") if is_finish else ("transition", "continue")
    control: dict[str, Any] = {"type": control_type, "decision": decision, "next_phase": None if is_finish else exit_}
    return {
        "control": control | {"confidence": 1, "reason": {"summary": "As expected."}},
        "artifact": {"type": kind, "data": data},
    }


def _call(task: Task, act: Act) -> dict[str, Any]:
    """Return a call that performs an act."""
    args = {name: some_value(value) for name, value in act.args.items()}
    if act.op == "run_skill":
        fields = task.definition["skills"][args["skill"]]["input"]
        return {"kind": "run_skill", "skill": args["skill"], "input": dict.fromkeys(fields, args["input"])}
    if act.op == "ask_user":
        return {"kind": "ask_user", "question": "What is missing?"}
    if act.op.startswith("mcp:"):
        [name, *_] = task.definition["tools"][act.op]["arguments"]
        return {"kind": act.op, "args": {name: args.pop("args")} if "args" in args else args}
    kind, _, form = act.op.partition(".")
    return {"kind": kind, **({"op": form} if form else {}), **args}
