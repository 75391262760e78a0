"""The SDK of a model is imported while the user writes."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from reyn import SyncRuntime
from reyn.cli.chat.terminal import SdkLoading
from reyn.models import catalog
from tests.cli.support import Terminal, write_answers
from tests.support import finish, go


def test_a_message_waits_for_the_import_and_the_terminal_reacts_meanwhile(capsys: pytest.CaptureFixture[str]):
    may_end, order = threading.Event(), []

    async def talk() -> None:
        loading = SdkLoading(lambda: [may_end.wait(), order.append("imported")][0])
        waiting = asyncio.ensure_future(loading.wait())
        await asyncio.sleep(0)
        order.append("the loop is free")
        assert capsys.readouterr().out == "  connecting to the model ...\n"
        may_end.set()
        await waiting
        await loading.wait()

    asyncio.run(talk())
    assert order == ["the loop is free", "imported"]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("model", "adapters"),
    [("fast", ["openai"]), ("openai:big", ["openai"]), ("scripted:answers.jsonl", []), ("", []), ("nobody:x", [])],
)
def test_only_the_sdk_of_the_model_is_imported(
    here: Path, monkeypatch: pytest.MonkeyPatch, model: str, adapters: list[str]
):
    (here / "reyn.yaml").write_text("models: {fast: openai:small}\n")
    found: list[str] = []

    class Remote:
        @staticmethod
        def import_sdk() -> None:
            raise ImportError("is not installed, which the call of the model reports")

    monkeypatch.setattr(catalog, "remote_class", lambda adapter: [found.append(adapter), Remote][1])
    with SyncRuntime.open(here) as runtime:
        runtime.project.preload_model(model)
    assert found == adapters


def test_the_live_line_is_shown_before_the_first_event(here: Path):
    write_answers(here, go("second"), finish("end"))
    terminal = Terminal(here, "run", "pair", '{"text": "in"}', "--run-id", "r")
    assert "run r" not in terminal.wait_for("  starting")
    assert terminal.end().code == 0
