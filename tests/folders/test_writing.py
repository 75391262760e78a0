"""Files outside of runs are written whole, durably, and never through a planted link."""

import os
import stat
from pathlib import Path

import pytest

from reyn.folders import create_file, replace_file, writing
from tests.workspace.support import open_descriptors


class Recording:
    """`os`, which records what is made durable and the files that are created; one of its functions may fail."""

    def __init__(self) -> None:
        self.synced: list[tuple[str, int]] = []
        self.created: list[tuple[str, int]] = []
        self.failing = ""

    def __getattr__(self, name: str):
        if name == self.failing:
            raise OSError(5, "Input/output error")
        return getattr(os, name)

    def fsync(self, handle: int) -> None:
        os.fsync(handle)
        self.synced.append((Path(f"/proc/self/fd/{handle}").readlink().name, os.fstat(handle).st_size))

    def open(self, path, flags: int, mode: int = 0o777, **more) -> int:
        handle = os.open(path, flags, mode, **more)
        if flags & os.O_CREAT:
            self.created.append((path, stat.S_IMODE(os.fstat(handle).st_mode)))
        return handle


@pytest.fixture
def system(monkeypatch) -> Recording:
    system = Recording()
    monkeypatch.setattr(writing, "os", system)
    return system


@pytest.fixture
def default_mode(tmp_path):
    (tmp_path / "like").touch()
    mode = mode_of(tmp_path / "like")
    (tmp_path / "like").unlink()
    return mode


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_is_written_with_the_default_mode(tmp_path, default_mode):
    assert replace_file(tmp_path / "a", [b"one", b"two"]) == 6
    assert (tmp_path / "a").read_bytes() == b"onetwo"
    assert mode_of(tmp_path / "a") == default_mode
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize(("mode", "kept"), [(0o640, 0o640), (0o4755, 0o755), (0o600, 0o600)])
def test_a_file_that_is_replaced_keeps_its_permission_bits(tmp_path, mode, kept):
    (tmp_path / "a").touch()
    (tmp_path / "a").chmod(mode)
    replace_file(tmp_path / "a", [b"new"])
    assert mode_of(tmp_path / "a") == kept


def test_a_mode_can_be_given(tmp_path):
    (tmp_path / "a").touch()
    (tmp_path / "a").chmod(0o644)
    replace_file(tmp_path / "a", [b"new"], mode=0o604)
    assert mode_of(tmp_path / "a") == 0o604


def test_a_link_is_replaced_and_neither_its_target_nor_its_mode_is_used(tmp_path, default_mode):
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "a").symlink_to("secret")
    replace_file(tmp_path / "a", [b"new"])
    assert (tmp_path / "secret").read_bytes() == b"secret"
    assert not (tmp_path / "a").is_symlink()
    assert mode_of(tmp_path / "a") == default_mode
    assert names(tmp_path) == ["a", "secret"]


def test_the_content_is_durable_before_the_name_and_the_name_before_the_end(tmp_path, system):
    replace_file(tmp_path / "a", [b"content"])
    [(temporary, size), (folder, _)] = system.synced
    assert (temporary, size, folder) == (system.created[0][0], len(b"content"), tmp_path.name)


def test_no_other_user_can_read_a_private_file_while_it_is_written(tmp_path, system):
    replace_file(tmp_path / "a", [b"new"], mode=0o640)
    replace_file(tmp_path / "b", [b"new"])
    assert [mode for _, mode in system.created] == [0o600, mode_of(tmp_path / "b")]


def test_the_temporary_name_cannot_be_guessed(tmp_path, system):
    for name in ("a", "a", "x" * 255):
        replace_file(tmp_path / name, [b"new"])
    names = [name for name, _ in system.created]
    assert len(set(names)) == 3
    assert all(name.startswith((".a.", ".x")) and len(name) >= 16 for name in names)


@pytest.mark.parametrize("plant", ["symlink_to", "hardlink_to"])
def test_a_file_under_the_temporary_name_is_not_written(tmp_path, monkeypatch, plant):
    monkeypatch.setattr(writing.secrets, "token_hex", lambda size: "guessed")
    (tmp_path / "victim").write_bytes(b"theirs")
    getattr(tmp_path / ".a.guessed", plant)(tmp_path / "victim")
    with pytest.raises(FileExistsError):
        replace_file(tmp_path / "a", [b"new"])
    assert (tmp_path / "victim").read_bytes() == b"theirs"


@pytest.mark.parametrize("call", ["fchmod", "rename"])
def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path, system, call):
    (tmp_path / "a").write_bytes(b"old")
    system.failing = call
    before = open_descriptors()
    with pytest.raises(OSError, match="Input/output"):
        replace_file(tmp_path / "a", [b"new"])
    assert open_descriptors() == before
    assert (names(tmp_path), (tmp_path / "a").read_bytes()) == (["a"], b"old")


def test_content_that_cannot_be_produced_leaves_nothing(tmp_path):
    def chunks():
        yield b"one"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replace_file(tmp_path / "a", chunks())
    assert names(tmp_path) == []


def test_a_file_is_not_a_folder(tmp_path):
    (tmp_path / "a").touch()
    for write in (lambda: replace_file(tmp_path / "a/b", [b""]), lambda: create_file(tmp_path / "a", "b", b"")):
        with pytest.raises(NotADirectoryError):
            write()


@pytest.mark.timeout(20)  # opening a FIFO blocks
def test_a_fifo_is_not_a_folder_either(tmp_path):
    os.mkfifo(tmp_path / "a")
    for write in (
        lambda: replace_file(tmp_path / "a/b", [b""]),
        lambda: create_file(tmp_path / "a", "b", b""),
        lambda: create_file(tmp_path, "a/b", b""),
    ):
        with pytest.raises(NotADirectoryError):
            write()


# -- new files ----------------------------------------------------------------------------------------


def test_a_file_and_the_folders_above_it_are_created(tmp_path, default_mode):
    create_file(tmp_path, "x/y/a.md", b"content")
    create_file(tmp_path, "x/b.md", b"more")
    assert (tmp_path / "x/y/a.md").read_bytes() == b"content"
    assert (tmp_path / "x/b.md").read_bytes() == b"more"
    assert mode_of(tmp_path / "x/y/a.md") == default_mode


@pytest.mark.parametrize("target", ["elsewhere", "nowhere"])
def test_a_file_is_not_created_through_a_link(tmp_path, target):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "project/x").mkdir(parents=True)
    (tmp_path / "project/link").symlink_to(tmp_path / target)
    (tmp_path / "project/x/link").symlink_to(tmp_path / target / "a.md")
    for name in ("link/a.md", "x/link", "link"):
        with pytest.raises(OSError, match=r"exists|Not a directory|symbolic links"):
            create_file(tmp_path / "project", name, b"content")
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert not (tmp_path / "nowhere").exists()


def test_an_existing_file_is_not_overwritten(tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        create_file(tmp_path, "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old"


def test_a_file_that_cannot_be_written_whole_is_removed(tmp_path, system):
    class Full:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            return None

        def write(self, content):
            raise OSError(28, "No space left on device")

    def fdopen(handle: int, mode: str):
        os.close(handle)
        return Full()

    system.fdopen = fdopen
    with pytest.raises(OSError, match="No space"):
        create_file(tmp_path, "x/a", b"new")
    assert names(tmp_path / "x") == []


def test_no_descriptor_leaks(tmp_path):
    before = open_descriptors()
    replace_file(tmp_path / "a", [b"new"])
    create_file(tmp_path, "x/y/z", b"new")
    for write in (lambda: create_file(tmp_path, "x/y/z", b"new"), lambda: create_file(tmp_path, "a/b/c", b"new")):
        with pytest.raises(OSError, match=r"exists|Not a directory"):
            write()
    assert open_descriptors() == before
