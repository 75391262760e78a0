"""A project whose model is the fake server, with invariants that hold whatever the server does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from reyn import OSRuntime, RunResult, SyncRuntime
from reyn.secrets import EnvironmentStore, MemoryStore, Secrets
from tests.models.fake_server import FakeServer
from tests.support import two_phases, write_skill

KEY = "sk-test/0123+456789abcdef"
IN = {"text": "in"}
ONE, PAIR = "one", "pair"
TIMEOUT_SECONDS = 60
"""Seconds after which a wait has failed; generous for a busy machine."""


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not condition():  # noqa: ASYNC110 - the server runs in another thread
            await asyncio.sleep(0.005)


class Caller:
    """Runs the skills `one` (one phase) and `pair` (two phases) with the model `far`."""

    key_header = "authorization"
    """The only header that may have the key."""

    def __init__(self, root: Path, server: FakeServer, **settings: Any) -> None:
        self.root = root
        self.server = server
        self.results: list[RunResult] = []
        self.secrets = MemoryStore({"FAR_KEY": KEY})
        self.environment = EnvironmentStore({})
        two_phases(root)
        write_skill(root, ONE, {"only": ["end"]})
        self.configure(**settings)

    def configure(self, others: dict[str, Any] | None = None, **settings: Any) -> None:
        """Write reyn.yaml: `settings` of `far`, and `others` as further models."""
        far = {"model": "openai:m", "base_url": self.server.url, "key": "secret://FAR_KEY"} | settings
        far = {key: value for key, value in far.items() if value is not None}
        config = {"model": "far", "models": {"far": far} | (others or {})}
        (self.root / "reyn.yaml").write_text(yaml.safe_dump(config))

    def runtime(self, model: str | None = None) -> OSRuntime:
        rt = OSRuntime.open(self.root, model=model, trust=True)
        rt.services.secrets = Secrets([self.secrets], self.environment)
        return rt

    def run(self, skill: str = ONE, run_id: str = "k", model: str | None = None) -> RunResult:
        with SyncRuntime(self.runtime(model)) as rt:
            return self.remember(rt.run(skill, IN, run_id=run_id))

    def resume(self, run_id: str = "k", **options: Any) -> RunResult:
        with SyncRuntime(self.runtime()) as rt:
            return self.remember(rt.resume(run_id, **options))

    def retry(self, run_id: str = "k") -> RunResult:
        return self.resume(run_id, retry=True)

    def remember(self, result: RunResult) -> RunResult:
        self.results.append(result)
        return result

    def events(self, *wanted: str, run_id: str = "k") -> list[dict[str, Any]]:
        with SyncRuntime(self.runtime()) as rt:
            return [event.data for event in rt.runs.events(run_id) if not wanted or event.kind in wanted]

    def codes(self, *kinds: str, run_id: str = "k") -> list[str]:
        """Return the error codes in events of these kinds, `model_retried` by default."""
        return [event["code"] for event in self.events(*kinds or ("model_retried",), run_id=run_id)]

    def texts(self, run_id: str = "k") -> list[str]:
        """Return the recorded answers."""
        with SyncRuntime(self.runtime()) as rt:
            texts = [event.data["text"] for event in rt.runs.events(run_id) if event.kind == "llm_responded"]
            return [rt.runs.content(name).decode() for name in texts]

    def check(self, records: list[logging.LogRecord], output: str) -> None:
        """Check that every run verifies and replays, and that the key is nowhere."""
        visible = [output, *map(logging.Formatter("%(name)s %(message)s").format, records)]
        with SyncRuntime(self.runtime()) as rt:
            for row in rt.runs.all():
                rt.runs.verify(row.run_id)
                rt.runs.replay(row.run_id)
                visible.extend(line.decode() for line in rt.runs.export(row.run_id))
                visible.extend(map(repr, rt.runs.events(row.run_id)))
        visible.extend(f"{result!r} {result.reason} {result.warnings} {result.artifact}" for result in self.results)
        stored = [path.read_bytes() for path in (self.root / ".reyn").rglob("*") if path.is_file()]
        for part in (KEY, KEY[:8], KEY[-8:]):
            assert not any(part in text for text in visible)
            assert not any(part.encode() in content for content in stored)
        for request in self.server.requests:
            other_headers = [value for name, value in request.headers if name.lower() != self.key_header]
            assert KEY not in f"{request.path} {other_headers} {request.raw.decode()}"
            [sent] = request.all(self.key_header)
            assert sent.removeprefix("Bearer ") in (KEY, "another-key", "no-key-is-set")
