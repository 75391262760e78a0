"""An op does a bounded amount of work, and the ops of one visit together do so, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from reyn import ModelAnswer, SyncRuntime
from reyn.ops import budget
from reyn.ops.budget import OpBudget, OpBudgets
from reyn.ops.file.reading import count_lines, iterate_lines, lines_after, lines_before, select_lines
from tests.cost import count_calls
from tests.ops.support import Desk
from tests.support import act, file, finish, go, write_skill


def limited(desk: Desk, **most: int) -> Desk:
    desk.env = replace(desk.env, budget=OpBudget(OpBudgets(**most)))
    return desk


def test_reads_of_a_visit_end_at_its_budget(desk):
    desk.put("a.txt", "x" * 600)
    desk = limited(desk, read=1_000)
    assert [desk.do("read", path="a.txt")["status"] for _ in range(4)] == ["ok", "ok", "error", "error"]
    assert "visit_read_bytes" in desk.do("read", path="a.txt")["error"]
    assert desk.do("write", path="output/b.txt", content="x")["status"] == "error"


def test_a_search_beyond_the_budget_returns_what_it_found(desk):
    for name in "abc":
        desk.put(f"{name}.txt", "TODO\n" * 100)
    desk = limited(desk, matched=600)
    found = desk.do("grep", pattern="TODO", output_mode="files_with_matches")
    assert (found["status"], found["files"], found["truncated"]) == ("error", ["a.txt", "b.txt"], True)
    assert "visit_matched_bytes" in found["error"]


def test_searches_of_a_visit_end_at_its_time_limit(desk, monkeypatch):
    desk.put("a.txt", "TODO\n")
    monkeypatch.setattr(budget, "VISIT_SEARCH_SECONDS", 0.0)
    assert "searches of this visit" in desk.do("grep", pattern="TODO")["error"]
    assert "searches of this visit" in desk.do("glob", pattern="*")["error"]


def test_content_that_is_recorded_already_does_not_count_again():
    from reyn.journal import Blob

    used = OpBudget(OpBudgets(recorded=10))
    used.add_recorded([Blob.of(b"12345678")])
    used.add_recorded([Blob.of(b"12345678"), Blob.of(b"9")])
    with pytest.raises(budget.OpBudgetExceeded, match="visit_recorded_bytes"):
        used.add_recorded([Blob.of(b"ab")])
    used.add_recorded([Blob.of(b"a")])


def test_a_search_pattern_is_not_cached(desk):
    import regex

    desk.put("a.txt", "TODO\n")
    desk.do("grep", pattern="TODO|very-own-pattern")
    assert not [key for key in regex._main._cache if "very-own-pattern" in str(key)]


def test_a_very_long_line_is_searched_in_part_and_the_result_says_so(desk):
    desk = Desk(desk.roots, file_bytes=1_000_000)
    desk.put("a.txt", "a" * 150_000 + "needle\nneedle\n")
    found = desk.do("grep", pattern="needle", path="a.txt")
    assert [match["line_number"] for match in found["matches"]] == [2]
    assert "first 100000 characters" in found["note"]


@pytest.mark.parametrize("op", ["write", "read", "delete", "edit"])
def test_a_very_deep_path_is_refused_at_once(desk, op):
    more = {"write": {"content": "x"}, "edit": {"old_string": "a", "new_string": "b"}}.get(op, {})
    desk.do(op, path="workspace:x", **more)  # compiles the schema of its arguments
    results = []
    calls = count_calls(lambda: results.append(desk.do(op, path="workspace:" + "d/" * 400 + "x", **more)))
    [result] = results
    assert (result["status"], "100 folders" in result["error"]) == ("error", True)
    assert calls < 1_000
    assert "100 names" in desk.do("glob", pattern="output/*/" + "d/" * 200 + "x")["error"]


STRANGE = [
    "a\0b",
    "a\nb",
    "\x1b]52;c;x\x07",
    "..",
    "/",
    "//",
    "~",
    "a/../..",
    "\u2028",
    "\ufeff",
    "[",
    "**",
    "*" * 500,
    "\\",
]


@pytest.mark.parametrize("text", STRANGE)
def test_no_argument_breaks_an_op(desk, text):
    desk.put("a.txt", "a\n")
    calls: list[tuple[str, dict[str, Any]]] = [
        ("read", {"path": text}),
        ("write", {"path": text, "content": "x"}),
        ("write", {"path": "output/x", "content": text}),
        ("edit", {"path": "a.txt", "old_string": text, "new_string": "x"}),
        ("edit", {"path": "output/x", "old_string": "x", "new_string": text}),
        ("delete", {"path": text}),
        ("glob", {"pattern": text}),
        ("glob", {"path": text}),
        ("grep", {"pattern": text}),
        ("grep", {"pattern": "a", "path": text}),
        ("grep", {"pattern": "a", "glob": text}),
        ("grep", {"pattern": "a", "file_type": text[:20]}),
        ("regenerate_index", {"path": text, "output_path": "output/i.md", "entry_template": "x"}),
        ("regenerate_index", {"path": ".", "output_path": text, "entry_template": "x"}),
        ("regenerate_index", {"path": ".", "output_path": "output/i.md", "entry_template": text, "header": text}),
    ]
    for op, args in calls:
        assert desk.do(op, **args)["status"] in ("ok", "error", "denied"), (op, args)


@pytest.mark.parametrize("number", [0, 10_000_000, 1e7, 3.0])
def test_no_number_breaks_a_read(desk, number):
    desk.put("a.txt", "a\nb\n")
    for name in ("offset", "start"):
        assert desk.do("read", path="a.txt", **{name: number})["status"] == "ok"


TEXTS = ["", "\n", "a", "a\n", "a\nb", "\n\n\nx", "a\r\nb\rc\u2028d\n", "\n" * 5 + "é\n"]


@pytest.mark.parametrize("text", TEXTS)
def test_lines_end_with_a_line_feed_only(text):
    *complete, rest = text.split("\n")
    lines = [f"{line}\n" for line in complete] + ([rest] if rest else [])
    assert count_lines(text) == len(lines)
    assert [line.text for line in iterate_lines(text)] == lines
    for first in range(len(lines) + 2):
        assert select_lines(text, first, None) == "".join(lines[first:])
        assert select_lines(text, first, 2) == "".join(lines[first : first + 2])
    for line in iterate_lines(text):
        assert text[line.start :].startswith(line.text)
        assert lines_before(text, line.start, 2) == lines[max(0, line.number - 2) : line.number]
        assert lines_after(text, line.start + len(line.text), 2) == lines[line.number + 1 : line.number + 3]


# -- whole runs ---------------------------------------------------------------------------------------


class Scripted:
    name = "scripted"
    takes_time = False

    def __init__(self, *answers: Any) -> None:
        self._answers = [json.dumps(answer) for answer in answers]

    async def complete(self, request: Any) -> ModelAnswer:
        return ModelAnswer(self._answers[request.answered])


def test_the_results_of_a_visit_are_recorded_up_to_a_budget_and_the_run_goes_on(tmp_path: Path):
    write_skill(
        tmp_path,
        "s",
        {"plan": ["build"], "build": ["end"]},
        ops={"plan": "file", "build": "file"},
        phase_keys=dict.fromkeys(("plan", "build"), "max_act_turns: 9\n"),
    )
    (tmp_path / "reyn.yaml").write_text("sizes: {visit_recorded_bytes: 110000}\n")
    (tmp_path / "big.txt").write_text("0123456789abcde\n" * 2_000)
    reads = act(*(file("read", "big.txt", offset=number) for number in range(6)))
    model = Scripted(reads, go("build"), reads, finish())
    with SyncRuntime.open(tmp_path, model=model) as rt:
        result = rt.run("s", {"text": "in"}, run_id="r")
        statuses = [event.data["status"] for event in rt.runs.events("r") if event.kind == "file_completed"]
        assert rt.runs.replay("r").events
    assert result.ok
    # Every visit has a budget of its own; what it has recorded already costs nothing again.
    assert statuses == ["ok", "ok", "ok", "error", "error", "error"] * 2


def test_a_write_beyond_the_budget_changes_nothing(tmp_path: Path):
    write_skill(tmp_path, "s", {"plan": ["end"]}, ops={"plan": "file"}, phase_keys={"plan": "max_act_turns: 9\n"})
    (tmp_path / "reyn.yaml").write_text("sizes: {visit_recorded_bytes: 1000}\n")
    write = act(file("write", "output/a.txt", content="x" * 2_000))
    with SyncRuntime.open(tmp_path, model=Scripted(write, finish())) as rt:
        assert rt.run("s", {"text": "in"}, run_id="r").ok
        kinds = [event.kind for event in rt.runs.events("r")]
    assert "workspace_updated" not in kinds
    assert not (tmp_path / "output" / "a.txt").exists()
