"""Changes are atomic, idempotent, revertible, and never overwrite a modification."""

import errno
import fcntl
import os
import stat
import sys
import threading
from collections.abc import Callable
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from reyn.journal import digest
from reyn.workspace import Change, ChangeUncertain, FileError, apply_change, changes, files, revert
from reyn.workspace.files import stat_stamp

OLD, NEW = b"old\n", b"new\n"
CONTENT = {digest(content): content for content in (OLD, NEW)}
OLD_NAME, NEW_NAME = CONTENT
TOKEN = "run-1/call-1"
TEMPORARY = f".reyn-tmp-{digest(TOKEN.encode())[:16]}"


def apply(change, roots, do=apply_change):
    return do(change, roots, CONTENT.__getitem__, TOKEN)


def names(roots, folder="reyn"):
    return sorted(path.name for path in (roots.project / folder).iterdir())


def stamps(roots, folder="reyn"):
    """What changes when a file is modified or replaced, and not when it is read."""
    return {name: stat_stamp((roots.project / folder / name).stat()) for name in names(roots, folder)}


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def file(roots):
    path = roots.project / "reyn/a.md"
    path.write_bytes(OLD)
    path.chmod(0o640)
    return path


REPLACED = Change("reyn/a.md", OLD_NAME, NEW_NAME, 0o640)
DELETED = Change("reyn/a.md", OLD_NAME, None, 0o640)
CREATED = Change("reyn/a.md", None, NEW_NAME, None)
BELOW = Change("reyn/x/y/a.md", None, NEW_NAME, None, ("reyn/x", "reyn/x/y"))
OWN = Change("workspace:x/a.md", None, NEW_NAME, None, ("workspace:x",))


def test_replacing_a_file_keeps_its_mode(roots, file):
    assert apply(REPLACED, roots) == "done"
    assert (file.read_bytes(), mode_of(file)) == (NEW, 0o640)
    assert names(roots) == ["a.md"]


def test_a_new_file_has_the_default_mode(roots):
    (roots.project / "reyn/like").touch()
    assert apply(CREATED, roots) == "done"
    assert mode_of(roots.project / "reyn/a.md") == mode_of(roots.project / "reyn/like")


def test_setuid_bits_are_dropped(roots, file):
    assert apply(Change("reyn/a.md", OLD_NAME, NEW_NAME, 0o4755), roots) == "done"
    assert mode_of(file) == 0o755


def test_a_file_is_deleted(roots, file):
    assert apply(DELETED, roots) == "done"
    assert names(roots) == []


@pytest.mark.parametrize("change", [REPLACED, DELETED])
def test_an_applied_change_is_not_applied_again(roots, file, change):
    apply(change, roots)
    before = stamps(roots)
    assert apply(change, roots) == "already"
    assert stamps(roots) == before


@pytest.mark.parametrize("change", [REPLACED, DELETED, CREATED])
def test_a_modified_file_is_a_conflict(roots, change):
    file = roots.project / "reyn/a.md"
    file.write_bytes(b"theirs\n")
    assert apply(change, roots) == "conflict"
    assert file.read_bytes() == b"theirs\n"
    assert names(roots) == ["a.md"]


@pytest.mark.parametrize("change", [REPLACED, CREATED])
def test_a_modification_during_the_write_is_a_conflict(roots, change):
    file = roots.project / "reyn/a.md"
    if change.before:
        file.write_bytes(OLD)

    def content(name):
        file.write_bytes(b"theirs\n")
        return CONTENT[name]

    assert apply_change(change, roots, content, TOKEN) == "conflict"
    assert file.read_bytes() == b"theirs\n"
    assert names(roots) == ["a.md"]


def test_a_file_that_is_deleted_during_the_write_is_a_conflict(roots, file):
    def content(name):
        file.unlink()
        return CONTENT[name]

    assert apply_change(REPLACED, roots, content, TOKEN) == "conflict"
    assert names(roots) == []


def test_a_file_that_is_modified_before_it_is_deleted_is_a_conflict(roots, file, monkeypatch):
    real = changes.fingerprint

    def fingerprint(*args):
        found = real(*args)
        file.write_bytes(b"theirs\n")
        return found

    monkeypatch.setattr(changes, "fingerprint", fingerprint)
    assert apply(DELETED, roots) == "conflict"
    assert file.read_bytes() == b"theirs\n"


def test_a_link_that_appears_during_the_write_is_a_conflict(roots):
    link = roots.project / "reyn/a.md"

    def content(name):
        link.symlink_to("nowhere")
        return CONTENT[name]

    assert apply_change(CREATED, roots, content, TOKEN) == "conflict"
    assert (names(roots), link.is_symlink()) == (["a.md"], True)


@pytest.mark.parametrize("plant", ["hardlink_to", "symlink_to"])
def test_a_file_that_is_planted_under_the_temporary_name_is_not_written(roots, file, plant):
    other = roots.project / "README.md"

    def content(name):
        getattr(file.with_name(TEMPORARY), plant)(other)
        return CONTENT[name]

    with pytest.raises(FileError, match="File exists"):
        apply_change(REPLACED, roots, content, TOKEN)
    assert other.read_text() == "# A project\n"
    assert file.read_bytes() == OLD


def test_a_deleted_file_is_a_conflict(roots):
    assert apply(REPLACED, roots) == "conflict"
    assert apply(Change("reyn/gone/a.md", OLD_NAME, NEW_NAME, 0o640), roots) == "conflict"
    assert apply(Change("reyn/gone/a.md", OLD_NAME, None, 0o640), roots) == "already"
    assert names(roots) == []


@pytest.mark.parametrize("change", [BELOW, OWN])
def test_revert_removes_the_folders_that_a_change_created(roots, change):
    assert apply(change, roots) == "done"
    assert apply(change, roots, revert) == "done"
    assert names(roots) == []
    assert list(roots.workspace.iterdir()) == []


def test_the_workspace_folder_is_created_on_the_first_write(roots):
    roots.workspace.rmdir()
    assert apply(OWN, roots) == "done"
    assert (roots.workspace / "x/a.md").read_bytes() == NEW


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        (Change("workspace:a.md", OLD_NAME, NEW_NAME, None), "conflict"),
        (Change("workspace:a.md", OLD_NAME, None, None), "already"),
        (Change("workspace:a.md", None, None, None), "already"),
        (CREATED, "done"),
    ],
)
def test_no_other_change_creates_the_workspace_folder(roots, change, outcome):
    roots.workspace.rmdir()
    assert apply(change, roots) == outcome
    assert not roots.workspace.exists()


def test_the_state_directory_is_created_for_the_user_alone(roots):
    state = roots.project / "var/state"
    later = type(roots)(roots.project, state, state / "workspace/run-1")
    assert apply(OWN, later) == "done"
    assert mode_of(state) == 0o700


def test_another_process_may_create_the_workspace_folder_at_the_same_time(roots, monkeypatch):
    monkeypatch.setattr(os.path, "isdir", lambda path: False)
    assert apply(OWN, roots) == "done"


def test_a_change_of_a_file_whose_folders_exist_needs_none_of_those_it_lists(roots, file):
    assert apply(Change("reyn/a.md", OLD_NAME, NEW_NAME, 0o640, ("reyn",)), roots) == "done"


def test_a_conflict_leaves_folders_alone(roots):
    (roots.project / "reyn/x").mkdir()
    assert apply(Change("reyn/x/a.md", OLD_NAME, NEW_NAME, 0o640, ("reyn/x",)), roots, revert) == "conflict"
    assert names(roots) == ["x"]


def test_a_conflict_leaves_no_folder_behind_that_was_created_for_the_file(roots, monkeypatch):
    file = roots.project / BELOW.path
    system = Failing("none")

    def content(name):
        file.write_bytes(b"theirs\n")
        monkeypatch.setattr(system, "unlink", lambda *args, **more: (os.unlink(*args, **more), file.unlink()), False)
        return CONTENT[name]

    monkeypatch.setattr(changes, "os", system)
    assert apply_change(BELOW, roots, content, TOKEN) == "conflict"
    assert names(roots) == []


def test_revert_keeps_folders_that_are_not_empty(roots):
    apply(BELOW, roots)
    (roots.project / "reyn/x/theirs.md").touch()
    assert apply(BELOW, roots, revert) == "done"
    assert names(roots) == ["x"]
    assert names(roots, "reyn/x") == ["theirs.md"]


@pytest.mark.parametrize("change", [REPLACED, DELETED])
def test_revert_restores_content_and_mode(roots, file, change):
    apply(change, roots)
    assert apply(change, roots, revert) == "done"
    assert (file.read_bytes(), mode_of(file)) == (OLD, 0o640)
    assert apply(change, roots, revert) == "already"


def test_revert_recreates_a_deleted_file_and_its_folder(roots):
    assert apply(Change("reyn/gone/a.md", OLD_NAME, None, 0o600), roots, revert) == "done"
    assert mode_of(roots.project / "reyn/gone/a.md") == 0o600


def test_revert_of_a_modified_file_is_a_conflict(roots, file):
    apply(REPLACED, roots)
    file.write_bytes(b"theirs\n")
    assert apply(REPLACED, roots, revert) == "conflict"
    assert file.read_bytes() == b"theirs\n"


@pytest.mark.parametrize(
    "path",
    [
        ".reyn/journal.db",
        "../beside/secret.md",
        "workspace:../run-2/theirs.md",
        "workspace:.full/a",
        "reyn/../README.md",
        "reyn/out/secret.md",
        ".",
        "a\0b",
    ],
)
def test_a_recorded_path_that_leads_elsewhere_is_refused(roots, tmp_path, path):
    (roots.project / "reyn/out").symlink_to(tmp_path / "beside")
    for do in (apply_change, revert):
        with pytest.raises(FileError, match=r"leads elsewhere than it did|NUL character"):
            apply(Change(path, None, NEW_NAME, None), roots, do)


def test_a_symlink_instead_of_the_file_is_refused(roots, file, tmp_path):
    file.unlink()
    file.symlink_to(roots.project / "README.md")
    with pytest.raises(FileError, match="elsewhere"):
        apply(REPLACED, roots)
    assert (roots.project / "README.md").read_text() == "# A project\n"


def test_a_folder_instead_of_the_file_is_refused(roots):
    (roots.project / "reyn/a.md").mkdir()
    with pytest.raises(FileError, match="is a folder"):
        apply(CREATED, roots)


def test_the_temporary_file_of_an_earlier_attempt_is_removed(roots, file):
    (roots.project / "reyn" / TEMPORARY).write_bytes(b"ne")
    assert apply(REPLACED, roots) == "done"
    assert names(roots) == ["a.md"]
    (roots.project / "reyn" / TEMPORARY).write_bytes(b"ne")
    file.write_bytes(b"theirs\n")
    assert apply(REPLACED, roots) == "conflict"
    assert names(roots) == ["a.md"]


class Killed(BaseException):
    """Only descriptors are closed on the way out, so the files are as a kill would leave them."""


def descriptors() -> set[int]:
    """The open descriptors; a kill would close them, and release their locks."""
    return {int(path.name) for path in Path("/dev/fd").iterdir()}


def kill_at_line(number: int) -> Any:
    left = number

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal left
        if "reyn/workspace" not in frame.f_code.co_filename:
            return None
        if event == "line":
            left -= 1
            if left < 0:
                raise Killed
        return trace

    return trace


def is_killed_at_line(number: int, work: Callable[[], object]) -> bool:
    """Do some work in a thread of its own.

    In Python 3.11, an exception that a trace function raises in an `except` clause stays the current one of its thread.
    It would be the context of every later exception.
    """
    killed = []

    def attempt() -> None:
        sys.settrace(kill_at_line(number))
        try:
            work()
        except Killed:
            killed.append(True)

    thread = threading.Thread(target=attempt)
    thread.start()
    thread.join()
    return bool(killed)


@pytest.mark.slow
@pytest.mark.parametrize("change", [REPLACED, DELETED, BELOW, OWN])
@pytest.mark.parametrize("do", [apply_change, revert])
def test_a_kill_at_any_line_leaves_a_whole_file_and_the_retry_completes(roots, change, do):
    file = roots.workspace / "x/a.md" if change is OWN else roots.project / change.path
    before, after = (OLD if change.before else None), (NEW if change.after else None)
    if do is revert:
        before, after = after, before
    number = 0
    while True:
        if before is not None and not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(before)
        held = descriptors()
        if not is_killed_at_line(number, lambda: apply(change, roots, do)):
            break
        for handle in descriptors() - held:
            with suppress(OSError):  # one of them listed the others
                os.close(handle)
        assert (file.read_bytes() if file.exists() else None) in (before, after)
        assert apply(change, roots, do) in ("done", "already")
        assert (file.read_bytes() if file.exists() else None) == after
        assert not list(roots.project.rglob(".reyn-tmp-*"))
        if do is revert and change.made:
            assert not list(roots.project.rglob("x"))
        apply(change, roots, revert if do is apply_change else apply_change)
        number += 1
    assert number > 30


def test_no_descriptor_leaks(roots, file, monkeypatch):
    before = sum(1 for _ in Path("/dev/fd").iterdir())
    for change in (REPLACED, DELETED, BELOW, OWN):
        apply(change, roots)
        apply(change, roots, revert)
    (roots.project / "reyn/b.md").mkdir()
    with pytest.raises(FileError):
        apply(Change("reyn/b.md", None, NEW_NAME, None), roots)
    apply(Change("reyn/gone/a.md", OLD_NAME, NEW_NAME, None), roots)
    roots.workspace.rmdir()
    apply(OWN, roots)
    for call in ("mkdir", "open", "write", "fsync", "rename"):
        monkeypatch.setattr(changes, "os", Failing(call))
        with pytest.raises(FileError, match="Input/output error"):
            apply(BELOW, roots)
    assert sum(1 for _ in Path("/dev/fd").iterdir()) == before


# -- failures after the file has changed --------------------------------------------------------------


class Failing:
    """`os`, one of whose functions fails once, before or after it has done its work."""

    def __init__(self, name: str, number: int = 1, *, after: bool = False, error: int = errno.EIO) -> None:
        self._name, self._left, self._after, self._error = name, number, after, error

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name != self._name:
            return real

        def call(*args: Any, **kwargs: Any) -> Any:
            self._left -= 1
            if self._left != 0:
                return real(*args, **kwargs)
            if self._after:
                real(*args, **kwargs)
            raise OSError(self._error, os.strerror(self._error))

        return call


@pytest.fixture
def failing(monkeypatch):
    return lambda *args, **more: monkeypatch.setattr(changes, "os", Failing(*args, **more))


@pytest.mark.parametrize(("change", "fsyncs"), [(REPLACED, 2), (DELETED, 1)])
def test_a_change_that_is_not_confirmed_to_be_durable_counts_as_made(roots, file, failing, change, fsyncs):
    failing("fsync", fsyncs)
    assert apply(change, roots) == "unconfirmed"
    assert (file.read_bytes() if file.exists() else None) == (NEW if change is REPLACED else None)


@pytest.mark.parametrize(("change", "call"), [(REPLACED, "rename"), (DELETED, "unlink")])
def test_a_call_that_fails_after_it_took_effect_counts_as_made(roots, file, failing, change, call):
    failing(call, 1 if call == "rename" else 2, after=True)
    assert apply(change, roots) == "unconfirmed"


@pytest.mark.parametrize("call", ["open", "write", "fsync", "rename"])
def test_a_change_that_fails_leaves_neither_a_change_nor_folders(roots, failing, call):
    failing(call, 3 if call == "fsync" else 1)
    with pytest.raises(FileError, match="Input/output error"):
        apply(BELOW, roots)
    assert names(roots) == []


def test_a_change_is_uncertain_if_the_folders_of_a_failed_one_cannot_be_removed(roots, monkeypatch):
    system = Failing("write")
    system.rmdir = Failing("rmdir").rmdir
    monkeypatch.setattr(changes, "os", system)
    with pytest.raises(ChangeUncertain, match="may have been changed"):
        apply(BELOW, roots)
    monkeypatch.undo()
    assert apply(BELOW, roots, revert) == "already"
    assert names(roots) == []


def test_a_revert_that_cannot_remove_a_folder_fails_and_can_be_repeated(roots, failing, monkeypatch):
    apply(BELOW, roots)
    failing("rmdir")
    with pytest.raises(FileError):
        apply(BELOW, roots, revert)
    assert names(roots) == ["x"]
    monkeypatch.undo()
    assert apply(BELOW, roots, revert) == "already"
    assert names(roots) == []


@pytest.mark.parametrize("error", [OSError(errno.EIO, "Input/output error"), FileError("it is a folder")])
def test_a_change_is_uncertain_if_the_file_cannot_be_read_after_a_failure(roots, file, failing, monkeypatch, error):
    failing("rename")
    real, looks = changes.fingerprint, []

    def fingerprint(*args):
        looks.append(args)
        if len(looks) > 1:
            raise error
        return real(*args)

    monkeypatch.setattr(changes, "fingerprint", fingerprint)
    with pytest.raises(ChangeUncertain, match="may have been changed"):
        apply(REPLACED, roots)


def test_a_change_is_uncertain_if_the_file_is_something_else_after_a_failure(roots, file, monkeypatch):
    system = Failing("none")

    def rename(*args, **more):
        file.write_bytes(b"theirs\n")
        raise OSError(errno.EIO, "Input/output error")

    system.rename = rename
    monkeypatch.setattr(changes, "os", system)
    with pytest.raises(ChangeUncertain, match="may have been changed"):
        apply(REPLACED, roots)


def test_a_file_whose_folder_is_gone_after_a_failure_counts_as_deleted(roots, monkeypatch):
    folder = roots.project / "reyn/x"
    folder.mkdir()
    (folder / "a.md").write_bytes(OLD)
    system = Failing("none")

    def unlink(name, **more):
        os.unlink(name, **more)
        if name == "a.md":
            folder.rmdir()
            raise OSError(errno.EIO, "Input/output error")

    system.unlink = unlink
    monkeypatch.setattr(changes, "os", system)
    assert apply(Change("reyn/x/a.md", OLD_NAME, None, None), roots) == "unconfirmed"


def test_a_forged_folder_of_a_record_is_ignored(roots):
    apply(BELOW, roots)
    (roots.state / "empty").mkdir()
    forged = ("reyn/x", "reyn/x/y", ".reyn/empty", "a\0b")
    assert apply(Change(BELOW.path, None, NEW_NAME, None, forged), roots, revert) == "done"
    assert names(roots) == []
    assert (roots.state / "empty").is_dir()


@pytest.mark.parametrize("call", ["mkdir", "write"])
def test_folders_that_a_failed_change_did_not_plan_are_removed_too(roots, failing, call):
    failing(call, 2 if call == "mkdir" else 1)
    with pytest.raises(FileError, match="Input/output error"):
        apply(Change(BELOW.path, None, NEW_NAME, None), roots)
    assert names(roots) == []


@pytest.mark.parametrize("change", [REPLACED, DELETED])
def test_a_change_that_was_applied_before_is_confirmed_only_if_it_is_durable(roots, file, failing, change):
    apply(change, roots)
    failing("fsync")
    assert apply(change, roots) == "unconfirmed"


@pytest.mark.parametrize("error", [errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT, errno.ENOTDIR, errno.ELOOP])
def test_a_folder_that_is_not_empty_or_something_else_by_now_stays(roots, failing, error):
    apply(BELOW, roots)
    failing("rmdir", error=error)
    assert apply(BELOW, roots, revert) == "done"
    assert names(roots) == ["x"]


def test_a_folder_that_vanishes_while_it_is_removed_is_no_failure(roots, failing):
    apply(BELOW, roots)
    failing("rmdir", after=True)
    assert apply(BELOW, roots, revert) == "done"


def test_the_first_folder_that_cannot_be_removed_is_named(roots, monkeypatch):
    apply(BELOW, roots)
    system = Failing("none")
    system.rmdir = lambda *args, **more: Failing("rmdir").rmdir(*args, **more)
    monkeypatch.setattr(changes, "os", system)
    with pytest.raises(FileError, match=r"^`reyn/x/y`: Input/output error"):
        apply(BELOW, roots, revert)


# -- durability ---------------------------------------------------------------------------------------


class Recording:
    """`os`, which records what is made durable, and the mode of files while they are written; writes byte by byte."""

    def __init__(self, roots) -> None:
        self._top = os.path.realpath(roots.project)
        self.synced: list[str] = []
        self.modes: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def fsync(self, handle: int) -> None:
        os.fsync(handle)
        path = os.path.relpath(Path(f"/proc/self/fd/{handle}").readlink(), self._top)
        self.synced.append("temporary" if TEMPORARY in path else path)

    def write(self, handle: int, content: bytes) -> int:
        self.modes.append(stat.S_IMODE(os.fstat(handle).st_mode))
        return os.write(handle, content[:1])


@pytest.fixture
def system(roots, monkeypatch):
    system = Recording(roots)
    monkeypatch.setattr(changes, "os", system)
    monkeypatch.setattr(files, "os", system)
    return system


BELOW_ROOT = Change("x/y/a.md", None, NEW_NAME, None, ("x", "x/y"))


@pytest.mark.parametrize(
    ("change", "existing", "synced"),
    [
        (CREATED, "", ["temporary", "reyn"]),
        (BELOW, "", ["reyn", "reyn/x", "temporary", "reyn/x/y"]),
        (BELOW, "reyn/x", ["reyn", "reyn/x", "temporary", "reyn/x/y"]),
        (BELOW, "reyn/x/y", ["reyn", "reyn/x", "temporary", "reyn/x/y"]),
        (Change(BELOW.path, None, NEW_NAME, None), "", ["reyn", "reyn/x", "temporary", "reyn/x/y"]),
        (Change(BELOW.path, None, NEW_NAME, None), "reyn/x/y", ["temporary", "reyn/x/y"]),
        (BELOW_ROOT, "", [".", "x", "temporary", "x/y"]),
    ],
)
def test_a_file_and_every_folder_with_a_new_entry_are_made_durable(roots, system, change, existing, synced):
    (roots.project / existing).mkdir(parents=True, exist_ok=True)
    assert apply(change, roots) == "done"
    assert system.synced == synced
    system.synced.clear()
    assert apply(Change(change.path, None, NEW_NAME, None), roots) == "already"
    assert system.synced == [synced[-1]]


def test_a_new_workspace_is_made_durable_and_an_existing_one_is_not_touched(roots, system):
    change = Change("workspace:a.md", None, NEW_NAME, None)
    apply(change, roots)
    assert system.synced == ["temporary", ".reyn/workspace/run-1"]
    apply(change, roots, revert)
    roots.workspace.rmdir()
    system.synced.clear()
    apply(change, roots)
    assert system.synced == [".reyn/workspace", ".reyn", "temporary", ".reyn/workspace/run-1"]


def test_the_removal_of_a_file_and_of_its_folders_is_made_durable(roots, system):
    apply(BELOW, roots)
    system.synced.clear()
    assert apply(BELOW, roots, revert) == "done"
    assert system.synced == ["reyn/x/y", "reyn/x", "reyn"]


def test_a_write_continues_after_a_part_was_written(roots, file, system):
    assert apply(REPLACED, roots) == "done"
    assert file.read_bytes() == NEW
    assert len(system.modes) == len(NEW)


def test_no_other_user_can_read_a_private_file_while_it_is_written(roots, file, system):
    apply(REPLACED, roots)
    assert set(system.modes) == {0o600}


# -- locks --------------------------------------------------------------------------------------------


@contextmanager
def locked(path):
    handle = os.open(path, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        os.close(handle)


def test_a_change_waits_for_the_lock_of_the_folder_and_then_gives_up(roots, file, monkeypatch):
    monkeypatch.setattr(changes, "LOCK_SECONDS", 0.01)
    with locked(file.parent), pytest.raises(FileError, match="locked by another process"):
        apply(REPLACED, roots)
    assert file.read_bytes() == OLD
    assert apply(REPLACED, roots) == "done"


@pytest.mark.parametrize("content", [OLD, NEW, b"theirs\n"])
def test_a_change_that_was_not_attempted_is_neither_made_nor_uncertain(roots, file, monkeypatch, content):
    monkeypatch.setattr(changes, "LOCK_SECONDS", 0.01)
    file.write_bytes(content)
    with locked(file.parent), pytest.raises(FileError, match="locked by another process") as caught:
        apply(REPLACED, roots)
    assert not isinstance(caught.value, ChangeUncertain)


def test_folders_of_an_earlier_attempt_are_removed_if_the_change_fails(roots, monkeypatch):
    monkeypatch.setattr(changes, "LOCK_SECONDS", 0.01)
    folder = roots.project / "reyn/x/y"
    folder.mkdir(parents=True)
    with locked(folder), pytest.raises(FileError, match="locked by another process"):
        apply(BELOW, roots)
    assert names(roots) == []
    folder.mkdir(parents=True)
    with locked(folder), pytest.raises(FileError, match="locked by another process"):
        apply(Change(BELOW.path, OLD_NAME, NEW_NAME, None, BELOW.made), roots)
    assert names(roots) == ["x"]


def test_a_change_is_made_once_the_lock_is_released(roots, file, monkeypatch):
    pauses = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        os.close(handle)

    handle = os.open(file.parent, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    monkeypatch.setattr("reyn.folders.opening.time.sleep", sleep)
    assert apply(REPLACED, roots) == "done"
    assert len(pauses) == 1


def test_where_folders_cannot_be_locked_a_file_in_the_state_directory_is(roots, file, monkeypatch):
    real, asked = fcntl.flock, []

    def flock(handle: int, how: int) -> None:
        asked.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        if not asked[-1].endswith(".lock"):
            raise OSError(errno.ENOLCK, "no locks")
        real(handle, how)

    monkeypatch.setattr(changes.fcntl, "flock", flock)
    assert apply(REPLACED, roots) == "done"
    assert asked[-1] == str(roots.state / "files.lock")
