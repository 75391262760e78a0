"""What the model of a conversation can do with a message: reply, or run one of the skills that it is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reyn import SyncRuntime
from reyn.models import ModelAnswer
from reyn.models.acting import act_contract, act_messages, act_prompt, without_acts
from reyn.models.decoding import decoding_schema
from reyn.models.narrowing import DecodingLimits
from tests.chat.support import Agent, reply, run_skill, skills, start_skill
from tests.chat.test_conversations import agent
from tests.support import act, finish


class Asked(Agent):
    """Keeps the requests of the conversation."""

    def __init__(self, **rules: Any) -> None:
        super().__init__(**rules)
        self.requests: list[Any] = []

    async def complete(self, request):
        if request.phase == "converse":
            self.requests.append(request)
        return await super().complete(request)


class Short(Asked):
    """Is asked in the short form, as local models are."""

    answer_form = "short"


def named_skills(contract: dict[str, Any], kind: str) -> list[str]:
    """Return the skills that an answer can name."""
    [branch] = [one for one in contract["anyOf"] if one["properties"].keys() & {"ops", "control_ir"} == {
        "ops"} or one["required"] == ["control_ir"]]  # fmt: skip
    [field] = branch["properties"].keys() & {"ops", "control_ir"}
    calls = [call["properties"] for call in branch["properties"][field]["items"]["anyOf"]]
    return [call["skill"]["const"] for call in calls if call["kind"] == {"const": kind}]


@pytest.mark.parametrize("model", [Asked, Short])
def test_the_schema_of_an_answer_allows_the_listed_skills_with_their_inputs_and_no_others(tmp_path: Path, model):
    skills(tmp_path, "poster", "flyer", "secret")
    agent(tmp_path, "designer", "skills: [poster, flyer]\n")
    asked = model(hello={"reason": "r", "choice": "converse", "confidence": 1, "data": {"text": "Hi"}})
    with SyncRuntime.open(tmp_path, model=asked) as rt, rt.chat("designer") as chat:
        if model is Asked:
            chat.say("good morning")
        else:
            chat.say("hello")
    contract = asked.requests[0].contract
    assert named_skills(contract, "run_skill") == ["flyer", "poster"]
    assert named_skills(contract, "start_skill") == ["flyer", "poster"]
    assert '"text"' in json.dumps(contract)
    assert "abort" not in json.dumps(contract)


def test_a_skill_that_is_not_offered_is_rejected_with_the_names_of_those_that_are(tmp_path: Path):
    skills(tmp_path, "poster")
    agent(tmp_path, "designer", "skills: [post*]\n")
    for call in (run_skill("posters"), start_skill("unknown")):
        with SyncRuntime.open(tmp_path, model=Asked(make=call)) as rt, rt.chat("designer") as chat:
            assert "is not offered here; use 'poster'" in chat.say("make it").text
            assert not any(event.kind == "child_started" for event in rt.runs.events(chat.run_id))


def test_ops_without_a_target_are_not_offered(tmp_path: Path):
    agent(tmp_path, "alone", "skills: []\n")
    asked = Asked()
    with SyncRuntime.open(tmp_path, model=asked) as rt, rt.chat("alone") as chat:
        chat.say("hello")
    assert "run_skill" not in json.dumps(asked.requests[0].contract)
    assert "recall" in json.dumps(asked.requests[0].contract)


def test_a_skill_that_was_made_in_this_turn_can_be_run_in_it(tmp_path: Path):
    skills(tmp_path, "builder")

    class Builder(Asked):
        async def complete(self, request):
            if request.phase != "converse":
                skills(tmp_path, "fresh")
                return ModelAnswer(json.dumps(finish("built")))
            self.requests.append(request)
            calls = [run_skill("builder"), run_skill("fresh"), reply("Built and run.")]
            return ModelAnswer(json.dumps(calls[len(self.requests) - 1]))

    with SyncRuntime.open(tmp_path, model=Builder()) as rt, rt.chat() as chat:
        assert chat.say("build it and run it").text == "Built and run."
        started = [event.data["skill"] for event in rt.runs.events(chat.run_id) if event.kind == "child_started"]
        assert started == ["builder", "fresh"]
        assert rt.runs.replay(chat.run_id).status == "waiting"


# -- turns without a usable answer --------------------------------------------------------------------


class Useless(Agent):
    """Gives an answer without use as long as the message says so."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self._useless = answer if isinstance(answer, str) else json.dumps(answer)

    async def complete(self, request):
        said = [
            message.text for message in request.messages if message.role == "user" and "rejected" not in message.text
        ]
        if "useless" in said[-1]:
            return ModelAnswer(self._useless)
        return await super().complete(request)


ABORT = {
    "control": {
        "type": "abort",
        "decision": "abort",
        "next_phase": None,
        "confidence": 1,
        "reason": {"summary": "impossible"},
    }
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "answer", ["no JSON", "", run_skill("nothing"), ABORT, finish("bye", "reply"), act({"kind": "fly"})]
)
def test_a_turn_without_a_usable_answer_ends_with_a_notice_and_the_conversation_goes_on(tmp_path: Path, answer):
    with SyncRuntime.open(tmp_path, model=Useless(answer)) as rt, rt.chat(run_id="c") as chat:
        assert chat.say("hello").text == "You said: hello"
        failed = chat.say("be useless")
        assert failed.status == "unanswered"
        assert "no answer" in failed.text
        assert "rejected" in failed.text
        assert chat.say("hello again").text == "You said: hello again"
        assert rt.runs.find("c").status == "waiting"
        assert rt.runs.replay("c").status == "waiting"
        rt.runs.verify("c")


def test_the_last_attempt_offers_no_ops(tmp_path: Path):
    answers = [run_skill("nothing")] * 9

    class Stubborn(Asked):
        async def complete(self, request):
            self.requests.append(request)
            is_last = "control_ir" not in json.dumps(request.contract["anyOf"][-1]["required"])
            return ModelAnswer(json.dumps(reply("I cannot do that.") if is_last else answers.pop()))

    asked = Stubborn()
    with SyncRuntime.open(tmp_path, model=asked) as rt, rt.chat() as chat:
        assert chat.say("do it").text == "I cannot do that."
        assert rt.runs.replay(chat.run_id).status == "waiting"
    assert "run_skill" not in json.dumps(asked.requests[-1].contract)


def test_a_model_that_repeats_a_failing_op_has_to_reply(tmp_path: Path):
    read = act({"kind": "file", "op": "read", "path": "missing.txt"})

    class Repeating(Asked):
        async def complete(self, request):
            self.requests.append(request)
            can_act = "control_ir" in request.contract["anyOf"][-1]["required"]
            return ModelAnswer(json.dumps(read if can_act else reply("There is no such file.")))

    asked = Repeating()
    with SyncRuntime.open(tmp_path, model=asked) as rt, rt.chat() as chat:
        assert chat.say("read it").text == "There is no such file."
        assert rt.runs.find(chat.run_id).status == "waiting"
        assert rt.runs.replay(chat.run_id).status == "waiting"
    assert len(asked.requests) == 4


def test_the_notice_is_part_of_the_recorded_messages(tmp_path: Path):
    from reyn.chat.services.snapshot_journal import read_messages

    with SyncRuntime.open(tmp_path, model=Useless("no JSON")) as rt, rt.chat(run_id="c") as chat:
        said = chat.say("be useless").text
        messages = read_messages(rt.runs.events("c"), rt.runs.content)
    assert [message.text for message in messages] == ["be useless", said]


# -- models that choose first -------------------------------------------------------------------------

SHORT_REPLY = {"reason": "r", "choice": "converse", "confidence": 1, "data": {"text": "Hi"}}


def test_a_model_that_chooses_first_chooses_between_a_reply_and_each_skill(tmp_path: Path):
    skills(tmp_path, "poster", "converse")
    agent(tmp_path, "designer", "skills: [poster, converse]\n")
    asked = Short(hello=SHORT_REPLY)
    with SyncRuntime.open(tmp_path, model=asked) as rt, rt.chat("designer") as chat:
        chat.say("hello")
        assert rt.runs.replay(chat.run_id).status == "waiting"
    [request] = asked.requests
    prompt = act_prompt(request)
    assert [act.label for act in prompt.acts if "skill" in act.fixed] == ["run_skill converse", "run_skill poster"]
    assert [act.label for act in prompt.acts if "skill" not in act.fixed] == ["file", "remember", "forget", "recall"]
    assert [form.label for form in prompt.within(prompt.acts[2]).acts][:2] == ["file read", "file write"]
    assert prompt.names[:3] == ("answer", "converse", "poster")
    assert prompt.may_decide
    assert prompt.text == "hello"
    decision = without_acts(request)
    assert "run_skill" not in decision.messages[0].text
    assert decision.messages[1:] == request.messages[1:]
    system, said = act_messages(request, prompt, prompt.acts[1])
    assert system.text.startswith("Make a poster.\n\nTake the input of poster from the message.\ninput: text (text")
    assert said.text == "hello"


def test_a_model_that_chooses_first_replies_after_an_op(tmp_path: Path):
    skills(tmp_path, "poster")
    call = {"reason": "r", "ops": [{"kind": "run_skill", "skill": "poster", "input": {"text": "x"}}]}

    class Acting(Short):
        async def complete(self, request):
            if request.phase != "converse":
                return ModelAnswer(json.dumps({"reason": "r", "choice": "end", "confidence": 1, "data": {"text": "x"}}))
            self.requests.append(request)
            return ModelAnswer(json.dumps(call if len(self.requests) == 1 else SHORT_REPLY))

    asked = Acting()
    with SyncRuntime.open(tmp_path, model=asked) as rt, rt.chat() as chat:
        assert chat.say("make a poster").text == "Hi"
        assert rt.runs.replay(chat.run_id).status == "waiting"
    first, second = (act_prompt(request) for request in asked.requests)
    assert first is not None
    assert second is None


def test_a_model_chooses_among_the_skills_that_match_the_message_best(tmp_path: Path):
    skills(tmp_path, *(f"thing_{number}" for number in range(40)), "poster")
    asked = Short(poster=SHORT_REPLY)
    with SyncRuntime.open(tmp_path, model=asked) as rt, rt.chat() as chat:
        chat.say("make a poster")
    names = [act.fixed["skill"] for act in act_prompt(asked.requests[0]).acts if "skill" in act.fixed]
    assert "poster" in names
    assert len(names) == 12


@pytest.mark.parametrize("number", [12, 29])
def test_a_skill_among_many_is_found_by_its_hints(tmp_path: Path, number: int):
    names = [f"thing_{one:02}" for one in range(30)]
    skills(tmp_path, *names)
    [skill] = tmp_path.glob(f"**/{names[number]}/skill.md")
    skill.write_text(skill.read_text().replace("description:", "search_hints: [placard]\ndescription:", 1))
    asked = Short(placard=SHORT_REPLY)
    with SyncRuntime.open(tmp_path, model=asked) as rt, rt.chat() as chat:
        chat.say("a placard, please")
    assert names[number] in [act.fixed.get("skill") for act in act_prompt(asked.requests[0]).acts]


def test_a_choice_that_stands_for_an_op_allows_this_op_alone(tmp_path: Path):
    skills(tmp_path, "poster", "flyer")
    asked = Short(hello=SHORT_REPLY)
    with SyncRuntime.open(tmp_path, model=asked) as rt, rt.chat() as chat:
        chat.say("hello")
    request = asked.requests[0]
    flyer = next(act for act in act_prompt(request).acts if act.fixed.get("skill") == "flyer")
    schema = decoding_schema(act_contract(request, flyer), DecodingLimits(is_small=True))
    [branch] = schema["anyOf"]
    ops = branch["properties"]["ops"]
    assert (ops["minItems"], ops["maxItems"]) == (1, 1)
    [call] = ops["items"]["anyOf"]
    assert call["properties"]["skill"] == {"const": "flyer"}
    assert list(call["properties"]["input"]["properties"]) == ["text"]


def test_a_conversation_that_was_asked_in_one_form_continues_in_another(tmp_path: Path):
    skills(tmp_path, "poster")
    asked = Short(hello=SHORT_REPLY)
    with SyncRuntime.open(tmp_path, model=asked) as rt, rt.chat(run_id="c") as chat:
        chat.say("hello")
        assert "run_skill" in {act.fixed["kind"] for act in act_prompt(asked.requests[0]).acts}
    with SyncRuntime.open(tmp_path, model=Agent()) as rt, rt.chat(run_id="c") as chat:
        assert chat.say("hello").text == "You said: hello"
