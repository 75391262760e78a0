"""Typed calls of other libraries with a fake model, in this process: `python functions_others.py N` prints JSON.

Neither library records anything: these figures have no durability. A library that is not installed is left out.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel


class City(BaseModel):
    name: str
    people: int


ANSWER = {"name": "Oslo", "people": 700_000}


def pydantic_ai_call() -> Callable[[str], Awaitable[City]]:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, ToolCallPart
    from pydantic_ai.models.function import FunctionModel

    def answer(messages: Any, info: Any) -> ModelResponse:
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, ANSWER)])

    agent = Agent(FunctionModel(answer), output_type=City, instructions="Describe the city.")

    async def call(name: str) -> City:
        return (await agent.run(name)).output

    return call


def instructor_call() -> Callable[[str], Awaitable[City]]:
    import instructor
    from openai.types.chat import ChatCompletion

    completion = ChatCompletion.model_validate(
        {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": "fake",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "tool_calls",
                    "message": {
                        "role": "assistant",
                        "content": None,
                        "tool_calls": [
                            {
                                "id": "1",
                                "type": "function",
                                "function": {"name": "City", "arguments": json.dumps(ANSWER)},
                            }
                        ],
                    },
                }
            ],
        }
    )

    async def create(*args: Any, **kwargs: Any) -> ChatCompletion:
        return completion

    patched: Any = instructor.patch(create=create, mode=instructor.Mode.TOOLS)

    async def call(name: str) -> City:
        messages = [{"role": "system", "content": "Describe the city."}, {"role": "user", "content": name}]
        city: City = await patched(model="fake", messages=messages, response_model=City)
        return city

    return call


async def cost(call: Callable[[str], Awaitable[City]], count: int) -> float:
    """Return the CPU of a call in milliseconds."""
    assert (await call("warm-up")).people == ANSWER["people"]
    started = time.process_time()
    for number in range(count):
        await call(f"city {number}")
    return (time.process_time() - started) / count * 1000


def main() -> None:
    results: dict[str, float] = {}
    for name, make in (("pydantic-ai", pydantic_ai_call), ("instructor", instructor_call)):
        try:
            call = make()
        except ImportError:
            continue
        results[name] = asyncio.run(cost(call, int(sys.argv[1])))
    print(json.dumps(results))


if __name__ == "__main__":
    main()
