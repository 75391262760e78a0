"""A run that is looked at again and again: the views are those of the whole run, and each event is read once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reyn.runs.inspection as inspection
from reyn import SyncRuntime
from reyn.errors import RunNotFound
from reyn.journal import Event, MemoryJournal, decode
from reyn.kernel.core.run_state import EMPTY, apply
from reyn.runs.inspection import Level, RunInspection
from reyn.runs.reader import turn_at
from reyn.runs.spans import SpanReader
from reyn.runs.timeline import Timeline, TimelineEntry
from reyn.testing import ScriptedModel
from tests.goldens.__main__ import FOLDER
from tests.support import act, file, finish, go, write_skill

FILES = sorted(FOLDER.glob("*.jsonl"))
LEVELS: tuple[Level, ...] = ("decisions", "effects", "everything")
Recorded = dict[str, tuple[list[Event], Callable[[str], bytes]]]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """The events of every golden run, with what reads their content."""
    found: Recorded = {}
    for path in FILES:
        journal = MemoryJournal()
        with SyncRuntime.open(tmp_path_factory.mktemp(path.stem), journal=journal) as rt:
            for run in rt.runs.import_(path.read_bytes().splitlines(keepends=True)).imported:
                found[run] = (list(rt.runs.events(run)), journal.blob)
    return found


class Arriving:
    """Events of a run that arrive in parts; counts what is read."""

    def __init__(self, events: list[Event], count: int) -> None:
        self.events = events
        self.count = count
        self.reads = 0

    def read(self, after: int) -> Iterator[Event]:
        for event in self.events[after : self.count]:
            self.reads += 1
            yield event


def all_entries(events: list[Event], content: Callable[[str], bytes]) -> list[TimelineEntry]:
    timeline = Timeline(content)
    return [entry for event in events if (entry := timeline.add(event)) is not None]


@given(data=st.data())
def test_every_view_is_that_of_the_whole_run(recorded: Recorded, data: st.DataObject):
    events, content = recorded[data.draw(st.sampled_from(sorted(recorded)), label="run")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            inspection, "_CHECKPOINT_EVENTS", data.draw(st.integers(1, 9), label="events between checkpoints")
        )
        arriving = Arriving(events, 0)
        found = RunInspection(arriving.read, content)
        for count in sorted(data.draw(st.lists(st.integers(1, len(events)), min_size=1, max_size=3), label="arrive")):
            arriving.count = count
            so_far = events[:count]
            entries = all_entries(so_far, content)
            wanted = {"effects": entries, "decisions": [one for one in entries if one.is_decision]}
            start, limit = data.draw(st.integers(-count, count)), data.draw(st.integers(1, count))
            for level, lines in wanted.items():
                page = found.lines(level, start, limit)  # type: ignore[arg-type]
                assert page.total == len(lines)
                assert page.lines == lines[page.start : page.start + limit]
            everything = found.lines("everything", start, limit)
            assert [one.seq for one in everything.lines] == [
                one.seq for one in so_far[everything.start : everything.start + limit]
            ]
            spans = SpanReader()
            for event in so_far:
                spans.take(event)
            assert found.spans(0, len(events)).spans == spans.spans
            check_event(found, so_far, data.draw(st.integers(1, count), label="event"))


def check_event(found: RunInspection, events: list[Event], seq: int) -> None:
    state = EMPTY
    for event in events[:seq]:
        state = apply(state, decode(event), event.ts)
    read = found.at(seq)
    assert read is not None
    assert (read.event.seq, read.after) == (seq, state)
    try:
        turn = turn_at("k", events, seq)
    except RunNotFound:
        with pytest.raises(RunNotFound):
            found.turn_at(seq)
    else:
        assert found.turn_at(seq) == turn
    for level in LEVELS:
        lines = found.lines(level, 0, len(events)).lines
        before = [index for index, one in enumerate(lines) if one.seq <= seq]
        assert found.index_of(level, seq) == (before[-1] if before else 0)


def test_a_request_reads_what_is_new_and_what_is_near(recorded: Recorded, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(inspection, "_CHECKPOINT_EVENTS", 5)
    events, content = max(recorded.values(), key=lambda one: len(one[0]))
    arriving = Arriving(events, len(events) - 1)
    found = RunInspection(arriving.read, content)
    assert found.refresh() == len(events) - 1
    assert arriving.reads == len(events) - 1
    arriving.count, arriving.reads = len(events), 0
    found.at(None)
    assert arriving.reads <= 1 + 5
    for seq in (1, len(events) // 2, len(events)):
        arriving.reads = 0
        found.at(seq)
        found.lines("effects", -2, 2)
        assert arriving.reads <= 5 + 5 + 10


def test_an_id_that_is_used_again_is_another_run(tmp_path: Path):
    write_skill(tmp_path, "one", {"a": ["end"]})
    with SyncRuntime.open(tmp_path, model=ScriptedModel([finish()])) as rt:
        for text in ("first", "second"):
            rt.run("one", {"text": text}, run_id="k")
            assert any(text in message.text for message in rt.runs.decision_at("k").messages)
            rt.runs.delete(["k"])


def test_a_decision_has_its_exits_its_errors_and_what_it_used(tmp_path: Path):
    write_skill(tmp_path, "one", {"a": {"b": "if it is good", "end": "if it is bad"}, "b": ["end"]})
    with SyncRuntime.open(tmp_path, model=ScriptedModel([go("nowhere"), go("b"), finish("x")])) as rt:
        assert rt.run("one", {"text": "in"}, run_id="k").status == "finished"
        frames = [event.seq for event in rt.runs.events("k") if event.kind == "frame_built"]
        wrong, right, last = (rt.runs.decision_at("k", seq) for seq in frames)
    assert (wrong.chosen, [one.path for one in wrong.rejected]) == ("", ["$.control.next_phase"])
    assert (right.chosen, right.rejected, right.confidence, right.reason) == ("b", (), 0.5, "to b")
    assert [(one.label, one.description) for one in right.exits] == [("b", "if it is good"), ("end", "if it is bad")]
    assert (last.chosen, [one.label for one in last.exits]) == ("end", ["end"])
    assert right.messages[-1].role == "answer"


def test_a_changed_file_is_a_diff_from_its_first_state_to_its_last(tmp_path: Path):
    (tmp_path / "output").mkdir()
    (tmp_path / "output" / "a.txt").write_text("one\ntwo\n")
    write_skill(tmp_path, "w", {"a": ["end"]}, ops={"a": "file"})
    ops = [file("write", "output/a.txt", content=text) for text in ("one\n", "one\nthree\n")]
    with SyncRuntime.open(tmp_path, model=ScriptedModel([act(*ops), finish()])) as rt:
        rt.run("w", {"text": "in"}, run_id="k")
        assert rt.runs.changed_files("k") == {"output/a.txt": "changed"}
        diff = rt.runs.file_diff("k", "output/a.txt")
        assert [line for line in diff.splitlines() if line[0] in "+-"][2:] == ["-two", "+three"]
        with pytest.raises(Exception, match="changed no file"):
            rt.runs.file_diff("k", "output/b.txt")
