"""Models written in Python: the values in their requests, and the tracebacks of their exceptions."""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
from pathlib import Path
from typing import Any

import pytest

from reyn import ModelAnswer, ModelRequest, OSRuntime, RunResult
from reyn.journal import MemoryJournal
from reyn.models import Candidate
from reyn.testing import ScriptedModel
from tests.support import finish, go, two_phases, write_skill


class FunctionModel:
    """Calls a function for each request."""

    name = "function"
    takes_time = False

    def __init__(self, function: Any) -> None:
        self.function = function
        self.requests: list[ModelRequest] = []

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.requests.append(request)
        answer = self.function(request)
        return ModelAnswer(answer if isinstance(answer, str) else json.dumps(answer))


def run(
    root: Path, model: Any, skill: str = "pair", value: Any = None, **options: Any
) -> tuple[RunResult, MemoryJournal]:
    journal = MemoryJournal()

    async def main() -> RunResult:
        async with OSRuntime.open(root, model=model, journal=journal, **options) as runtime:
            return await runtime.run(skill, value or {"text": "in"}, run_id="k")

    return asyncio.run(main()), journal


def decide(request: ModelRequest) -> dict[str, Any]:
    """Take the first exit, from values alone."""
    candidate = request.candidates[0]
    text = f"{request.phase}: {request.input['data']['text']}"
    return finish(text) if candidate.next_phase == "end" else go(candidate.next_phase, text)


def test_a_request_contains_phase_input_and_candidates_as_values(tmp_path: Path):
    two_phases(tmp_path)
    model = FunctionModel(decide)
    result, _ = run(tmp_path, model)
    assert result.artifact == {"type": "note", "data": {"text": "second: first: in"}}
    first, second = model.requests
    assert (first.phase, first.input) == ("first", {"type": "note", "data": {"text": "in"}})
    assert (second.phase, second.input["data"]["text"]) == ("second", "first: in")
    [candidate] = first.candidates
    assert isinstance(candidate, Candidate)
    assert (candidate.next_phase, candidate.control_type, candidate.schema_name) == ("second", "transition", "note")
    assert candidate.artifact_schema["properties"]["text"] == {"type": "string"}
    assert candidate.description
    assert [(c.next_phase, c.control_type) for c in second.candidates] == [("end", "finish")]


def test_the_input_of_a_request_is_not_truncated(tmp_path: Path):
    write_skill(tmp_path, "one", {"only": ["end"]})
    model = FunctionModel(lambda request: finish())
    value = {"text": "long " * 10_000}
    result, _ = run(tmp_path, model, "one", value)
    assert result.ok
    assert model.requests[0].input == {"type": "note", "data": value}
    assert len(model.requests[0].messages[-1].text) < 40_000


def test_the_values_of_a_request_are_not_recorded(tmp_path: Path):
    """Models that ignore them get the same request hash and record the same events."""
    two_phases(tmp_path)
    model = FunctionModel(decide)
    _, journal = run(tmp_path, model)
    answers = [json.dumps(decide(request)) for request in model.requests]
    _, scripted = run(tmp_path, ScriptedModel(answers, name="function"))
    recorded, expected = ([(e.kind, e.data) for e in each.read("k")] for each in (journal, scripted))
    assert recorded == expected


def fail_deeply(request: ModelRequest) -> Any:
    return {"a": 1}["no such key"]


def test_an_exception_of_a_model_is_logged_with_its_traceback(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    two_phases(tmp_path)
    result, journal = run(tmp_path, FunctionModel(fail_deeply))
    assert (result.status, result.code) == ("failed", "RYN505")
    assert result.reason == "model `function` raised KeyError: 'no such key'"
    assert "`reyn.models`" in result.hint
    [record] = [record for record in caplog.records if record.name == "reyn.models"]
    assert (record.levelno, record.getMessage()) == (logging.ERROR, "model `function` raised an exception")
    assert record.exc_info is not None
    frames = [frame.name for frame in traceback.extract_tb(record.exc_info[2])]
    assert frames[-1] == "fail_deeply"
    [failed] = [event.data for event in journal.read("k") if event.kind == "llm_failed"]
    assert "Traceback" not in json.dumps(failed)


def test_the_traceback_of_a_configured_adapter_is_logged_for_debugging_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    two_phases(tmp_path)
    (tmp_path / "answers.jsonl").write_text("")
    monkeypatch.setattr("reyn.models.catalog.open_model", lambda *args: FunctionModel(fail_deeply))
    for level, expected in ((logging.INFO, 0), (logging.DEBUG, 1)):
        caplog.clear()
        caplog.set_level(level, "reyn.models")
        run(tmp_path, "scripted:answers.jsonl")
        records = [record for record in caplog.records if record.name == "reyn.models"]
        assert len(records) == expected
        assert all("fail_deeply" in record.getMessage() and record.exc_info is None for record in records)


def test_invalid_token_counts_are_a_warning_without_library_messages(tmp_path: Path):
    class Miscounting(FunctionModel):
        async def complete(self, request: ModelRequest) -> ModelAnswer:
            return ModelAnswer((await super().complete(request)).text, usage={"input_tokens": "many"})

    two_phases(tmp_path)
    result, _ = run(tmp_path, Miscounting(decide))
    assert result.ok
    assert result.warnings[0] == "model `function` reported invalid token counts: {'input_tokens': 'many'}"
