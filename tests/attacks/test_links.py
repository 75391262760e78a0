"""Planted links, and destructive clean-up through them.

The attacker controls every file of a project that the user cloned or unpacked, the journal included, and can replace a
folder by a link while a run executes. Nothing outside the project may be read, written, created, deleted or have its
mode changed. The oracle is a snapshot of a tree beside the project: names, types, modes, contents, times of access.
"""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import stat
import struct
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from reyn import SyncRuntime
from reyn.cli.app import run_app
from reyn.errors import ReynError, SkillNotFound, StateFolderUnsafe
from reyn.folders import opening, remove_tree
from reyn.journal import git_index
from reyn.journal.git_index import is_tracked
from reyn.journal.sqlite import SqliteJournal
from reyn.models.scripted import ScriptedModel
from reyn.ops import standard_ops
from reyn.ops.memory_files import MemoryFile, format_memory
from reyn.skills import load_skill, read_skill
from reyn.skills.agents import Agents
from reyn.skills.cases import read_cases
from reyn.skills.names import find_path
from reyn.skills.resolve import Library, ReadFiles
from tests.cli.support import write_answers
from tests.journal.stored import editing
from tests.support import act, file, finish, write_skill
from tests.workspace.support import open_descriptors

NOW = timedelta(0)
IN = {"text": "in"}
RUN = "k"
WRITES = act(file("write", "workspace:x", content="notes"), file("write", "output/a.md", content="text"))
IS_ROOT = os.geteuid() == 0
NOATIME = getattr(os, "O_NOATIME", 0)
PAST = 1_000_000_000


# -- the oracle -----------------------------------------------------------------------------------------------


def entry_of(path: Path, kind: str) -> tuple[object, ...]:
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        content: object = path.readlink()
    elif stat.S_ISREG(status.st_mode):
        handle = os.open(path, os.O_RDONLY | NOATIME)
        content = os.read(handle, 100_000)
        os.close(handle)
    else:
        content = ""
    # A hard link in the project is read as the file of the project that it also is.
    accessed = 0 if kind == "hard link" and path.name == ".bashrc" else status.st_atime_ns
    return status.st_mode, status.st_uid, status.st_mtime_ns, accessed, content


def snapshot(folder: Path, kind: str = "") -> dict[str, tuple[object, ...]]:
    """Return everything in a tree, without changing a time of access."""
    found: dict[str, tuple[object, ...]] = {}
    pending = [folder]
    while pending:
        here = pending.pop()
        found[str(here.relative_to(folder))] = entry_of(here, kind)
        if here.is_dir() and not here.is_symlink():
            handle = os.open(here, os.O_RDONLY | NOATIME)
            pending += [here / name for name in os.listdir(handle)]  # noqa: PTH208 - a descriptor
            os.close(handle)
    return found


def age(folder: Path) -> None:
    """Set the times so that the next access is recorded, also on a file system that records only the first."""
    for path in (*folder.rglob("*"), folder):
        if not path.is_symlink():
            os.utime(path, ns=(PAST, 2 * PAST))


# -- the project ----------------------------------------------------------------------------------------------


def build_project(root: Path) -> None:
    write_skill(root, "s", {"a": ["end"]}, ops={"a": "file"})
    (root / "reyn.yaml").write_text("model: scripted:answers.jsonl\n")
    (root / "reyn.local.yaml").write_text("{}\n")
    (root / "reyn/agents").mkdir()
    (root / "reyn/agents/designer.md").write_text("---\ntype: agent\nname: designer\ndescription: d\n---\nDesign.\n")
    (root / "reyn/memory/designer").mkdir(parents=True)
    (root / "reyn/memory/tea.md").write_text(format_memory(MemoryFile("tea", "shared", "d", "Green.")))
    (root / "reyn/local").mkdir()
    (root / "reyn/shared/phases").mkdir(parents=True)
    (root / "reyn/mcp").mkdir()
    (root / ".agents/rpi").mkdir(parents=True)
    write_answers(root, WRITES, finish())
    with SyncRuntime.open(root, model=ScriptedModel([WRITES, finish()])) as rt:
        assert rt.run("s", IN, run_id=RUN).ok


def build_outside(folder: Path) -> None:
    """What an attacker would like to reach: a home folder, and a file for every place where Reyn looks for one."""
    (folder / "home/docs").mkdir(parents=True)
    (folder / "home/.bashrc").write_text("alias ls=ls\n")
    (folder / "home/docs/thesis.md").write_text("precious\n")
    build = folder / "home" / "dir"
    for name in ("journal.db", "journal.db-wal", "x", "chat_history", "k.lock", "context-budget-log.jsonl", "a.md"):
        (build / name).parent.mkdir(exist_ok=True)
        (build / name).write_text(f"{name} of another program\n")
    for name in ("workspace", "locks", "k", "phases", "artifacts", "rpi", "agents", "memory", "local", "s"):
        (build / name).mkdir()
        (build / name / "secret.md").write_text("secret\n")
    (build / "skill.md").write_text("---\ntype: skill\nname: s\n---\n")
    (build / "designer.md").write_text("---\ntype: agent\nname: designer\ndescription: stolen\n---\nStolen.\n")
    (build / "tea.md").write_text("---\nname: tea\ndescription: stolen\n---\nStolen.\n")


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A project with a run and an outside tree, to copy for each case. The key of the user is the same in all."""
    base = tmp_path_factory.mktemp("links")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(base / "config"))
        (base / "project").mkdir()
        build_project(base / "project")
        build_outside(base / "outside")
        yield base


class World:
    """A copy of the project and of the outside tree."""

    def __init__(self, folder: Path, templates: Path) -> None:
        self.root, self.outside = folder / "project", folder / "outside"
        shutil.copytree(templates / "project", self.root, symlinks=True)
        shutil.copytree(templates / "outside", self.outside, symlinks=True)
        age(self.outside)

    def put(self, path: str, plant: Callable[[Path, Path], None]) -> None:
        """Replace a file or folder of the project by a planted one."""
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.is_dir() and not place.is_symlink():
            shutil.rmtree(place)
        else:
            place.unlink(missing_ok=True)
        plant(place, self.outside / "home")
        age(self.outside)


@pytest.fixture
def world(tmp_path: Path, templates: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(templates / "config"))
    made = World(tmp_path, templates)
    monkeypatch.chdir(made.root)
    return made


# -- what is planted, where, and which commands meet it -------------------------------------------------------


def link_chain(place: Path, target: Path) -> None:
    middle = place.with_name(f".{place.name}.middle")
    middle.symlink_to(target)
    place.symlink_to(middle.name)


def plant_socket(place: Path, _: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        here = Path.cwd()
        os.chdir(place.parent)  # the path of a socket is short
        try:
            socket.socket.bind(one, place.name)
        finally:
            os.chdir(here)


PLANTS: dict[str, Callable[[Path, Path], None]] = {
    "link to a folder": lambda place, home: place.symlink_to(home / "dir"),
    "link to the home folder": lambda place, home: place.symlink_to(os.path.relpath(home, place.parent)),
    "link to a file": lambda place, home: place.symlink_to(home / ".bashrc"),
    "link to the same name": lambda place, home: place.symlink_to(home / "dir" / place.name),
    "link that leads nowhere": lambda place, home: place.symlink_to(home / "new"),
    "chain of links": lambda place, home: link_chain(place, home / "dir"),
    "hard link": lambda place, home: place.hardlink_to(home / ".bashrc"),
    "FIFO": lambda place, _: os.mkfifo(place),
    "socket": plant_socket,
    "folder": lambda place, _: place.mkdir(),
    "file": lambda place, _: place.write_text("planted\n") and None,
}
if IS_ROOT:
    PLANTS["device"] = lambda place, _: os.mknod(place, 0o600 | stat.S_IFCHR, os.makedev(1, 3))

MET_BY_ALL = ("link to the home folder", "link to the same name")
STATE_COMMANDS = (
    ["runs"],
    ["run", "s", '{"text": "x"}', "--run-id", "new"],
    ["prune", "--older-than", "0m"],
)
READING = (["skills"], ["run", "s", '{"text": "x"}', "--run-id", "new"])
AGENTS = (["agent", "list"], ["agent", "new", "tester"], ["agent", "rm", "designer"], ["agent", "show", "designer"])
MEMORY = (["memory", "list"], ["memory", "rm", "tea"], ["memory", "show", "tea"])

PLACES: dict[str, tuple[list[str], ...]] = {
    ".reyn": (*STATE_COMMANDS, ["doctor"]),
    ".reyn/journal.db": (*STATE_COMMANDS, ["doctor"], ["trust", "--yes"]),
    ".reyn/journal.db-wal": STATE_COMMANDS,
    ".reyn/journal.db-shm": STATE_COMMANDS,
    ".reyn/journal.db-journal": STATE_COMMANDS,
    ".reyn/locks": STATE_COMMANDS,
    ".reyn/locks/k.lock": (["prune", "--older-than", "0m"],),
    ".reyn/checkpoint.lock": STATE_COMMANDS,
    ".reyn/workspace": (*STATE_COMMANDS[1:], ["undo", RUN], ["fork", RUN]),
    ".reyn/workspace/k": (["undo", RUN], ["fork", RUN], ["prune", "--older-than", "0m"]),
    ".reyn/workspace/k/x": (["undo", RUN], ["prune", "--older-than", "0m"]),
    ".reyn/workspace/new": READING[1:],
    "reyn": (*READING, *AGENTS[:3], *MEMORY[:2]),
    "reyn/project": READING,
    "reyn/local": (*READING, ["new", "skill", "mine"]),
    "reyn/project/s": (*READING, ["lint", "s"]),
    "reyn/project/s/skill.md": READING,
    "reyn/project/s/phases": (*READING, ["lint", "s"]),
    "reyn/project/s/phases/a.md": READING,
    "reyn/project/s/artifacts": READING,
    "reyn/project/s/cases": (["test", "s"],),
    "reyn/shared": READING,
    "reyn/shared/phases": READING,
    "reyn/agents": AGENTS,
    "reyn/agents/designer.md": AGENTS,
    "reyn/agents/tester.md": AGENTS[1:2],
    "reyn/memory": MEMORY,
    "reyn/memory/tea.md": MEMORY,
    "reyn/memory/designer": MEMORY[:1],
    "reyn/mcp": (["mcp", "list"],),
    "reyn.yaml": (["config"], ["runs"]),
    "reyn.local.yaml": (["config"], ["mcp", "add", "notes", "--", "python", "server.py"]),
    "output": (*READING[1:], ["undo", RUN]),
    "output/a.md": (*READING[1:], ["undo", RUN]),
    ".agents": READING[1:],
    ".agents/rpi": READING[1:],
    ".agents/rpi/context-budget-log.jsonl": READING[1:],
    ".agents/rpi/phase-1-summary.md": READING[1:],
}


@pytest.mark.sockets  # one is planted
@pytest.mark.parametrize("place", PLACES)
def test_no_command_reaches_outside_through_a_planted_thing(
    place: str, tmp_path: Path, templates: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Each command meets a link to the home folder and one to the same name; the other things are taken in turn."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(templates / "config"))
    commands = PLACES[place]
    for number, (kind, plant) in enumerate(PLANTS.items()):
        world = World(tmp_path / str(number), templates)
        monkeypatch.chdir(world.root)
        world.put(place, plant)
        before = snapshot(world.outside, kind)
        for command in commands if kind in MET_BY_ALL else [commands[number % len(commands)]]:
            run_app(tuple(command))
            captured = capsys.readouterr()
            assert "Traceback" not in captured.err, (kind, command, captured.err)
            assert "RYN9" not in captured.err, (kind, command, captured.err)
            assert snapshot(world.outside, kind) == before, (kind, command, captured.err)


# -- clean-up -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [["prune", "--older-than", "0m"], ["chats", "delete", RUN, "--yes"]])
def test_only_what_the_journal_names_is_removed(world: World, command: list[str]):
    """The workspace of a deleted run goes; folders that no deleted run had stay, and so does what links lead to."""
    workspaces = world.root / ".reyn/workspace"
    (workspaces / RUN / "link").symlink_to(world.outside)
    (workspaces / "mine").mkdir()
    (workspaces / "mine/notes.md").write_text("x")
    (workspaces / "away").symlink_to(world.outside)
    before = snapshot(world.outside)
    with SyncRuntime.open(world.root) as rt:
        report = rt.runs.prune(older_than=NOW) if command[0] == "prune" else rt.runs.delete([RUN])
    assert (report.runs, report.left) == ((RUN,), ())
    assert sorted(path.name for path in workspaces.iterdir()) == ["away", "mine"]
    assert (workspaces / "mine/notes.md").read_text() == "x"
    assert snapshot(world.outside) == before


def test_a_linked_folder_of_workspaces_is_reported_and_its_runs_are_removed_later(world: World):
    workspaces, away = world.root / ".reyn/workspace", world.root / "away"
    workspaces.rename(away)
    workspaces.symlink_to(away)
    with SyncRuntime.open(world.root) as rt:
        report = rt.runs.prune(older_than=NOW)
        assert (report.runs, report.left) == ((RUN,), (RUN,))
        assert (away / RUN / "x").read_text() == "notes"
        workspaces.unlink()
        away.rename(workspaces)
        assert rt.runs.prune(older_than=NOW).left == ()
    assert not (workspaces / RUN).exists()


@pytest.mark.parametrize("name", ["../../outside", "..", ".", "a/../../x", "/etc", ""])
def test_a_name_that_leads_out_of_the_folder_is_not_removed(world: World, name: str):
    handle = os.open(world.root / ".reyn/workspace", os.O_RDONLY)
    before = snapshot(world.outside)
    with pytest.raises(OSError, match="leads out"):
        remove_tree(handle, name)
    os.close(handle)
    assert snapshot(world.outside) == before
    assert (world.root / ".reyn/workspace" / RUN).is_dir()


def test_a_tree_of_any_depth_and_mode_is_removed(world: World):
    tree = world.root / "tree"
    tree.mkdir()
    handle = os.open(tree, os.O_RDONLY)
    for number in range(1_500):
        os.mkdir("d", dir_fd=handle)
        os.symlink(world.outside, "link", dir_fd=handle)
        written = os.open("f", os.O_WRONLY | os.O_CREAT, dir_fd=handle)
        os.write(written, b"x")
        os.close(written)
        inner = os.open("d", os.O_RDONLY, dir_fd=handle)
        if number % 100 == 99:
            os.mkdir("closed", 0o000, dir_fd=handle)
            os.fchmod(handle, 0o500)
        os.close(handle)
        handle = inner
    os.close(handle)
    before, descriptors = snapshot(world.outside), open_descriptors()
    above = os.open(world.root, os.O_RDONLY)
    size, is_gone = remove_tree(above, "tree")
    os.close(above)
    assert (is_gone, tree.exists(), size > 1_500) == (True, False, True)
    assert snapshot(world.outside) == before
    assert open_descriptors() == descriptors


# -- links that appear during a run ---------------------------------------------------------------------------


class Swap:
    """Replaces a folder by a link when a number of files has been opened. An audit hook cannot be removed again."""

    def __init__(self) -> None:
        self.left = 0
        self.action: Callable[[], None] = lambda: None
        sys.addaudithook(self)

    def __call__(self, event: str, _: object) -> None:
        if event == "open" and self.left:
            self.left -= 1
            if not self.left:
                self.action()


SWAP = Swap()


@pytest.mark.parametrize("place", ["output", ".reyn/workspace/new", ".reyn/workspace", ".reyn"])
def test_a_folder_that_becomes_a_link_during_a_run_leads_nowhere(
    place: str, tmp_path: Path, templates: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(templates / "config"))
    for count in range(1, 60, 5):
        world = World(tmp_path / str(count), templates)
        (world.root / ".reyn/workspace/new").mkdir()
        before = snapshot(world.outside)

        def swap(world: World = world) -> None:
            (world.root / place).rename(world.root / "moved")
            (world.root / place).symlink_to(world.outside / "home/dir")

        SWAP.action, SWAP.left = swap, count
        with suppress(ReynError), SyncRuntime.open(world.root, model=ScriptedModel([WRITES, finish()])) as rt:
            rt.run("s", IN, run_id="new")
        is_reached, SWAP.left = not SWAP.left, 0
        assert snapshot(world.outside) == before, count
        if not is_reached:
            break


# -- the journal ----------------------------------------------------------------------------------------------


def test_a_planted_rollback_journal_deletes_no_file(world: World):
    """A rollback journal names a super-journal, which SQLite deletes after it has played the journal back."""
    victim = world.outside / "home/docs/thesis.md"
    name, pages = os.fsencode(victim), (world.root / ".reyn/journal.db").stat().st_size // 8192
    header = b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + struct.pack(">IIIII", 0, 1, pages, 512, 8192)
    tail = struct.pack(">I", 1) + name + struct.pack(">II", len(name), sum(name)) + header[:8]
    journal = world.root / ".reyn/journal.db-journal"
    journal.write_bytes(header.ljust(512, b"\0") + tail)
    before = snapshot(world.outside)
    with pytest.raises(StateFolderUnsafe), SyncRuntime.open(world.root) as rt:
        rt.runs.all()
    assert snapshot(world.outside) == before
    # What SQLite does with it: the file is gone.
    shutil.copy(world.root / ".reyn/journal.db", world.root / "other.db")
    with editing(world.root / "other.db") as db:
        db.execute("PRAGMA journal_mode = DELETE")
    journal.rename(world.root / "other.db-journal")
    with suppress(sqlite3.DatabaseError), editing(world.root / "other.db") as db:
        db.execute("SELECT * FROM sqlite_master").fetchall()
    assert not victim.exists()


@pytest.mark.skipif(not IS_ROOT, reason="only root can give a file to another user")
@pytest.mark.parametrize("name", ["", "journal.db", "chat_history"])
def test_what_belongs_to_another_user_is_refused(world: World, name: str):
    place = world.root / ".reyn" / name
    if not place.exists():
        place.touch()
    os.chown(place, 12345, 12345)
    use = history if name == "chat_history" else lambda root: SqliteJournal(root / ".reyn")
    with pytest.raises(StateFolderUnsafe, match="belongs to another user"):
        use(world.root)
    assert place.stat().st_uid == 12345


# -- standing approvals ---------------------------------------------------------------------------------------

ASK = {"permissions": {"file.write": [{"ask": "output/"}]}}


def approved_project(root: Path) -> None:
    """A project whose user has approved for good that a skill writes in `output/`."""
    write_skill(root, "s", {"a": ["end"]}, ops={"a": "file"})
    with SyncRuntime.open(root, model=ScriptedModel([WRITES, finish()]), **ASK) as rt:
        assert rt.run("s", IN, run_id=RUN).status == "waiting"
        rt.answer(RUN, rt.runs.result(RUN).question.id, {"decision": "approve", "always": True})
        assert rt.resume(RUN).ok
    shutil.rmtree(root / "output")


def status_of_a_run(root: Path) -> str:
    with SyncRuntime.open(root, model=ScriptedModel([WRITES, finish()]), **ASK) as rt:
        return rt.run("s", IN).status


def copy(source: Path, target: Path) -> None:
    shutil.copytree(source, target)


def hard_links(source: Path, target: Path) -> None:
    shutil.copytree(source, target, copy_function=os.link)


@pytest.mark.parametrize("bring", [copy, Path.rename, hard_links, lambda source, target: target.symlink_to(source)])
def test_a_journal_from_another_project_brings_no_standing_approval(
    tmp_path: Path, bring: Callable[[Path, Path], None]
):
    mine, other = tmp_path / "mine", tmp_path / "other"
    approved_project(mine)
    write_skill(other, "s", {"a": ["end"]}, ops={"a": "file"})
    bring(mine / ".reyn", other / ".reyn")
    try:
        status = status_of_a_run(other)
    except StateFolderUnsafe:
        status = "refused"
    assert status == ("waiting" if bring in (copy, Path.rename) else "refused")
    assert not (other / "output").exists()


def test_standing_approvals_stay_with_a_project_that_is_moved_and_not_with_its_copy(tmp_path: Path):
    approved_project(tmp_path / "first")
    assert status_of_a_run(tmp_path / "first") == "finished"
    (tmp_path / "first").rename(tmp_path / "moved")
    assert status_of_a_run(tmp_path / "moved") == "finished"
    shutil.rmtree(tmp_path / "moved/output")
    shutil.copytree(tmp_path / "moved", tmp_path / "copied")
    assert status_of_a_run(tmp_path / "copied") == "waiting"


# -- the history of the prompt --------------------------------------------------------------------------------


def history(root: Path):
    from reyn.cli.chat.terminal import ChatHistory

    return ChatHistory(root / ".reyn")


def test_the_history_is_private_and_is_read_again(tmp_path: Path):
    one = history(tmp_path)
    for text in ("first", "two\nlines", "+ # odd"):
        one.store_string(text)
    path = tmp_path / ".reyn/chat_history"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(history(tmp_path).load_history_strings()) == ["+ # odd", "two\nlines", "first"]
    path.chmod(0o644)
    history(tmp_path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", [kind for kind in PLANTS if kind not in ("file", "socket")])
def test_a_planted_history_is_refused(world: World, kind: str):
    world.put(".reyn/chat_history", PLANTS[kind])
    before = snapshot(world.outside)
    with pytest.raises(StateFolderUnsafe):
        history(world.root)
    assert snapshot(world.outside) == before


# -- a state folder that came with a clone --------------------------------------------------------------------


def index_of(version: int, names: list[str], hash_bytes: int = 20) -> bytes:
    """An index of git, written from its documentation."""
    content, previous = b"DIRC" + struct.pack(">II", version, len(names)), b""
    for name in sorted(os.fsencode(name) for name in names):
        entry = bytes(40) + bytes(hash_bytes)
        flags = min(len(name), 0xFFF) | (0x4000 if version == 3 else 0)
        entry += struct.pack(">H", flags) + (b"\0\0" if version == 3 else b"")
        if version == 4:
            pairs = zip(previous, name, strict=False)
            common = next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(previous), len(name)))
            removed = len(previous) - common
            assert removed < 128
            entry += bytes([removed]) + name[common:] + b"\0"
        else:
            entry += name
            entry += b"\0" * (8 - len(entry) % 8)
        content, previous = content + entry, name
    return content + bytes(hash_bytes)


OTHERS = [".rey", ".reynold/x", "a.reyn", "docs/.reyn", "docs/.reyn/journal.db", "reyn/agents/a.md", "x" * 5_000]
TRACKED = [".reyn", ".reyn/journal.db", ".reyn/workspace/k/x", ".REYN/journal.db"]


@pytest.mark.parametrize("hash_bytes", [20, 32])
@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("names", [[], *([name] for name in TRACKED)])
def test_a_tracked_state_folder_is_found_in_every_version_of_the_index(
    tmp_path: Path, version: int, names: list[str], hash_bytes: int
):
    others = [*OTHERS, *(f"src/{number:05}.py" for number in range(50))]
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/index").write_bytes(index_of(version, [*others, *names], hash_bytes))
    assert is_tracked(str(tmp_path / ".reyn")) == bool(names)
    below = [f"sub/project/{name}" for name in names]
    (tmp_path / "sub/project").mkdir(parents=True)
    (tmp_path / ".git/index").write_bytes(index_of(version, [*others, *below], hash_bytes))
    assert is_tracked(str(tmp_path / "sub/project/.reyn")) == bool(names)
    assert not is_tracked(str(tmp_path / ".reyn"))


def test_a_tracked_state_folder_is_an_error_with_a_next_step(world: World, capsys: pytest.CaptureFixture[str]):
    (world.root / ".git").mkdir()
    (world.root / ".git/index").write_bytes(index_of(2, [".reyn/journal.db", "reyn.yaml"]))
    for command in (["runs"], ["run", "s", '{"text": "x"}'], ["prune", "--older-than", "0m"]):
        assert run_app(tuple(command)) != 0
        error = capsys.readouterr().err
        assert ("RYN425" in error, "git rm -r --cached .reyn" in error) == (True, True), error
    assert (world.root / ".reyn/workspace" / RUN / "x").exists()
    (world.root / ".git/index").write_bytes(index_of(2, ["reyn.yaml"]))
    assert run_app(("runs",)) == 0


@pytest.mark.parametrize("made", ["commondir", "objects"])
@pytest.mark.parametrize("place", ["main/.git/worktrees/wt", "main/.git/modules/a/b", "gd", "repo.git", "store"])
def test_the_index_of_a_repository_in_another_place_is_read(tmp_path: Path, place: str, made: str):
    """`.git` is a file of a worktree, a submodule or `--separate-git-dir`, or a link."""
    repository = tmp_path / place
    repository.mkdir(parents=True)
    for name in ("HEAD", made):
        (repository / name).touch()
    (tmp_path / "wt").mkdir()
    for target in (str(repository), os.path.relpath(repository, tmp_path / "wt")):
        (tmp_path / "wt/.git").write_text(f"gitdir: {target}\n")
        for tracked in (True, False):
            (repository / "index").write_bytes(index_of(2, [".reyn/journal.db" if tracked else "a"]))
            assert is_tracked(str(tmp_path / "wt/.reyn")) == tracked
        (repository / "index").write_bytes(index_of(2, [".reyn/journal.db"]))
        (tmp_path / "wt/.git").unlink()
        (tmp_path / "wt/.git").symlink_to(target)
        assert is_tracked(str(tmp_path / "wt/.reyn"))
        (tmp_path / "wt/.git").unlink()


def test_a_place_that_is_no_repository_is_not_read(tmp_path: Path):
    (tmp_path / "wt").mkdir()
    (tmp_path / "home").mkdir()
    (tmp_path / "home/index").write_bytes(index_of(2, [".reyn/journal.db"]))
    age(tmp_path / "home")
    before = snapshot(tmp_path / "home")
    for target in (f"gitdir: {tmp_path / 'home'}\n", "gitdir: ../home\n", "gitdir: \n", "x", ""):
        (tmp_path / "wt/.git").write_text(target)
        assert not is_tracked(str(tmp_path / "wt/.reyn"))
    (tmp_path / "wt/.git").unlink()
    (tmp_path / "wt/.git").symlink_to(tmp_path / "home")
    assert not is_tracked(str(tmp_path / "wt/.reyn"))
    assert snapshot(tmp_path / "home") == before


DAMAGED = [b"", b"DIRC", b"junk" * 100, index_of(4, ["a", "b"])[:70], b"DIRC\0\0\0\4\0\0\0\x09"]


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_index_is_an_error(world: World, content: bytes):
    (world.root / ".git").mkdir()
    (world.root / ".git/index").write_bytes(content)
    with pytest.raises(StateFolderUnsafe, match="unknown whether git tracks"):
        SqliteJournal(world.root / ".reyn")


def _bomb(version: int) -> bytes:
    """Return an index of 18 or 70 kB: each entry repeats a long name, or almost begins the one that is searched."""
    if version == 4:
        entry, flags = bytes(60), b"\x0f\xff"
        first = entry + flags + b"\0" + b"a" * 8_000 + b"\0"
        return b"DIRC\0\0\0\4" + (1_001).to_bytes(4) + first + (entry + flags + b"\1b\0") * 1_000
    return b"DIRC" + version.to_bytes(4) + b"\0\0\0\1" + b".reyn/" * 3_000


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_search_of_an_index_takes_no_more_memory_and_steps_than_the_index_has_bytes(tmp_path: Path, version: int):
    content = _bomb(version)
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/index").write_bytes(content)
    searched = 0

    class Counted(bytes):
        """Counts the bytes that searches look at."""

        def find(self, *args: Any) -> int:
            nonlocal searched
            found = super().find(*args)
            start = args[1] if len(args) > 1 else 0
            end = min(args[2] if len(args) > 2 else len(self), len(self))
            searched += (found if found >= 0 else end) - start
            return found

        def lower(self) -> bytes:
            return Counted(super().lower())

    pread = os.pread
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pread", lambda *args: Counted(pread(*args)))
        tracemalloc.start()
        try:
            assert not is_tracked(str(tmp_path / ".reyn"))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert searched < 20 * len(content)
    assert peak < 2_000_000


@pytest.mark.parametrize("name", [b".reyn", b".reyn/", b"\x0f\xff.reyn/", b".REYN\0"])
def test_an_index_that_almost_names_the_folder_too_often_is_an_error(
    tmp_path: Path, name: bytes, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(git_index, "_MAX_CANDIDATES", 1_000)
    (tmp_path / ".git").mkdir()
    for count in (1_000, 1_001):
        (tmp_path / ".git/index").write_bytes(b"DIRC\0\0\0\2\0\0\0\1" + name * count)
        with pytest.raises(OSError, match="cannot be read") if count > 1_000 else nullcontext():
            assert not is_tracked(str(tmp_path / ".reyn"))


# -- opening --------------------------------------------------------------------------------------------------


@pytest.mark.sockets
@pytest.mark.parametrize("kind", PLANTS)
def test_both_ways_to_open_a_path_follow_no_link(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch):
    build_outside(tmp_path / "outside")
    for depth in range(1, 5):
        for at in range(depth):
            names = [f"n{number}" for number in range(depth)]
            root = tmp_path / f"root-{depth}-{at}"
            root.joinpath(*names[:at]).mkdir(parents=True)
            PLANTS[kind](root.joinpath(*names[: at + 1]), tmp_path / "outside/home")
            outcomes = []
            with opening.OpenFolder("", os.open(root, os.O_RDONLY)) as handle:
                for find in (opening._openat2, lambda: None):
                    with monkeypatch.context() as patch:
                        patch.setattr(opening, "_openat2", find)
                        outcomes.append(outcome_of(handle, names))
            assert outcomes[0] == outcomes[1]
            assert (outcomes[0] == "opened") == (kind == "folder" and at == depth - 1)


def outcome_of(folder: int, names: list[str]) -> str:
    try:
        os.close(opening.open_beneath(folder, "/".join(names)))
    except FileNotFoundError:
        return "nothing"
    except OSError:
        return "refused"
    return "opened"


# -- folders of skills that are replaced after they were found ----------------------------------------------------


def replace_by_link(path: Path, outside: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to(outside)


@pytest.mark.parametrize("place", ["reyn", "reyn/project", "reyn/project/s", "reyn/shared"])
def test_a_folder_that_became_a_link_after_the_check_is_not_read(place: str, tmp_path: Path):
    root, outside = tmp_path / "p", tmp_path / "outside"
    for folder, text in ((root, "Do."), (outside, "canary")):
        skill = write_skill(folder, "s", {"a": ["end"], "b": ["end"]}, entry="b")
        (skill / "cases/one").mkdir(parents=True)
        (skill / "cases/one/input.json").write_text(f'"{text}"')
        (skill / "cases/one/answers.jsonl").write_text("")
        shared = folder / "reyn/shared/phases"
        shared.mkdir(parents=True)
        (skill / "phases/a.md").rename(shared / "a.md")
        for path in (shared / "a.md", skill / "phases/b.md"):
            path.write_text(f"{path.read_text()}{text}\n")
    library, vocabulary = Library(root), standard_ops().vocabulary
    found = library.find("s")
    before = load_skill(found, vocabulary, library)
    files = ReadFiles()
    files.read(found / "skill.md", "skill.md", found)
    replace_by_link(root / place, outside / place)
    assert "canary" not in repr(before)
    assert "canary" not in repr(read_skill(found, vocabulary, library))
    assert "canary" not in repr(read_cases(found))
    assert library.unchanged(found, vocabulary) is None
    files.read(found / "skill.md", "skill.md", found)  # a folder that is open stays the one that was found


@pytest.mark.parametrize("letter", ["e", "\u00e9", "e\u0301"])
def test_no_name_lists_a_folder_outside(letter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A name with letters outside of ASCII is looked for in its folder, in each normalization form."""
    root, outside = tmp_path / "p", tmp_path / "outside"
    write_skill(outside, "s", {"a": ["end"]})
    (outside / "reyn/project/s").rename(outside / f"caf{letter}")
    (outside / f"caf{letter}.md").touch()
    (root / "reyn").mkdir(parents=True)
    for link in ("agents", "project", "phases"):
        (root / "reyn" / link).symlink_to(outside)
    listed: list[int] = []
    listdir = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: listed.append(os.fstat(path).st_ino) or listdir(path))
    with pytest.raises(SkillNotFound):
        Library(root).find(f"caf{letter}")
    assert find_path(root / "reyn", f"phases/caf{letter}.md") is None or letter == "e"
    assert Agents(root).path(f"caf{letter}") is None or letter == "e"
    assert outside.stat().st_ino not in listed
