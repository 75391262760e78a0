"""A file is reached by descriptors: what is put in its way is met, never followed."""

import os
import shutil

import pytest

from reyn.workspace import FileFault, Guard, Place, entries_of, kind_of, locate, missing_folders, read, text_of, walk
from tests.workspace.support import CANARY


def put(roots, path, content="x"):
    target = roots.project / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content)
    return locate(path, roots)


def test_a_file_is_read_with_its_permission_bits(roots):
    place = put(roots, "reyn/a.sh", "echo\n")
    (roots.project / "reyn/a.sh").chmod(0o750)
    image = read(place, roots, 5)
    assert (image.content, image.mode) == (b"echo\n", 0o750)


@pytest.mark.parametrize("text", ["reyn/none", "none/none", "workspace:none", "workspace:a/none"])
def test_what_is_not_there_is_none(roots, text):
    assert read(locate(text, roots), roots, 10) is None


def test_a_run_without_a_folder_of_its_own_has_no_files(roots):
    roots.workspace.rmdir()
    assert read(locate("workspace:a", roots), roots, 10) is None
    assert list(walk(locate("workspace:", roots), roots)) == []


def test_a_project_without_a_state_directory_is_read_like_any_other(roots):
    shutil.rmtree(roots.state)
    assert read(locate("README.md", roots), roots, 100).content == b"# A project\n"
    assert locate(".reyn/journal.db", roots).zone == "state"
    assert [place.shown for place in walk(locate(".", roots), roots)] == ["README.md"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("reyn", "is a folder"),
        (".", "is a folder"),
        ("README.md", "larger than 3 bytes"),
        ("README.md/x", "a file where a folder should be"),
    ],
)
def test_what_cannot_be_read_is_told(roots, text, why):
    with pytest.raises(FileFault, match=why):
        read(locate(text, roots), roots, 3)


def test_a_fifo_does_not_hold_anybody_up(roots):
    os.mkfifo(roots.project / "reyn/pipe")
    with pytest.raises(FileFault, match="not a plain file"):
        read(locate("reyn/pipe", roots), roots, 10)


def test_text_is_utf8_without_nul(roots):
    place = locate("README.md", roots)
    with pytest.raises(FileFault, match="UTF-8"):
        text_of(b"\xff\xfe", place)
    with pytest.raises(FileFault, match="NUL"):
        text_of(b"a\0b", place)


def test_a_link_that_is_put_in_after_the_place_was_judged_is_not_followed(roots, tmp_path):
    file, below = put(roots, "reyn/a.md"), put(roots, "reyn/sub/b.md")
    (roots.project / "reyn/a.md").unlink()
    (roots.project / "reyn/a.md").symlink_to(tmp_path / "beside" / "secret.md")
    (roots.project / "reyn/sub").rename(roots.project / "gone")
    (roots.project / "reyn/sub").symlink_to(tmp_path / "beside")
    for place in (file, below):
        with pytest.raises(FileFault, match="link"):
            read(place, roots, 100)


def test_the_state_directory_is_known_by_what_it_is(roots):
    with pytest.raises(FileFault, match="out of reach"):
        read(Place.at("project", (".reyn", "journal.db")), roots, 100)
    assert entries_of(Place.at("project", (".reyn",)), Guard(roots)) == []
    (roots.project / "reyn/moved").mkdir()
    roots.state.rename(roots.project / "reyn/moved/state")
    moved = type(roots)(roots.project, roots.project / "reyn/moved/state", roots.workspace)
    with pytest.raises(FileFault, match="out of reach"):
        read(Place.at("project", ("reyn", "moved", "state", "journal.db")), moved, 100)


@pytest.mark.parametrize("zone", ["state", "outside"])
def test_what_is_out_of_reach_is_not_opened_whoever_asks(roots, tmp_path, zone):
    with pytest.raises(FileFault, match="out of reach"):
        read(Place(zone, (*tmp_path.parts[1:], "beside", "secret.md"), "x"), roots, 100)


def test_another_name_of_a_record_is_refused_and_of_anything_else_is_not(roots):
    os.link(roots.state / "journal.db", roots.project / "reyn/copy.db")
    os.link(roots.state / "workspace/run-2/theirs.md", roots.workspace / "theirs.md")
    os.link(roots.project / "README.md", roots.workspace / "mine.md")
    for text in ("reyn/copy.db", "workspace:theirs.md"):
        with pytest.raises(FileFault, match="state directory"):
            read(locate(text, roots), roots, 100)
    assert read(locate("workspace:mine.md", roots), roots, 100).content == b"# A project\n"


def test_what_is_said_names_no_path_of_this_machine(roots, tmp_path):
    (roots.project / "a").symlink_to("a")
    with pytest.raises(FileFault) as caught:
        read(locate("a", roots), roots, 100)
    assert str(tmp_path) not in str(caught.value)


def test_folders_that_are_missing_come_outermost_first(roots):
    assert missing_folders(locate("reyn/a/b/c.md", roots), roots) == ("reyn/a", "reyn/a/b")
    assert missing_folders(locate("workspace:a/c.md", roots), roots) == ("workspace:a",)
    assert missing_folders(locate("reyn/c.md", roots), roots) == ()


def test_a_place_is_a_file_a_folder_or_nothing(roots):
    kinds = [kind_of(locate(text, roots), roots) for text in ("README.md", "reyn", ".", "none")]
    assert kinds == ["file", "folder", "folder", None]


def test_a_walk_is_sorted_and_passes_over_links_records_and_unfinished_files(roots, tmp_path):
    for path in ("reyn/b/z.md", "reyn/b.md", "reyn/a.md", "reyn/.hidden", "reyn/.reyn-tmp-0123456789abcdef"):
        put(roots, path)
    (roots.project / "reyn/link.md").symlink_to(roots.project / "README.md")
    (roots.project / "reyn/out").symlink_to(tmp_path / "beside")
    (roots.project / "reyn/circle").symlink_to(roots.project)
    os.close(os.open(os.fsencode(roots.project) + b"/reyn/\xff.md", os.O_CREAT))
    os.mkfifo(roots.project / "reyn/pipe")
    found = [place.shown for place in walk(locate(".", roots), roots)]
    assert found == ["README.md", "reyn/.hidden", "reyn/a.md", "reyn/b/z.md", "reyn/b.md"]
    assert not any(CANARY in (roots.project / path).read_text() for path in found)
