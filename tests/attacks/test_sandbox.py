"""Escapes from a sandbox: an attack reaches nothing outside, or is ended.

The attacker controls a program, or a python step, that Reyn runs in a sandbox. The oracle is outside: files, listening
sockets, another process of the same user whose limits and priority are read afterwards, and the list of processes.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import pytest

from reyn.sandbox import Access, Outcome, ProgramLimits, PythonFailed, run_program, run_unconfined
from reyn.sandbox.backends import BACKENDS
from reyn.sandbox.monty import run_monty
from reyn.sandbox.process import Backend, python_program
from tests.attacks import system_calls
from tests.attacks.sandbox_programs import FAST, HARMLESS, PROGRAMS, STEPS, Attack

pytestmark = pytest.mark.sockets
SECRET = "the user's secret"


class Outside(NamedTuple):
    """A folder that no sandboxed program may use, with servers that none may reach."""

    folder: Path
    tcp: socket.socket
    udp: socket.socket
    unix: socket.socket
    abstract: socket.socket
    datagrams: socket.socket
    victim: subprocess.Popen[bytes]

    def fill(self, code: str) -> str:
        values = {"OUTSIDE": self.folder, "PORT": self.tcp.getsockname()[1], "HOST_PID": os.getpid()}
        for word, value in (values | {"VICTIM": self.victim.pid}).items():
            code = code.replace(word, str(value))
        return code

    def state_of_victim(self) -> tuple[object, ...]:
        pid = self.victim.pid
        limits = resource.prlimit(pid, resource.RLIMIT_CPU)
        return self.victim.poll(), limits, os.sched_getaffinity(pid), os.getpriority(os.PRIO_PROCESS, pid)

    def was_reached(self) -> list[str]:
        """Return the servers that something connected to."""
        reached = []
        for name, server in (("TCP", self.tcp), ("Unix", self.unix), ("abstract", self.abstract)):
            with suppress(BlockingIOError):
                server.accept()
                reached.append(name)
        for name, server in (("UDP", self.udp), ("datagrams", self.datagrams)):
            with suppress(BlockingIOError):
                server.recv(10)
                reached.append(name)
        return reached

    def was_changed(self) -> bool:
        secret = self.folder / "secret.txt"
        names = sorted(path.name for path in self.folder.iterdir())
        is_same = names == ["secret.txt", "socket"] and secret.read_text() == SECRET
        return not is_same or secret.stat().st_mode & 0o777 != 0o600


@pytest.fixture
def outside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Outside]:
    monkeypatch.setenv("REYN_TEST_SECRET", SECRET)
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.txt").write_text(SECRET)
    (folder / "secret.txt").chmod(0o600)
    servers = (
        socket.create_server(("127.0.0.1", 0)),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        socket.socket(socket.AF_UNIX),
        socket.socket(socket.AF_UNIX),
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM),
    )
    tcp, udp, unix, abstract, datagrams = servers
    datagrams.bind(f"\0reyn-datagram-{os.getpid()}")
    udp.bind(("127.0.0.1", tcp.getsockname()[1]))
    here = Path.cwd()
    os.chdir(folder)  # the path of a socket is short
    unix.bind("socket")
    os.chdir(here)
    abstract.bind(f"\0reyn-test-{os.getpid()}")
    for server in servers:
        server.setblocking(False)
    for server in (unix, abstract):
        server.listen()
    with subprocess.Popen(("/bin/cat",), stdin=subprocess.PIPE) as victim:
        yield Outside(folder, *servers, victim)
        assert victim.stdin is not None
        victim.stdin.close()
    for server in servers:
        server.close()


def usable(backend: Backend) -> Backend:
    if backend.problem:
        pytest.skip(f"{backend.name}: {backend.problem}")
    return backend


def run_code(code: str, backend: Backend, access: Access, limits: ProgramLimits = FAST) -> Outcome:
    """Run Python code as a program in a sandbox; skip the test if this machine does not have it."""
    return run_program(usable(backend), (python_program(), "-S", "-c", code), access, limits)


def survivors(mark: str) -> list[str]:
    """Return the processes of an attack that are still running, after giving the kernel time to end them."""
    deadline = time.monotonic() + 30
    while True:
        found = []
        for process in Path("/proc").iterdir():
            with suppress(OSError):
                if process.name.isdigit() and mark.encode() in (process / "cmdline").read_bytes():
                    found.append(process.name)
        if not found or time.monotonic() > deadline:
            return found


@pytest.mark.parametrize("attack", PROGRAMS, ids=lambda attack: attack.name.replace(" ", "-"))
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_a_program_does_not_escape(backend: Backend, attack: Attack, outside: Outside, record_property):
    usable(backend)
    mark = f"attack-{os.getpid()}-{time.monotonic_ns()}"
    argv = (python_program(), "-S", "-s", "-P", "-B", "-c", outside.fill(attack.code), mark)
    outcome = run_program(backend, argv, attack.access, attack.limits)
    record_property("sandbox", [backend.name, attack.name, ended(outcome)])
    assert b"ESCAPED" not in outcome.stdout
    assert outside.was_reached() == []
    assert not outside.was_changed()
    assert survivors(mark) == []
    assert len(outcome.stdout) <= attack.limits.output_bytes
    assert attack.is_endless == (outcome.status != "exited") or outcome.returncode != 0


DEVICES = """
import os, stat
paths = [f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty")]
for path in paths:
    found = os.stat(path)
    # Each change has no effect, so that a sandbox that permits it damages no machine.
    changes = {
        "chmod": lambda: os.chmod(path, stat.S_IMODE(found.st_mode)),
        "utime": lambda: os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns)),
        "touch": lambda: os.utime(path),
        "chown": lambda: os.chown(path, found.st_uid, found.st_gid),
        "remove": lambda: os.rmdir(path),
    }
    for name, change in changes.items():
        try: change()
        except OSError: continue
        print("CHANGED", name, path)
with open("/dev/null", "w") as sink, open("/dev/zero", "rb") as zero, open("/dev/urandom", "rb") as random:
    print("USED", sink.write("x"), zero.read(2), len(random.read(8)))
"""


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_a_program_uses_devices_and_changes_none(backend: Backend):
    """The devices in a sandbox are nodes of the host: root would change their modes for every program."""
    node = Path("/dev/full")
    before = node.stat()
    outcome = run_code(DEVICES, backend, Access())
    assert outcome.stdout.decode() == "USED 1 b'\\x00\\x00' 8\n", outcome.stderr
    after = node.stat()
    assert (after.st_mode, after.st_mtime_ns, after.st_ctime_ns) == (
        before.st_mode,
        before.st_mtime_ns,
        before.st_ctime_ns,
    )


@pytest.mark.parametrize("name", HARMLESS)
def test_the_attacks_work_without_a_sandbox(name: str, outside: Outside, tmp_path: Path):
    attack = next(attack for attack in PROGRAMS if attack.name == name)
    argv = (python_program(), "-S", "-s", "-P", "-B", "-c", outside.fill(attack.code))
    outcome = run_unconfined(argv, "/", attack.limits, env={"TMPDIR": str(tmp_path)})
    assert b"ESCAPED" in outcome.stdout, outcome.stderr


WITHOUT_FIRST_THREAD = """
import ctypes, os, threading
def hold():
    kept = bytearray(80_000_000)
    for at in range(0, len(kept), 4096): kept[at] = 1
    threading.Event().wait()
for _ in range(4):
    if os.fork() == 0:
        threading.Thread(target=hold).start()
        ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[os.uname().machine], 0)
os.wait()
"""


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_the_memory_of_a_process_whose_first_thread_has_ended_counts(backend: Backend):
    limits = ProgramLimits(seconds=30, memory_bytes=250_000_000, processes=16)
    outcome = run_code(WITHOUT_FIRST_THREAD, backend, Access(subprocesses=True), limits)
    assert (outcome.status, outcome.reason) == ("killed", "its processes used more than 250000000 bytes")


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_the_network_comes_with_certificates_but_no_private_keys(backend: Backend):
    code = (
        "import os\nfor path in ('/etc/ssl/private', '/etc/pki/tls/private', '/etc/ssl'):\n"
        "  try: print(path, os.listdir(path))\n  except OSError: pass\n"
        "for path in ('/etc/ssl/certs', '/etc/pki/tls/certs'):\n"
        "  if os.path.exists(path): os.listdir(path); print('certificates')"
    )
    outcome = run_code(code, backend, Access(network=True))
    seen = [line for line in outcome.stdout.decode().splitlines() if line != "certificates"]
    assert outcome.returncode == 0, outcome.stderr
    assert [line for line in seen if "private" in line] == []
    assert (b"certificates" in outcome.stdout) == any(
        Path(path).exists() for path in ("/etc/ssl/certs", "/etc/pki/tls/certs")
    )


@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_a_program_that_root_starts_has_no_group_of_root_and_no_files_of_the_kernel(backend: Backend):
    code = (
        "import json, os\nread = []\ntry: names = os.listdir('/proc')\nexcept OSError: names = []\n"
        "for name in names:\n"
        "  if name.isdigit() or not os.path.isfile('/proc/' + name): continue\n"
        "  try:\n"
        "    file = os.open('/proc/' + name, os.O_RDONLY | os.O_NONBLOCK)\n"
        "    if os.read(file, 1): read.append(name)\n"
        "  except OSError: pass\n"
        "print(json.dumps([os.getgid(), os.getgroups(), read]))"
    )
    outcome = run_code(code, backend, Access())
    group, groups, read = json.loads(outcome.stdout)
    assert group != 0
    assert 0 not in groups
    private = [name for name in read if not Path(f"/proc/{name}").stat().st_mode & 0o004]
    assert private == []


GRANTS = {
    "alone": (system_calls.ALONE, Access()),
    "network": (system_calls.NETWORK, Access(network=True)),
    "processes": (system_calls.PROCESSES, Access(subprocesses=True)),
}


@pytest.mark.parametrize("grant", GRANTS)
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_no_other_system_call_is_answered(backend: Backend, grant: str, outside: Outside):
    attempts, access = GRANTS[grant]
    before = outside.state_of_victim()
    argv = (python_program(), "-S", "-s", "-P", "-B", "-c", outside.fill(system_calls.program(attempts)))
    outcome = run_program(usable(backend), argv, access, FAST)
    assert (outcome.stdout, outcome.returncode) == (b"tried all\n", 0), outcome.stderr
    assert outside.was_reached() == []
    assert not outside.was_changed()
    assert outside.state_of_victim() == before


def test_the_system_calls_are_answered_without_a_sandbox(outside: Outside, tmp_path: Path):
    attempts = {name: system_calls.ALONE[name] for name in system_calls.OUTSIDE}
    argv = (python_program(), "-S", "-c", outside.fill(system_calls.program(attempts)))
    outcome = run_unconfined(argv, "/", FAST, env={"TMPDIR": str(tmp_path)})
    missing = [name for name in attempts if f"ESCAPED {name}" not in outcome.stdout.decode()]
    assert missing == [], outcome.stderr


def test_a_program_gets_the_system_calls_that_it_names_and_was_granted():
    code = (
        "import os, socket\ns = socket.create_server(('127.0.0.1', 0))\n"
        "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "import ctypes\nassert ctypes.CDLL(None).munlockall() == 0\n"
        "try: os.sched_setaffinity(1, {0})\nexcept PermissionError: print('ok')"
    )
    for backend in BACKENDS:
        outcome = run_code(code, backend, Access(network=True, groups=("listen", "memory", "scheduling")))
        assert outcome.stdout == b"ok\n", outcome.stderr


def ended(outcome: Outcome) -> str:
    if outcome.status != "exited":
        return outcome.status
    words = outcome.stderr.decode("utf-8", "replace").strip().split("\n")[-1].partition(":")[0]
    return words if outcome.returncode == 1 else f"exit {outcome.returncode}"


@pytest.mark.parametrize("attack", STEPS, ids=lambda attack: attack.name.replace(" ", "-"))
def test_a_step_does_not_escape_from_monty(attack: Attack, outside: Outside, record_property):
    value, printed = None, ""
    try:
        value = run_monty(outside.fill(attack.code), "attack", {"type": "x", "data": {}}, 0, attack.limits).value
        how = f"returned {value}"
    except PythonFailed as error:
        how, printed = "timeout" if error.timed_out else error.message.partition(":")[0], error.output.text
    record_property("sandbox", ["monty", attack.name, how])
    assert value is None
    assert len(printed) <= attack.limits.output_bytes
    assert attack.is_endless == (how == "timeout")
    assert outside.was_reached() == []
    assert not outside.was_changed()


@pytest.mark.skipif("CI" not in os.environ, reason="a developer's machine may have no process sandbox")
@pytest.mark.parametrize("backend", BACKENDS, ids=lambda backend: backend.name)
def test_ci_has_every_sandbox(backend: Backend):
    if backend.name == "landlock" and (missing := backend.missing()):
        pytest.skip(missing)  # no package can change the kernel
    assert backend.problem == ""


LARGE = {
    "one text by many references": "['a' * 1000] * 200000",
    "lists of lists": "lists()",
    "large numbers": "[10 ** 4000] * 100000",
    "keys": "[{'a' * 1000: 1}] * 100000",
}
SHADOWS = "".join(f"def {name}(*args):\n    return 0\n" for name in ("len", "isinstance", "str", "list", "dict"))


@pytest.mark.parametrize("shadows", ["", SHADOWS], ids=["plain", "shadowed"])
@pytest.mark.parametrize("result", LARGE.values(), ids=LARGE)
def test_a_result_of_monty_is_refused_before_it_is_large_here(result: str, shadows: str):
    lists = "def lists():\n    x = ['a']\n    for i in range(60):\n        x = [x, x]\n    return x\n"
    with pytest.raises(PythonFailed, match="its result is larger than 1000000 bytes"):
        run_monty(f"{shadows}{lists}def f(a):\n    return {result}\n", "f", {}, 0, ProgramLimits())
