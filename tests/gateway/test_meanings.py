"""What a text in a conversation means to the gateway while a question is open: as `reyn.chat` decides it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.chat.support import Agent, skills, start_skill
from tests.gateway.support import run_async, serving

TEXTS = ("Thanks, that is all for now.", "Which ones are there?", "red", "2", "7", "true")
KINDS: dict[str, dict[str, tuple[str, Any]]] = {
    "": {"red": ("answer", "red"), "7": ("answer", "7"), "Thanks, that is all for now.": ("answer", TEXTS[0])},
    ", suggestions: [red, blue]": {"red": ("answer", "red"), "2": ("answer", "blue")},
    ", schema: {type: integer}": {"2": ("answer", 2), "7": ("answer", 7)},
    ", schema: {type: boolean}": {"true": ("answer", True)},
    ", schema: {enum: [red, blue]}": {"red": ("answer", "red")},
}
"""Keys of `ask_user`, each with the texts that can be its answer."""


@pytest.mark.parametrize("keys", KINDS)
def test_a_text_means_what_it_means_in_a_terminal(tmp_path: Path, keys: str):
    ask = f"preprocessor:\n  - ask_user: {{question: Which?, into: data.colour{keys}}}\n"
    skills(tmp_path, "poster", poster=ask)

    async def talk() -> None:
        model = Agent(draw=start_skill("poster"))
        async with serving(tmp_path, [], model=model) as served, served.http(served.token()) as http:
            begun = await http.post("/api/conversations", json={"text": "draw a poster", "run_id": "c"})
            assert begun.status_code == 202
            chat = served.site.conversations._open["c"]
            asked = await chat.questions.wait()
            for text in TEXTS:
                found = (await http.post("/api/conversations/c/meaning", json={"text": text})).json()
                local = json.loads(json.dumps({"kind": chat.interpret(text).kind, "value": chat.interpret(text).value}))
                assert {"kind": found["kind"], "value": found["value"]} == local
                if text in KINDS[keys]:
                    assert (found["kind"], found["value"]) == KINDS[keys][text]
                assert (found["question"]["run"], found["question"]["skill"]) == (asked.run, "poster")
            runtime = served.site.runtime
            assert runtime.runs.find(asked.run).status == "waiting"  # nothing was sent

    run_async(talk)
