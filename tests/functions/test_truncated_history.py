"""A history that leaves its run names no file of the run, and a truncated message is the beginning of its text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.context.histories import outside
from reyn.context.render import truncate
from reyn.functions import tool
from tests.functions.test_chat import World, calls, run
from tests.properties import examples
from tests.support import VOCABULARY

LARGE = "figures. " * 3_000


@tool(effect="pure", permission=None)
def report(number: int) -> str:
    """Return the report of a quarter."""
    return f"REPORT {number} {LARGE} TOTAL {number}"


def read(path: str) -> list[Any]:
    return calls(("file_read", json.dumps({"path": path, "start": 20_000, "length": 100})))


@pytest.mark.parametrize("key", [None, "k"])
def test_the_history_of_a_reply_names_no_file_of_its_run(tmp_path: Path, key: str | None):
    async def scenario(root: Path) -> None:
        asked = calls(("report", '{"number": 1}'))
        world = World(root, asked, read("workspace:.full/1.1.1"), "It is large.", "Again.", toolkit=[report])
        agent = world.agent.options(key=key) if key else world.agent
        reply = await agent(f"Report 1? {LARGE}")
        said, result, more = (reply.history[at].text for at in (0, 2, 4))
        assert said.startswith("Report 1? figures. ")
        assert said.endswith("of 27009 bytes.]")
        assert result.endswith("[truncated: these are the first 8000 characters of 27060 bytes.]")
        assert json.loads(more)["content"].count("figures. ") > 5, "the run itself can read on"
        assert not any("Read more" in message.text for message in reply.history)
        again = await world.agent("And now?", reply.history)
        assert list(again.history)[: reply.history.length] == list(reply.history)
        assert not any("Read more" in text for _, text in world.model.seen())
        assert not any(tool.name == "file_read" for tool in world.model.requests[-1].tools)
        for row in world.rt.runs.all():
            assert (await world.rt.runs.replay(row.run_id)).events == world.rt.runs.verify(row.run_id).events

    run(scenario, tmp_path)


@pytest.mark.parametrize("text", ['He said "hi"\nLine 2 é\n', "# A heading\n# Results\n", "{", "\\ \t\r\n"])
def test_a_truncated_message_is_the_beginning_of_what_a_short_one_shows(tmp_path: Path, text: str):
    async def scenario(root: Path) -> None:
        world = World(root, "short", "long", read("workspace:.full/2.input"), "read", "whole")
        agent = world.agent.options(key="k")
        await agent(f"{text}word")
        short = world.model.seen()[-1][1]
        await agent(f"{text}word {LARGE}")
        assert world.model.seen()[-1][1].startswith(short)
        reply = await agent("Go on.")
        assert reply.history[-2].text.count("figures. ") > 5
        assert reply.history[2].text.startswith(short)
        await agent("x\n" * 11_000)  # more than the limit as JSON or indented, less as text
        await world.rt.runs.replay(agent.conversation)

    run(scenario, tmp_path)


def test_a_truncated_message_with_a_nul_character_can_be_read_on(tmp_path: Path):
    async def scenario(root: Path) -> None:
        world = World(root, read("workspace:.full/1.input"), "read")
        reply = await world.agent(f"a\0b {LARGE}")
        assert reply.history[-2].text.count("figures. ") > 5

    run(scenario, tmp_path)


@examples(200)
@given(st.text(), st.integers(0, 40), st.text(max_size=20), st.booleans())
def test_only_the_place_of_a_marker_goes(text: str, limit: int, name: str, has_reader: bool):
    content = text.encode()
    reader = VOCABULARY.truncation_reader if has_reader else None
    named, plain = truncate(content, limit, name, reader), truncate(content, limit, name, None)
    assert outside({"a": named}.__getitem__)("a") == plain
    assert outside({"a": plain}.__getitem__)("a") == plain
    for other in (content, content + b"}]", named + b" ", b"\n" + named[1:-1]):
        assert outside({"a": other}.__getitem__)("a") == other
