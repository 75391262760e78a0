"""A damaged journal: every command ends with a code or with the truth, `verify` names what is wrong first, and nothing
is written over what is left."""

from __future__ import annotations

import asyncio
import random
import shutil
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime
from reyn.errors import BlobMissing, ChainBroken, EventInvalid, InternalError, ReynError, StoreDamaged
from reyn.testing import ScriptedModel
from tests.faults.support import ask_and_write, reyn
from tests.support import act, file, finish, go, question

PAGE = 8192
RUNS = ("one", "two", "waits")
ANSWERS = [act(file("write", "workspace:x.txt", content="hey")), act(question("sure?")), go("second"), finish()]
INTERNAL = InternalError.code


class Kept:
    """A project with two runs that finished and one that was answered and not resumed; and ways to damage it."""

    def __init__(self, folder: Path) -> None:
        self.root, self._saved = folder / "project", folder / "saved"
        self.root.mkdir()
        ask_and_write(self.root)
        (self.root / "reyn.yaml").write_text("model: scripted\n")
        asyncio.run(self._fill())
        shutil.copytree(self.root, self._saved)
        self.bytes = self.database.read_bytes()
        self.truth = asyncio.run(self.tell())
        self.restore()

    async def _fill(self) -> None:
        async with OSRuntime.open(self.root, model=ScriptedModel(ANSWERS)) as rt:
            for run in RUNS:
                stopped = await rt.run("pair", {"text": "in"}, run_id=run)
                rt.answer(run, stopped.wait.id, f"yes to {run}")
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
        with sqlite3.connect(self.database) as db:
            db.execute(statement, values)
        db.close()

    async def tell(self) -> dict[str, Any]:
        """What the journal says to all that can be asked of it; the code, where it says that it cannot."""
        told: dict[str, Any] = {}
        try:
            runtime = OSRuntime.open(self.root, model=ScriptedModel(ANSWERS))
            assert runtime.journal
        except ReynError as error:
            return {"open": error.code}
        async with runtime as rt:
            told["runs"] = await _said(rt.runs)
            for run in RUNS:
                told[f"verify {run}"] = await _said(lambda run=run: rt.verify(run))
                told[f"replay {run}"] = await _said(lambda run=run: rt.replay(run))
                told[f"result {run}"] = await _said(lambda run=run: rt.result(run))
                told[f"events {run}"] = await _said(lambda run=run: [event.raw for event in rt.events(run)])
            told["resume"] = await _said(lambda: rt.resume("waits"))
            told["resumed"] = await _said(lambda: rt.verify("waits").run_id)
        return told

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


async def _said(ask: Callable[[], Any | Awaitable[Any]]) -> Any:
    """An answer, or the code of an error. Anything else that is raised is a fault of Reyn."""
    try:
        answer = ask()
        return await answer if isinstance(answer, Awaitable) else answer
    except ReynError as error:
        return error.code


def is_code(told: Any) -> bool:
    return isinstance(told, str) and told.startswith("RYN")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    return Kept(tmp_path_factory.mktemp("kept"))


def told_after(kept: Kept, damaged: bytes) -> dict[str, Any]:
    kept.write(damaged)
    return asyncio.run(kept.tell())


def untrue(kept: Kept, told: dict[str, Any]) -> dict[str, Any]:
    """What is told, is no code and is not the truth."""
    return {what: said for what, said in told.items() if not is_code(said) and said != kept.truth.get(what)}


# -- the file ---------------------------------------------------------------------------------------------


def test_the_truth_is_told_of_what_is_whole(kept: Kept):
    kept.restore()
    told = asyncio.run(kept.tell())
    assert not any(is_code(said) for said in told.values())
    assert told["resume"].ok


@pytest.mark.parametrize("share", range(4))
def test_a_bit_that_flips_anywhere_is_told_or_does_not_matter(kept: Kept, share: int):
    """Of every page: the first bytes, which say what it is, and a sample of the others that are in use.

    The inbox is apart: what was said to a run is bound by no hash until the run has heard it. There, a flipped bit may
    change or lose what was said, but nothing that was recorded.
    """
    chance = random.Random(5)
    for place, (region, used) in enumerate(kept.regions().items()):
        offsets = sorted({*used[:8], *chance.sample(used, min(12, len(used)))})
        for at in offsets if place % 4 == share else ():
            damaged = bytearray(kept.bytes)
            damaged[at] ^= 1 << chance.randrange(8)
            told = told_after(kept, bytes(damaged))
            assert INTERNAL not in told.values(), (region, at)
            wrong = untrue(kept, told)
            if region in ("inbox", "inbox_by_run", "sqlite_sequence"):
                assert wrong.keys() <= {"resume"}, (region, at)
                continue
            whole = [run for run in RUNS if not is_code(told.get(f"verify {run}", INTERNAL))]
            # Wherever `verify` finds nothing, all that is told of the run is true.
            assert not any(what.split()[-1] in whole for what in wrong), (region, at, wrong)
            assert whole != list(RUNS) or not wrong, (region, at, wrong)


@pytest.mark.parametrize("pages", [0.5, 1, 1.5, 2, 3, 5, 8])
def test_a_journal_that_was_cut_off_is_told(kept: Kept, pages: float):
    told = told_after(kept, kept.bytes[: int(pages * PAGE)])
    assert INTERNAL not in told.values()
    assert is_code(told.get("open")) or is_code(told["runs"]) or all(is_code(told[f"verify {run}"]) for run in RUNS)
    assert untrue(kept, told).keys() <= {"runs"}


def test_garbage_is_left_as_it_is(kept: Kept):
    garbage = random.Random(3).randbytes(40_000)
    kept.write(garbage)
    for words in (("runs",), ("show", "one"), ("verify", "one"), ("resume", "waits"), ("run", "pair", '{"text": ""}')):
        assert reyn(kept.root, *words).is_error(StoreDamaged.code), words
    assert kept.database.read_bytes() == garbage


# -- one run's record -------------------------------------------------------------------------------------


def test_verify_names_the_first_bad_event(kept: Kept):
    last = kept.truth["verify one"].events
    for seq in range(1, last + 1):
        kept.change(
            "UPDATE events SET data = replace(CAST(data AS TEXT), '\"', '\"\"') "
            "WHERE seq >= ? AND run = (SELECT id FROM runs WHERE run_id = 'one')",
            seq,
        )
        with pytest.raises(ChainBroken, match=rf"\bevent {seq}\b"):
            OSRuntime.open(kept.root).verify("one")
    said = reyn(kept.root, "verify", "one")
    assert said.is_error(ChainBroken.code)
    assert f"event {last} " in said.err
    assert reyn(kept.root, "verify", "two").code == 0


@pytest.mark.parametrize("column", ["ts", "v", "kind", "hash", "data"])
def test_an_event_that_was_changed_is_found_in_whatever_field(kept: Kept, column: str):
    kept.change(f"UPDATE events SET {column} = 7 WHERE seq = 5 AND run = 1")
    with pytest.raises(ReynError, match=r"\bevent 5\b"):
        OSRuntime.open(kept.root).verify("one")


def test_an_event_that_is_gone_is_missed(kept: Kept):
    last = kept.truth["verify one"].events
    for seq in (1, 2, last - 1, last):
        kept.change("DELETE FROM events WHERE seq = ? AND run = 1", seq)
        with pytest.raises(ChainBroken, match=rf"\bevent {seq}\b"):
            OSRuntime.open(kept.root).verify("one")


def test_content_that_was_changed_or_is_gone_is_missed(kept: Kept):
    for statement in ("UPDATE blobs SET content = x'00' WHERE id = ?", "DELETE FROM blobs WHERE id = ?"):
        for number in (1, 2, 5, 9):
            kept.change(statement, number)
            told = asyncio.run(kept.tell())
            assert BlobMissing.code in [told[f"verify {run}"] for run in RUNS]
            assert untrue(kept, told) == {}


@pytest.mark.parametrize(
    "change",
    [
        "status = 'aborted'",
        "phase = 'second'",
        "updated = 1",
        "wait = json_set(wait, '$.id', '9')",
        "skill = 'other'",
        "parent = 'x'",
    ],
)
def test_a_line_in_the_list_of_runs_that_its_events_do_not_say_is_told(kept: Kept, change: str):
    kept.change(f"UPDATE runs SET {change} WHERE run_id = 'waits'")
    with pytest.raises(ChainBroken, match="the list of runs does not agree"):
        OSRuntime.open(kept.root).verify("waits")


def test_a_run_under_another_name_is_told(kept: Kept):
    kept.change("UPDATE runs SET run_id = 'another' WHERE run_id = 'one'")
    with pytest.raises(ChainBroken, match="opens a run `one`"):
        OSRuntime.open(kept.root).verify("another")


@pytest.mark.parametrize("damage", ["kind = 'mumble'", "payload = x'ff'", "payload = 'no JSON'", "payload = NULL"])
def test_something_that_was_said_and_cannot_be_read_stops_the_run_with_a_code(kept: Kept, damage: str):
    kept.restore()
    with sqlite3.connect(kept.database) as db:
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = replace(sql, 'payload BLOB NOT NULL', 'payload BLOB')")
    db.close()
    with sqlite3.connect(kept.database) as db:
        db.execute(f"UPDATE inbox SET {damage} WHERE run_id = 'waits'")
    db.close()
    told = asyncio.run(kept.tell())
    assert told["resume"] == EventInvalid.code
    assert untrue(kept, told) == {}
