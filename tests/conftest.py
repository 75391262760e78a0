from __future__ import annotations

import os
import signal
import socket
import sqlite3
import warnings
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from reyn.models.endpoints import ENDPOINTS
from tests.properties import ALL_CASES, spread
from tests.support import two_phases

settings.register_profile(
    "ci",
    max_examples=100 if ALL_CASES else 25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
)
settings.register_profile("quick", settings.get_profile("ci"), max_examples=10)
settings.load_profile("ci")

LONG = tuple(f"tests/{name}" for name in ("test_programs", "test_decisions", "examples/", "contributing/", "docs/"))

for _name in [name for name in os.environ if name.startswith("REYN_") or name.lower().endswith("_proxy")]:
    del os.environ[_name]  # settings of the user, for runs and for connections

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts background jobs with SIGINT ignored, and the processes that tests start would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


class OwnedConnection(sqlite3.Connection):
    """Names the test that opened it and left it open: Python finds that later, in another test, and from 3.13 on."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        self._is_open, self._owner = False, os.environ.get("PYTEST_CURRENT_TEST", "no test")
        super().__init__(*args, **settings)
        self._is_open = True

    def close(self) -> None:
        self._is_open = False
        super().close()

    def __del__(self) -> None:
        if self._is_open:
            self.close()
            warnings.warn(f"a database that was opened by {self._owner} was not closed", ResourceWarning, stacklevel=1)


connect_database = sqlite3.connect


def connect_owned(*args: Any, **settings: Any) -> sqlite3.Connection:
    connection: sqlite3.Connection = connect_database(*args, **{"factory": OwnedConnection} | settings)
    return connection


sqlite3.connect = connect_owned  # type: ignore[assignment]


def pytest_report_header() -> str:
    try:
        return f"openai: {version('openai')}"
    except PackageNotFoundError:
        return "openai: not installed"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark properties as sampled: `make test` has a quarter of their examples."""
    if hasattr(getattr(item, "function", None), "hypothesis"):
        item.add_marker("sampled")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Choose the cases of tests, and start the longest first: no process has one left when the others are done."""
    is_quick = config.getoption("--hypothesis-profile") == "quick"
    chosen = sampled(items, 3 if is_quick else len(items))
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


def sampled(items: list[pytest.Item], most: int) -> set[pytest.Item]:
    """Return the cases that are executed: of each test at most so many, and fewer if it is marked so."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    chosen: set[pytest.Item] = set()
    for cases in tests.values():
        mark = cases[0].get_closest_marker("sampled")
        counts = [most, *(mark.args if mark and not ALL_CASES else ())]
        chosen.update(spread(cases, min(counts)))
    return chosen


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
def no_project_above(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Fail a test that makes a project of a folder above those of the tests: it would be the project of all others."""
    yield
    folder = tmp_path_factory.getbasetemp()
    projects = [str(one) for one in (folder, *folder.parents) if (one / "reyn.yaml").exists()]
    assert projects == [], "a folder above those of the tests is a project"


@pytest.fixture(autouse=True)
def new_endpoints() -> None:
    """Forget the endpoints that other tests have called: a process remembers their failures."""
    ENDPOINTS.reset()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with the skill `pair`: `first`, then `second`, then the end."""
    two_phases(tmp_path)
    return tmp_path
