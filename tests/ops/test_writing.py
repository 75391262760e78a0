"""The forms `write`, `edit` and `delete`."""

import os
import resource

import pytest

from reyn.ops import Plan
from reyn.permissions import Denied
from reyn.workspace import revert
from tests.ops.support import without_envelope


def names(folder):
    return [path.name for path in folder.iterdir()]


def text(desk, path):
    return (desk.roots.project / path).read_text()


def test_write_creates_parent_folders(desk):
    result = desk.do("write", path="output/a/b.md", content="zwölf\n")
    assert result == {"kind": "file", "op": "write", "status": "ok", "path": "output/a/b.md"}
    assert text(desk, "output/a/b.md") == "zwölf\n"
    assert desk.do("write", path="workspace:c/d.md", content="")["path"] == "workspace:c/d.md"
    assert (desk.roots.workspace / "c/d.md").read_text() == ""


def test_plan_has_no_side_effects(desk):
    desk.put("output/a.md", "old")
    for call in (
        desk.call("write", path="output/new/b.md", content="x"),
        desk.call("edit", path="output/a.md", old_string="old", new_string="new"),
        desk.call("delete", path="output/a.md"),
    ):
        plan = desk.plan(call)
        assert plan.rule == "default: write output/"
        assert len(plan.changes) == 1
        assert plan.result["status"] == "ok"
    assert text(desk, "output/a.md") == "old"
    assert not (desk.roots.project / "output/new").exists()


def test_a_plan_read_from_the_journal_can_be_performed(desk):
    call = desk.call("write", path="output/a/b.md", content="x")
    plan = desk.plan(call)
    recorded = Plan(plan.rule, plan.changes, plan.result)
    assert desk.perform(call, recorded) == plan.result
    assert desk.perform(call, recorded) == plan.result
    assert text(desk, "output/a/b.md") == "x"
    assert revert(plan.changes[0], desk.roots, desk.env.content, "undo") == "done"
    assert names(desk.roots.project / "output") == []


def test_writing_the_same_content_changes_nothing(desk):
    desk.put("output/a.md", "same")
    write = desk.plan(desk.call("write", path="output/a.md", content="same"))
    assert (write.changes, write.result["status"]) == ((), "ok")
    edit = desk.plan(desk.call("edit", path="output/a.md", old_string="same", new_string="same"))
    assert (edit.changes, edit.result["replacements"]) == ((), 1)


def test_edit_replaces_a_unique_string(desk):
    desk.put("output/a.md", "one two three\r\n")
    result = desk.do("edit", path="output/a.md", old_string="two", new_string="2")
    assert without_envelope(result) == {"path": "output/a.md", "replacements": 1}
    assert (desk.roots.project / "output/a.md").read_bytes() == b"one 2 three\r\n"


def test_replace_all_replaces_every_occurrence(desk):
    desk.put("output/a.md", "a b a b a")
    result = desk.do("edit", path="output/a.md", old_string="a", new_string="", replace_all=True)
    assert result["replacements"] == 3
    assert text(desk, "output/a.md") == " b  b "


@pytest.mark.parametrize(
    ("path", "old", "reason"),
    [
        ("output/a.md", "x", "is not found in `output/a.md`"),
        ("output/a.md", "a", "appears 2 times"),
        ("output/b.md", "a", "there is no file `output/b.md`"),
        ("output/binary", "a", "not UTF-8"),
        ("output/folder", "a", "is a folder"),
    ],
)
def test_an_ambiguous_or_unmatched_edit_is_an_error(desk, path, old, reason):
    desk.put("output/a.md", "a a")
    desk.put("output/binary", b"\xffa")
    (desk.roots.project / "output/folder").mkdir()
    plan = desk.plan(call := desk.call("edit", path=path, old_string=old, new_string=""))
    assert plan.changes == ()
    assert plan.rule
    result = desk.perform(call, plan)
    assert result["status"] == "error"
    assert reason in result["error"]


def test_editing_a_missing_file_suggests_similar_names(desk):
    desk.put("output/notes.md", "")
    result = desk.do("edit", path="output/note.md", old_string="a", new_string="b")
    assert result["suggestions"] == ["output/notes.md"]


def test_delete_is_idempotent(desk):
    desk.put("output/a.md", b"\xff")
    assert without_envelope(desk.do("delete", path="output/a.md")) == {"path": "output/a.md", "deleted": True}
    assert without_envelope(desk.do("delete", path="output/a.md")) == {"path": "output/a.md", "deleted": False}


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        ("output/new", "x" * 10_001, "10000 is the most"),
        ("output/large", "x", "larger than 10000 bytes"),
        ("output/pipe", "x", "not a plain file"),
        ("output/folder", "x", "is a folder"),
        ("output/file/below", "x", "a file where a folder should be"),
        ("output/new", "a\0b", "NUL"),
        ("output/new", "\ud800", "Unicode"),
        ("output/\0", "x", "NUL"),
        ("output/" + "n" * 300, "x", "longer than 255"),
    ],
)
def test_invalid_content_or_path_is_an_error(desk, path, content, reason):
    desk.put("output/large", "x" * 10_001)
    desk.put("output/file", "x")
    os.mkfifo(desk.roots.project / "output/pipe")
    (desk.roots.project / "output/folder").mkdir()
    call = desk.call("write", path=path, content="")
    call.args["content"] = content
    plan = desk.plan(call)
    result = desk.perform(call, plan)
    assert (plan.changes, result["status"]) == ((), "error")
    assert reason in result["error"]


@pytest.mark.parametrize(
    "path",
    [
        "README.md",
        "reyn.yaml",
        "reyn",
        "reyn/a.md",
        "output",
        "output/run.py",
        "output/Makefile",
        "output/.hidden",
        "output/.git/config",
        ".reyn/journal.db",
        "../beside/x",
        "/tmp/x",
        "workspace:../x",
        "workspace:.git/config",
        "output/out/x",
    ],
)
@pytest.mark.parametrize("op", ["write", "edit", "delete"])
def test_writing_outside_the_writable_zones_is_denied(desk, tmp_path, op, path):
    (desk.roots.project / "output/out").symlink_to(tmp_path / "beside")
    args = {"write": {"content": "x"}, "edit": {"old_string": "a", "new_string": "b"}, "delete": {}}[op]
    assert isinstance(desk.plan(desk.call(op, path=path, **args)), Denied)


def test_a_symlink_inside_a_writable_zone_is_followed(desk):
    desk.put("output/real/a.md", "old")
    (desk.roots.project / "output/link").symlink_to("real")
    assert desk.do("write", path="output/link/a.md", content="new")["path"] == "output/real/a.md"
    assert text(desk, "output/real/a.md") == "new"


@pytest.mark.parametrize("op", ["write", "edit", "delete"])
def test_a_file_changed_after_planning_is_not_overwritten(desk, op):
    desk.put("output/a.md", "old")
    args = {"write": {"content": "x"}, "edit": {"old_string": "old", "new_string": "b"}, "delete": {}}[op]
    call = desk.call(op, path="output/a.md", **args)
    plan = desk.plan(call)
    desk.put("output/a.md", "theirs")
    result = desk.perform(call, plan)
    assert result["status"] == "error"
    assert "another program" in result["error"]
    assert text(desk, "output/a.md") == "theirs"


def test_a_symlink_created_between_plan_and_perform_is_not_written_through(desk, tmp_path):
    desk.put("output/sub/a.md", "old")
    call = desk.call("write", path="output/sub/secret.md", content="new")
    plan = desk.plan(call)
    (desk.roots.project / "output/sub").rename(desk.roots.project / "output/gone")
    (desk.roots.project / "output/sub").symlink_to(tmp_path / "beside")
    assert desk.perform(call, plan)["status"] == "denied"
    (desk.roots.project / "output/sub").unlink()
    (desk.roots.project / "output/sub").symlink_to("gone")
    assert desk.perform(call, plan)["status"] == "error"
    assert names(tmp_path / "beside") == ["secret.md"]
    assert names(desk.roots.project / "output/gone") == ["a.md"]


def test_a_full_disk_leaves_the_file_unchanged(desk):
    desk.put("output/a.md", "old")
    call = desk.call("write", path="output/a.md", content="x" * 9_000)
    plan = desk.plan(call)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, hard))
    try:
        result = desk.perform(call, plan)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (result["status"], result["error"]) == ("error", "`output/a.md`: File too large")
    assert (names(desk.roots.project / "output"), text(desk, "output/a.md")) == (["a.md"], "old")
    assert desk.perform(call, plan)["status"] == "ok"


def test_a_hard_link_to_the_state_directory_is_neither_read_nor_written(desk):
    os.link(desk.roots.state / "journal.db", desk.roots.project / "output/copy")
    for op, args in (("read", {}), ("write", {"content": "x"}), ("delete", {})):
        result = desk.do(op, path="output/copy", **args)
        assert (result["status"], "state directory" in result["error"]) == ("error", True)
