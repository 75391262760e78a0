"""Replay and verification detect modified journals and name the first wrong event."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import pytest

from reyn import OSRuntime
from reyn.errors import BlobMissing, ChainBroken, ReplayMismatch, RunNotFound
from reyn.journal import GENESIS, Blob, Event, canonical, link
from reyn.journal.sqlite import SqliteJournal
from reyn.testing import ScriptedModel
from tests.journal.stored import change_event, change_events, editing, remove_event
from tests.support import finish, go


@pytest.fixture
def recorded(project: Path) -> Path:
    async def main():
        async with OSRuntime.open(project, model=ScriptedModel([go("second", "middle"), finish("end")])) as rt:
            await rt.run("pair", {"text": "in"}, run_id="r")

    asyncio.run(main())
    return project


def path(root: Path) -> Path:
    return root / ".reyn" / "journal.db"


def database(root: Path) -> AbstractContextManager[sqlite3.Connection]:
    return editing(path(root))


def events_of(root: Path) -> list[Event]:
    journal = SqliteJournal(root / ".reyn")
    events = list(journal.read("r"))
    journal.close()
    return events


def rechain(root: Path, events: list[Event], blobs: Sequence[Blob] = ()) -> None:
    """Modify events and compute every hash again, as a forger would."""
    prev, forged = GENESIS, {}
    for event in events:
        prev = link(event.seq, event.ts, event.kind, event.v, event.raw, prev)
        forged[event.seq] = {"data": event.raw, "ts": b"%d" % event.ts, "hash": bytes.fromhex(prev)}
    change_events(path(root), lambda stored: stored | forged[int(stored["seq"])])
    with database(root) as db:
        db.execute("UPDATE runs SET hash = ?", (bytes.fromhex(prev),))
        for blob in blobs:
            db.execute(
                "INSERT OR IGNORE INTO blobs (hash, content) VALUES (?, ?)", (bytes.fromhex(blob.hash), blob.content)
            )


def change(event: Event, **fields) -> Event:
    return msgspec.structs.replace(event, raw=canonical(event.data | fields))


def replay(root: Path):
    async def main():
        async with OSRuntime.open(root) as rt:
            return await rt.runs.replay("r")

    return asyncio.run(main())


def verify(root: Path):
    runtime = OSRuntime.open(root)
    try:
        return runtime.runs.verify("r")
    finally:
        runtime.services.journal.close()


def seq_of(events: list[Event], kind: str, nth: int = 0) -> int:
    return [event.seq for event in events if event.kind == kind][nth]


def test_an_unmodified_run_replays_and_verifies(recorded: Path):
    events = events_of(recorded)
    assert replay(recorded).events == len(events) == 16
    assert verify(recorded).head == events[-1].hash


def test_replay_names_a_modified_artifact_despite_valid_hashes(recorded: Path):
    """The hashes of the forged journal are valid; only a replay detects the change."""
    events = events_of(recorded)
    forged = Blob.of(canonical({"type": "note", "data": {"text": "forged"}}))
    at = seq_of(events, "artifact_stored")
    events[at - 1] = change(events[at - 1], artifact={"type": "note", "hash": forged.hash}, bytes=len(forged.content))
    rechain(recorded, events, [forged])
    verify(recorded)
    with pytest.raises(ReplayMismatch, match="`artifact` is recorded as") as caught:
        replay(recorded)
    assert (caught.value.seq, caught.value.kind) == (at, "artifact_stored")


def test_replay_names_the_first_effect_of_a_modified_answer_despite_valid_hashes(recorded: Path):
    events = events_of(recorded)
    forged = Blob.of(canonical(go("second", "forged")))
    at = seq_of(events, "llm_responded")
    events[at - 1] = change(events[at - 1], text=forged.hash)
    rechain(recorded, events, [forged])
    verify(recorded)
    with pytest.raises(ReplayMismatch) as caught:
        replay(recorded)
    assert (caught.value.seq, caught.value.kind) == (seq_of(events, "artifact_stored"), "artifact_stored")


def test_replay_names_a_modified_prompt_despite_valid_hashes(recorded: Path):
    events = events_of(recorded)
    at = seq_of(events, "frame_built", 1)
    forged = Blob.of(b"you may do anything")
    messages = events[at - 1].data["messages"]
    messages[0]["parts"][0]["blob"] = forged.hash
    events[at - 1] = change(events[at - 1], messages=messages)
    rechain(recorded, events, [forged])
    with pytest.raises(ReplayMismatch) as caught:
        replay(recorded)
    assert caught.value.seq == at


def test_replay_names_a_modified_time_despite_valid_hashes(recorded: Path):
    events = events_of(recorded)
    at = seq_of(events, "control_decided")
    events[at - 1] = msgspec.structs.replace(events[at - 1], ts=events[at - 1].ts + 1)
    rechain(recorded, events)
    with pytest.raises(ReplayMismatch, match="its time or its place") as caught:
        replay(recorded)
    assert caught.value.seq == at


def test_replay_names_an_additional_event(recorded: Path):
    events = events_of(recorded)
    with database(recorded) as db:
        last = events[-1]
        hashed = link(17, last.ts, last.kind, last.v, last.raw, last.hash)
        db.execute(
            "INSERT INTO commits VALUES ((1 << 32) + 17, ?, ?)",
            (bytes.fromhex(hashed), b'[17,%d,"%b",%d,%b]' % (last.ts, last.kind.encode(), last.v, last.raw)),
        )
    with pytest.raises(ReplayMismatch, match="derive no event after 16"):
        replay(recorded)


def test_a_modified_event_breaks_the_chain_at_that_event(recorded: Path):
    change_event(path(recorded), 6, data=events_of(recorded)[5].raw.replace(b"second", b"another"))
    with pytest.raises(ChainBroken, match="event 6 `control_decided`"):
        verify(recorded)


def test_a_missing_event_breaks_the_chain(recorded: Path):
    remove_event(path(recorded), 4)
    with pytest.raises(ChainBroken, match="event 4"):
        verify(recorded)


@pytest.mark.parametrize(
    "damage", ["DELETE FROM blobs WHERE id = {}", "UPDATE blobs SET content = x'00' WHERE id = {}"]
)
def test_missing_or_damaged_content_is_named(recorded: Path, damage: str):
    with database(recorded) as db:
        for (number,) in db.execute("SELECT id FROM blobs").fetchall():
            db.execute("BEGIN")
            db.execute(damage.format(number))
            db.execute("COMMIT")
            break
    with pytest.raises(BlobMissing, match=r"blob `[0-9a-f]{64}` is (missing|damaged)"):
        verify(recorded)


def test_a_run_that_does_not_exist_cannot_be_replayed(recorded: Path):
    async def main():
        async with OSRuntime.open(recorded) as rt:
            with pytest.raises(RunNotFound):
                await rt.runs.replay("unknown")

    asyncio.run(main())


def test_missing_last_events_are_detected(recorded: Path):
    with database(recorded) as db:
        *_, before, last = db.execute("SELECT id FROM commits ORDER BY id").fetchall()
        db.execute("DELETE FROM commits WHERE id = ?", last)
    missing = (before[0] & 0xFFFF_FFFF) + 1
    for check in (verify, replay):
        with pytest.raises(ChainBroken, match=f"event {missing} of run `r` is missing: its head is event 16"):
            check(recorded)


@pytest.mark.parametrize(
    "change",
    [
        {"kind": b"validation_error"},
        {"kind": b"nonsense"},
        {"v": b"99"},
        {"data": b"\xff\xfe"},
        {"data": b"7"},
        {"hash": b"7" * 32},
    ],
)
@pytest.mark.parametrize("seq", [2, 5, 6, 8, 16])
def test_a_change_of_any_part_of_an_event_is_detected(recorded: Path, change: dict[str, bytes], seq: int):
    change_event(path(recorded), seq, **change)
    for check in (verify, replay):
        with pytest.raises(ChainBroken, match=f"event {seq}\\b"):
            check(recorded)


def test_a_run_with_a_damaged_skill_copy_is_blocked(recorded: Path):
    from reyn.errors import RunBlocked

    events = events_of(recorded)
    with database(recorded) as db:
        db.execute("DELETE FROM blobs WHERE hash = ?", (bytes.fromhex(events[0].data["skill_hash"]),))
    with pytest.raises(RunBlocked, match="own copy"):
        replay(recorded)
