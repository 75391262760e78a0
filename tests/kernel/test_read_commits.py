"""Ops that only read share a commit; everything else is durable before the next effect."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reyn import SyncRuntime
from reyn.journal import MemoryJournal
from reyn.testing import ScriptedModel
from tests.support import act, file, finish, go, write_skill


class Batches(MemoryJournal):
    """Notes which events are committed together."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[tuple[str, str]]] = []

    def append(self, run_id: str, expected_seq: int, events: Any, *rest: Any, **more: Any) -> int:
        self.batches.append([(event.kind, event.data.get("call", "")) for event in events])
        return super().append(run_id, expected_seq, events, *rest, **more)

    def commit_of(self, kind: str, call: str = "") -> int:
        """Return the number of the commit of an event."""
        return next(
            number
            for number, batch in enumerate(self.batches)
            if any(one == kind and (not call or of == call) for one, of in batch)
        )


def run(root: Path, ops: list[dict[str, Any]]) -> Batches:
    journal = Batches()
    with SyncRuntime.open(root, model=ScriptedModel([act(*ops), go("b"), finish()]), journal=journal) as rt:
        assert rt.run("s", {"text": "in"}).ok
    return journal


READ = file("read", "notes.txt")
WRITE = file("write", "workspace:out.txt", content="x")


@given(names=st.lists(st.sampled_from(["read", "write"]), min_size=1, max_size=8))
def test_the_outcome_of_an_op_that_changes_something_is_durable_before_the_next_op(
    tmp_path_factory: Any, names: list[str]
):
    root: Path = tmp_path_factory.mktemp("project")
    write_skill(root, "s", {"a": ["b"], "b": ["end"]}, ops={"a": "file"})
    (root / "notes.txt").write_text("noodles\n")
    journal = run(root, [READ if name == "read" else WRITE for name in names])
    assert journal.commit_of("llm_responded") <= journal.commit_of("file_started", "1.1.1")
    assert journal.commit_of("file_started", "1.1.1") < journal.commit_of("file_completed", "1.1.1")
    for number, name in enumerate(names, start=1):
        call, following = f"1.1.{number}", f"1.1.{number + 1}"
        if name == "write":
            assert journal.commit_of("file_started", call) < journal.commit_of("file_completed", call)
            if number < len(names):
                assert journal.commit_of("file_completed", call) < journal.commit_of("file_completed", following)


def test_reads_of_a_turn_share_commits_and_their_number_is_bounded(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["b"], "b": ["end"]}, ops={"a": "file"})
    (tmp_path / "notes.txt").write_text("noodles\n")
    few, many = (len(run(tmp_path, [READ] * count).batches) for count in (1, 60))
    assert few < many < few + 10


def test_the_start_of_a_run_is_durable_before_its_first_read(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["b"], "b": ["end"]}, ops={"a": "file"})
    (tmp_path / "notes.txt").write_text("noodles\n")
    phase = tmp_path / "reyn" / "project" / "s" / "phases" / "a.md"
    step = "preprocessor:\n  - run_op: {op: {kind: file, op: read, path: notes.txt}, into: data.read}\n"
    phase.write_text(phase.read_text().replace("---\n", f"---\n{step}", 1))
    journal = Batches()
    with SyncRuntime.open(tmp_path, model=ScriptedModel([go("b"), finish()]), journal=journal) as rt:
        assert rt.run("s", {"text": "in"}).ok
    assert journal.commit_of("run_started") < journal.commit_of("file_completed")
