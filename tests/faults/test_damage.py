"""A damaged journal: every operation returns a correct result or an error code, and `verify` names the first damage."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime
from reyn.errors import BlobMissing, ChainBroken, EventInvalid, InternalError, ReynError, StoreDamaged
from reyn.testing import ScriptedModel
from tests.faults.support import ask_and_write, reyn
from tests.journal.stored import change_event, change_events, editing, remove_event, verify
from tests.support import act, file, finish, go, question

PAGE = 8192
RUNS = ("one", "two", "waits")
ANSWERS = [act(file("write", "workspace:x.txt", content="hey")), act(question("sure?")), go("second"), finish()]
INTERNAL = InternalError.code


class StoredProject:
    """A project with two finished runs and one that is answered but not resumed, and ways to damage its journal."""

    def __init__(self, folder: Path) -> None:
        self.root, self._saved = folder / "project", folder / "saved"
        self.root.mkdir()
        ask_and_write(self.root)
        (self.root / "reyn.yaml").write_text("model: scripted\n")
        asyncio.run(self._fill())
        shutil.copytree(self.root, self._saved)
        self.bytes = self.database.read_bytes()
        self.truth = asyncio.run(self.collect())
        self.restore()

    async def _fill(self) -> None:
        async with OSRuntime.open(self.root, model=ScriptedModel(ANSWERS)) as rt:
            for run in RUNS:
                stopped = await rt.run("pair", {"text": "in"}, run_id=run)
                rt.answer(run, stopped.question.id, f"yes to {run}")
                if run != "waits":
                    assert (await rt.resume(run)).ok

    @property
    def database(self) -> Path:
        return self.root / ".reyn/journal.db"

    def restore(self) -> None:
        shutil.rmtree(self.root)
        shutil.copytree(self._saved, self.root)

    def write(self, content: bytes) -> None:
        self.restore()
        self.database.write_bytes(content)

    def change(self, statement: str, *values: Any) -> None:
        self.restore()
        with editing(self.database) as db:
            db.execute(statement, values)
        db.close()

    async def collect(self) -> dict[str, Any]:
        """What the journal says to all that can be asked of it; the code, where it says that it cannot."""
        results: dict[str, Any] = {}
        try:
            runtime = OSRuntime.open(self.root, model=ScriptedModel(ANSWERS))
            assert runtime.services.journal
        except ReynError as error:
            return {"open": error.code}
        async with runtime as rt:
            results["runs"] = await _result(rt.runs.all)
            for run in RUNS:
                results[f"verify {run}"] = await _result(lambda run=run: rt.runs.verify(run))
                results[f"replay {run}"] = await _result(lambda run=run: rt.runs.replay(run))
                results[f"result {run}"] = await _result(lambda run=run: rt.runs.result(run))
                results[f"events {run}"] = await _result(lambda run=run: [event.raw for event in rt.runs.events(run)])
            results["resume"] = await _result(lambda: rt.resume("waits"))
            results["resumed"] = await _result(lambda: rt.runs.verify("waits").run_id)
        return results

    def regions(self) -> dict[str, list[int]]:
        """The bytes that are in use, by the table or index whose root page they are on, or by their page."""
        db = sqlite3.connect(self._saved / ".reyn/journal.db")
        names = {page: name for name, page in db.execute("SELECT name, rootpage FROM sqlite_master")}
        db.close()
        return {
            names.get(number + 1, f"page {number + 1}"): [
                at for at in range(number * PAGE, (number + 1) * PAGE) if self.bytes[at]
            ]
            for number in range(len(self.bytes) // PAGE)
        }


async def _result(ask: Callable[[], Any | Awaitable[Any]]) -> Any:
    """Return the result of a call, or the code of its error. Any other exception is a bug."""
    try:
        answer = ask()
        return await answer if isinstance(answer, Awaitable) else answer
    except ReynError as error:
        return error.code


def is_code(result: Any) -> bool:
    return isinstance(result, str) and result.startswith("RYN")


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoredProject]:
    return StoredProject(tmp_path_factory.mktemp("stored"))


def results_after(stored: StoredProject, damaged: bytes) -> dict[str, Any]:
    stored.write(damaged)
    return asyncio.run(stored.collect())


def wrong_results(stored: StoredProject, results: dict[str, Any]) -> dict[str, Any]:
    """Return the results that are neither an error code nor correct."""
    return {
        what: result for what, result in results.items() if not is_code(result) and result != stored.truth.get(what)
    }


# -- the file ---------------------------------------------------------------------------------------------


def test_an_undamaged_journal_verifies(stored: StoredProject):
    stored.restore()
    results = asyncio.run(stored.collect())
    assert not any(is_code(result) for result in results.values())
    assert results["resume"].ok


@pytest.mark.parametrize("share", range(4))
def test_a_flipped_bit_is_detected_or_harmless(stored: StoredProject, share: int):
    """Flip bits in the first bytes of every page, which hold its type, and in a sample of the other used bytes.

    The inbox is an exception: no hash covers a message until the run has taken it. A flipped bit there may change or
    lose a message, but no recorded event.
    """
    chance = random.Random(5)
    for place, (region, used) in enumerate(stored.regions().items()):
        offsets = sorted({*used[:8], *chance.sample(used, min(12, len(used)))})
        for at in offsets if place % 4 == share else ():
            damaged = bytearray(stored.bytes)
            damaged[at] ^= 1 << chance.randrange(8)
            results = results_after(stored, bytes(damaged))
            assert INTERNAL not in results.values(), (region, at)
            wrong = wrong_results(stored, results)
            if region in ("inbox", "inbox_by_run", "sqlite_sequence"):
                assert wrong.keys() <= {"resume"}, (region, at)
                continue
            whole = [run for run in RUNS if not is_code(results.get(f"verify {run}", INTERNAL))]
            # If `verify` succeeds, every other result about the run is correct.
            assert not any(what.split()[-1] in whole for what in wrong), (region, at, wrong)
            assert whole != list(RUNS) or not wrong, (region, at, wrong)


@pytest.mark.parametrize("pages", [0.5, 1, 1.5, 2, 3, 5, 8])
def test_a_truncated_journal_is_detected(stored: StoredProject, pages: float):
    results = results_after(stored, stored.bytes[: int(pages * PAGE)])
    assert INTERNAL not in results.values()
    assert (
        is_code(results.get("open"))
        or is_code(results["runs"])
        or all(is_code(results[f"verify {run}"]) for run in RUNS)
    )
    assert wrong_results(stored, results).keys() <= {"runs"}


def test_a_file_that_is_not_a_journal_is_not_changed(stored: StoredProject):
    garbage = random.Random(3).randbytes(40_000)
    stored.write(garbage)
    for words in (("runs",), ("show", "one"), ("verify", "one"), ("resume", "waits"), ("run", "pair", '{"text": ""}')):
        assert reyn(stored.root, *words).is_error(StoreDamaged.code), words
    assert stored.database.read_bytes() == garbage


# -- one run's record -------------------------------------------------------------------------------------


def test_verify_names_the_first_bad_event(stored: StoredProject):
    last = stored.truth["verify one"].events
    for seq in range(1, last + 1):
        stored.restore()
        change_events(
            stored.database,
            lambda one, seq=seq: one | {"data": one["data"].replace(b'"', b'""')} if int(one["seq"]) >= seq else one,
            "one",
        )
        with pytest.raises(ChainBroken, match=rf"\bevent {seq}\b"):
            verify(stored.root, "one")
    result = reyn(stored.root, "verify", "one")
    assert result.is_error(ChainBroken.code)
    assert f"event {last} " in result.err
    assert reyn(stored.root, "verify", "two").code == 0


@pytest.mark.parametrize("part", ["seq", "ts", "v", "kind", "hash", "data"])
def test_a_modified_event_is_detected_in_every_part(stored: StoredProject, part: str):
    stored.restore()
    change_event(stored.database, 5, "one", **{part: b"7"})
    with pytest.raises(ChainBroken, match=r"\bevent 5\b"):
        verify(stored.root, "one")


@pytest.mark.parametrize("column", ["hashes", "events"])
@pytest.mark.parametrize("value", ["7", "1.5", "NULL", "''", "x'00'"])
def test_a_commit_with_a_damaged_column_is_detected(stored: StoredProject, column: str, value: str):
    stored.restore()
    with editing(stored.database) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = replace(sql, ' BLOB NOT NULL', ' BLOB') WHERE name = 'commits'")
    db.close()
    with editing(stored.database) as db:
        (key,) = db.execute("SELECT min(id) FROM commits WHERE id >> 32 = 1 AND id & 0xffff > 4").fetchone()
        (before,) = db.execute("SELECT max(id) & 0xffff FROM commits WHERE id < ?", (key,)).fetchone()
        db.execute(f"UPDATE commits SET {column} = {value} WHERE id = {key}")
    db.close()
    with editing(stored.database) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = replace(sql, ' BLOB', ' BLOB NOT NULL') WHERE name = 'commits'")
    db.close()
    results = asyncio.run(stored.collect())
    assert results["verify one"] == ChainBroken.code
    assert wrong_results(stored, results) == {}
    with pytest.raises(ChainBroken, match=rf"\bevent {before + 1}\b"):
        verify(stored.root, "one")


def test_a_missing_event_is_detected(stored: StoredProject):
    last = stored.truth["verify one"].events
    for seq in (1, 2, last - 1, last):
        stored.restore()
        remove_event(stored.database, seq, "one")
        with pytest.raises(ChainBroken, match=rf"\bevent {seq}\b"):
            verify(stored.root, "one")


def test_a_missing_commit_is_detected(stored: StoredProject):
    with editing(stored.database) as db:
        keys = [key for (key,) in db.execute("SELECT id FROM commits WHERE id >> 32 = 1 ORDER BY id")]
    db.close()
    for before, key in pairwise([1 << 32, *keys]):
        stored.change("DELETE FROM commits WHERE id = ?", key)
        with pytest.raises(ChainBroken, match=rf"\bevent {(before & 0xFFFF) + 1}\b"):
            verify(stored.root, "one")


def test_modified_or_missing_content_is_detected(stored: StoredProject):
    for statement in ("UPDATE blobs SET content = x'00' WHERE id = ?", "DELETE FROM blobs WHERE id = ?"):
        for number in (1, 2, 5, 9):
            stored.change(statement, number)
            results = asyncio.run(stored.collect())
            assert BlobMissing.code in [results[f"verify {run}"] for run in RUNS]
            assert wrong_results(stored, results) == {}


@pytest.mark.parametrize(
    "change",
    [
        "state = json_set(state, '$.status', 'aborted')",
        "state = json_set(state, '$.phase', 'second')",
        "state = json_set(state, '$.wait.id', '9')",
        "updated = 1",
        "skill = 'other'",
        "parent = 'x'",
    ],
)
def test_a_row_that_contradicts_its_events_is_detected(stored: StoredProject, change: str):
    stored.change(f"UPDATE runs SET {change} WHERE run_id = 'waits'")
    with pytest.raises(ChainBroken, match="in the list of runs does not match"):
        verify(stored.root, "waits")


def test_a_renamed_run_is_detected(stored: StoredProject):
    stored.change("UPDATE runs SET run_id = 'another' WHERE run_id = 'one'")
    with pytest.raises(ChainBroken, match="opens a run `one`"):
        verify(stored.root, "another")


@pytest.mark.parametrize(
    "damage", ['payload = \'{"type":"mumble"}\'', "payload = x'ff'", "payload = 'no JSON'", "payload = NULL"]
)
def test_an_unreadable_message_stops_the_run_with_a_code(stored: StoredProject, damage: str):
    stored.restore()
    with editing(stored.database) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = replace(sql, 'payload BLOB NOT NULL', 'payload BLOB')")
    db.close()
    with editing(stored.database) as db:
        db.execute(f"UPDATE inbox SET {damage} WHERE run_id = 'waits'")
    db.close()
    with editing(stored.database) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = replace(sql, 'payload BLOB', 'payload BLOB NOT NULL')")
    db.close()
    results = asyncio.run(stored.collect())
    assert results["resume"] == EventInvalid.code
    assert wrong_results(stored, results) == {}
