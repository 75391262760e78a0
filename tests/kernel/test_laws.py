"""Property tests: laws that hold for every run, whatever the model answers."""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn import OSRuntime
from reyn.context.render import message_text
from reyn.journal import GENESIS, decode, link
from reyn.journal.lifecycle import rebuild
from reyn.journal.summary import RunSummary, summarize
from reyn.kernel.core.run_state import EMPTY, apply, fold
from reyn.kernel.core.snapshot import RunState
from reyn.testing import CountingIds, MemoryJournal, ScriptedModel, SteppingClock
from tests.properties import examples
from tests.support import abort, finish, go, write_skill

GRAPH = {"write": ["check"], "check": ["write", "polish", "end"], "polish": ["polish", "end"]}
PHASES = st.sampled_from([*GRAPH, "nowhere", "end", "abort"])
ANSWERS = st.lists(
    st.one_of(
        st.builds(go, PHASES, st.text(max_size=8)),
        st.builds(finish, st.text(max_size=8)),
        st.builds(abort, st.text(max_size=8)),
        st.text(max_size=20),
        st.builds(
            lambda text, answer: f"{text}{json.dumps(answer)}", st.text("ab \n", max_size=5), st.builds(go, PHASES)
        ),
        st.sampled_from(["", "[]", "null", "{}", '{"control_ir": [{}]}', "[" * 100]),
    ),
    max_size=14,
)


@pytest.fixture(scope="module")
def root():
    folder = Path(tempfile.mkdtemp())
    write_skill(folder, "any", GRAPH)
    yield folder
    shutil.rmtree(folder)


def drive(root: Path, answers: list, journal: MemoryJournal, **options):
    async def main():
        async with OSRuntime.open(
            root,
            model=ScriptedModel(answers),
            journal=journal,
            clock=SteppingClock(),
            ids=CountingIds(),
            max_phase_visits=4,
        ) as rt:
            if journal.find("r") is None:
                return await rt.run("any", {"text": "in"}, run_id="r")
            return await rt.resume("r", **options)

    return asyncio.run(main())


def copy_of(journal: MemoryJournal, upto: int) -> MemoryJournal:
    """Return a copy of a journal that ends after some events."""
    cut = MemoryJournal()
    cut.append("r", 0, list(journal.read("r"))[:upto], [])
    cut._blobs = dict(journal._blobs)
    return cut


def replayed(root: Path, journal: MemoryJournal):
    async def main():
        async with OSRuntime.open(root, journal=journal) as rt:
            return await rt.runs.replay("r")

    return asyncio.run(main())


@examples(60)
@given(answers=ANSWERS)
def test_every_prefix_of_a_run_folds_to_a_state(root: Path, answers: list):
    journal = MemoryJournal()
    drive(root, answers, journal)
    events = list(journal.read("r"))
    state: RunState = EMPTY
    for count, event in enumerate(events, start=1):
        state = apply(state, decode(event), event.ts)
        assert state == fold(events[:count])
        assert state.status is not None
        row = rebuild(events[:count])
        assert row is not None
        assert (row.status, row.seq) == (state.status, count)
        summary = summarize(events[:count])
        assert all(getattr(state, name) == getattr(summary, name) for name in RunSummary.__struct_fields__)
    assert journal.find("r") == rebuild(events)
    with pytest.raises(AttributeError):
        state.phase = "other"


@examples(60)
@given(answers=ANSWERS)
def test_every_run_ends_in_an_explained_state_and_replays(root: Path, answers: list):
    journal = MemoryJournal()
    result = drive(root, answers, journal)
    assert result.status in ("finished", "failed", "aborted", "limited")
    assert result.reason or result.status in ("finished", "aborted")
    report = replayed(root, journal)
    assert report.events == journal.find("r").seq
    assert report.status == result.status


@examples(25)
@given(answers=ANSWERS, where=st.floats(0, 1))
def test_a_run_interrupted_anywhere_resumes_to_the_same_end(root: Path, answers: list, where: float):
    journal = MemoryJournal()
    whole = drive(root, answers, journal)
    events = list(journal.read("r"))
    cut = copy_of(journal, 1 + int(where * (len(events) - 1)))
    recorded = sum(event.kind == "llm_responded" for event in cut.read("r"))
    asked = []

    class Watching(ScriptedModel):
        async def complete(self, request):
            asked.append(request.answered)
            return await super().complete(request)

    async def main():
        async with OSRuntime.open(root, model=Watching(answers), journal=cut, max_phase_visits=4) as rt:
            if fold(cut.read("r")).status == "running":
                return await rt.resume("r")
            return rt.runs.result("r")

    resumed = asyncio.run(main())
    assert (resumed.status, resumed.reason, resumed.artifact) == (whole.status, whole.reason, whole.artifact)
    assert all(number >= recorded for number in asked)
    replayed(root, cut)


@examples(40)
@given(answers=ANSWERS)
def test_frames_are_byte_stable_and_share_their_prefix_across_visits(root: Path, answers: list):
    first, second = MemoryJournal(), MemoryJournal()
    drive(root, answers, first)
    drive(root, answers, second)
    assert list(first.read("r")) == list(second.read("r"))  # same inputs, same bytes, same hashes
    stable: dict[str, set[str]] = {}
    phase = ""
    for event in first.read("r"):
        body = decode(event)
        if event.kind == "phase_started":
            phase = body.phase
        if event.kind == "frame_built":
            texts = [message_text(message, first.blob) for message in body.messages]
            stable.setdefault(phase, set()).add(texts[0])
            assert len(texts[1]) < 1_000  # nothing in a frame grows with the run
    assert all(len(texts) == 1 for texts in stable.values())


@examples(40)
@given(answers=ANSWERS)
def test_the_hash_chain_covers_every_byte(root: Path, answers: list):
    journal = MemoryJournal()
    drive(root, answers, journal)
    prev = GENESIS
    for event in journal.read("r"):
        assert event.prev == prev
        assert event.hash == link(event.seq, event.ts, event.kind, event.v, event.raw, event.prev)
        prev = event.hash


def test_the_frame_says_how_often_a_phase_was_visited(root: Path):
    journal = MemoryJournal()
    drive(root, [go("check"), go("write"), go("check"), finish()], journal)
    tails = [decode(event).messages[1].parts[-1].text for event in journal.read("r") if event.kind == "frame_built"]
    assert ["for the 2nd time" in tail for tail in tails] == [False, False, True, True]
    assert "`check` can be visited 3 more times." in tails[2]
