"""Functions and tools with a model that is asked with native tools."""

from __future__ import annotations

import base64
import dataclasses
import json
from pathlib import Path
from typing import Any

from reyn import llm_function, tool
from reyn.functions import Image
from reyn.models import ModelAnswer
from reyn.testing import ScriptedModel
from tests.functions.support import kinds, results, sync_runtime

PNG = base64.b64encode(b"\x89PNG pixels").decode()


class NativeModel(ScriptedModel):
    answer_form = "tools"
    reads_images = True

    def __init__(self, answers: list[Any]) -> None:
        super().__init__(answers, "native")
        self.requests: list[Any] = []

    async def complete(self, request: Any) -> ModelAnswer:
        self.requests.append(request)
        return await super().complete(request)


def calls(**named: Any) -> dict[str, Any]:
    return {"content": "", "tool_calls": [{"name": name, "arguments": args} for name, args in named.items()]}


@dataclasses.dataclass
class City:
    name: str
    people: int


@tool(effect="pure", permission=None)
def photo(city: City) -> tuple[str, Image]:
    """Return a photo of a city."""
    return f"a photo of {city.name}", Image("image/png", PNG)


def test_a_tool_is_offered_natively_and_its_call_is_an_op(tmp_path: Path):
    decision = {"reason": "seen", "choice": "end", "confidence": 1, "data": {"name": "Oslo", "people": 5}}
    model = NativeModel([calls(photo={"city": {"name": "Oslo", "people": 5}}), decision])
    with sync_runtime(tmp_path) as rt:

        @llm_function(llm_interface=model, toolkit=[photo], runtime=rt)
        def describe(name: str) -> City:
            """Describe the city."""

        result = describe.run("Oslo")
        assert result.value == City("Oslo", 5)
        [definition] = model.requests[0].tools
        assert definition.name == "photo"
        assert definition.parameters["properties"]["city"]["required"] == ["name", "people"]
        [answered] = [message for message in model.requests[1].messages if message.role == "tool"]
        assert answered.images == (Image("image/png", PNG),)
        assert json.loads(answered.text.partition("\n")[0])["result"] == "a photo of Oslo"
        assert results(rt, result.run_id, "photo")[0]["status"] == "ok"
        assert rt.runs.replay(result.run_id).events == len(kinds(rt, result.run_id))


def test_a_function_that_returns_text_takes_the_content_of_the_answer(tmp_path: Path):
    with sync_runtime(tmp_path) as rt:

        @llm_function(llm_interface=NativeModel(["A fine city."]), runtime=rt)
        def describe(name: str) -> str:
            """Describe the city."""

        assert describe("Oslo") == "A fine city."
