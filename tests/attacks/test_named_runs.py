"""Archives whose runs name other runs as runs below them: themselves, runs of the victim, each other in many ways.

The oracles are a text of the victim's run, which no fork may show to a person or a model, and the number of events that
are read.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reyn.functions import tool
from reyn.journal import MemoryJournal
from reyn.models.recorded import RecordedModel
from reyn.runtime import SyncRuntime
from tests.fuzz.archives import Archive
from tests.kernel.support import Project
from tests.runtime.test_archives import INNER, export, import_, make_project
from tests.support import act, finish, write_skill

CANARY = "canary-of-another-run"
NAMED = ["k", "v", "v.1.1.1", "k.1.1.1", "unknown"]


@tool(effect="unsafe", permission=None)
def send(letter: str) -> str:
    """Send a letter."""
    return f"sent {letter}"


@pytest.fixture
def archive(tmp_path: Path) -> Archive:
    """A run that was starting a second sub-run when it was exported."""
    here = make_project(tmp_path / "here")
    second = INNER | {"input": {"text": "second"}}
    here.run("outer", [act(INNER, second), finish("one"), finish("two"), finish("outer")])
    found = export(here)
    events = found.run_events("k")
    at = max(number for number, event in enumerate(events) if event["kind"] == "child_started")
    found.events = events[: at + 1]
    found.header["runs"] = ["k"]
    return found


@pytest.fixture
def there(tmp_path: Path) -> Project:
    """The project of the victim, with a run that has sent a letter, and one below it that has."""
    project = make_project(tmp_path / "there")
    write_skill(project.root, "mail", {"work": ["end"]}, ops={"work": "send"})
    write_skill(project.root, "office", {"desk": ["end"]}, ops={"desk": "run_skill, send"})
    letter = act({"kind": "send", "letter": CANARY})
    answers = [act(INNER | {"skill": "mail"}), letter, finish("sent"), letter, finish("done")]
    with project.open(answers, ops=[send]) as rt:
        assert rt.run("office", {"text": "in"}, run_id="v").ok
    assert project.events("send_completed", run_id="v.1.1.1")
    return project


def name(archive: Archive, target: str, kind: str) -> None:
    """Make a run name another one where it started or ended a sub-run."""
    for event in archive.events:
        if event["kind"] == kind:
            event["data"]["run"] = target
            if kind == "child_ended":
                event["data"].pop("head", None)
                event["data"] |= {"acted": "x", "seq": 1_000}


FORKS: dict[str, Callable[[SyncRuntime], Any]] = {
    "fork": lambda rt: rt.fork("k"),
    "fork of an event": lambda rt: rt.fork("k", at=3),
    "repetition": lambda rt: rt.rerun("k"),
}


@pytest.mark.parametrize("kind", ["child_started", "child_ended"])
@pytest.mark.parametrize("target", NAMED)
def test_a_fork_of_an_imported_run_reads_no_run_that_it_only_names(
    archive: Archive, there: Project, target: str, kind: str
):
    name(archive, target, kind)
    import_(there, archive)
    with there.open([finish("done")] * len(FORKS), ops=[send]) as rt:
        seen = [repr(fork(rt)) for fork in FORKS.values()]
    seen += [repr(request) for request in there.model.requests]
    assert not [text for text in seen if CANARY in text]
    own = len(archive.of_kind("llm_responded"))
    assert sum(map(len, RecordedModel(there.journal, "k")._replies.values())) == own


class Counting(MemoryJournal):
    """A journal that counts what is read."""

    reads = 0

    def read(self, run_id: str, after: int = 0) -> Any:
        self.reads += 1
        return super().read(run_id, after)


@pytest.mark.parametrize("verb", ["fork", "fork of an event", "recorded answers"])
def test_runs_that_name_each_other_are_read_a_bounded_number_of_times(archive: Archive, tmp_path: Path, verb: str):
    levels = 12
    events = [event for event in archive.events if event["kind"] != "child_ended" or event["data"].pop("head", "")]
    chain = []
    for level, side in ((level, side) for level in range(levels) for side in "ab"):
        run, sides = f"k{level}{side}" if level or side == "b" else "k", iter("ab")
        for event in copy.deepcopy(events):
            event["run"] = run
            if event["kind"] in ("child_started", "child_ended"):
                event["data"]["run"] = f"k{level + 1}{next(sides) if event['kind'] == 'child_started' else 'a'}"
            if event["kind"] == "child_ended":
                event["data"] |= {"acted": "x", "seq": 1_000}
            if event["kind"] == "run_started":
                event["data"]["run_id"] = run
            chain.append(event)
    archive.events = chain
    archive.header["runs"] = list(dict.fromkeys(event["run"] for event in chain))
    project = make_project(tmp_path / "project")
    project.journal = Counting()
    import_(project, archive)
    before = project.journal.reads
    if verb == "recorded answers":
        RecordedModel(project.journal, "k")
    else:
        with project.open([finish("done")]) as rt:
            FORKS[verb](rt)
    assert project.journal.reads - before < 200
