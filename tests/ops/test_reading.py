"""What `read` gives back."""

import os

import pytest

from tests.ops.support import Desk, without_envelope
from tests.workspace.support import CANARY


def test_a_file_is_read_whole(desk):
    desk.put("reyn/a.md", "one\ntwo\nthree")
    assert desk.do("read", path="reyn/./a.md") == {
        "kind": "file",
        "op": "read",
        "status": "ok",
        "path": "reyn/a.md",
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
def test_lines_are_counted_from_zero_and_keep_their_ends(desk, args, content):
    desk.put("a.md", "one\ntwo\r\nthree\x0bfour\n")
    result = desk.do("read", path="a.md", **args)
    assert (result["content"], result["total_lines"]) == (content, 3)


def test_characters_are_counted_within_the_lines_that_were_asked_for(desk):
    desk.put("a.md", "one\nzwölf Hühner\n")
    result = desk.do("read", path="a.md", offset=1, limit=1, start=2, length=3)
    assert (result["content"], result["total_chars"]) == ("ölf", 13)
    assert desk.do("read", path="a.md", start=13)["content"] == "ner\n"


def test_an_empty_file_has_no_lines(desk):
    desk.put("a.md", "")
    assert without_envelope(desk.do("read", path="a.md")) == {"path": "a.md", "content": "", "total_lines": 0}


def test_of_a_file_that_is_not_there_the_ones_most_like_it_are_told(desk):
    for name in ("notes.md", "nodes.md", "other.txt", "zebra/x"):
        desk.put(f"reyn/{name}", "")
    result = desk.do("read", path="reyn/note.md")
    assert result["status"] == "error"
    assert result["error"] == "there is no file `reyn/note.md`"
    assert result["suggestions"][:2] == ["reyn/notes.md", "reyn/nodes.md"]


def test_where_nothing_is_like_it_some_names_are_told_but_none_out_of_reach(desk):
    for number in range(20):
        desk.put(f"f{number:02}", "")
    assert len(desk.do("read", path="nowhere/at/all.zip")["suggestions"]) == 8
    assert not any(".reyn" in name for name in desk.do("read", path=".reym")["suggestions"])
    assert desk.do("read", path="reyn/x")["suggestions"]


@pytest.mark.parametrize(
    ("path", "why"),
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
def test_what_is_no_text_is_an_error(desk, path, why):
    desk.put("binary", b"\xff\x00")
    desk.put("nul", b"a\0b")
    desk.put("large", "x" * 10_001)
    os.mkfifo(desk.roots.project / "pipe")
    (desk.roots.project / "loop").symlink_to("loop")
    result = desk.do("read", path=path)
    assert result["status"] == "error"
    assert why in result["error"]


@pytest.mark.parametrize("path", [".reyn/journal.db", "../beside/secret.md", "workspace:../run-2/theirs.md", "link"])
def test_what_is_out_of_reach_is_denied_by_a_rule(desk, tmp_path, path):
    (desk.roots.project / "link").symlink_to(tmp_path / "beside/secret.md")
    result = desk.do("read", path=path)
    assert result["status"] == "denied"
    assert result["rule"]
    assert CANARY not in str(result)
    assert str(tmp_path) not in str(result)


def test_a_link_that_is_put_in_between_plan_and_performance_shows_nothing(desk, tmp_path):
    desk.put("reyn/a.md", "mine")
    call = desk.call("read", path="reyn/a.md")
    plan = desk.plan(call)
    (desk.roots.project / "reyn/a.md").unlink()
    (desk.roots.project / "reyn/a.md").symlink_to(tmp_path / "beside/secret.md")
    assert desk.perform(call, plan)["status"] == "denied"


def test_what_was_kept_is_read_by_its_name(tmp_path, desk):
    desk = Desk(desk.roots, kept={"call-1": "long\n" * 9_000})
    result = desk.do("read", path="workspace:.kept/call-1", offset=8_999)
    assert (result["content"], result["total_lines"]) == ("long\n", 9_000)
    missing = desk.do("read", path="workspace:.kept/call-2")
    assert (missing["status"], missing["suggestions"]) == ("error", ["workspace:.kept/call-1"])
