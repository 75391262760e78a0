"""`notify`: the command or the webhook is called about questions and failures, at least once, beside the runs."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from reyn.api import ChatRuntime
from reyn.runtime.notifying import Notifier
from tests.gateway.support import QUESTION, run_async, serving
from tests.support import finish

LINK = "http://127.0.0.1:8300"
RECEIVER = """
import os, pathlib, sys
here = pathlib.Path(sys.argv[1])
(here / "received").open("a").write(sys.stdin.read() + os.environ["REYN_LINK"] + "\\n")
sys.exit(0 if (here / "works").exists() else 1)
"""


class Webhook:
    """A server on this machine that takes requests, and answers with these statuses in turn; 0 never answers."""

    def __init__(self, *statuses: int) -> None:
        self.received: list[tuple[dict[str, str], dict[str, Any]]] = []
        self._statuses = iter(statuses)
        self.port = 0

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
        body = await reader.readexactly(int(headers["content-length"]))
        self.received.append((headers, json.loads(body)))
        if status := next(self._statuses, 204):
            writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
            await writer.drain()
        else:
            await reader.read()  # until the client is gone
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


@asynccontextmanager
async def webhook(*statuses: int) -> AsyncIterator[Webhook]:
    found = Webhook(*statuses)
    server = await asyncio.start_server(found.take, "127.0.0.1", 0)
    found.port = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        await server.wait_closed()


@asynccontextmanager
async def notifying(runtime: ChatRuntime) -> AsyncIterator[None]:
    """Notify of the runs of a project, without pauses."""
    notifier = Notifier(runtime.services, LINK, look_seconds=0.01, first_pause=0.01)
    task = asyncio.ensure_future(notifier.watch())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], Any]) -> Any:
    while not (found := condition()):  # noqa: ASYNC110 - what another task records has no event here
        await asyncio.sleep(0.01)
    return found


def sent(runtime: ChatRuntime, run: str) -> list[dict[str, Any]]:
    return [event.data for event in runtime.runs.events(run) if event.kind == "notification_sent"]


def configure(root: Path, port: int, *, rule: str = "allow: ['private:127.0.0.1:{port}']", more: str = "") -> None:
    rules = f"permissions: {{web: {{{rule.format(port=port)}}}}}\n" if rule else ""
    (root / "reyn.yaml").write_text(f"{rules}notify: {{url: 'http://127.0.0.1:{port}/hook'{more}}}\n")


@pytest.mark.sockets
def test_a_webhook_gets_names_and_a_link_until_it_accepts_them(tmp_path: Path):
    async def work() -> None:
        async with webhook(500, 302, 200) as hook:
            configure(tmp_path, hook.port)
            async with serving(tmp_path, [QUESTION, finish("thanks")]) as served:
                runtime = served.site.runtime
                async with notifying(runtime):
                    await runtime.run("asker", {"text": "secret plan"}, run_id="q")
                    [delivered] = await until(lambda: sent(runtime, "q"))
                assert (delivered["event"], delivered["attempts"]) == ("question", 3)
                assert runtime.runs.verify("q").events == (await runtime.runs.replay("q")).events
                question = runtime.runs.result("q").question
                assert question is not None
                runtime.answer("q", question.id, "the blue one")
                assert (await runtime.resume("q")).ok
                assert runtime.runs.verify("q").events == (await runtime.runs.replay("q")).events
        assert len({headers["idempotency-key"] for headers, _ in hook.received}) == 1
        assert [body for _, body in hook.received] == [
            {"id": f"q/{question.id}", "event": "question", "run": "q", "skill": "asker", "link": f"{LINK}/runs/q"}
        ] * 3

    run_async(work)


@pytest.mark.sockets
def test_a_notification_that_a_kill_interrupted_is_delivered_by_the_next_server_and_then_no_more(tmp_path: Path):
    async def work() -> None:
        async with webhook(0, 204) as hook:
            configure(tmp_path, hook.port)
            async with serving(tmp_path, [QUESTION, *[{"no": "decision"}] * 3]) as served:
                runtime = served.site.runtime
                await runtime.run("asker", {"text": "in"}, run_id="q")
                async with notifying(runtime):
                    await until(lambda: hook.received)
                assert sent(runtime, "q") == []
                async with notifying(runtime):
                    await until(lambda: sent(runtime, "q"))
                before = len(hook.received)
                async with notifying(runtime):
                    await runtime.run("pair", {"text": "in"}, run_id="other")
                    await until(lambda: sent(runtime, "other"))
                assert [body["run"] for _, body in hook.received[before:]] == ["other"]
                assert sent(runtime, "other")[0]["event"] == "failed"

    run_async(work)


@pytest.mark.sockets
@pytest.mark.parametrize(
    "rule", ["", "deny: ['127.0.0.1']", "allow: ['127.0.0.1:1']", "ask: ['private:127.0.0.1:{port}']"]
)
def test_a_webhook_needs_a_rule_that_allows_its_host(tmp_path: Path, rule: str, caplog: pytest.LogCaptureFixture):
    async def work() -> None:
        async with webhook() as hook:
            configure(tmp_path, hook.port, rule=rule)
            async with serving(tmp_path, [QUESTION]) as served:
                runtime = served.site.runtime
                with caplog.at_level(logging.WARNING, "reyn.notify"):
                    async with notifying(runtime):
                        assert (await runtime.run("asker", {"text": "in"}, run_id="q")).status == "waiting"
                        await until(lambda: "attempt 2" in caplog.text)
                assert (hook.received, sent(runtime, "q")) == ([], [])
        assert "`permissions.web` does not allow `127.0.0.1" in caplog.text or "private or loopback" in caplog.text

    run_async(work)


def test_a_command_gets_the_notification_and_is_called_again_after_a_failure(tmp_path: Path):
    async def work() -> None:
        (tmp_path / "receiver.py").write_text(RECEIVER)
        command = json.dumps([sys.executable, str(tmp_path / "receiver.py"), str(tmp_path)])
        (tmp_path / "reyn.yaml").write_text(f"notify: {{command: {command}, link: 'https://reyn.example.com'}}\n")
        received = tmp_path / "received"
        async with serving(tmp_path, [QUESTION]) as served:
            runtime = served.site.runtime
            async with notifying(runtime):
                await runtime.run("asker", {"text": "in"}, run_id="q")
                await until(received.exists)
                (tmp_path / "works").touch()
                await until(lambda: sent(runtime, "q"))
        assert '"run":"q"' in received.read_text()
        assert "https://reyn.example.com/runs/q" in received.read_text()

    run_async(work)


def test_a_command_that_hangs_is_ended_and_delays_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    async def work() -> None:
        command = json.dumps([sys.executable, "-c", "import time; time.sleep(600)"])
        (tmp_path / "reyn.yaml").write_text(f"notify: {{command: {command}, seconds: 0.05}}\n")
        async with serving(tmp_path, [QUESTION, finish("thanks")]) as served:
            runtime = served.site.runtime
            with caplog.at_level(logging.WARNING, "reyn.notify"):
                async with notifying(runtime):
                    question = (await runtime.run("asker", {"text": "in"}, run_id="q")).question
                    await until(lambda: "did not end within 0.05 seconds" in caplog.text)
                    assert question is not None
                    runtime.answer("q", question.id, "yes")
                    assert (await runtime.resume("q")).ok
            assert sent(runtime, "q") == []

    run_async(work)


def test_nothing_is_called_without_trust(tmp_path: Path):
    async def work() -> None:
        (tmp_path / "reyn.yaml").write_text("notify: {command: [touch, started]}\n")
        async with serving(tmp_path, [QUESTION], trust=False) as served:
            runtime = served.site.runtime
            await runtime.run("asker", {"text": "in"}, run_id="q")
            await runtime.project.notify(LINK)  # returns at once
        assert not (tmp_path / "started").exists()

    run_async(work)
