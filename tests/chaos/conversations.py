"""A conversation that is killed at random moments: two background skills that ask, and a user who says everything once.

The witnesses are outside of the run: the user notes each message before and after saying it, wrappers note the calls of
the model, the replies to questions and the changes of files.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

from reyn import ModelAnswer, ModelRequest, OSRuntime
from reyn.chat import Conversation, MessageReceived, QuestionAsked
from reyn.chat.services.snapshot_journal import RecordedMessage, read_messages
from reyn.errors import QuestionUnknown, ReynError
from reyn.journal import Say, canonical, digest
from reyn.kernel.world.inbox import InboxPolling
from reyn.testing.crash import Claims, Entry, Failpoints
from tests.chat.support import reply, start_skill
from tests.kernel.kill.scenario import USAGE, Scenario, _differences, _ledger_violations, budget_violations, tree_of
from tests.support import act, file, finish, question, write_skill

RUN = "talk"
SKILLS = ("report", "poster")
MESSAGES = ("please make a report", "and a poster", "how is it going?", "a last word")


class Clerk:
    """Starts the skill that a message names, replies to everything else. A skill edits its file, asks, and ends."""

    name = "clerk"

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        return ModelAnswer(json.dumps(self._answer(request)), usage=USAGE)

    def _answer(self, request: ModelRequest) -> dict:
        last = request.messages[-1].text
        if request.phase != "converse":
            skill = next(one for one in SKILLS if f"{one}_work" in request.phase)
            is_first = request.call.endswith("1.1")
            edit = file("edit", f"output/{skill}.txt", old_string="x", new_string="xx", replace_all=True)
            return act(edit, question(f"Which {skill}?")) if is_first else finish(f"the {skill}")
        if last.startswith("# Results"):
            return reply("It has begun.")
        for skill in SKILLS:
            if last == MESSAGES[SKILLS.index(skill)]:
                return start_skill(skill)
        return reply(f"Noted: {last[:60]}")


class KilledConversation(Scenario):
    """The conversation, its user, and the checks at the end."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.is_concurrent = True
        (self.seed / "output").mkdir()
        for name in SKILLS:
            (self.seed / f"output/{name}.txt").write_text("x x")
            phase = f"{name}_work"
            write_skill(
                self.seed,
                name,
                {phase: ["end"]},
                ops={phase: "file, ask_user"},
                inputs={phase: "user_message"},
                skill_keys=f"description: Make a {name}\n",
            )

    def _model(self) -> Clerk:
        return Clerk()

    # -- one execution --------------------------------------------------------------------------------

    async def execute(self, points: Failpoints) -> None:
        """Open the conversation or continue it, say what was not said, and stay until all is answered."""
        with self.world(points) as runtime:
            runtime.services.polling = InboxPolling(seconds=0)
            async with runtime, runtime.chat(run_id=RUN) as chat:
                listening = asyncio.ensure_future(self._listen(chat))
                self._talk(chat, runtime)
                while not self._is_done(runtime):  # noqa: ASYNC110 - what ends it is in the journal
                    await asyncio.sleep(0.002)
                await chat.close()
                await listening

    def _talk(self, chat: Conversation, runtime: OSRuntime) -> None:
        """Say each message, unless it was said before. After a kill while saying one, look whether it is there."""
        noted = {(entry.what, entry.text) for entry in self.ledger.read()}
        recorded = self._said(runtime) if runtime.runs.is_recorded(RUN) else []
        for text in MESSAGES:
            if ("said", text) in noted or text in recorded:
                continue
            self.ledger.write(Entry("saying", RUN, "", text))
            is_durable = runtime.runs.is_recorded(RUN)
            chat.post(text)
            if is_durable:
                self.ledger.write(Entry("said", RUN, "", text))

    def _said(self, runtime: OSRuntime) -> list[str]:
        """Return the messages of the user that are recorded or in the inbox."""
        state = runtime.runs.state(RUN)
        queued = [runtime.runs.content(one.text).decode() for one in state.inbox.queued if not one.run]
        drained = runtime.services.journal.drain(RUN, state.messages_taken)
        posted = [one.payload.text for one in drained if isinstance(one.payload, Say)]
        return [*(one.text for one in self._messages(runtime) if one.role == "user"), *queued, *posted]

    async def _listen(self, chat: Conversation) -> None:
        """Note which messages the agent takes, and reply to questions."""
        async for item in chat.items():
            if isinstance(item, MessageReceived) and not item.run:
                self.ledger.write(Entry("said", RUN, "", item.text))
            elif isinstance(item, QuestionAsked):
                run, wait = item.run, item.question.id
                self.ledger.write(Entry("questioned", run, wait))
                self.ledger.write(Entry("replied", run, wait, digest(canonical("this one"))))
                try:
                    chat.answer(item, "this one")
                except QuestionUnknown as error:
                    self.ledger.write(Entry("asked in vain", run, wait, error.message))

    @staticmethod
    def _messages(runtime: OSRuntime) -> list[RecordedMessage]:
        return read_messages(runtime.runs.events(RUN), runtime.runs.content)

    def _is_done(self, runtime: OSRuntime) -> bool:
        if not runtime.runs.is_recorded(RUN) or runtime.runs.find(RUN).status != "waiting":
            return False
        roles = Counter(message.role for message in self._messages(runtime))
        everything = len(MESSAGES) + len(SKILLS)
        return (roles["user"], roles["run"], roles["agent"]) == (len(MESSAGES), len(SKILLS), everything)

    # -- checks ---------------------------------------------------------------------------------------

    def check(self, kills: int, *, by_chance: bool = False) -> list[str]:
        """Return the violations. The order of reports and messages may differ from the undisturbed conversation."""
        entries = self.ledger.read()
        runtime = OSRuntime.open(self.root)
        try:
            return [
                *asyncio.run(self._record_violations(runtime)),
                *self._message_violations(self._messages(runtime), entries),
                *_ledger_violations(
                    [entry for entry in entries if entry.what not in ("saying", "said")],
                    {row.run_id: Claims.of(runtime.runs.events(row.run_id)) for row in runtime.runs.all()},
                    kills,
                ),
                *budget_violations(runtime, entries),
                *_file_violations(entries, [text for _, text in self.changes]),
                *_differences("file", self._files(self.expected.tree), self._files(tree_of(self.root))),
            ]
        except ReynError as error:
            return [f"the record is damaged: {error.code}: {error.message}"]
        finally:
            runtime.services.journal.close()

    async def _record_violations(self, runtime: OSRuntime) -> list[str]:
        rows = runtime.runs.all()
        for row in rows:
            runtime.runs.verify(row.run_id)
            await runtime.runs.replay(row.run_id)
        skills = Counter(row.skill for row in rows)
        wrong = [f"the run of `{skill}` took place {count} times" for skill, count in skills.items() if count > 1]
        wrong += [f"the run of `{skill}` was lost" for skill in SKILLS if not skills[skill]]
        return wrong + [
            f"{row.run_id} is {row.status}" for row in rows if row.run_id != RUN and row.status != "finished"
        ]

    @staticmethod
    def _message_violations(messages: list[RecordedMessage], entries: list[Entry]) -> list[str]:
        """Return messages and replies that were lost or doubled."""
        said = [message.text for message in messages if message.role == "user"]
        counts, expected = Counter(said), {*MESSAGES, *(entry.text for entry in entries if entry.what == "said")}
        wrong = [f"the message {text!r} was lost" for text in sorted(expected) if not counts[text]]
        wrong += [f"the message {text!r} took place {count} times" for text, count in counts.items() if count > 1]
        if sorted(said, key=[*MESSAGES, *said].index) != said:
            wrong.append(f"the messages are out of order: {said}")
        replies = Counter(message.number for message in messages if message.role == "agent")
        for message in messages:
            if message.role != "agent" and replies[message.number] != 1:
                count = replies[message.number]
                what = f"took place {count} times" if count else "was lost"
                wrong.append(f"the reply to message {message.number} {what}")
        reports = Counter(message.text for message in messages if message.role == "run")
        return wrong + [f"the report {text[:80]!r} took place {n} times" for text, n in reports.items() if n > 1]

    @staticmethod
    def _files(tree: dict) -> dict:
        """Return the files of the project: folders of runs are named by ids, which depend on the order of messages."""
        return {path: content for path, content in tree.items() if not path.startswith(".reyn")}


def _file_violations(entries: list[Entry], expected: list[str]) -> list[str]:
    """Return changes of files that were lost or doubled. A kill may come between a change and its line."""
    changed = Counter(entry.text for entry in entries if entry.what == "changed")
    started = {entry.text for entry in entries if entry.what == "changing"}
    return [
        *(f"the change of {text} took place {times} times" for text, times in changed.items() if times > 1),
        *(f"the change of {text} was lost: it never took place" for text in expected if text not in started),
        *(f"the change of {text} took place, but was not requested" for text in started if text not in expected),
    ]


def conversation(folder: Path) -> KilledConversation:
    """A conversation with two background skills that change files and ask, while the user goes on talking."""
    return KilledConversation(folder)
