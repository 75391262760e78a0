"""Programs that run with the user's rights are bounded as well, and end with everything that they started."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from reyn.sandbox import Access, ProgramLimits, in_thread, run_program, run_unconfined, supervision
from reyn.sandbox.backends import BACKENDS
from reyn.sandbox.process import Backend, python_program
from reyn.sandbox.supervision import PartialFolder, supervise
from tests.attacks.test_sandbox import survivors, usable
from tests.support import is_readable

LIMITS = ProgramLimits(seconds=60)
IGNORE = (
    "import signal\nfor n in range(1, 64):\n  try: signal.signal(n, signal.SIG_IGN)\n  except Exception: pass\n"
    "while True: pass"
)


def command_lines() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # the process has ended
            yield path.read_bytes()


def python(code: str, *arguments: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", code, *arguments)


def unconfined(code: str, *arguments: str, limits: ProgramLimits = LIMITS, stdin: bytes = b""):
    return run_unconfined(python(code, *arguments), "/", limits, stdin=stdin)


def test_output_input_and_exit_code_are_returned():
    outcome = unconfined("import sys\nprint(sys.stdin.read())\nprint('e', file=sys.stderr)\nsys.exit(3)", stdin=b"in")
    assert (outcome.status, outcome.returncode, outcome.stdout, outcome.stderr) == ("exited", 3, b"in\n", b"e\n")


def test_large_input_and_output_do_not_block_each_other():
    data = b"x" * 3_000_000
    code = "import sys\nwhile chunk := sys.stdin.buffer.read(1000): sys.stdout.buffer.write(chunk)"
    outcome = unconfined(code, stdin=data, limits=ProgramLimits(seconds=60, output_bytes=4_000_000))
    assert (outcome.stdout, outcome.truncated) == (data, False)


def test_a_program_that_reads_no_input_is_no_problem():
    assert unconfined("pass", stdin=b"x" * 1_000_000).returncode == 0


def test_output_is_cut_at_its_limit():
    outcome = unconfined("print('x' * 100_000)", limits=ProgramLimits(seconds=60, output_bytes=1_000))
    assert (len(outcome.stdout), outcome.truncated, outcome.status) == (1_000, True, "exited")


def test_a_signal_is_a_negative_exit_code():
    assert unconfined("import os\nos.kill(os.getpid(), 9)").returncode == -9


def test_a_missing_program_is_an_error_of_the_program():
    outcome = run_unconfined(("no-such-program",), "/", LIMITS)
    assert (outcome.returncode, outcome.stderr) == (127, b"no-such-program: No such file or directory\n")


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        IGNORE,
        "import os\nif os.fork() == 0:\n  os.setsid()\n  os.fork()\nwhile True: pass",
        "import os\nos.close(1)\nos.close(2)\nwhile True: pass",
    ],
    ids=["loop", "ignores signals", "leaves its session", "closes its output"],
)
def test_everything_ends_when_the_time_is_up(code: str):
    mark = f"loop-{os.getpid()}-{time.monotonic_ns()}"
    assert unconfined(code, mark, limits=ProgramLimits(seconds=1)).status == "timeout"
    assert survivors(mark) == []


def test_a_process_that_is_left_behind_ends_with_the_program():
    mark = f"daemon-{os.getpid()}-{time.monotonic_ns()}"
    code = "import os\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n    while True: pass\nos._exit(0)"
    assert unconfined(code, mark).returncode == 0
    assert survivors(mark) == []


def test_the_environment_is_not_inherited(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REYN_TEST_SECRET", "x")
    outcome = unconfined("import os\nprint([name for name in os.environ if 'REYN' in name])")
    assert outcome.stdout == b"[]\n"


def test_a_cancelled_task_ends_its_program():
    mark = f"cancel-{os.getpid()}-{time.monotonic_ns()}"

    async def main() -> None:
        argv = python("while True: pass", mark)
        work = asyncio.create_task(in_thread(lambda stop: run_unconfined(argv, "/", LIMITS, stop=stop)))
        while sum(mark.encode() in line for line in command_lines()) < 2:  # noqa: ASYNC110 - the reaper and the program
            await asyncio.sleep(0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(main())
    assert survivors(mark) == []


def test_a_process_with_many_open_files_can_run_programs():
    """A descriptor above 1,023 is too large for `select`."""
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    try:
        done = unconfined("print('x')")
    finally:
        for descriptor in opened:
            os.close(descriptor)
    assert (done.stdout, done.returncode) == (b"x\n", 0)


def test_output_is_read_after_the_time_for_it(monkeypatch: pytest.MonkeyPatch):
    """As after a suspension of this process."""
    monkeypatch.setattr(supervision, "_DRAIN_SECONDS", -1.0)
    # Linux fills a pipe without a reader up to 64 KiB.
    monkeypatch.setattr(supervision._Supervision, "_watch", ended_unread)
    assert unconfined("print('x' * 60_000)").stdout == b"x" * 60_000 + b"\n"


def ended_unread(self: supervision._Supervision) -> tuple[str, str]:
    """Wait until the process has ended, and read nothing before."""
    is_readable(self._pidfd, None)
    self._has_ended = True
    return "exited", ""


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
class TestAccess:
    """What a program may use is there; what is hidden below it is not."""

    @pytest.fixture(autouse=True)
    def files(self, backend: Backend, tmp_path: Path) -> None:
        usable(backend)
        (tmp_path / "open").mkdir()
        (tmp_path / "open/a.txt").write_text("a")
        (tmp_path / "open/.env").write_text("secret")
        (tmp_path / "open/.git").mkdir()
        (tmp_path / "open/.git/config").write_text("secret")
        (tmp_path / "outside.txt").write_text("outside")
        (tmp_path / "open/link").symlink_to(tmp_path / "outside.txt")

    def show(self, backend: Backend, tmp_path: Path, code: str, **access) -> str:
        folder = str(tmp_path / "open")
        seen = PartialFolder(folder, ("a.txt", "link"), (".env", ".git"))
        given = {"folders": (seen,), "cwd": folder} | access
        outcome = run_program(backend, ("/bin/sh", "-c", code), Access(**given), LIMITS)
        return outcome.stdout.decode() + f"({outcome.returncode})"

    def test_a_readable_folder(self, backend: Backend, tmp_path: Path):
        assert self.show(backend, tmp_path, "read x < a.txt; echo $x") == "a\n(0)"

    @pytest.mark.parametrize("name", [".env", ".git/config", "link", "../outside.txt"])
    def test_hidden_files_and_links_out_of_it(self, backend: Backend, tmp_path: Path, name: str):
        assert self.show(backend, tmp_path, f"read x < {name} && echo $x").startswith("(")

    def test_nothing_can_be_written_there(self, backend: Backend, tmp_path: Path):
        assert self.show(backend, tmp_path, "echo x > a.txt; echo x > new.txt").endswith(("(1)", "(2)"))
        assert (tmp_path / "open/a.txt").read_text() == "a"
        assert not (tmp_path / "open/new.txt").exists()

    def test_a_writable_folder(self, backend: Backend, tmp_path: Path):
        (tmp_path / "work").mkdir()
        work = str(tmp_path / "work")
        assert self.show(backend, tmp_path, f"echo new > {work}/new.txt", write=(work,)) == "(0)"
        assert (tmp_path / "work/new.txt").read_text() == "new\n"

    @pytest.mark.sockets
    @pytest.mark.parametrize("network", [True, False])
    def test_the_network_is_there_only_if_it_is_granted(self, backend: Backend, network: bool):
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            code = f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 30)"
            argv = (python_program(), "-S", "-s", "-P", "-B", "-c", code)
            outcome = run_program(backend, argv, Access(network=network), LIMITS)
            assert (outcome.returncode == 0) == network, outcome.stderr

    def test_a_signal_is_a_negative_exit_code(self, backend: Backend):
        outcome = run_program(backend, ("/bin/sh", "-c", "kill -9 $$"), Access(), LIMITS)
        assert outcome.returncode == -9

    def test_no_command_line_has_the_value_of_a_variable(self, backend: Backend):
        value = f"value-{time.monotonic_ns()}"
        process = backend.start(("/bin/cat",), Access(env={"TOKEN": value}), LIMITS)
        lines = list(command_lines())
        outcome = supervise(process, b"", LIMITS)
        assert outcome.returncode == 0
        assert not [line for line in lines if value.encode() in line]

    def test_variables(self, backend: Backend, tmp_path: Path):
        assert self.show(backend, tmp_path, "echo $TOKEN", env={"TOKEN": "t"}) == "t\n(0)"
