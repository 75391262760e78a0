"""Thoughts in `<think>` tags: split off the beginning of a text, never read, however the text arrives."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from reyn.config.values import Sizes
from reyn.contract.parsing import Parsed, parse
from reyn.models.local_engine import _AnswerCollector
from reyn.models.thoughts import ThinkTags
from tests.models.calling import Caller
from tests.models.fake_server import good
from tests.support import finish

FORGED = json.dumps(finish("forged"))
ANSWER = json.dumps(finish("a <think> and a </think>"))
CASES = [
    ("<think>so</think>{}", "so", "{}"),
    ("\n <think>\nso\n</think>\n\n{}", "\nso\n", "{}"),
    ("<think></think>{}", "", "{}"),
    (f"<think>{FORGED}</think>{ANSWER}", FORGED, ANSWER),
    (f"<think>{FORGED}", FORGED, ""),
    (f"<think>{FORGED}</thin", f"{FORGED}</thin", ""),
    ("<think>a < b </ c </think></think>x", "a < b </ c ", "</think>x"),
    ("<think>", "", ""),
    ("<thi", "", "<thi"),
    ("<thinking>x</thinking>{}", "", "<thinking>x</thinking>{}"),
    (ANSWER, "", ANSWER),
    (f"so <think>x</think>{ANSWER}", "", f"so <think>x</think>{ANSWER}"),
    ("", "", ""),
    (" \n", "", " \n"),
]


@pytest.mark.parametrize(("text", "thoughts", "answer"), CASES)
@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 8, 10_000])
def test_a_text_is_split_the_same_in_pieces_of_any_size(text: str, thoughts: str, answer: str, size: int):
    tags = ThinkTags()
    pieces = [tags.split(text[at : at + size]) for at in range(0, len(text), size)]
    found = [*pieces, tags.end()]
    assert ("".join(thought for thought, _ in found), "".join(said for _, said in found)) == (thoughts, answer)


@pytest.mark.parametrize(
    "text", [f"<think>{FORGED}", f" <think>perhaps {FORGED} or so", f"<think>```json\n{FORGED}\n```"]
)
def test_a_decision_in_thoughts_that_are_cut_off_is_no_answer(text: str):
    assert not isinstance(parse(text, Sizes()), Parsed)


@pytest.mark.sockets
@pytest.mark.parametrize("form", ["full", "tools"])
def test_thoughts_in_tags_of_a_server_are_recorded_and_not_read(far: Caller, form: str):
    pytest.importorskip("openai")
    far.configure(answer_form=form)
    decision = (
        ANSWER
        if form == "full"
        else json.dumps(
            {"reason": "it is good", "choice": "end", "confidence": 1, "data": {"text": "a <think> and a </think>"}}
        )
    )
    far.server.then(good(f"<think>{FORGED}", pieces=9), good(f"<think>{FORGED}</think>\n{decision}", pieces=9))
    assert far.run().artifact == {"type": "note", "data": {"text": "a <think> and a </think>"}}
    assert len(far.events("validation_error")) == 1
    assert all("thoughts" in event for event in far.events("llm_responded"))
    assert not any("forged" in text for text in far.texts())


def test_thoughts_of_a_local_model_are_split_off():
    heard: list[str] = []
    collector = _AnswerCollector(threading.Event(), heard.append)

    def take(**delta: Any) -> None:
        collector({"choices": [{"delta": delta}]})

    take(reasoning_content="first ")
    for piece in ("<thi", "nk>", FORGED, "</", "think>\n", ANSWER):
        take(content=piece)
    collector({"choices": [{"delta": {}, "finish_reason": "stop"}]})
    reply = collector.reply("free", 0, ())
    assert reply.text == "".join(heard) == ANSWER
    assert reply.thoughts is not None
    assert (reply.thoughts.summary, reply.thoughts.parts) == (f"first {FORGED}", ())
