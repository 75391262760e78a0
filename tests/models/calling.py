"""A project whose model is the fake server, and what must be true of it whatever the server did."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from reyn import OSRuntime, RunResult, SyncRuntime
from reyn.secrets import MemoryStore, Secrets
from tests.models.fake_server import FakeServer
from tests.support import two_phases, write_skill

KEY = "sk-test/0123+456789abcdef"
IN = {"text": "in"}
ONE, PAIR = "one", "pair"
HANGS = 60
"""Seconds after which a wait has failed. Nothing waits as long, however busy the machine is."""


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANGS):
        while not is_so():  # noqa: ASYNC110 - the server lives in another thread
            await asyncio.sleep(0.005)


class Caller:
    """Runs of `one` (a single phase) and `pair` (two), asking the model `far`."""

    def __init__(self, root: Path, server: FakeServer, **settings: Any) -> None:
        self.root = root
        self.server = server
        self.results: list[RunResult] = []
        self.secrets = MemoryStore({"FAR_KEY": KEY})
        two_phases(root)
        write_skill(root, ONE, {"only": ["end"]})
        self.configure(**settings)

    def configure(self, others: dict[str, Any] | None = None, **settings: Any) -> None:
        """`others` are further models, `settings` those of `far`."""
        far = {"model": "openai:m", "base_url": self.server.url, "key": "secret://FAR_KEY"} | settings
        far = {key: value for key, value in far.items() if value is not None}
        written = {"model": "far", "models": {"far": far} | (others or {})}
        (self.root / "reyn.yaml").write_text(yaml.safe_dump(written))

    def runtime(self, model: str | None = None) -> OSRuntime:
        rt = OSRuntime.open(self.root, model=model)
        rt.secrets = Secrets([self.secrets])
        return rt

    def run(self, skill: str = ONE, run_id: str = "k", model: str | None = None) -> RunResult:
        with SyncRuntime(self.runtime(model)) as rt:
            return self.kept(rt.run(skill, IN, run_id=run_id))

    def resume(self, run_id: str = "k", **how: Any) -> RunResult:
        with SyncRuntime(self.runtime()) as rt:
            return self.kept(rt.resume(run_id, **how))

    def retry(self, run_id: str = "k") -> RunResult:
        return self.resume(run_id, retry=True)

    def kept(self, result: RunResult) -> RunResult:
        self.results.append(result)
        return result

    def events(self, *wanted: str, run_id: str = "k") -> list[dict[str, Any]]:
        with SyncRuntime(self.runtime()) as rt:
            return [event.data for event in rt.events(run_id) if not wanted or event.kind in wanted]

    def codes(self, *kinds: str, run_id: str = "k") -> list[str]:
        """The codes of what went wrong on the way."""
        return [event["code"] for event in self.events(*kinds or ("model_retried",), run_id=run_id)]

    def texts(self, run_id: str = "k") -> list[str]:
        """What the model said, as it was recorded."""
        with SyncRuntime(self.runtime()) as rt:
            said = [event.data["text"] for event in rt.events(run_id) if event.kind == "llm_responded"]
            return [rt.content(name).decode() for name in said]

    def check(self, logged: list[logging.LogRecord], printed: str) -> None:
        """Every run is whole and derived again to the byte; the key is nowhere."""
        seen = [printed, *map(logging.Formatter("%(name)s %(message)s").format, logged)]
        with SyncRuntime(self.runtime()) as rt:
            for row in rt.runs():
                rt.verify(row.run_id)
                rt.replay(row.run_id)
                seen.extend(line.decode() for line in rt.export(row.run_id))
                seen.extend(map(repr, rt.events(row.run_id)))
        seen.extend(f"{result!r} {result.reason} {result.warnings} {result.artifact}" for result in self.results)
        stored = [path.read_bytes() for path in (self.root / ".reyn").rglob("*") if path.is_file()]
        for spelled in (KEY, KEY[:8], KEY[-8:]):
            assert not any(spelled in text for text in seen)
            assert not any(spelled.encode() in content for content in stored)
        for asked in self.server.asked:
            elsewhere = [value for name, value in asked.headers if name.lower() != "authorization"]
            assert KEY not in f"{asked.path} {elsewhere} {asked.raw.decode()}"
            assert asked.all("authorization") in ([f"Bearer {KEY}"], ["Bearer another-key"], ["Bearer no-key-is-set"])
