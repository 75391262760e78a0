"""A preview shows every change, and no line that the file does not have."""

import time

import pytest

from reyn.journal import Blob
from reyn.ops import Call, Plan
from reyn.ops.preview import preview
from reyn.workspace import Change


def diff(before: str | None, after: str | None, path: str = "output/a.txt") -> list[str]:
    old, new = (None if text is None else Blob.of(text.encode()) for text in (before, after))
    change = Change(path, old.hash if old else None, new.hash if new else None, None)
    plan = Plan(changes=(change,), blobs=tuple(blob for blob in (old, new) if blob))
    return preview(Call("k", {"kind": "file"}), plan, lambda name: b"").split("\n")[:-1]


def test_a_change_is_shown_as_a_diff():
    assert diff("a\nb\n", "a\nc") == [
        "--- output/a.txt",
        "+++ output/a.txt",
        "@@ -1,2 +1,2 @@",
        " a",
        "-b",
        "+c",
        "\\ No newline at end of file",
    ]


@pytest.mark.parametrize("end", ["\r", "\v", "\f", "\x1c", "\x85", "\u2028", "\u2029", "\x1b[2K\r", "\u202e"])
def test_no_character_hides_or_forges_a_line(end):
    shown = diff("a\n", f"a{end}+safe\n")
    assert shown[3:] == [
        "-a",
        f"+a{end.encode('unicode_escape').decode()}+safe",
        "\\ Control characters are escaped in the line above",
    ]
    assert all(line.isprintable() for line in shown)


def test_a_path_cannot_forge_a_line():
    assert diff(None, "x\n", "output/a\n+++ b")[:2] == ["--- /dev/null", "+++ output/a\\n+++ b"]


def test_arguments_are_escaped():
    shown = preview(Call("k", {"kind": "x", "name": "a\u2028b\x9bc"}), Plan(), lambda name: b"")
    assert "a\\u2028b\\x9bc" in shown


def test_a_large_difference_is_shown_without_a_long_comparison():
    before, after = "".join(f"{n % 7}\n" for n in range(30_000)), "".join(f"{n % 5}\n" for n in range(30_000))
    started = time.process_time()
    shown = diff(f"same\n{before}end\n", f"same\n{after}end\n")
    assert time.process_time() - started < 5
    assert shown[2:7] == ["@@ -4,29996 +4,29996 @@", " 2", " 3", " 4", "-5"]
    assert shown[-1].startswith("[truncated")
