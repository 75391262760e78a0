"""The folders of a user: a clone, a home folder and other projects beside the clone.

Every file outside of the clone has a text of its own, which must not appear anywhere else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from reyn import SyncRuntime
from reyn.models.scripted import ScriptedModel
from reyn.ops.memory_files import MemoryFile, format_memory
from tests.attacks.test_trust import AGENT
from tests.support import finish, write_skill

CANARY = "CANARY"
IN = {"text": "in"}


class World:
    """A clone, a home folder and other projects, in one folder."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port = folder, port
        self.clone, self.home, self.beside = folder / "work/clone", folder / "home", folder / "work/beside"
        self.traps: list[str] = []
        for made in (self.clone, self.home / ".config", self.beside, folder / "tmp", folder / "bin"):
            made.mkdir(parents=True)
        (folder / "bin/bash").symlink_to("/bin/bash")

    @property
    def configuration(self) -> Path:
        """The folder that is Reyn's own in the home folder."""
        return self.home / ".config/reyn"

    @property
    def environ(self) -> dict[str, str]:
        return {
            "HOME": str(self.home),
            "XDG_CONFIG_HOME": str(self.home / ".config"),
            "XDG_CACHE_HOME": str(self.home / ".cache"),
            "XDG_DATA_HOME": str(self.home / ".local/share"),
            "TMPDIR": str(self.folder / "tmp"),
            "PATH": str(self.folder / "bin"),  # without bubblewrap, whose programs see other paths than the tracer
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "EDITOR": "/bin/true",
            "OPENAI_API_KEY": f"{CANARY}-environment",
            "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def write(self, place: str, content: str | bytes) -> Path:
        """Write a file that is itself a trap, or part of one."""
        path = self.clone / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        self.traps.append(place)
        return path

    def link(self, place: str, target: str | Path) -> None:
        """Put a link at a place, instead of what is there."""
        path = self.clone / place
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir() and not path.is_symlink():
            path.rename(self.clone / f"moved-{len(self.traps)}")
        path.unlink(missing_ok=True)
        path.symlink_to(target)
        self.traps.append(f"{place} -> {target}")

    def sparse(self, place: str, size: int, head: bytes = b"") -> None:
        """Write a file that is large and takes no room."""
        with self.write(place, head).open("r+b") as large:
            large.truncate(size)

    def snapshot(self) -> dict[str, tuple[object, ...]]:
        """Return what is outside of the clone and of Reyn's own folder."""
        return dict(_entries(self.home, self.configuration)) | dict(_entries(self.beside, self.configuration))


def _entries(folder: Path, apart: Path) -> Iterator[tuple[str, tuple[object, ...]]]:
    for path in (folder, *folder.rglob("*")):
        if path != apart and apart not in path.parents:
            status = path.lstat()
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            times = () if path.is_dir() and path in apart.parents else (status.st_mtime_ns,)
            yield str(path), (status.st_mode, status.st_uid, content, *times)


# -- outside --------------------------------------------------------------------------------------------------


def build_outside(world: World) -> None:
    """Write what an attacker would like to reach, with a file for every name that Reyn looks for."""
    texts = {
        ".bashrc": "alias", ".ssh/id_ed25519": "key", ".netrc": "machine", ".env": "A=",
        ".aws/credentials": "[default]",
        "journal.db": "text", "chat_history": "+", "notes.md": "notes", "Documents/thesis.md": "thesis",
        ".gitconfig": "",
        ".config/other/settings.yaml": "model: m", ".cache/other/data": "data", "k/x": "text",
    }  # fmt: skip
    for name, text in texts.items():
        path = world.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text} {CANARY}-{name}\n")
    for name in ("workspace", "locks", "agents", "memory", "local", "output", "phases", "artifacts", "cases", "rpi"):
        (world.home / name).mkdir()
        (world.home / name / "a.md").write_text(f"{CANARY}-{name}\n")
    other = world.beside / "other"
    write_skill(other, "s", {"a": ["end"]})
    (other / "reyn.yaml").write_text(f"model: scripted:answers.jsonl\n# {CANARY}-other\n")
    (other / "answers.jsonl").write_text(json.dumps(finish(f"{CANARY}-answer")))
    (other / "reyn/agents").mkdir()
    (other / "reyn/agents/helper.md").write_text(AGENT.format(model=f"{CANARY}-agent"))
    (other / "reyn/memory").mkdir()
    (other / "reyn/memory/tea.md").write_text(format_memory(MemoryFile("tea", "shared", "d", f"{CANARY}-memory")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(world.home / ".config"))
        with SyncRuntime.open(other, model=ScriptedModel([finish(f"{CANARY}-journal")])) as rt:
            assert rt.run("s", IN, run_id="k").ok
