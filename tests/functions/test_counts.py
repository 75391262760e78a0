"""A whole number that a decorator takes is refused there, or works: no call fails because of it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime, SyncRuntime, llm_chat, llm_function, tool
from reyn.errors import FunctionInvalid
from reyn.journal import MemoryJournal
from tests.functions.support import Answers, value
from tests.functions.test_chat import Chatty

COUNTS: list[Any] = [None, True, 1.0, "5", -1, 0, 1, 199, 200, 2**31, 2**53 - 1, 2**53, 2**63, 2**70]
LEAST = {"max_act_turns": 0, "max_retries": 0, "max_tokens": 200, "max_concurrency": 1}
DEFAULTS = ("max_retries", "max_concurrency")
"""Those of which `None` stands for the default."""


def is_valid(name: str, count: Any) -> bool:
    if count is None:
        return name in DEFAULTS
    return type(count) is int and LEAST[name] <= count < 2**53


def look(at: int) -> int:
    """Look."""
    return at


@pytest.mark.parametrize("count", COUNTS, ids=repr)
@pytest.mark.parametrize("name", ["max_act_turns", "max_retries", "max_tokens"])
def test_a_chat_refuses_a_count_or_works(tmp_path: Path, name: str, count: Any):
    async def scenario() -> None:
        async with OSRuntime.open(tmp_path, model=Chatty("hi"), journal=MemoryJournal(), trust=True) as rt:
            options: Any = {"runtime": rt, "toolkit": [tool(look)], name: count}

            async def agent(message: str, history: Any = None) -> None:
                """Talk."""

            if is_valid(name, count):
                assert (await llm_chat(**options)(agent)("hi")).text == "hi"
                return
            with pytest.raises(FunctionInvalid, match=f"`{name}` is .*; use a whole number"):
                llm_chat(**options)(agent)

    asyncio.run(scenario())


@pytest.mark.parametrize("count", COUNTS, ids=repr)
@pytest.mark.parametrize("name", ["max_act_turns", "max_retries", "max_concurrency"])
def test_a_function_or_its_tool_refuses_a_count_or_works(tmp_path: Path, name: str, count: Any):
    def f(text: str) -> int:
        """Count."""
        raise NotImplementedError

    with SyncRuntime.open(tmp_path, model=Answers(value(1)), journal=MemoryJournal(), trust=True) as rt:

        def call() -> Any:
            own: Any = {name: count}
            tools = [tool(**own)(look)] if name == "max_concurrency" else [tool(look)]
            options = {} if name == "max_concurrency" else own
            return llm_function(runtime=rt, toolkit=tools, **options)(f)

        if is_valid(name, count):
            assert call()("a") == 1
            return
        with pytest.raises(FunctionInvalid, match=f"`{name}` is .*; use a whole number"):
            call()
