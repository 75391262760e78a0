"""The embedded model beside what it generates: which file, how many threads, what it says when it cannot."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reyn.config import ModelSettings
from reyn.errors import ModelBroken, ModelMissing, PromptTooLong, SchemaRefused
from reyn.models import Message, ModelRequest, local
from reyn.models.local import LocalModel

ASKED = ModelRequest((Message("system", "be brief"), Message("user", "hello")), {"type": "object"}, "r", "1.1", "h")


class Engine:
    """Says what it is told to, chunk by chunk, as llama.cpp does."""

    def __init__(self, *said: Any) -> None:
        self.said = list(said)
        self.asked: list[dict[str, Any]] = []

    def handle_chat_completions(self, asked: dict[str, Any], hear: Any) -> None:
        self.asked.append(asked)
        said = self.said.pop(0)
        if isinstance(said, Exception):
            raise said
        hear(said)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalModel:
    monkeypatch.setattr(local, "_LOADED", {})
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    return LocalModel.found("far", "m.gguf", ModelSettings("local:m.gguf"), tmp_path)


def loaded(model: LocalModel, monkeypatch: pytest.MonkeyPatch, *said: Any) -> Engine:
    engine = Engine(*said)
    loaded = local._Engine.__new__(local._Engine)
    loaded._server, loaded._begun = engine, "be brief"
    loaded._prefixes = SimpleNamespace(find=lambda text: None, keep=lambda text, write: None)
    monkeypatch.setattr(local, "_engine", lambda path, settings: loaded)
    return engine


def ask(model: LocalModel) -> Any:
    return asyncio.run(model.complete(ASKED))


OVER = {"choices": [{"delta": {"content": "{}"}, "finish_reason": "stop"}]}
NO_GRAMMAR = {"error": {"code": 400, "message": "Failed to initialize samplers: failed to parse grammar"}}


@pytest.mark.parametrize("refusal", [NO_GRAMMAR, ValueError("JSON schema error at #: unrecognized type")])
def test_a_contract_that_no_grammar_can_be_made_of_is_asked_for_freely_and_visibly(
    model: LocalModel, monkeypatch: pytest.MonkeyPatch, refusal: Any
):
    engine = loaded(model, monkeypatch, refusal, OVER, OVER)
    with pytest.raises(SchemaRefused) as caught:
        ask(model)
    assert caught.value.instead == "free"
    assert [ask(model).mode, ask(model).mode] == ["free", "free"]
    assert ["response_format" in asked for asked in engine.asked] == [True, False, False]


def test_a_mode_that_was_set_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "m.gguf").write_bytes(b"GGUF")
    model = LocalModel.found("far", "m.gguf", ModelSettings("local:m.gguf", mode="grammar"), tmp_path)
    loaded(model, monkeypatch, NO_GRAMMAR, NO_GRAMMAR)
    for _ in range(2):
        with pytest.raises(SchemaRefused) as caught:
            ask(model)
        assert caught.value.instead == ""


def test_what_is_too_long_says_which_setting_helps(model: LocalModel, monkeypatch: pytest.MonkeyPatch):
    loaded(model, monkeypatch, {"error": {"message": "exceeds", "type": "exceed_context_size_error"}}, OSError("odd"))
    with pytest.raises(PromptTooLong) as caught:
        ask(model)
    assert "context_tokens" in caught.value.hint
    with pytest.raises(ModelBroken, match="odd"):
        ask(model)


def test_damaged_weights_are_pulled_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "weights.gguf"
    path.write_bytes(b"garbage")
    monkeypatch.setattr(local, "weights_path", lambda weights: path)
    with pytest.raises(ModelMissing) as caught:
        LocalModel.found("local", "", ModelSettings("local"), tmp_path)
    assert "reyn models pull smollm2" in caught.value.hint


@pytest.mark.parametrize(("quota", "cores"), [("max 100000", 8), ("250000 100000", 2), ("50000 100000", 1), ("odd", 8)])
def test_a_container_has_the_cores_that_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, cores: int
):
    (tmp_path / "cpu.max").write_text(f"{quota}\n")
    monkeypatch.setattr(local, "_CPU_MAX", tmp_path / "cpu.max")
    monkeypatch.setattr(local.os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    assert local._cores() == cores
