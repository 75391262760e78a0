from __future__ import annotations

import logging
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from tests.models.calling import Caller
from tests.models.fake_server import FakeServer, silence

C = TypeVar("C", bound=Caller)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer(silence) as server:
        yield server


@pytest.fixture
def delays(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Record the delays before retries without waiting."""
    delays_seen: list[float] = []

    async def record(seconds: float) -> None:
        delays_seen.append(seconds)

    monkeypatch.setattr("reyn.kernel.world.llm_call_recorder._sleep", record)
    return delays_seen


@pytest.fixture
def guarded(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[[C], AbstractContextManager[C]]:
    """Return a context for a caller. At its end, the runs verify and the key is nowhere."""
    # Every client would read the certificates for 50 ms, and no test needs them.
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", lambda *_, **__: None)
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda *_, **__: None)
    for variable in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(variable, raising=False)
    caplog.set_level(logging.DEBUG)

    @contextmanager
    def guard(caller: C) -> Iterator[C]:
        yield caller
        output = capfd.readouterr()
        caller.check(caplog.get_records("call"), output.out + output.err)

    return guard


@pytest.fixture
def far(tmp_path: Path, server: FakeServer, guarded: Callable[..., AbstractContextManager[Caller]]) -> Iterator[Caller]:
    """A project that uses the fake server."""
    with guarded(Caller(tmp_path, server)) as caller:
        yield caller
