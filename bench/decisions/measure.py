"""Execute items as real runs and score them by their events."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from bench.decisions.tasks import HERE, Item, expected_value, files, has_right_fields
from bench.scoring import StoredScores, first_answers
from reyn import SyncRuntime
from reyn.contract import Candidate, candidates_of
from reyn.journal import Event, digest
from reyn.models import Model
from reyn.models.scripted import ScriptedModel
from reyn.skills import Skill

SETTINGS: dict[str, Any] = {"max_phase_visits": 6, "strict": True}
_PLACEHOLDER = re.compile(r'"<[^<>"]*>"')
SCRIPTED = "scripted"


class RunScore(NamedTuple):
    """The score of one run.

    Attributes:
        choice: The first decision: the next phase, `end` or `abort`; empty if there was none.
        has_right_choice: Whether it is the expected one, after the expected reads.
        has_right_fields: Whether its artifact has the expected fields; `None` if the item expects none.
        is_finished: Whether the run finished.
        valid: Number of calls whose first answer was valid.
        calls: Number of calls, without retries.
        answers: Number of answers, with retries.
        placeholders: Number of answers that contain a placeholder such as `<text>`.
        input_tokens: Prompt tokens of all answers.
        cached_tokens: The part of them that the prompt cache served.
        output_tokens: Tokens of all answers.
        cpu: CPU seconds of this process.
        wall: Seconds.
    """

    choice: str
    has_right_choice: bool
    has_right_fields: bool | None
    is_finished: bool
    valid: int
    calls: int
    answers: int
    placeholders: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cpu: float
    wall: float


def make_project(root: Path) -> None:
    """Write the skills and the files that they read."""
    target = root / "reyn" / "project"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(HERE / "skills", target)
    for name, text in files().items():
        (root / name).write_text(text + "\n")


class Bench:
    """A project in which items are run. Scores are stored in it, so that an interrupted benchmark can be continued."""

    def __init__(self, root: Path, model: str, settings: dict[str, Any]) -> None:
        root.mkdir(parents=True, exist_ok=True)
        make_project(root)
        self._root = root
        self._model = model
        self._settings = SETTINGS | settings
        self._stored = StoredScores(root, RunScore)

    def scores(self, items: list[Item]) -> Iterator[tuple[Item, RunScore]]:
        """Run the items that have no score yet. Items of one task follow each other, so that the prompt cache hits."""
        named = self._model if self._model != SCRIPTED else None
        with SyncRuntime.open(self._root, model=named, **self._settings) as rt:
            for item in items:
                yield item, self._stored.get(self._key(rt, item), partial(self._run, rt, item))

    def _key(self, rt: SyncRuntime, item: Item) -> str:
        """Identify an item, the model, and the first prompt, which changes with the skill and the wording."""
        frame = rt.project.first_frame(item.task, item.input)
        contract = json.dumps([item.task, item.input, item.expect.choice, str(item.expect), self._settings])
        return digest(json.dumps([self._model, contract, frame.messages]).encode())[:16]

    def _run(self, rt: SyncRuntime, item: Item) -> RunScore:
        if self._model == SCRIPTED:
            model: Model = ScriptedModel(right_answers(rt.project.load(item.task), item))
            with SyncRuntime.open(self._root, model=model, **self._settings) as scripted:
                return run_score(scripted, item)
        return run_score(rt, item)


def run_score(rt: SyncRuntime, item: Item) -> RunScore:
    """Execute an item and score the run."""
    cpu, wall = time.process_time(), time.monotonic()
    result = rt.run(item.task, item.input)
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    events = list(rt.runs.events(result.run_id))
    choice, data = _first_decision(events, rt.runs.content)
    reads = _files_read(events, rt.runs.content)
    answers = [event for event in events if event.kind == "llm_responded"]
    texts = [rt.runs.content(event.data["text"]).decode() for event in answers]
    usage = [event.data.get("usage") or {} for event in answers]
    is_right = choice == item.expect.choice and item.expect.reads in (None, reads)
    valid, calls = first_answers(events)
    return RunScore(
        choice=choice,
        has_right_choice=is_right,
        has_right_fields=is_right and has_right_fields(item.expect.fields, data) if item.expect.fields else None,
        is_finished=result.status == "finished",
        valid=valid,
        calls=calls,
        answers=len(answers),
        placeholders=sum(_PLACEHOLDER.search(text) is not None for text in texts),
        input_tokens=sum(entry.get("input_tokens", 0) for entry in usage),
        cached_tokens=sum(entry.get("cached_tokens", 0) for entry in usage),
        output_tokens=sum(entry.get("output_tokens", 0) for entry in usage),
        cpu=cpu,
        wall=wall,
    )


def right_answers(skill: Skill, item: Item) -> Iterator[dict[str, Any]]:
    """Yield the right answers to an item: the ops and the decision that it expects, then the way to the finish."""
    reads = sorted(item.expect.reads or ())
    if reads:
        yield {"control_ir": [{"kind": "file", "op": "read", "path": path} for path in reads]}
    phase, wanted, fields = skill.entry, item.expect.choice, item.expect.fields
    while phase != "end":
        candidate = _candidate(candidates_of(skill, phase), wanted)
        finish = candidate.control_type == "finish"
        data = _minimal(candidate.artifact_schema)
        yield {
            "control": {
                "type": candidate.control_type,
                "decision": "finish" if finish else "continue",
                "next_phase": None if finish else candidate.next_phase,
                "confidence": 1,
                "reason": {"summary": "expected"},
            },
            "artifact": {
                "type": candidate.schema_name,
                "data": data | {name: expected_value(value) for name, value in fields.items()},
            },
        }
        phase, wanted, fields = candidate.next_phase, "end", {}


def _candidate(candidates: tuple[Candidate, ...], wanted: str) -> Candidate:
    return next((candidate for candidate in candidates if candidate.next_phase == wanted), candidates[0])


def _minimal(schema: Any) -> Any:
    """Return a value of a schema of this benchmark; they use few keywords."""
    if "enum" in schema:
        return schema["enum"][0]
    match schema["type"]:
        case "object":
            return {name: _minimal(field) for name, field in schema["properties"].items()}
        case "array":
            return []
        case "string":
            return "text"
    return 1


def _first_decision(events: list[Event], content: Callable[[str], bytes]) -> tuple[str, Any]:
    """Return the choice and the artifact's data of the first accepted decision."""
    for number, event in enumerate(events):
        if event.kind == "control_decided":
            choice = {"finish": "end", "abort": "abort"}.get(event.data["type"], event.data["next_phase"])
            stored = next((later for later in events[number:] if later.kind == "artifact_stored"), None)
            data = json.loads(content(stored.data["artifact"]["hash"])) if stored else None
            return choice, data.get("data") if isinstance(data, dict) else data
    return "", None


def _files_read(events: list[Event], content: Callable[[str], bytes]) -> frozenset[str]:
    """Return the paths that the run read."""
    calls = {event.data["call"]: event.data["args"] for event in events if event.kind == "file_started"}
    done = [event for event in events if event.kind == "file_completed" and event.data["status"] == "ok"]
    arguments = [json.loads(content(calls[event.data["call"]])) for event in done]
    return frozenset(str(entry["path"]) for entry in arguments if entry.get("op") == "read")
