"""Files are opened by descriptor, and symlinks are never followed."""

import os
import shutil
import stat
from types import SimpleNamespace

import pytest

from reyn.journal import digest
from reyn.workspace import (
    FileError,
    Guard,
    Location,
    decode_text,
    entries_of,
    files,
    kind_of,
    locate,
    look,
    read,
    walk,
)
from reyn.workspace.files import FolderHandle, fingerprint, open_below, stat_stamp, translated
from tests.workspace.support import CANARY, open_descriptors


def put(roots, path, content="x"):
    target = roots.project / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content)
    return locate(path, roots)


def below(location, roots):
    """Return all files below a folder."""
    guard = Guard(roots)
    return walk(location, lambda folder: entries_of(folder, guard), lambda _: True)


def test_read_returns_content_and_mode(roots):
    location = put(roots, "reyn/a.sh", "echo\n")
    (roots.project / "reyn/a.sh").chmod(0o750)
    image = read(location, roots, 5)
    assert (image.content, image.mode) == (b"echo\n", 0o750)


@pytest.mark.parametrize("text", ["reyn/none", "none/none", "workspace:none", "workspace:a/none"])
def test_a_missing_file_is_none(roots, text):
    assert read(locate(text, roots), roots, 10) is None


def test_a_run_without_a_workspace_folder_has_no_files(roots):
    roots.workspace.rmdir()
    assert read(locate("workspace:a", roots), roots, 10) is None
    assert list(below(locate("workspace:", roots), roots)) == []


def test_a_project_without_a_state_directory_is_readable(roots):
    shutil.rmtree(roots.state)
    assert read(locate("README.md", roots), roots, 100).content == b"# A project\n"
    assert locate(".reyn/journal.db", roots).zone == "state"
    assert [location.display_path for location in below(locate(".", roots), roots)] == ["README.md"]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("reyn", "is a folder"),
        (".", "is a folder"),
        ("README.md", "larger than 3 bytes"),
        ("README.md/x", "a file where a folder should be"),
    ],
)
def test_an_unreadable_file_raises_file_error(roots, text, reason):
    with pytest.raises(FileError, match=reason):
        read(locate(text, roots), roots, 3)


def test_opening_a_fifo_does_not_block(roots):
    os.mkfifo(roots.project / "reyn/pipe")
    with pytest.raises(FileError, match="not a plain file"):
        read(locate("reyn/pipe", roots), roots, 10)


def test_text_is_utf8_without_nul(roots):
    location = locate("README.md", roots)
    with pytest.raises(FileError, match="UTF-8"):
        decode_text(b"\xff\xfe", location)
    with pytest.raises(FileError, match="NUL"):
        decode_text(b"a\0b", location)


def test_a_symlink_created_after_resolution_is_not_followed(roots, tmp_path):
    file, below = put(roots, "reyn/a.md"), put(roots, "reyn/sub/b.md")
    (roots.project / "reyn/a.md").unlink()
    (roots.project / "reyn/a.md").symlink_to(tmp_path / "beside" / "secret.md")
    (roots.project / "reyn/sub").rename(roots.project / "gone")
    (roots.project / "reyn/sub").symlink_to(tmp_path / "beside")
    for location in (file, below):
        with pytest.raises(FileError, match="a part of it is a link"):
            read(location, roots, 100)


def test_the_state_directory_is_recognised_by_inode(roots):
    with pytest.raises(FileError, match="out of reach"):
        read(Location.at("project", (".reyn", "journal.db")), roots, 100)
    assert entries_of(Location.at("project", (".reyn",)), Guard(roots)) == []
    (roots.project / "reyn/moved").mkdir()
    roots.state.rename(roots.project / "reyn/moved/state")
    moved_roots = type(roots)(roots.project, roots.project / "reyn/moved/state", roots.workspace)
    with pytest.raises(FileError, match="out of reach"):
        read(Location.at("project", ("reyn", "moved", "state", "journal.db")), moved_roots, 100)


def test_a_project_that_is_a_hidden_folder_is_out_of_reach(roots):
    hiding = type(roots)(roots.project, roots.state, roots.workspace, (roots.project,))
    with pytest.raises(FileError, match="out of reach"):
        read(Location.at("project", ("README.md",)), hiding, 100)


def test_a_folder_below_an_open_one_may_not_be_the_state_directory(roots):
    handle = os.open(roots.project, os.O_RDONLY)
    held = open_descriptors()
    try:
        with pytest.raises(FileError, match="out of reach"):
            open_below(handle, ".reyn", Guard(roots))
        assert open_descriptors() == held
    finally:
        os.close(handle)


@pytest.mark.parametrize("zone", ["state", "outside"])
def test_locations_outside_the_zones_cannot_be_opened(roots, tmp_path, zone):
    with pytest.raises(FileError, match="out of reach"):
        read(Location(zone, (*tmp_path.parts[1:], "beside", "secret.md"), "x"), roots, 100)


def test_only_hard_links_to_the_state_directory_are_refused(roots):
    os.link(roots.state / "journal.db", roots.project / "reyn/copy.db")
    os.link(roots.state / "workspace/run-2/theirs.md", roots.workspace / "theirs.md")
    os.link(roots.project / "README.md", roots.workspace / "mine.md")
    for text in ("reyn/copy.db", "workspace:theirs.md"):
        with pytest.raises(FileError, match="state directory"):
            read(locate(text, roots), roots, 100)
    assert read(locate("workspace:mine.md", roots), roots, 100).content == b"# A project\n"


def test_a_hard_link_is_recognised_by_device_and_inode(roots):
    journal = (roots.state / "journal.db").stat()
    names = ("st_dev", "st_ino", "st_mode")
    status = SimpleNamespace(**{name: getattr(journal, name) for name in names}, st_nlink=2)
    location, guard = locate("a", roots), Guard(roots)
    with pytest.raises(FileError, match="out of reach"):
        guard.check_file(status, location)
    status.st_dev += 1
    guard.check_file(status, location)


@pytest.mark.parametrize("field", ["st_dev", "st_ino", "st_mode", "st_size", "st_mtime_ns", "st_ctime_ns"])
def test_a_file_that_was_modified_or_replaced_has_another_stamp(roots, field):
    status = (roots.project / "README.md").stat()
    names = [name for name in dir(status) if name.startswith("st_")]
    other = SimpleNamespace(**{name: getattr(status, name) for name in names})
    assert stat_stamp(other) == stat_stamp(status)
    setattr(other, field, getattr(other, field) + 1)
    assert stat_stamp(other) != stat_stamp(status)


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3 << 20])
def test_the_fingerprint_covers_the_whole_file(roots, size):
    content = b"x" * size
    (roots.project / "reyn/a").write_bytes(content)
    with FolderHandle("project", ("reyn",), Guard(roots)) as folder:
        assert fingerprint(folder, locate("reyn/a", roots), Guard(roots)).hash == digest(content)
        assert fingerprint(folder, locate("reyn/none", roots), Guard(roots)) is None
    assert read(locate("reyn/a", roots), roots, size).content == content


class Growing:
    """`os`, which appends to a file after its size was asked for."""

    def __init__(self, path, more: bytes) -> None:
        self._path, self._more = path, more
        self.count = 0

    def __getattr__(self, name: str):
        return getattr(os, name)

    def read(self, handle: int, size: int) -> bytes:
        content = os.read(handle, size)
        self.count += len(content)
        return content

    def fstat(self, handle: int):
        status = os.fstat(handle)
        if stat.S_ISREG(status.st_mode):
            self._path.write_bytes(self._path.read_bytes() + self._more)
        return status


@pytest.mark.parametrize(("limit", "more"), [(100, b"y" * 90), (3 << 20, b"y" * (2 << 20))])
def test_a_file_that_grows_while_it_is_read_is_read_to_its_end_or_refused(roots, monkeypatch, limit, more):
    location = put(roots, "reyn/a", "x" * 10)
    path = roots.project / "reyn/a"
    monkeypatch.setattr(files, "os", Growing(path, more))
    assert read(location, roots, limit).content == b"x" * 10 + more
    path.write_bytes(b"x" * 10)
    with pytest.raises(FileError, match="larger than"):
        read(location, roots, len(more) + 9)


@pytest.mark.parametrize("limit", [10, 11, 12, 100, (1 << 20) + 5])
def test_a_file_that_grows_is_not_read_further_than_one_byte_beyond_the_limit(roots, monkeypatch, limit):
    location = put(roots, "reyn/a", "x" * 10)
    system = Growing(roots.project / "reyn/a", b"y" * (4 << 20))
    monkeypatch.setattr(files, "os", system)
    with pytest.raises(FileError, match="larger than"):
        read(location, roots, limit)
    assert system.count == limit + 1


def test_reading_leaks_no_descriptor(roots):
    (roots.project / "link").symlink_to("reyn")
    held = open_descriptors()
    read(locate("README.md", roots), roots, 100)
    read(locate("reyn/none/none", roots), roots, 100)
    for location in (
        Location.at("project", ("reyn",)),
        Location.at("project", (".reyn", "journal.db")),
        Location.at("project", ("link", "a")),
        Location.at("project", ("README.md", "a")),
    ):
        with pytest.raises(FileError):
            read(location, roots, 100)
    with pytest.raises(FileError, match="larger"):
        read(locate("README.md", roots), roots, 1)
    for name in ("README.md", "reyn", "none"):
        kind_of(locate(name, roots), roots)
    assert open_descriptors() == held


def test_a_system_error_names_the_location_and_the_reason(roots):
    long = Location.at("project", ("a" * 300,))
    for look_at in (lambda: kind_of(long, roots), lambda: read(long, roots, 10)):
        with pytest.raises(FileError, match=r"^`a{300}`: File name too long$"):
            look_at()
    assert str(translated(OSError("odd"), locate("a", roots))) == "`a`: Input/output error"


def test_error_messages_contain_no_machine_paths(roots, tmp_path):
    (roots.project / "a").symlink_to("a")
    with pytest.raises(FileError) as caught:
        read(locate("a", roots), roots, 100)
    assert str(tmp_path) not in str(caught.value)


def test_missing_folders_are_listed_outermost_first(roots):
    def missing(path: str) -> tuple[str, ...]:
        return look(locate(path, roots), Guard(roots), 1_000)[1]

    assert missing("reyn/a/b/c.md") == ("reyn/a", "reyn/a/b")
    assert missing("workspace:a/c.md") == ("workspace:a",)
    assert missing("reyn/c.md") == ()


def test_kind_of_a_location(roots):
    kinds = [kind_of(locate(text, roots), roots) for text in ("README.md", "reyn", ".", "none")]
    assert kinds == ["file", "folder", "folder", None]


def test_walk_is_sorted_and_skips_symlinks_state_and_temporary_files(roots, tmp_path):
    for path in ("reyn/b/z.md", "reyn/b.md", "reyn/a.md", "reyn/.hidden", "reyn/.reyn-tmp-0123456789abcdef"):
        put(roots, path)
    (roots.project / "reyn/link.md").symlink_to(roots.project / "README.md")
    (roots.project / "reyn/out").symlink_to(tmp_path / "beside")
    (roots.project / "reyn/circle").symlink_to(roots.project)
    os.close(os.open(os.fsencode(roots.project) + b"/reyn/\xff.md", os.O_CREAT))
    os.mkfifo(roots.project / "reyn/pipe")
    found = [location.display_path for location in below(locate(".", roots), roots)]
    assert found == ["README.md", "reyn/.hidden", "reyn/a.md", "reyn/b/z.md", "reyn/b.md"]
    assert not any(CANARY in (roots.project / path).read_text() for path in found)
