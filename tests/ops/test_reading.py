"""The form `read`."""

import os

import pytest

from reyn.permissions import PathPattern, Policy
from tests.ops.support import Desk, without_envelope
from tests.workspace.support import CANARY


def test_read_returns_the_whole_file(desk):
    desk.put("output/a.md", "one\ntwo\nthree")
    assert desk.do("read", path="output/./a.md") == {
        "kind": "file",
        "op": "read",
        "status": "ok",
        "path": "output/a.md",
        "content": "one\ntwo\nthree",
        "total_lines": 3,
    }


@pytest.mark.parametrize(
    ("args", "content"),
    [
        ({"offset": 1}, "two\r\nthree\x0bfour\n"),
        ({"offset": 1, "limit": 1}, "two\r\n"),
        ({"offset": 1.0, "limit": 1.0}, "two\r\n"),
        ({"limit": 1}, "one\n"),
        ({"offset": 9}, ""),
    ],
)
def test_offset_and_limit_select_lines(desk, args, content):
    desk.put("a.md", "one\ntwo\r\nthree\x0bfour\n")
    result = desk.do("read", path="a.md", **args)
    assert (result["content"], result["total_lines"]) == (content, 3)


def test_start_and_length_select_characters_of_the_selected_lines(desk):
    desk.put("a.md", "one\nzwölf Hühner\n")
    result = desk.do("read", path="a.md", offset=1, limit=1, start=2, length=3)
    assert (result["content"], result["total_chars"]) == ("ölf", 13)
    assert desk.do("read", path="a.md", start=13)["content"] == "ner\n"


def test_an_empty_file_has_no_lines(desk):
    desk.put("a.md", "")
    assert without_envelope(desk.do("read", path="a.md")) == {"path": "a.md", "content": "", "total_lines": 0}


def test_a_missing_file_suggests_similar_names(desk):
    for name in ("notes.md", "nodes.md", "other.txt", "zebra/x"):
        desk.put(f"output/{name}", "")
    result = desk.do("read", path="output/note.md")
    assert result["status"] == "error"
    assert result["error"] == "there is no file `output/note.md`"
    assert result["suggestions"][:2] == ["output/notes.md", "output/nodes.md"]


def test_suggestions_never_include_unreadable_names(desk):
    for number in range(20):
        desk.put(f"f{number:02}", "")
    assert len(desk.do("read", path="nowhere/at/all.zip")["suggestions"]) == 8
    desk.put(".f2", "")
    assert desk.do("read", path="f2")["suggestions"] == ["f12", "f02"]
    named = Desk(desk.roots, policy=Policy(read_zone=(PathPattern.parse("./"), PathPattern.parse(".rey*"))))
    assert not any(".reyn" in name for name in named.do("read", path=".reym")["suggestions"])
    assert desk.do("read", path="output/x")["suggestions"]


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("reyn", "is a folder"),
        ("binary", "not UTF-8"),
        ("nul", "NUL"),
        ("large", "larger than 10000 bytes"),
        ("pipe", "not a plain file"),
        ("README.md/x", "a file where a folder should be"),
        ("a\0b", "NUL"),
        ("loop", "link"),
    ],
)
def test_reading_anything_but_text_is_an_error(desk, path, reason):
    desk.put("binary", b"\xff\x00")
    desk.put("nul", b"a\0b")
    desk.put("large", "x" * 10_001)
    os.mkfifo(desk.roots.project / "pipe")
    (desk.roots.project / "loop").symlink_to("loop")
    result = desk.do("read", path=path)
    assert result["status"] == "error"
    assert reason in result["error"]


@pytest.mark.parametrize("path", [".reyn/journal.db", "../beside/secret.md", "workspace:../run-2/theirs.md", "link"])
def test_reading_outside_the_readable_zones_is_denied(desk, tmp_path, path):
    (desk.roots.project / "link").symlink_to(tmp_path / "beside/secret.md")
    result = desk.do("read", path=path)
    assert result["status"] == "denied"
    assert result["rule"]
    assert CANARY not in str(result)
    assert str(tmp_path) not in str(result)


def test_a_symlink_created_between_plan_and_perform_is_not_followed(desk, tmp_path):
    desk.put("output/a.md", "mine")
    call = desk.call("read", path="output/a.md")
    plan = desk.plan(call)
    (desk.roots.project / "output/a.md").unlink()
    (desk.roots.project / "output/a.md").symlink_to(tmp_path / "beside/secret.md")
    assert desk.perform(call, plan)["status"] == "denied"


def test_truncated_content_is_read_by_name(tmp_path, desk):
    desk = Desk(desk.roots, full_content={"call-1": "long\n" * 9_000})
    result = desk.do("read", path="workspace:.full/call-1", offset=8_999)
    assert (result["content"], result["total_lines"]) == ("long\n", 9_000)
    missing = desk.do("read", path="workspace:.full/call-2")
    assert (missing["status"], missing["suggestions"]) == ("error", ["workspace:.full/call-1"])
