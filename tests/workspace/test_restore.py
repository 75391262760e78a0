"""Restoring files: recorded changes are reverted, newest first, and nothing of anybody else is touched."""

import os

import pytest

from reyn.journal import digest
from reyn.workspace import Change, Guard, Location, Roots, changes, locate, look
from reyn.workspace.files import FileImage, Fingerprint
from reyn.workspace.restore import Files, Restored, preview_restore, restore

TEXTS = (b"one\n", b"two\n", b"three\n", b"four\n")
ONE, TWO, THREE, FOUR = map(digest, TEXTS)
CONTENT = dict(zip((ONE, TWO, THREE, FOUR), TEXTS, strict=True))
PATH = "output/a.md"


def allow(location: Location) -> tuple[str, str]:
    return "rule", "denied" if "secret" in location.parts else ""


@pytest.fixture
def files(roots) -> Files:
    return Files(roots, CONTENT.__getitem__, 1_000, allow)


def put(files: Files, content: bytes | None, path: str = PATH) -> None:
    target = files.roots.project / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    if content is not None:
        target.write_bytes(content)


def found(files: Files, path: str = PATH) -> bytes | None:
    target = files.roots.project / path
    return target.read_bytes() if target.exists() else None


def change(before: str | None, after: str | None, path: str = PATH, made: tuple[str, ...] = ()) -> Change:
    return Change(path, before, after, None, made)


EDITS = (change(TWO, THREE), change(ONE, TWO), change(None, ONE))
"""Newest first: the file was created and then edited twice."""


def both(recorded: tuple[Change, ...], files: Files) -> Restored:
    """Restore, and check that the preview promised exactly that."""
    preview = preview_restore(recorded, files)
    assert len(set(preview.restored)) == len(preview.restored)
    done = restore(recorded, "run-1/restore-1", files)
    assert (set(preview.restored), set(preview.left)) == (set(done.restored), set(done.left))
    assert preview.verdicts == done.verdicts
    return done


@pytest.mark.parametrize("now", [b"three\n", b"two\n", b"one\n", None])
def test_successive_changes_are_reverted_wherever_the_file_stopped(files, now):
    put(files, now)
    done = both(EDITS, files)
    assert (done.restored, done.left, found(files)) == ((PATH,), (), None)


@pytest.mark.parametrize("now", [b"three\n", b"two\n", b"one\n"])
def test_a_file_that_existed_gets_its_first_content_back(files, now):
    put(files, now)
    assert both(EDITS[:2], files).restored == (PATH,)
    assert found(files) == b"one\n"


@pytest.mark.parametrize("now", [b"theirs\n", b"four\n"])
def test_a_file_that_another_program_changed_is_left_alone(files, now):
    put(files, now)
    done = both(EDITS, files)
    assert (done.restored, done.left, found(files)) == ((), (PATH,), now)


def test_a_deleted_file_is_left_alone_if_the_run_did_not_create_it(files):
    put(files, None)
    assert both(EDITS[:2], files).left == (PATH,)
    assert found(files) is None


def test_a_file_that_was_deleted_is_recreated(files):
    put(files, None)
    assert both((change(TWO, None), change(ONE, TWO)), files).restored == (PATH,)
    assert found(files) == b"one\n"


def test_changes_between_which_another_program_wrote_are_reverted_one_by_one(files):
    interrupted = (change(THREE, FOUR), change(ONE, TWO))
    put(files, b"four\n")
    for _ in range(2):  # an undo can be repeated
        done = both(interrupted, files)
        assert (done.restored, done.left, found(files)) == ((), (PATH,), b"three\n")
    put(files, b"two\n")
    done = both(interrupted, files)
    assert (done.restored, done.left, found(files)) == ((), (PATH,), b"one\n")


def test_the_changes_of_several_files_do_not_mix(files):
    other = "output/b.md"
    put(files, b"two\n")
    put(files, b"four\n", other)
    recorded = (change(ONE, TWO), change(THREE, FOUR, other), change(None, ONE), change(TWO, THREE, other))
    assert set(both(recorded, files).restored) == {PATH, other}
    assert (found(files), found(files, other)) == (None, b"two\n")


def test_files_are_restored_in_the_order_of_their_oldest_change(files):
    other = "output/b.md"
    put(files, b"three\n")
    put(files, b"two\n", other)
    recorded = (change(TWO, THREE), change(ONE, TWO, other), change(ONE, TWO))
    assert restore(recorded, "t", files).restored == (other, PATH)


def test_folders_that_the_changes_created_are_removed_innermost_first(files):
    path = "output/x/y/a.md"
    put(files, b"two\n", path)
    made = (change(ONE, TWO, path, ("output/x/y",)), change(None, ONE, path, ("output/x",)))
    assert both(made, files).restored == (path,)
    assert list((files.roots.project / "output").iterdir()) == []


def test_a_forged_record_removes_no_folder_that_is_not_above_the_file(files):
    (files.roots.project / "output/x").mkdir()
    (files.roots.project / "empty").mkdir()
    put(files, b"one\n")
    both((change(None, ONE, made=("empty", "output/x", "outp", "output/a.md")),), files)
    assert (files.roots.project / "empty").is_dir()
    assert (files.roots.project / "output/x").is_dir()
    assert found(files) is None


def test_the_gate_decides_about_every_file_once_and_where_its_path_leads_now(files):
    asked = []

    def decide(location: Location) -> tuple[str, str]:
        asked.append(location.display_path)
        return allow(location)

    put(files, b"two\n", "output/secret")
    put(files, b"four\n")
    (files.roots.project / "output/link.md").symlink_to("secret")
    watched = Files(files.roots, files.content, files.max_bytes, decide)
    recorded = (
        change(ONE, TWO, "output/secret"),
        change(ONE, TWO, "output/link.md"),
        change(THREE, FOUR),
        change(ONE, TWO),
        change(None, ONE, "a\0b"),
    )
    done = restore(recorded, "t", watched)
    assert asked == ["output/secret", "output/secret", PATH]
    assert [(one.path, one.rule, bool(one.reason)) for one in done.verdicts] == [
        ("output/secret", "rule", True),
        ("output/link.md", "rule", True),
        (PATH, "rule", False),
        ("a\0b", "invalid path", True),
    ]
    assert done.verdicts == preview_restore(recorded, watched).verdicts
    assert found(files, "output/secret") == b"two\n"
    assert "output/secret" not in (*done.restored, *done.left)


def test_a_file_that_cannot_be_read_or_written_is_left_alone(files):
    (files.roots.project / PATH).mkdir()
    assert both((change(None, ONE),), files).left == (PATH,)
    put(files, b"x" * 2_000, "output/large.md")
    large = (change(ONE, TWO, "output/large.md"),)
    assert both(large, files).left == ("output/large.md",)


def test_every_file_of_a_restore_has_a_temporary_name_of_its_own(files, monkeypatch):
    names = []
    real = os.rename
    monkeypatch.setattr(
        changes.os, "rename", lambda source, *args, **more: (names.append(source), real(source, *args, **more))
    )
    for path in (PATH, "output/b.md"):
        put(files, b"two\n", path)
    recorded = (change(ONE, TWO), change(ONE, TWO, "output/b.md"))
    for token in ("first", "second"):
        restore(recorded, token, files)
        for path in (PATH, "output/b.md"):
            put(files, b"two\n", path)
    assert len(set(names)) == 4


def test_values_cannot_be_changed(files):
    image, _ = look(locate("README.md", files.roots), Guard(files.roots), 100)
    for value in (files, Restored(), files.roots, locate("a", files.roots), image, Fingerprint("", ())):
        for name in value.__struct_fields__:
            with pytest.raises(AttributeError):
                setattr(value, name, None)
    assert isinstance(image, FileImage)
    assert isinstance(files.roots, Roots)
