"""A cloned project with a hundred traps, in which a user who does not trust it runs every command.

The attacker controls every file of the clone: links, names, sizes, configuration, code, a state folder. The oracle is a
tracer of system calls, snapshots of the folders beside the clone, a listening socket, and texts of files outside.
"""

from __future__ import annotations

import os
import re
import socket
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.attacks.clone_commands import ARGUMENTS, IN, commands, first_lines, lines
from tests.attacks.clone_repository import VARIANTS, build
from tests.attacks.clone_tracing import ROOT, STRACE, Driver, Touch
from tests.attacks.clone_world import CANARY, World
from tests.properties import ALL_CASES
from tests.support import is_readable

pytestmark = [pytest.mark.slow, pytest.mark.sockets, pytest.mark.timeout(900)]

_INSTALLED = tuple(
    {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, ROOT / "src", ROOT / "pyproject.toml")}
)
_READABLE = (
    *_INSTALLED,
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/sbin",
    "/etc",
    "/proc",
    "/sys",
    "/dev/null",
    "/dev/urandom",
    "/dev/tty",
)
_WRITABLE = ("/dev/null", "/dev/tty", "/proc")
_PROGRAMS = {os.path.realpath(path) for path in (sys.executable, "/bin/true", "/bin/bash")}

_LARGE = 1 << 30
MAIN, SHIPPED = "a state folder with planted links", "a state folder that was shipped"
FULL = (MAIN, SHIPPED)
"""Clones in which each command has several lines; one line meets what is special in the others."""


def is_below(path: str, folders: tuple[str, ...]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


class Watch:
    """Runs commands in worlds, and collects what they did that no untrusted project may cause."""

    def __init__(self, folder: Path, kind: str = "reyn", *, use_strace: bool = STRACE is not None) -> None:
        self.folder = folder = Path(os.path.realpath(folder))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.nowhere = World(folder / "nowhere", self.port)
        self.driver = Driver(folder / "driver", self.nowhere.environ, kind=kind, use_strace=use_strace)
        self.ran: list[tuple[World, str]] = []
        self.found: list[str] = []
        self.outside: dict[World, dict[str, tuple[object, ...]]] = {}

    def run(self, world: World, words: tuple[str, ...], text: str = "") -> int:
        """Run one command; collect what can be seen at once."""
        command, output = f"[{world.folder.name}] {' '.join(words)}", world.folder / "stdout"
        output.unlink(missing_ok=True)
        before = self.outside.get(world) or world.snapshot()
        status = self.driver.run(words, world.clone, world.environ, text, output)
        self.ran.append((world, command))
        printed = output.read_text(errors="replace")
        self.outside[world] = after = world.snapshot()
        changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
        self.found += [f"{command}: changed {path}" for path in changed]
        self.found += [f"{command}: printed {name}" for name in sorted(set(re.findall(f"{CANARY}-[^ \\n]*", printed)))]
        if status < 0 or "Traceback" in printed or "RYN9" in printed:
            self.found.append(f"{command}: status {status}: {printed[-600:]}")
        if is_readable(self.listener.fileno()):
            self.listener.accept()[0].close()
            self.found.append(f"{command}: contacted the listening socket")
        return status

    def close(self) -> list[str]:
        """End the driver and return everything that was found."""
        self.driver.close()
        self.listener.close()
        for (world, command), touches in zip(self.ran, self.driver.touches(), strict=True):
            self.found += [
                f"{command}: {touch.kind} {touch.target}" for touch in sorted(touches) if not self.allows(world, touch)
            ]
        for world in dict.fromkeys(world for world, _ in self.ran):
            self.found += [f"[{world.folder.name}] copied {name} to {path}" for path, name in copied(world)]
        return self.found

    def allows(self, world: World, touch: Touch) -> bool:
        """Return whether an untrusted project may cause a touch."""
        kind, target = touch
        if kind == "contact":
            return False
        if kind == "execute":
            return target in _PROGRAMS
        if is_below(target, (str(self.folder),)):
            own = (
                world.clone,
                world.configuration,
                world.folder / "tmp",
                world.folder / "stdout",
                self.driver.folder / "stdin",
            )
            return is_below(target, tuple(map(str, own)))
        return is_below(target, _WRITABLE if kind == "write" else _READABLE)


def copied(world: World) -> Iterator[tuple[str, str]]:
    """Yield the files of the clone, of Reyn's own folder and of the temporary one that have a text from outside."""
    for top in (world.clone, world.configuration, world.folder / "tmp"):
        for folder, _, names, handle in os.fwalk(top):
            for name in names:
                status = os.stat(name, dir_fd=handle, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and status.st_size < _LARGE:
                    with open(name, "rb", opener=partial(os.open, dir_fd=handle)) as opened:
                        texts = set(re.findall(rb"CANARY-[\w./]*", opened.read()))
                    for text in texts:
                        yield f"{folder}/{name}", text.decode()


# -- the clone ------------------------------------------------------------------------------------------------


def test_every_command_has_a_line():
    assert sorted(ARGUMENTS) == sorted(commands())


@pytest.mark.sampled
@pytest.mark.parametrize("variant", VARIANTS if ALL_CASES else [MAIN])
def test_no_command_reaches_outside_of_a_hostile_clone(variant: str, tmp_path: Path):
    watch = Watch(tmp_path)
    world = build(watch.folder / "world", watch.port, variant)
    assert len(world.traps) > 200
    for line in lines() if ALL_CASES and variant in FULL else first_lines():
        watch.run(world, line.words, line.text)
    assert "\n".join(watch.close()) == ""


def test_the_program_loads_no_module_of_the_folder_that_it_starts_in(tmp_path: Path):
    """Commands above start in a process that has loaded Reyn; here it starts from nothing, as a user starts it."""
    world = build(tmp_path / "world", 9, MAIN)
    before = world.snapshot()
    program = [Path(sysconfig.get_path("scripts")) / "reyn", "run", "quiet", IN, "--model", "scripted:quiet.jsonl"]
    subprocess.run(program, cwd=world.clone, env=world.environ, stdin=subprocess.DEVNULL, capture_output=True)
    assert (world.clone / ".reyn/journal.db").exists()
    assert world.snapshot() == before


# -- the oracle -----------------------------------------------------------------------------------------------

SPRINGS = {
    "import": (
        "import sys; sys.path.insert(0, ''); import reyn_planted",
        "write BESIDE/imported",
        "changed BESIDE/imported",
    ),
    "program": (
        "import subprocess; subprocess.run(['./server.sh'])",
        "execute CLONE/server.sh",
        "changed BESIDE/started",
    ),
    "read": ("print(open('links/key').read())", "read HOME/.ssh/id_ed25519", "printed CANARY-.ssh/id_ed25519"),
    "list": ("import os; os.listdir('links/home')", "read HOME"),
    "descriptor": ("import os; os.open('.bashrc', 0, dir_fd=os.open('links/home', 0))", "read HOME/.bashrc"),
    "write": ("open('links/new', 'w').write('x')", "write HOME/new", "changed HOME/new"),
    "append": ("open('.reyn/chat_history', 'a').write('x')", "write HOME/chat_history", "changed HOME/chat_history"),
    "mode": ("import os; os.chmod('links/home', 0o711)", "write HOME", "changed HOME"),
    "removal": ("import os; os.remove('links/home/.netrc')", "write HOME/.netrc", "changed HOME/.netrc"),
    "rename": ("import os; os.rename('.env', 'links/home/.env')", "write HOME/.env", "changed HOME/.env"),
    "folder": ("import os; os.mkdir('links/home/made')", "write HOME/made", "changed HOME/made"),
    "database": (
        "import sqlite3; sqlite3.connect('links/home/made.db').execute('CREATE TABLE t (a)')",
        "write HOME/made.db",
        "changed HOME/made.db",
    ),
    "contact": ("import socket; socket.create_connection(('127.0.0.1', PORT))", "contact 127.0.0.1:PORT", "contacted"),
    "copy": (
        "open('copy', 'w').write(open('links/key').read())",
        "read HOME/.ssh/id_ed25519",
        "copied CANARY-.ssh/id_ed25519",
    ),
}
"""Programs that spring a trap, and what must be found of each."""
SEEN_BY_STRACE_ONLY = ("program", "descriptor", "database")


@pytest.mark.parametrize("use_strace", [True, False])
def test_a_trap_that_springs_is_found(use_strace: bool, tmp_path: Path):
    if use_strace and STRACE is None:
        assert "CI" not in os.environ, "install the package strace"
        pytest.skip("strace is not installed")
    watch = Watch(tmp_path, "python", use_strace=use_strace)
    world = build(watch.folder / "world", watch.port, MAIN)
    words = {"PORT": str(watch.port), "HOME": str(world.home), "BESIDE": str(world.beside), "CLONE": str(world.clone)}

    def filled(text: str) -> str:
        return re.sub("|".join(words), lambda match: words[match[0]], text)

    for program, *_ in SPRINGS.values():
        watch.run(world, ("python", filled(program)))
    found = "\n".join(watch.close())
    for name, (_, touch, *others) in SPRINGS.items():
        needed = [*others] if name in SEEN_BY_STRACE_ONLY and not use_strace else [touch, *others]
        assert [text for text in map(filled, needed) if text not in found] == [], name


def test_the_traps_spring_in_a_project_that_is_trusted(tmp_path: Path):
    """The positive control: the same clone, after the user has trusted it."""
    watch = Watch(tmp_path, use_strace=False)
    world = build(watch.folder / "world", watch.port, MAIN)
    for words in (("trust", "--yes"), ("run", "quiet", IN), ("mcp", "test", "u"), ("mcp", "test", "t")):
        watch.run(world, words)
    found = "\n".join(watch.close())
    expected = (f"changed {world.beside}/imported", f"changed {world.beside}/started", "contacted the listening socket")
    assert [text for text in expected if text not in found] == []
