"""The form in which a model is asked to answer: chosen with the frame, recorded, and kept by the model that answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from reyn import SyncRuntime
from reyn.errors import ModelTimeout
from reyn.journal import MemoryJournal, decode
from reyn.journal.kinds import Usage
from reyn.models import ModelAnswer
from reyn.models.two_step import choice_prompt
from reyn.testing import ScriptedModel
from tests.support import finish, go, write_skill

GO = {"reason": "it is ready", "choice": "check", "confidence": 0.5, "data": {"text": "on"}}
END = {"reason": "it is good", "choice": "end", "confidence": 1, "data": {"text": "done"}}


class ShortModel(ScriptedModel):
    answer_form = "short"


class MeasuredModel(ShortModel):
    async def complete(self, request: Any) -> ModelAnswer:
        reply = await super().complete(request)
        return ModelAnswer(reply.text, choice_probability=0.25)


class ChoosingModel(ShortModel):
    """A model that is asked for its choice first, where the request allows it."""

    def __init__(self, answers: list[Any], name: str = "scripted") -> None:
        super().__init__(answers, name)
        self.max_prompt_tokens: int | None = None
        self.seen: list[Any] = []

    async def complete(self, request: Any) -> ModelAnswer:
        self.seen.append(request)
        reply = await super().complete(request)
        return ModelAnswer(reply.text, Usage(1500, 20, 0), choice_probability=0.75)


class Broken:
    name = "broken"
    answer_form = "short"

    async def complete(self, request: Any) -> ModelAnswer:
        raise ModelTimeout("no answer")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_skill(tmp_path, "s", {"write": ["check"], "check": ["write", "end"]})
    return tmp_path


def bodies(rt: SyncRuntime, run: str, kind: str) -> list[Any]:
    return [decode(event) for event in rt.runs.events(run) if event.kind == kind]


def test_a_run_in_the_short_form_records_the_object_of_the_contract(root: Path):
    with SyncRuntime.open(root, model=ShortModel([GO, END]), journal=MemoryJournal()) as rt:
        result = rt.run("s", {"text": "in"})
        assert (result.status, result.artifact) == ("finished", {"type": "note", "data": {"text": "done"}})
        decisions = bodies(rt, result.run_id, "control_decided")
        assert [(one.type, one.decision, one.next_phase, one.confidence, one.reason) for one in decisions] == [
            ("transition", "continue", "check", 0.5, "it is ready"),
            ("finish", "finish", None, 1, "it is good"),
        ]
        assert [frame.form for frame in bodies(rt, result.run_id, "frame_built")] == ["short", "short"]
        assert rt.runs.replay(result.run_id).events == rt.runs.verify(result.run_id).events


def test_the_probability_of_the_choice_is_recorded_and_is_the_confidence(root: Path):
    with SyncRuntime.open(root, model=MeasuredModel([GO, END]), journal=MemoryJournal()) as rt:
        run = rt.run("s", {"text": "in"}).run_id
        assert [one.choice_probability for one in bodies(rt, run, "llm_responded")] == [0.25, 0.25]
        assert [one.confidence for one in bodies(rt, run, "control_decided")] == [0.25, 0.25]
        rt.runs.replay(run)


def test_a_request_has_what_an_adapter_needs_to_ask_for_the_choice_first(tmp_path: Path):
    graph = {"write": {"check": "the text needs a review", "end": "the text is short"}, "check": ["end"]}
    write_skill(tmp_path, "s", graph)
    model = ChoosingModel([{"no": "answer"}, GO, END])
    with SyncRuntime.open(tmp_path, model=model, journal=MemoryJournal()) as rt:
        run = rt.run("s", {"text": "in"}).run_id
        rejected, accepted, last = map(choice_prompt, model.seen)
        assert last is None  # one candidate: one step
        assert rejected == accepted
        assert [(message.role, message.text) for message in accepted.messages] == [
            ("system", "Do what write does."),
            ("user", "the text needs a review"),
            ("assistant", '{"choice": "check"}'),
            ("user", "the text is short"),
            ("assistant", '{"choice": "end"}'),
            ("user", "in"),
        ]
        assert accepted.topic == model.seen[1].messages[0].text
        assert accepted.topic_texts == ("check: the text needs a review", "end: the text is short")
        sent = [(message.role, message.text) for message in model.seen[1].messages]
        frames = [event.seq for event in rt.runs.events(run) if event.kind == "frame_built"]
        assert rt.runs.prompt_at(run, frames[1])[:-1] == sent
        assert rt.runs.replay(run).events == rt.runs.verify(run).events


def test_the_usage_of_two_steps_does_not_calibrate_the_tokens_of_a_prompt(tmp_path: Path):
    """The reported tokens are those of two prompts, so they say nothing about the counted one."""
    write_skill(tmp_path, "s", {"write": {"check": "it needs a review", "end": "it is short"}, "check": ["end"]})
    long = "word " * 400
    model = ChoosingModel([GO | {"data": {"text": long}}, END])
    model.max_prompt_tokens = 1000
    with SyncRuntime.open(tmp_path, model=model, journal=MemoryJournal()) as rt:
        run = rt.run("s", {"text": long}).run_id
        budgets = [one.budget for one in bodies(rt, run, "frame_built")]
        assert len({budget.factor for budget in budgets}) == 1  # the one of a model without a reported count


def test_another_model_answers_an_open_request_in_the_form_that_was_asked(root: Path):
    """The new model has the full form: it answers the open request in the short one, and later ones in its own."""
    journal = MemoryJournal()
    with SyncRuntime.open(root, model=Broken(), journal=journal) as rt:
        assert rt.run("s", {"text": "in"}, run_id="k").status == "failed"
    with SyncRuntime.open(root, model=ScriptedModel([GO, finish()], name="other"), journal=journal) as rt:
        assert rt.resume("k", retry=True).ok
        assert [frame.form for frame in bodies(rt, "k", "frame_built")] == ["short", "full"]
        [resumed] = bodies(rt, "k", "run_resumed")
        assert (resumed.model, resumed.answer_form) == ("other", "full")
        rt.runs.replay("k")


def test_a_fork_with_another_model_asks_in_the_form_of_that_model(root: Path):
    journal = MemoryJournal()
    with SyncRuntime.open(root, model=ScriptedModel([go("check"), finish()]), journal=journal) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
    with SyncRuntime.open(root, model=ShortModel([GO, END], name="short"), journal=journal) as rt:
        assert rt.fork("k", at=1, model="short", run_id="f").ok
        assert [frame.form for frame in bodies(rt, "f", "frame_built")] == ["short", "short"]
        assert rt.rerun("k", model="short", run_id="again").ok
        assert [frame.form for frame in bodies(rt, "again", "frame_built")] == ["short", "short"]


def test_sub_runs_are_asked_in_the_form_of_their_parent(root: Path):
    write_skill(root, "outer", {"@s": ["last"], "last": ["end"]})
    with SyncRuntime.open(root, model=ShortModel([GO, END, END]), journal=MemoryJournal()) as rt:
        run = rt.run("outer", {"text": "in"}).run_id
        [child] = [row.run_id for row in rt.runs.all() if row.parent]
        assert [frame.form for frame in bodies(rt, child, "frame_built")] == ["short", "short"]
        assert [frame.form for frame in bodies(rt, run, "frame_built")] == ["short"]


def test_recorded_answers_are_found_in_the_form_of_their_run(root: Path):
    with SyncRuntime.open(root, model=ShortModel([GO, END])) as rt:
        rt.run("s", {"text": "in"}, run_id="k")
    with SyncRuntime.open(root, model="recorded:k") as rt:
        assert rt.run("s", {"text": "in"}).ok


@pytest.mark.parametrize(("setting", "form"), [("auto", "full"), ("short", "short"), ("full", "full")])
def test_the_form_can_be_configured_per_model(root: Path, setting: str, form: str):
    (root / "a.jsonl").write_text("")
    models = {"mine": {"model": "scripted:a.jsonl", "answer_form": setting}}
    with SyncRuntime.open(root, model="mine", models=models, journal=MemoryJournal()) as rt:
        run = rt.run("s", {"text": "in"}).run_id
        assert [frame.form for frame in bodies(rt, run, "frame_built")] == [form]
