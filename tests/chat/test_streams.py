"""What `stream` and `items` of a conversation yield, and which reply a stream without a message continues."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from reyn import OSRuntime
from reyn.chat import ChatItem, Conversation, MessageReceived, Reply, ReplyDelta, SkillProgressed, unread
from reyn.errors import ConversationInvalid
from tests.chat.support import Agent, reply
from tests.chat.test_conversations import Streaming, run
from tests.chat.test_routing import Useless


class Gated(Streaming):
    """Streams its answers; the one to a message with `slow` waits until `go` is set."""

    def __init__(self) -> None:
        super().__init__(slow=self._slow)
        self.has_begun, self.go = asyncio.Event(), asyncio.Event()

    async def _slow(self, _) -> dict:
        self.has_begun.set()
        await self.go.wait()
        return reply("Done.")


async def read(chat: Conversation, message: str | None = None) -> tuple[str, Reply]:
    """Return the text of all pieces of a stream, and the reply."""
    *items, found = [item async for item in chat.stream(message)]
    assert isinstance(found, Reply)
    assert {type(item) for item in items} == {ReplyDelta}
    return "".join(item.text for item in items), found


# -- without a message --------------------------------------------------------------------------------


def test_a_stream_without_a_message_repeats_the_last_reply_of_a_conversation_that_waits(tmp_path: Path):
    async def talk():
        async with OSRuntime.open(tmp_path, model=Agent()) as rt:
            async with rt.chat() as chat:
                await chat.say("first")
                assert (await read(chat))[0] == "You said: first"
                assert (await read(chat))[1].text == "You said: first"
                assert (await chat.say("second")).text == "You said: second"
            assert not rt.services.journal.is_claimed(chat.run_id)
            async with rt.chat(run_id=chat.run_id) as chat:
                assert (await read(chat))[1].text == "You said: second"
                assert (await chat.say("third")).text == "You said: third"

    run(talk())


def test_a_stream_without_a_message_yields_the_reply_that_opening_the_conversation_continues(tmp_path: Path):
    async def talk():
        model = Gated()
        async with OSRuntime.open(tmp_path, model=model) as rt:
            async with rt.chat() as chat:
                await chat.say("first")
                chat.post("slow")
                await model.has_begun.wait()
            model.has_begun.clear()
            async with rt.chat(run_id=chat.run_id) as chat:
                await model.has_begun.wait()
                reading = asyncio.ensure_future(read(chat))
                model.go.set()
                text, found = await reading
                assert (text, found.text) == ("Done.", "Done.")
                assert (await chat.say("second")).text == "You said: second"
            assert not rt.services.journal.is_claimed(chat.run_id)
            assert [said.text for said in chat.history if said.role == "user"] == ["first", "slow", "second"]

    run(talk())


@pytest.mark.parametrize("before", ["", "first"])
def test_a_stream_without_a_message_and_the_caller_of_say_receive_the_same_reply(tmp_path: Path, before: str):
    async def talk():
        model = Gated()
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat() as chat:
            if before:
                await chat.say(before)
            saying = asyncio.ensure_future(chat.say("slow"))
            await model.has_begun.wait()
            reading = asyncio.ensure_future(read(chat))
            model.go.set()
            text, found = await reading
            assert (text, found) == ("Done.", await saying)

    run(talk())


def test_a_conversation_without_any_reply_repeats_that_its_turn_was_aborted(tmp_path: Path):
    async def talk():
        model = Gated()
        async with OSRuntime.open(tmp_path, model=model) as rt, rt.chat() as chat:
            saying = asyncio.ensure_future(chat.say("slow"))
            await model.has_begun.wait()
            chat.abort()
            aborted = await saying
            assert (aborted.text, aborted.status) == ("", "aborted")
            assert [item async for item in chat.stream()] == [aborted]

    run(talk())


@pytest.mark.parametrize("before", [[], ["hello"]])
@pytest.mark.parametrize("answer", ["", "no JSON"])
def test_a_stream_without_a_message_repeats_a_turn_without_a_usable_answer(tmp_path: Path, before: list, answer: str):
    async def talk():
        async with OSRuntime.open(tmp_path, model=Useless(answer)) as rt:
            async with rt.chat(run_id="c") as chat:
                *_, failed = [await chat.say(message) for message in [*before, "be useless"]]
                assert failed.status == "unanswered"
                assert await read(chat) == (failed.text, failed)
            async with rt.chat(run_id="c") as chat:
                assert await read(chat) == (failed.text, failed)

    run(talk())


def test_to_resume_or_open_a_conversation_that_this_process_executes_changes_nothing(tmp_path: Path):
    async def talk():
        async with OSRuntime.open(tmp_path, model=Agent()) as rt:
            async with rt.chat() as chat:
                await chat.say("first")
            async with rt.chat(run_id=chat.run_id) as chat:
                chat.resume()
                await chat.open()
                assert (await chat.say("second")).text == "You said: second"
                chat.resume()
                await chat.open()
                assert (await chat.say("third")).text == "You said: third"
            assert not rt.services.journal.is_claimed(chat.run_id)

    run(talk())


def test_a_conversation_that_was_left_is_not_continued_before_it_is_opened(tmp_path: Path):
    async def talk():
        async with OSRuntime.open(tmp_path, model=Agent()) as rt:
            chat = rt.chat()
            async with chat:
                pass
            async with chat:
                await chat.say("first")
            for message in (None, "second"):
                with pytest.raises(ConversationInvalid):
                    await read(chat, message)
            assert not rt.services.journal.is_claimed(chat.run_id)

    run(talk())


# -- what is yielded ----------------------------------------------------------------------------------


def test_a_stream_yields_only_its_own_turn_and_each_text_once(tmp_path: Path):
    async def talk():
        async with OSRuntime.open(tmp_path, model=Streaming()) as rt, rt.chat() as chat:
            await chat.say("first")
            assert (await read(chat, "second"))[0] == "You said: second"
            async with aclosing(chat.stream("third")) as stream:
                await anext(stream)
            assert (await read(chat, "fourth"))[0] == "You said: fourth"

    run(talk())


def test_a_background_run_that_goes_on_between_two_pieces_does_not_repeat_the_text(tmp_path: Path):
    progress = SkillProgressed("r", "report", "work", 1)

    class Interleaved(Agent):
        async def complete(self, request):
            answer = await super().complete(request)
            middle = answer.text.index("said")
            request.on_delta(answer.text[:middle])
            chat.publish(progress)
            request.on_delta(answer.text[middle:])
            return answer

    async def talk():
        nonlocal chat
        async with OSRuntime.open(tmp_path, model=Interleaved()) as rt, rt.chat() as chat:
            *items, _ = [item async for item in chat.stream("hello")]
            assert items == [ReplyDelta("You "), progress, ReplyDelta("said: hello")]

    chat: Conversation
    run(talk())


def test_the_items_of_a_conversation_that_is_opened_again_are_those_from_then_on(tmp_path: Path):
    async def talk():
        async with OSRuntime.open(tmp_path, model=Agent()) as rt:
            chat = rt.chat()
            async with chat:
                await chat.say("first")
            async with chat:
                await chat.say("second")
            items = [item async for item in chat.items()]
            assert [type(item) for item in items] == [MessageReceived, Reply]
            assert items[0] == MessageReceived("second")
            assert [item async for item in chat.items()] == []

    run(talk())


def test_without_a_reader_only_the_newest_items_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(unread, "MAX_UNREAD", 3)

    async def talk():
        async with OSRuntime.open(tmp_path, model=Agent()) as rt, rt.chat() as chat:
            for text in ("first", "second", "third"):
                await chat.say(text)
            await chat.close()
            items = [item async for item in chat.items()]
            assert [item.text for item in items] == ["You said: second", "third", "You said: third"]

    run(talk())


def test_a_slow_reader_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(unread, "MAX_UNREAD", 3)

    async def talk():
        async with OSRuntime.open(tmp_path, model=Agent()) as rt, rt.chat() as chat:
            await chat.say("first")
            reader = chat.items()
            seen: list[ChatItem] = [await anext(reader)]
            for text in ("second", "third", "fourth"):
                await chat.say(text)
            await chat.close()
            seen += [item async for item in reader]
            assert [item.text for item in seen if isinstance(item, MessageReceived)] == [
                "first",
                "second",
                "third",
                "fourth",
            ]

    run(talk())
