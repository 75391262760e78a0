from __future__ import annotations

import functools
import logging
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.models.calling import Caller
from tests.models.fake_server import FakeServer, silence

CERTIFICATES = functools.cache(ssl.create_default_context)
"""Read once: every client reads them, for 50 ms, and none here needs them."""


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(silence) as server:
        yield server


@pytest.fixture
def rests(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The waits before a model is asked again, which take no time here."""
    waited: list[float] = []

    async def rest(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("reyn.kernel.llm_call_recorder._sleep", rest)
    return waited


@pytest.fixture
def far(
    tmp_path: Path,
    server: FakeServer,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Caller]:
    """A project that asks the fake server. Whatever a test does to it: its runs are whole, and nobody sees its key."""
    monkeypatch.setattr(ssl, "create_default_context", CERTIFICATES)
    for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(variable, raising=False)
    caplog.set_level(logging.DEBUG)
    caller = Caller(tmp_path, server)
    yield caller
    printed = capfd.readouterr()
    caller.check(caplog.get_records("call"), printed.out + printed.err)
