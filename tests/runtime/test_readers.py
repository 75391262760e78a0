"""A stream has one reader: it receives everything once, and a second one is refused with a code."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime, SyncRuntime, llm_chat
from reyn.errors import StreamTaken
from reyn.functions import OpenAICompatible
from reyn.models import ModelAnswer
from reyn.testing import ScriptedModel
from tests.support import finish, go, write_skill

KINDS = ["chat", "key", "agent", "items", "run", "watch", "model"]


class Talker:
    """Answers each message with `ok`."""

    name = "talker"
    answer_form = "tools"

    async def complete(self, request: Any) -> ModelAnswer:
        await asyncio.sleep(0)
        return ModelAnswer("ok")


class Place:
    """A runtime and the streams of each kind that it has."""

    def __init__(self, root: Path) -> None:
        write_skill(root, "s", {"a": ["b"], "b": ["end"]})
        self.rt = OSRuntime.open(root, model=Talker())

        @llm_chat(runtime=self.rt)
        async def talk(message: str, history: Any = None) -> None:
            """Talk."""

        self.talk = talk
        answers = ScriptedModel([go("b"), finish()] * 20)
        self.runs = OSRuntime.open(root, model=answers)

    async def stream(self, kind: str, chat: Any) -> Any:
        """Return a new stream of a kind that has at least two items."""
        match kind:
            case "chat":
                return self.talk("hello")
            case "key":
                return self.talk.options(key="k")("hello")
            case "agent":
                return chat.stream("hello")
            case "items":
                await chat.say("hello")
                await chat.say("hello")
                await chat.close()
                return chat.items()
            case "run":
                return self.runs.stream("s", {"text": "hello"})
            case "watch":
                return self.runs.runs.watch((await self.runs.run("s", {"text": "hello"})).run_id)
        return Numbers("any").chat_stream([])


class Numbers(OpenAICompatible):
    async def _chunks(self, *_: Any) -> Any:
        for number in range(5):
            await asyncio.sleep(0)
            yield number


async def with_stream(root: Path, kind: str, use: Any) -> None:
    place = Place(root)
    async with place.rt, place.runs, place.rt.chat() as chat:
        await use(await place.stream(kind, chat))


@pytest.mark.parametrize("kind", KINDS)
def test_a_second_loop_is_refused_and_the_first_receives_everything(tmp_path: Path, kind: str):
    async def use(stream: Any) -> None:
        async def read() -> list[Any]:
            return [item async for item in stream]

        first, second = await asyncio.gather(read(), read(), return_exceptions=True)
        assert isinstance(first, list)
        assert len(first) >= 2
        assert len({id(item) for item in first}) == len(first)
        assert isinstance(second, StreamTaken)
        assert second.code == "RYN443"
        with pytest.raises(StreamTaken):  # also afterwards, when there is nothing left
            await read()
        with pytest.raises(StopAsyncIteration):
            await anext(stream)

    asyncio.run(with_stream(tmp_path, kind, use))


@pytest.mark.parametrize("kind", KINDS)
def test_a_loop_that_was_left_is_not_continued_by_another(tmp_path: Path, kind: str):
    async def use(stream: Any) -> None:
        async for _ in stream:
            break
        with pytest.raises(StreamTaken):
            async for _ in stream:
                pass

    asyncio.run(with_stream(tmp_path, kind, use))


@pytest.mark.parametrize("kind", KINDS)
def test_two_tasks_do_not_wait_for_the_same_item(tmp_path: Path, kind: str):
    async def use(stream: Any) -> None:
        found = await asyncio.gather(anext(stream), anext(stream), return_exceptions=True)
        refused = [one for one in found if isinstance(one, StreamTaken)]
        rest = [item async for item in stream]  # the same reader goes on
        # Without something to wait for, the first has its item before the second asks.
        assert len(refused) + len(rest) >= 1
        assert not [one for one in found if isinstance(one, BaseException) and one not in refused]

    asyncio.run(with_stream(tmp_path, kind, use))


@pytest.mark.parametrize("second", ["stream", "items"])
@pytest.mark.parametrize("first", ["stream", "items"])
def test_a_conversation_has_one_reader_and_the_message_of_a_second_is_not_sent(tmp_path: Path, first: str, second: str):
    async def scenario() -> None:
        async with OSRuntime.open(tmp_path, model=Talker()) as rt, rt.chat() as chat:
            streams = {"stream": lambda: chat.stream("hello"), "items": chat.items}
            if first == "items":
                await chat.say("hello")
            reader: Any = streams[first]()
            await anext(reader)
            with pytest.raises(StreamTaken, match="the conversation is being read"):
                await anext(streams[second]())
            assert (await chat.say("more")).text == "ok"  # needs no reader
            await reader.aclose()
            async for item in streams[second]():
                assert item
                break
            messages = [event for event in rt.runs.events(chat.run_id) if event.kind == "message_taken"]
            assert len(messages) <= 2

    asyncio.run(scenario())


def test_the_items_after_a_loop_that_was_left_belong_to_the_next_one(tmp_path: Path):
    async def scenario() -> None:
        async with OSRuntime.open(tmp_path, model=Talker()) as rt, rt.chat() as chat:
            for text in ("first", "second"):
                await chat.say(text)
            await chat.close()
            items, found = chat.items(), []
            async for item in items:
                found.append(item.text)
                break
            found += [item.text async for item in chat.items()]
            assert found == ["first", "ok", "second", "ok"]

    asyncio.run(scenario())


def test_the_reply_of_a_chat_can_be_awaited_during_and_after_a_loop(tmp_path: Path):
    async def scenario() -> None:
        place = Place(tmp_path)
        async with place.rt:
            stream = place.talk("hello")
            async for _ in stream:
                reply = await stream  # the rest
            assert reply.text == "ok"
            assert (await stream).text == "ok"
            first, second = await asyncio.gather(*[asyncio.ensure_future(read(place.talk("hello"))) for _ in range(2)])
            assert first == second == "ok"

    async def read(stream: Any) -> str:
        return (await stream).text

    asyncio.run(scenario())


def test_a_second_loop_of_synchronous_code_is_refused(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]})
    with SyncRuntime.open(tmp_path, model=ScriptedModel([finish()])) as rt:
        stream = rt.stream("s", {"text": "hello"})
        assert len(list(stream)) > 2
        with pytest.raises(StreamTaken):
            list(stream)
        assert stream.result.ok
