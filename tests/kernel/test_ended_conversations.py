"""What stays of a conversation that has ended or stopped, however it did: turns in its copies, messages not taken."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from reyn import OSRuntime
from reyn.errors import ModelUnavailable, RunNotResumable
from reyn.functions import tool
from reyn.journal import MemoryJournal, Say
from reyn.models import ModelAnswer, ToolCall
from tests.support import abort, act, finish, go, question, write_skill

STEP = "run_op: {op: {kind: file, op: read, path: 'workspace:none'}}"
POST = f"postprocessor:\n  output_schema: note\n  steps:\n    - {STEP}\n"
GRAPH = {"chat": ["chat", "end"]}
LONGER = {"chat": ["chat", "file", "end"], "file": ["post", "chat", "end"], "post": ["end"]}


class Clerk:
    """Answers with the items of a list, in the form that it is asked for; a callable item is called first."""

    name = "clerk"

    def __init__(self, form: str, *answers: Any) -> None:
        self.answer_form = form
        self.answers = list(answers)
        self.requests: list[Any] = []

    async def complete(self, request: Any) -> ModelAnswer:
        self.requests.append(request)
        answer = self.answers.pop(0)
        answer = answer() if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        if self.answer_form == "tools" and "control_ir" in answer and "control" not in answer:
            ops = [dict(op) for op in answer["control_ir"]]
            calls = [ToolCall(f"id-{at}", op.pop("kind"), json.dumps(op)) for at, op in enumerate(ops)]
            return ModelAnswer("", tool_calls=tuple(calls))
        return ModelAnswer(json.dumps(answer))


class Desk:
    """A conversation `desk` with an unsafe tool `sign`, which can end; its first turn is over."""

    def __init__(
        self,
        root: Path,
        form: str,
        *,
        graph: dict[str, list[str]] = GRAPH,
        skill_keys: str = "",
        journal: MemoryJournal | None = None,
        **settings: Any,
    ) -> None:
        self.signed: list[str] = []

        @tool(effect="unsafe", permission=None)
        def sign(paper: str) -> str:
            """Sign a paper."""
            self.signed.append(paper)
            return f"signed {paper}"

        write_skill(
            root,
            "desk",
            graph,
            inputs={"chat": "user_message" if graph is GRAPH else "user_message | note"},
            phase_keys={"chat": "conversation: true\n"},
            ops=dict.fromkeys(graph, "sign, ask_user"),
            skill_keys=skill_keys,
        )
        self.model = Clerk(form)
        ports: Any = {"model": self.model, "journal": journal or MemoryJournal(), "ops": [sign]}
        self.rt = OSRuntime.open(root, trust=True, **ports, **settings)

    async def talk(self, run: str, *texts: str, answers: list[Any]) -> Any:
        """Say texts to a run, then let it continue."""
        self.model.answers = answers
        for text in texts:
            self.rt.conversations.say(run, text)
        return await self.rt.resume(run)

    async def begin(self) -> None:
        self.model.answers = [go("chat", "welcome")]
        assert (await self.rt.run("desk", "hello", run_id="k")).status == "waiting"

    def texts(self) -> list[str]:
        """The last prompt, without its system message."""
        return [f"{message.role}: {message.text}" for message in list(self.model.requests[-1].messages)[1:]]


def cancel_during(desk: Desk) -> Callable[[], Any]:
    def answer() -> Any:
        desk.rt.cancel("k", "enough")
        return go("chat", "too late")

    return answer


ENDS: dict[str, tuple[str, list[Any]]] = {
    "finish": ("finished", [finish("the reply")]),
    "abort": ("aborted", [abort("no more")]),
    "outage": ("failed", [ModelUnavailable("down")]),
    "rejected": ("waiting", [{}, {}, {}]),
    "question": ("waiting", [act(question("which one?"))]),
    "reply": ("waiting", [go("chat", "the reply")]),
    "cancelled": ("cancelled", [cancel_during]),
    "limit": ("limited", []),
}


@pytest.mark.parametrize("form", ["full", "tools"])
@pytest.mark.parametrize("end", [*ENDS, "postprocessor"])
def test_a_copy_has_everything_that_was_completed_whatever_ended_the_conversation(tmp_path: Path, end: str, form: str):
    status, last = ENDS.get(end, ("failed", [finish("the reply")]))

    async def scenario() -> None:
        settings = {"max_act_turns": 1, "limits": {"on_limit": "stop"}} if end == "limit" else {}
        desk = Desk(tmp_path, form, skill_keys=POST if end == "postprocessor" else "", **settings)
        async with desk.rt as rt:
            await desk.begin()
            answers = [cancel_during(desk) if answer is cancel_during else answer for answer in last]
            result = await desk.talk("k", "sign it", answers=[act({"kind": "sign", "paper": "deed"}), *answers])
            assert result.status == status
            copy = rt.conversations.copy("k")
            await desk.talk(copy, "and?", answers=[go("chat", "in the copy")])
            seen = "\n".join(desk.texts())
            assert [desk.texts()[0], desk.texts()[-1]] == ["user: hello", "user: and?"]
            for part in ("welcome", "sign it", "signed deed", *(["the reply"] if "the reply" in str(last) else [])):
                assert seen.count(part) == 1, (part, seen)
            assert desk.signed == ["deed"]
            assert (await desk.talk(copy, "bye", answers=[finish("end of the copy")])).status in ("finished", "failed")
            assert (await rt.runs.replay(copy)).events == rt.runs.verify(copy).events

    asyncio.run(scenario())


LATER: dict[str, tuple[str, list[Any]]] = {
    "finish": ("finished", [finish("filed")]),
    "abort": ("aborted", [abort("no more")]),
    "rejected": ("failed", [{}, {}, {}]),
    "outage": ("failed", [ModelUnavailable("down")]),
    "question": ("waiting", [act(question("which one?"))]),
    "cancelled": ("cancelled", [cancel_during]),
    "next phase": ("finished", [go("post"), act({"kind": "sign", "paper": "letter"}), finish("posted")]),
    "next phase fails": ("failed", [go("post"), ModelUnavailable("down")]),
}


@pytest.mark.parametrize("form", ["full", "tools"])
@pytest.mark.parametrize("end", LATER)
def test_a_copy_does_not_go_on_to_the_phases_that_the_run_visited_after_the_conversation(
    tmp_path: Path, end: str, form: str
):
    status, last = LATER[end]

    async def scenario() -> None:
        desk = Desk(tmp_path, form, graph=LONGER)
        async with desk.rt as rt:
            await desk.begin()
            rt.conversations.remember("k", "the ink is blue")
            answers = [cancel_during(desk) if answer is cancel_during else answer for answer in last]
            before = [act({"kind": "sign", "paper": "deed"}), go("file", "please file")]
            later = [act({"kind": "sign", "paper": "copy"}), *answers]
            assert (await desk.talk("k", "sign it", answers=[*before, *later])).status == status
            signed = [*desk.signed]
            copy = rt.conversations.copy("k")
            result = await desk.talk(copy, "and?", answers=[go("chat", "in the copy")])
            assert (result.status, result.reason, result.warnings) == ("waiting", "in the copy", ())
            seen = "\n".join(desk.texts())
            assert [desk.texts()[0], desk.texts()[-1]] == ["user: hello", "user: and?"]
            for part in ("welcome", "sign it", "signed deed", "please file"):
                assert seen.count(part) == 1, (part, seen)
            assert "the ink is blue" in desk.model.requests[-1].messages[0].text
            assert desk.signed == signed
            # The conversation of the copy can go there, and come back.
            back = [go("file", "file it now"), go("chat", "filed"), go("chat", "done")]
            assert (await desk.talk(copy, "go on", answers=back)).reason == "done"
            again = rt.conversations.copy(copy)
            assert (await desk.talk(again, "more", answers=[go("chat", "more done")])).reason == "more done"
            assert desk.signed == signed
            assert (await rt.runs.replay(copy)).events == rt.runs.verify(copy).events

    asyncio.run(scenario())


def say_during(desk: Desk, then: Callable[[], Any] | None = None, answer: Any = None) -> Callable[[], Any]:
    """An answer of the model before which something is said."""

    def reply() -> Any:
        desk.rt.conversations.say("k", "said late")
        if then is not None:
            then()
        return answer or finish()

    return reply


@pytest.mark.parametrize("is_driven", [True, False], ids=["executed", "stopped"])
@pytest.mark.parametrize("end", ["finish", "abort", "cancel"])
def test_what_was_said_to_a_conversation_that_ends_is_recorded_as_refused(tmp_path: Path, end: str, is_driven: bool):
    """Whether it was queued, or came while the last message was answered."""
    status = {"finish": "finished", "abort": "aborted", "cancel": "cancelled"}[end]

    async def scenario() -> None:
        desk = Desk(tmp_path, "full")
        async with desk.rt as rt:
            await desk.begin()
            said = ["said\nfirst", "said second", "said late"]
            if is_driven:
                cancel = partial(rt.cancel, "k") if end == "cancel" else None
                answer = {"finish": finish(), "abort": abort(), "cancel": act({"kind": "sign", "paper": "deed"})}[end]
                await desk.talk("k", "go", *said[:2], answers=[say_during(desk, cancel, answer)])
            else:
                question_, answer = act(question("sure?")), finish() if end == "finish" else abort()
                await desk.talk("k", "go", *said[:2], answers=[question_, answer])
                rt.conversations.say("k", said[2])
                if end == "cancel":
                    rt.cancel("k")
                else:
                    rt.answer("k", rt.runs.result("k").question.id, "yes")
                    await rt.resume("k")
            result = rt.runs.result("k")
            assert result.status == status
            refused = [event.data for event in rt.runs.events("k") if event.kind == "message_refused"]
            texts = [rt.runs.content(one["text"]).decode() for one in refused]
            assert sorted(texts) == sorted(said)
            assert sorted(result.warnings) == sorted(
                f"a message was not taken, because the run is {status}: {' '.join(text.split())}" for text in said
            )
            assert (await rt.runs.replay("k")).events == rt.runs.verify("k").events

    asyncio.run(scenario())


def test_a_message_is_refused_with_the_end_of_the_run_in_one_commit(tmp_path: Path):
    async def scenario() -> None:
        desk = Desk(tmp_path, "full")
        async with desk.rt as rt:
            await desk.begin()
            commits: list[list[str]] = []
            append = rt.services.journal.append

            def counted(run_id: str, expected: int, events: Any, *more: Any, **options: Any) -> int:
                commits.append([event.kind for event in events])
                return append(run_id, expected, events, *more, **options)

            rt.services.journal.append = counted  # type: ignore[method-assign]
            await desk.talk("k", "go", "and this", answers=[finish()])
            assert commits[-1][-2:] == ["skill_completed", "message_refused"]

    asyncio.run(scenario())


class HookedJournal(MemoryJournal):
    """Calls a function before the next message is posted."""

    before_post: Callable[[], Any] | None = None

    def post(self, *args: Any, **options: Any) -> int:
        then, self.before_post = self.before_post, None
        if then is not None:
            then()
        return super().post(*args, **options)


def test_no_message_is_lost_that_comes_while_a_run_ends(tmp_path: Path):
    async def scenario() -> None:
        journal = HookedJournal()
        desk = Desk(tmp_path, "full", journal=journal)
        async with desk.rt as rt:
            await desk.begin()
            journal.before_post = partial(rt.cancel, "k")
            with pytest.raises(RunNotResumable, match="is cancelled"):  # it ended after the check of `say`
                rt.conversations.say("k", "too late")

            def post(event: Any) -> None:
                if event.kind == "skill_completed":  # its end is durable, and the claim is still held
                    journal.post("second", Say("during the end"))

            desk.model.answers = [finish()]
            assert (await rt.run("desk", "hello", run_id="second", listener=post)).ok
            for run, text in (("k", "too late"), ("second", "during the end")):
                assert [one.rpartition(": ")[2] for one in rt.runs.result(run).warnings] == [text]

    asyncio.run(scenario())
