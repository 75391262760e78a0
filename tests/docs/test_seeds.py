"""Every promise of the page has a test or a deviation with its reason. `test_docs` checks that the tests exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "seeds.md"
TEST = re.compile(r"`tests/[\w/.-]+\.py::\w+`")
DEVIATION = re.compile(r"\*\*Deviation\.\*\* \w[^|`]*(?:`[^`|]+`[^|`]*)*\w[.)]")


def rows(text: str) -> list[tuple[str, str]]:
    """Return the lines of all tables: promise, and what shows it."""
    found = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]
    return [(cells[0], cells[1] if len(cells) == 2 else "") for cells in found if cells[0] != "promise"]


def unshown(text: str) -> list[str]:
    """Return the promises whose line names neither a test nor a deviation."""
    return [promise for promise, shown in rows(text) if not (TEST.search(shown) or DEVIATION.match(shown))]


def test_every_promise_has_a_test_or_a_deviation():
    text = PAGE.read_text(encoding="utf-8")
    assert len(rows(text)) > 250
    assert unshown(text) == []


def test_no_promise_is_listed_twice_in_a_section():
    for section in re.split("^## ", PAGE.read_text(encoding="utf-8"), flags=re.M):
        promises = [promise for promise, _ in rows(section)]
        assert len(promises) == len(set(promises))


@pytest.mark.parametrize("shown", ["", "It holds.", "`tests/kernel/test_runs.py`", "**Deviation.**", "test_a_run"])
def test_a_line_without_a_test_or_a_reason_is_found(shown: str):
    assert unshown(f"| promise | shown by |\n|---|---|\n| It works. | {shown} |\n") == ["It works."]
