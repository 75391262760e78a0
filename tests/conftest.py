from __future__ import annotations

import os
import signal
import socket
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from reyn.models.endpoints import ENDPOINTS
from tests.support import two_phases

settings.register_profile("ci", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("quick", settings.get_profile("ci"), max_examples=15)
settings.load_profile("ci")

for _name in [name for name in os.environ if name.startswith("REYN_")]:
    del os.environ[_name]  # settings of the user's own projects

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs with SIGINT ignored, and the processes that tests start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str:
    try:
        return f"openai: {version('openai')}"
    except PackageNotFoundError:
        return "openai: not installed"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print what became of each attack in each sandbox."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, ())]
    rows = [value for report in reports for name, value in report.user_properties if name == "sandbox"]
    if rows:
        terminalreporter.section("sandbox x attack")
        for backend, attack, outcome in sorted(rows, key=lambda row: (row[1], row[0])):
            terminalreporter.write_line(f"{attack:<40} {backend:<12} {outcome}")


@pytest.fixture(autouse=True)
def no_sockets(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test that opens a connection, unless it is marked with `sockets`."""
    if request.node.get_closest_marker("sockets"):
        return

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError(f"a socket was opened: {args!r}")

    for name in ("connect", "connect_ex", "bind"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture(autouse=True)
def own_configuration(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Give each test a user configuration of its own, which does not exist yet; also to the processes it starts."""
    folder = tmp_path_factory.getbasetemp() / f"config-{abs(hash(request.node.nodeid)):x}"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))


@pytest.fixture(autouse=True)
def new_endpoints() -> None:
    """Forget the endpoints that other tests have called: a process remembers their failures."""
    ENDPOINTS.reset()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the skill `pair`: `first`, then `second`, then the end."""
    two_phases(tmp_path)
    return tmp_path
