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
    result = desk.do("write", path="reyn/a/b.md", content="zwölf\n")
    assert result == {"kind": "file", "op": "write", "status": "ok", "path": "reyn/a/b.md"}
    assert text(desk, "reyn/a/b.md") == "zwölf\n"
    assert desk.do("write", path="workspace:c/d.md", content="")["path"] == "workspace:c/d.md"
    assert (desk.roots.workspace / "c/d.md").read_text() == ""


def test_plan_has_no_side_effects(desk):
    desk.put("reyn/a.md", "old")
    for call in (
        desk.call("write", path="reyn/new/b.md", content="x"),
        desk.call("edit", path="reyn/a.md", old_string="old", new_string="new"),
        desk.call("delete", path="reyn/a.md"),
    ):
        plan = desk.plan(call)
        assert plan.rule == "default: write below reyn/"
        assert len(plan.changes) == 1
        assert plan.result["status"] == "ok"
    assert text(desk, "reyn/a.md") == "old"
    assert not (desk.roots.project / "reyn/new").exists()


def test_a_plan_read_from_the_journal_can_be_performed(desk):
    call = desk.call("write", path="reyn/a/b.md", content="x")
    plan = desk.plan(call)
    recorded = Plan(plan.rule, plan.changes, plan.result)
    assert desk.perform(call, recorded) == plan.result
    assert desk.perform(call, recorded) == plan.result
    assert text(desk, "reyn/a/b.md") == "x"
    assert revert(plan.changes[0], desk.roots, desk.env.content, "undo") == "done"
    assert names(desk.roots.project / "reyn") == []


def test_writing_the_same_content_changes_nothing(desk):
    desk.put("reyn/a.md", "same")
    write = desk.plan(desk.call("write", path="reyn/a.md", content="same"))
    assert (write.changes, write.result["status"]) == ((), "ok")
    edit = desk.plan(desk.call("edit", path="reyn/a.md", old_string="same", new_string="same"))
    assert (edit.changes, edit.result["replacements"]) == ((), 1)


def test_edit_replaces_a_unique_string(desk):
    desk.put("reyn/a.md", "one two three\r\n")
    result = desk.do("edit", path="reyn/a.md", old_string="two", new_string="2")
    assert without_envelope(result) == {"path": "reyn/a.md", "replacements": 1}
    assert (desk.roots.project / "reyn/a.md").read_bytes() == b"one 2 three\r\n"


def test_replace_all_replaces_every_occurrence(desk):
    desk.put("reyn/a.md", "a b a b a")
    result = desk.do("edit", path="reyn/a.md", old_string="a", new_string="", replace_all=True)
    assert result["replacements"] == 3
    assert text(desk, "reyn/a.md") == " b  b "


@pytest.mark.parametrize(
    ("path", "old", "reason"),
    [
        ("reyn/a.md", "x", "is not found in `reyn/a.md`"),
        ("reyn/a.md", "a", "appears 2 times"),
        ("reyn/b.md", "a", "there is no file `reyn/b.md`"),
        ("reyn/binary", "a", "not UTF-8"),
        ("reyn/folder", "a", "is a folder"),
    ],
)
def test_an_ambiguous_or_unmatched_edit_is_an_error(desk, path, old, reason):
    desk.put("reyn/a.md", "a a")
    desk.put("reyn/binary", b"\xffa")
    (desk.roots.project / "reyn/folder").mkdir()
    plan = desk.plan(call := desk.call("edit", path=path, old_string=old, new_string=""))
    assert plan.changes == ()
    assert plan.rule
    result = desk.perform(call, plan)
    assert result["status"] == "error"
    assert reason in result["error"]


def test_editing_a_missing_file_suggests_similar_names(desk):
    desk.put("reyn/notes.md", "")
    result = desk.do("edit", path="reyn/note.md", old_string="a", new_string="b")
    assert result["suggestions"] == ["reyn/notes.md"]


def test_delete_is_idempotent(desk):
    desk.put("reyn/a.md", b"\xff")
    assert without_envelope(desk.do("delete", path="reyn/a.md")) == {"path": "reyn/a.md", "deleted": True}
    assert without_envelope(desk.do("delete", path="reyn/a.md")) == {"path": "reyn/a.md", "deleted": False}


@pytest.mark.parametrize(
    ("path", "content", "reason"),
    [
        ("reyn/new", "x" * 10_001, "10000 is the most"),
        ("reyn/large", "x", "larger than 10000 bytes"),
        ("reyn/pipe", "x", "not a plain file"),
        ("reyn/folder", "x", "is a folder"),
        ("reyn/file/below", "x", "a file where a folder should be"),
        ("reyn/new", "a\0b", "NUL"),
        ("reyn/new", "\ud800", "Unicode"),
        ("reyn/\0", "x", "NUL"),
        ("reyn/" + "n" * 300, "x", "longer than 255"),
    ],
)
def test_invalid_content_or_path_is_an_error(desk, path, content, reason):
    desk.put("reyn/large", "x" * 10_001)
    desk.put("reyn/file", "x")
    os.mkfifo(desk.roots.project / "reyn/pipe")
    (desk.roots.project / "reyn/folder").mkdir()
    call = desk.call("write", path=path, content="")
    call.args["content"] = content
    plan = desk.plan(call)
    result = desk.perform(call, plan)
    assert (plan.changes, result["status"]) == ((), "error")
    assert reason in result["error"]


@pytest.mark.parametrize(
    "path",
    ["README.md", "reyn.yaml", "reyn", ".reyn/journal.db", "../beside/x", "/tmp/x", "workspace:../x", "reyn/out/x"],
)
@pytest.mark.parametrize("op", ["write", "edit", "delete"])
def test_writing_outside_the_writable_zones_is_denied(desk, tmp_path, op, path):
    (desk.roots.project / "reyn/out").symlink_to(tmp_path / "beside")
    args = {"write": {"content": "x"}, "edit": {"old_string": "a", "new_string": "b"}, "delete": {}}[op]
    assert isinstance(desk.plan(desk.call(op, path=path, **args)), Denied)


def test_a_symlink_inside_a_writable_zone_is_followed(desk):
    desk.put("reyn/real/a.md", "old")
    (desk.roots.project / "reyn/link").symlink_to("real")
    assert desk.do("write", path="reyn/link/a.md", content="new")["path"] == "reyn/real/a.md"
    assert text(desk, "reyn/real/a.md") == "new"


@pytest.mark.parametrize("op", ["write", "edit", "delete"])
def test_a_file_changed_after_planning_is_not_overwritten(desk, op):
    desk.put("reyn/a.md", "old")
    args = {"write": {"content": "x"}, "edit": {"old_string": "old", "new_string": "b"}, "delete": {}}[op]
    call = desk.call(op, path="reyn/a.md", **args)
    plan = desk.plan(call)
    desk.put("reyn/a.md", "theirs")
    result = desk.perform(call, plan)
    assert result["status"] == "error"
    assert "another program" in result["error"]
    assert text(desk, "reyn/a.md") == "theirs"


def test_a_symlink_created_between_plan_and_perform_is_not_written_through(desk, tmp_path):
    desk.put("reyn/sub/a.md", "old")
    call = desk.call("write", path="reyn/sub/secret.md", content="new")
    plan = desk.plan(call)
    (desk.roots.project / "reyn/sub").rename(desk.roots.project / "reyn/gone")
    (desk.roots.project / "reyn/sub").symlink_to(tmp_path / "beside")
    assert desk.perform(call, plan)["status"] == "denied"
    (desk.roots.project / "reyn/sub").unlink()
    (desk.roots.project / "reyn/sub").symlink_to("gone")
    assert desk.perform(call, plan)["status"] == "error"
    assert names(tmp_path / "beside") == ["secret.md"]
    assert names(desk.roots.project / "reyn/gone") == ["a.md"]


def test_a_full_disk_leaves_the_file_unchanged(desk):
    desk.put("reyn/a.md", "old")
    call = desk.call("write", path="reyn/a.md", content="x" * 9_000)
    plan = desk.plan(call)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, hard))
    try:
        result = desk.perform(call, plan)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (result["status"], result["error"]) == ("error", "`reyn/a.md`: File too large")
    assert (names(desk.roots.project / "reyn"), text(desk, "reyn/a.md")) == (["a.md"], "old")
    assert desk.perform(call, plan)["status"] == "ok"


def test_a_hard_link_to_the_state_directory_is_neither_read_nor_written(desk):
    os.link(desk.roots.state / "journal.db", desk.roots.project / "reyn/copy")
    for op, args in (("read", {}), ("write", {"content": "x"}), ("delete", {})):
        result = desk.do(op, path="reyn/copy", **args)
        assert (result["status"], "state directory" in result["error"]) == ("error", True)
