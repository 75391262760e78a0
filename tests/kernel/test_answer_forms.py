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
        usage = Usage(1500, 20, 0)
        prompt = choice_prompt(request)
        return ModelAnswer(reply.text, usage, choice_probability=0.75, asked=prompt.asked if prompt else None)


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


def as_pairs(messages: Any) -> list[tuple[str, str]]:
    return [(message.role, message.text) for message in messages]


def test_both_prompts_of_a_decision_in_two_steps_are_recorded_and_shown_as_they_were_sent(tmp_path: Path):
    graph = {"write": {"check": "the text needs a review", "end": "the text is short"}, "check": ["end"]}
    write_skill(tmp_path, "s", graph)
    model = ChoosingModel([{"no": "answer"}, GO, END])
    with SyncRuntime.open(tmp_path, model=model, journal=MemoryJournal()) as rt:
        run = rt.run("s", {"text": "in"}).run_id
        rejected, accepted, _ = model.seen
        frames = [event.seq for event in rt.runs.events(run) if event.kind == "frame_built"]
        for request, seq in zip((rejected, accepted), frames, strict=False):
            *messages, answer = rt.runs.prompt_at(run, seq)
            chosen = [(role.removeprefix("choice:"), text) for role, text in messages if role.startswith("choice:")]
            named = [(role.removeprefix("topic:"), text) for role, text in messages if role.startswith("topic:")]
            decided = messages[len(chosen) + len(named) :]
            prompt = choice_prompt(request)
            assert chosen == as_pairs(prompt.messages)
            assert named == [("choices", "\n".join(prompt.topic_texts))]
            assert prompt.topic == request.messages[0].text
            assert decided == as_pairs(prompt.answer_messages(request))
            assert answer[0] == "answer"
        assert chosen[0] == ("system", "Do what write does.")
        assert chosen[1:] == [
            ("user", "the text needs a review"),
            ("assistant", '{"choice": "check"}'),
            ("user", "the text is short"),
            ("assistant", '{"choice": "end"}'),
            ("user", "in"),
        ]
        assert named[0] == ("choices", "check: the text needs a review\nend: the text is short")
        assert decided[1] == ("user", "in")
        assert len(decided) == 4
        assert [section.name for section in rt.runs.prompt_sections(run, frames[0])] == ["choice", "system", "input"]
        assert list(rt.runs.context_frame(run, frames[0]).messages) == rt.runs.prompt_at(run, frames[0])[:-1]
        assert [role for role, _ in rt.runs.prompt_at(run)] == ["system", "user", "answer"]  # one candidate: one step
        assert rt.runs.replay(run).events == rt.runs.verify(run).events


def test_a_model_that_answers_at_once_has_no_first_step(root: Path):
    with SyncRuntime.open(root, model=ShortModel([GO, END]), journal=MemoryJournal()) as rt:
        run = rt.run("s", {"text": "in"}).run_id
        assert not any(role.startswith("choice:") for role, _ in rt.runs.prompt_at(run))
        assert not any(one.asked for one in bodies(rt, run, "llm_responded"))


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
