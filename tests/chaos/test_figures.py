"""Figures count the violations of runs, and are written to the documentation page."""

from __future__ import annotations

from pathlib import Path

import pytest

from reyn.testing.crash import Claims, Entry, file_violations, violations
from tests.chaos.figures import BEGIN, END, Figures, Tally, write_into
from tests.chaos.random_kills import KilledRun

PAGE = Path(__file__).parent.parent.parent / "docs" / "explanation" / "chaos.md"
NOTHING = Claims({}, {})
ANSWERED = Claims({"1.1": "", "2.1": ""}, {"1.1.1": ""})
CHANGE = (".reyn-tmp-1", "/p/a.txt 00")


def entries(*lines: str) -> list[Entry]:
    """Return ledger entries, each written like `asked 1.1`."""
    return [Entry(line.split()[0], "r", line.split()[1]) for line in lines]


LOST = {
    "an answer": violations(entries("asked 1.1"), NOTHING, 1),
    "an earlier answer": violations(entries("asked 2.1", "asked 1.1"), ANSWERED, 9),
    "an answer of the user": violations(entries("posted 1.1.1"), NOTHING, 1),
    "a change": file_violations([], [CHANGE]),
}
DOUBLED = {
    "an answer": violations(entries("durable 1.1", "asked 1.1"), ANSWERED, 1),
    "answers": violations(entries("asked 1.1", "asked 1.1", "asked 1.1"), ANSWERED, 1),
    "a question": violations(entries("posted 1.1.1", "questioned 1.1.1"), ANSWERED, 1),
    "a change": file_violations([Entry("changed", "", *CHANGE)] * 2, [CHANGE]),
    "a change upon a change": file_violations([Entry("changing", "", CHANGE[0], "/p/a.txt 0000")], []),
}


@pytest.mark.parametrize("what", LOST)
def test_losses_are_counted(what: str):
    tally = Tally("s", "It does.")
    tally.add(KilledRun(3, is_stuck=False, wrong=LOST[what]))
    assert (tally.runs, tally.kills, tally.lost, tally.stuck) == (1, 3, 1, 0)
    assert len(tally.wrong) >= 1


@pytest.mark.parametrize("what", DOUBLED)
def test_repeated_effects_are_counted(what: str):
    tally = Tally("s", "It does.")
    tally.add(KilledRun(3, is_stuck=False, wrong=DOUBLED[what]))
    assert tally.doubled == 1


def test_new_figures_replace_the_old_ones_and_nothing_else(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n")
    tally = Tally("s", "It does.", runs=2, kills=1234)
    write_into(page, Figures(7, [tally]))
    written = page.read_text()
    assert "old" not in written
    assert written.startswith("before\n")
    assert written.endswith("\nafter\n")
    assert "Seed 7." in written
    assert "| It does. | 2 | 1,234 | 0 | 0 | 0 | 0 |" in written
    write_into(page, Figures(7, [tally]))
    assert page.read_text() == written


def test_a_page_without_markers_is_not_changed(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("words\n")
    with pytest.raises(SystemExit, match="no markers for figures"):
        write_into(page, Figures(7, []))
    assert page.read_text() == "words\n"


def test_the_published_figures_show_thousands_of_kills_and_no_violation():
    text = PAGE.read_text(encoding="utf-8")
    [total] = [line for line in text.splitlines() if line.startswith("| **all** ")]
    runs, kills, *wrong = (int(cell.replace(",", "")) for cell in total.split("|")[2:-1])
    assert kills > runs > 100
    assert kills >= 3_000
    assert wrong == [0, 0, 0, 0]
