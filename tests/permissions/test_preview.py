"""What a person sees of a change is exactly what would happen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.journal import Blob, digest
from reyn.ops import Call, Plan
from reyn.ops.preview import MAX_COMPARED_LINES, preview
from reyn.workspace import Change
from tests.cost import LINEAR, growth
from tests.properties import examples

CALL = Call("k", {"kind": "file", "op": "write", "path": "a.md"})


def shown(before: bytes | None, after: bytes | None, path: str = "a.md", made: tuple[str, ...] = ()) -> str:
    blobs = tuple(Blob.of(content) for content in (before, after) if content is not None)
    names = [None if content is None else digest(content) for content in (before, after)]
    return preview(CALL, Plan("", (Change(path, names[0], names[1], None, made),), {}, blobs), lambda _: b"")


def applied(before: str, text: str) -> str:
    """Apply a preview to the text before it."""
    old = before.split("\n")
    old = [f"{line}\n" for line in old[:-1]] + ([old[-1]] if old[-1] else [])
    new, at = [], 0
    lines = text.split("\n")[3:-1]
    for number, line in enumerate(lines):
        whole = line[1:] + ("" if lines[number + 1 : number + 2] == ["\\ No newline at end of file"] else "\n")
        if line.startswith("@@ "):
            start = line.split(" ")[1][1:].split(",")
            first = int(start[0]) - (start[1:] != ["0"])
            new += old[at:first]
            at = first
        elif line.startswith("\\"):
            continue
        else:
            if line[0] in " -":
                assert old[at] == whole
                at += 1
            new += [whole] if line[0] in " +" else []
    return "".join(new + old[at:])


_LINE = st.sampled_from(["a", "b", "", "-- a", "++ b", "@@ -1 +1 @@", "\u2028", "x\ry", "\x0c", "é"])
_TEXT = st.lists(_LINE, max_size=30).map("\n".join)


@given(_TEXT, _TEXT)
def test_the_diff_turns_the_old_text_into_the_new_one(before: str, after: str):
    text = shown(before.encode(), after.encode())
    if before == after:
        assert text.count("\n") == 1
    else:
        assert applied(before, text) == after


@examples(20)
@given(st.integers(0, 5), st.integers(0, 5), st.booleans())
def test_a_large_change_is_shown_as_a_whole(first: int, last: int, ends: bool):
    lines = [f"{number % 7}" for number in range(20_000)]
    other = [f"{number % 7}x" if first <= number < 20_000 - last else line for number, line in enumerate(lines)]
    before, after = ("\n".join(text) + "\n" * ends for text in (lines, other))
    text = shown(before.encode(), after.encode())
    assert applied(before, text) == after
    assert text.count("\n+") >= MAX_COMPARED_LINES


def test_the_cost_of_showing_a_large_change_is_linear():
    def show(count: int) -> None:
        lines = [f"{number % 7}" for number in range(count)]
        shown("\n".join(lines).encode(), "\n".join(f"{line}x" for line in lines).encode())

    assert growth(show, 5_000) < LINEAR


def test_a_new_file_is_created_with_its_folders():
    text = shown(None, b"one\n", "x/y/a.md", ("x", "x/y"))
    assert (
        text == "create x/y/a.md (4 bytes, in the new folder x/y)\n--- /dev/null\n+++ x/y/a.md\n@@ -0,0 +1 @@\n+one\n"
    )


def test_an_empty_file_is_not_invisible():
    assert shown(None, b"") == "create a.md (0 bytes)\n"
    assert shown(b"", None) == "delete a.md (0 bytes)\n"


def test_a_deletion_shows_what_is_lost():
    assert shown(b"one\n", None) == "delete a.md (4 bytes)\n--- a.md\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n"


@pytest.mark.parametrize(
    ("before", "after"), [(b"\\xff", b"\xff"), (b"\xff", b"\xfe"), (None, b"a\0b"), (b"\xff", None), (b"\xff", b"text")]
)
def test_bytes_that_are_not_text_are_named_by_their_hash(before: bytes | None, after: bytes | None):
    text = shown(before, after)
    for content in (before, after):
        assert (f"SHA-256 {digest(content)}" if content is not None else "no file") in text


@pytest.mark.parametrize("end", ["\u2028", "\r", "\x0b", "\x0c", "\x1e", "\x85"])
def test_only_a_line_feed_ends_a_line(end: str):
    text = shown(b"", f"a{end}+++ /etc/passwd\n".encode())
    assert [line for line in text.split("\n") if line.startswith("+++ ")] == ["+++ a.md"]
    assert "No newline" not in text


def test_a_line_end_at_the_end_of_the_file_is_a_difference():
    text = shown(b"a\n", b"a")
    assert text.endswith("-a\n+a\n\\ No newline at end of file\n")


def test_a_path_cannot_look_like_more_than_a_path():
    assert shown(None, b"", "a.md (0 bytes)\ndelete b").splitlines() == ['create "a.md (0 bytes)\\ndelete b" (0 bytes)']
