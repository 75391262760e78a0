"""What a conversation does per message does not grow with its length."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from reyn import OSRuntime
from reyn.journal import Event, MemoryJournal
from reyn.ops.memory_files import read_memories
from reyn.ranking import Ranking
from reyn.skills.catalogue import Catalogue
from reyn.skills.resolve import Library
from tests.chat.support import Agent, skills, start_skill
from tests.cost import count_calls
from tests.support import load_skill


class CountingJournal(MemoryJournal):
    """Counts the events that are read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_events = 0

    def read(self, run_id: str, after: int = 0) -> Iterator[Event]:
        for event in super().read(run_id, after):
            self.read_events += 1
            yield event


@pytest.mark.slow
@pytest.mark.parametrize("work", ["talk", "begin it", "talk while it is busy"])
def test_the_events_that_a_turn_reads_do_not_grow_with_the_conversation(tmp_path: Path, work: str):
    skills(tmp_path, "report")
    (tmp_path / "reyn/agents").mkdir()
    front = "type: agent\nname: clerk\nbudget: {transcript: 100000000}\n"
    (tmp_path / "reyn/agents/clerk.md").write_text(f"---\n{front}---\nYou are a clerk.\n")
    journal = CountingJournal()

    async def turn(chat) -> int:
        before = journal.read_events
        if work == "talk while it is busy":
            replies = [asyncio.get_running_loop().create_future() for _ in range(3)]
            for reply in replies:
                chat.post("more", reply)
            await asyncio.gather(*replies)
        else:
            await chat.say(work)
            await chat.runs.settle()
        return journal.read_events - before

    async def talk() -> None:
        model = Agent(begin=start_skill("report"))
        async with OSRuntime.open(tmp_path, model=model, journal=journal) as rt, rt.chat("clerk") as chat:
            for _ in range(3):
                await chat.say("hello")
            await turn(chat)
            early = await turn(chat)
            for _ in range(80):
                await chat.say("hello")
            await turn(chat)  # reads what is new since the last time
            assert await turn(chat) <= early + 300  # at most the window in which the start of a run is searched

    asyncio.run(talk())


def test_skills_that_have_not_changed_are_not_read_again(tmp_path: Path):
    skills(tmp_path, "report", "poster")
    loaded: list[str] = []
    library = Library(tmp_path)

    def load(name: str):
        loaded.append(name)
        return load_skill(library.find(name))

    catalogue = Catalogue(library, load)
    first = list(catalogue)
    assert {"report", "poster"} <= {one.name for one in first}
    loaded.clear()
    again = list(catalogue)
    assert loaded == []
    assert all(one is other for one, other in zip(first, again, strict=True))
    path = tmp_path / "reyn/project/report/skill.md"
    path.write_text(path.read_text().replace("Make a report", "Make a long report"))
    assert "Make a long report" in [one.description for one in catalogue]
    assert loaded == ["report"]
    shared = tmp_path / "reyn/shared/artifacts"
    shared.mkdir(parents=True)
    (shared / "new.yaml").write_text("type: object\n")
    assert len(list(catalogue)) == len(first)
    assert "poster" in loaded


def test_a_listing_of_memories_that_have_not_changed_costs_little(tmp_path: Path):
    folder = tmp_path / "reyn/memory"
    folder.mkdir(parents=True)
    for number in range(200):
        (folder / f"fact-{number}.md").write_text(f"---\ndescription: fact {number}\n---\nText {number}.\n")
    first = read_memories(tmp_path, ["shared", "clerk"])
    assert len(first) == 200
    assert read_memories(tmp_path, ["shared", "clerk"]) is first
    assert count_calls(lambda: read_memories(tmp_path, ["shared", "clerk"])) < 200 * 4
    (folder / "fact-7.md").write_text("---\ndescription: changed\n---\nText.\n")
    changed = read_memories(tmp_path, ["shared", "clerk"])
    assert changed[0].description == "changed"
    assert len(changed) == 200


def test_a_turn_looks_at_folders_and_not_at_each_file(tmp_path: Path):
    """A file that is replaced is noticed at once, one that is written in place after `max_age` seconds at most."""
    folder = tmp_path / "reyn/memory"
    folder.mkdir(parents=True)
    for number in range(200):
        (folder / f"fact-{number}.md").write_text(f"---\ndescription: fact {number}\n---\nText {number}.\n")
    first = read_memories(tmp_path, ["shared"], 1e9)
    assert count_calls(lambda: read_memories(tmp_path, ["shared"], 1e9)) < 20
    (folder / "fact-7.md").write_text("---\ndescription: in place\n---\nText.\n")
    assert read_memories(tmp_path, ["shared"], 1e9) is first
    assert read_memories(tmp_path, ["shared"])[0].description == "in place"
    other = tmp_path / "other.md"
    other.write_text("---\ndescription: replaced\n---\nText.\n")
    other.replace(folder / "fact-8.md")
    assert "replaced" in [one.description for one in read_memories(tmp_path, ["shared"], 1e9)]


def test_words_that_most_texts_have_rank_nothing():
    texts = [f"the price of item {number}" for number in range(200)] + ["the price of noodles"]
    ranking = Ranking[str](str)
    assert [number for number, _ in ranking.best_matches("the price of noodles", texts, 5)] == [200]
    assert len(ranking.best_matches("the price of ramen", texts, 5)) == 5
    assert ranking.best_matches("the price of ramen", texts, 5, only_telling=True) == []
    assert ranking.best_matches("ramen", texts, 5) == []
