"""Whether to act, and which act: what a model answers to an input, beside its answers to messages without content."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.models import ModelRequest
from reyn.models.acting import (
    _TENS,
    _UNITS,
    DECIDE,
    WITHOUT_ACTS,
    Act,
    ActPrompt,
    act_messages,
    act_probability,
    act_prompt,
    acts_of,
    argument_prompts,
    best_act,
    gains,
    is_new,
)
from reyn.models.message_parts import wish
from reyn.models.protocol import Candidate, PerformedOp, Turn
from reyn.ops.file.op import FileOp
from reyn.vocabulary import OpForm, OpSpec

ACTS = tuple(Act(name, {"kind": name}, f"Do {name}", "text.\n") for name in ("find", "send"))
BIASES = [[0.9, 0.0005, 0.005], [0.95, 0.001, 0.002]]
"""A model that hardly ever acts, and that prefers `send`."""
PROBABILITY = st.floats(1e-6, 1.0)


def prompt_of(*acts: Act, may_decide: bool = True, text: str = "text") -> ActPrompt:
    return ActPrompt("task", text, acts, may_decide, {}, "")


def choose(
    prompt: ActPrompt, own: list[float], biases: list[list[float]], similarities: tuple[float, ...] = (0.5, 0.5)
) -> tuple[str, float]:
    found = gains(own, biases)
    probability = act_probability(prompt, found)
    return best_act(prompt, found, similarities).label if probability > 0.5 else "", probability


@pytest.mark.parametrize(
    ("own", "label"),
    [
        ([0.9, 0.001, 0.004], ""),
        ([0.7, 0.01, 0.02], ""),
        ([0.8, 0.1, 0.1], "find"),
        ([0.5, 0.001, 0.499], "send"),
        ([0.9, 0.0, 0.0], ""),
    ],
)
def test_a_model_acts_if_an_act_is_much_likelier_than_after_messages_without_content(own: list[float], label: str):
    chosen, probability = choose(prompt_of(*ACTS), own, BIASES)
    assert chosen == label
    assert 0 <= probability <= 1


def test_the_act_whose_text_is_about_the_same_as_the_input_is_likelier():
    own = [0.1, 0.4, 0.5]
    assert choose(prompt_of(*ACTS), own, BIASES)[0] == "find"
    assert choose(prompt_of(*ACTS), own, BIASES, (0.5, 0.6))[0] == "send"


def test_a_model_that_has_to_act_takes_the_act_that_gains_most():
    assert choose(prompt_of(*ACTS, may_decide=False), [0.1, 0.9], [[0.01, 0.99]]) == ("find", 1.0)


@given(
    st.lists(PROBABILITY, min_size=3, max_size=3),
    st.lists(st.lists(PROBABILITY, min_size=3, max_size=3), min_size=1, max_size=4),
    st.lists(st.floats(0.1, 10.0), min_size=3, max_size=3),
)
def test_neither_the_order_of_acts_nor_what_the_model_prefers_always_counts(
    own: list[float], biases: list[list[float]], preferred: list[float]
):
    """`preferred` is how much likelier the model makes each answer, whatever the message is."""

    def prefer(row: list[float]) -> list[float]:
        return [one * factor for one, factor in zip(row, preferred, strict=True)]

    found = gains(own, biases)
    swapped = gains([own[0], *own[:0:-1]], [[row[0], *row[:0:-1]] for row in biases])
    weighted = gains(prefer(own), [prefer(row) for row in biases])
    assert [swapped[0], *swapped[:0:-1]] == pytest.approx(found)
    assert weighted == pytest.approx(found, abs=1e-6)
    assert act_probability(prompt_of(*ACTS), found) == pytest.approx(act_probability(prompt_of(*ACTS), swapped))


def test_each_option_has_examples_with_its_name():
    messages = prompt_of(*ACTS).examples
    pairs = [(said.text, answer.text) for said, answer in zip(messages[1::2], messages[2::2], strict=True)]
    assert (messages[0].role, messages[0].text) == ("system", "task")
    assert pairs[:4] == [
        (WITHOUT_ACTS[0], '{"choice": "answer"}'),
        ("Do find", '{"choice": "find"}'),
        (WITHOUT_ACTS[1], '{"choice": "answer"}'),
        ("Do send", '{"choice": "send"}'),
    ]
    assert [text for text, answer in pairs if DECIDE in answer] == list(WITHOUT_ACTS)
    assert len(prompt_of(*ACTS, may_decide=False).examples) == 5


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        (("mcp:shop/find", "ask_user"), ("answer", "find", "ask_user")),
        (("mcp:shop/find", "mcp:store/find"), ("answer", "use mcp:shop/find", "use mcp:store/find")),
        (("answer", "find"), ("answer", "use answer", "find")),
    ],
)
def test_the_names_of_all_options_differ(labels: tuple[str, ...], names: tuple[str, ...]):
    assert prompt_of(*(Act(label, {"kind": label}, "") for label in labels)).names == names


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Put this into Danish: The lamp is red.", "Put this into Danish: …"),
        ("How do I say 'The lamp is red' in Danish?", "How do I say '…' in Danish?"),
        ('What does "Lampen er rød" mean?', "What does '…' mean?"),
        ("What does “Lampen er rød” mean?", "What does '…' mean?"),
        ("Save this to notes/a.md: Cups.\nAnd plates: six.", "Save this to notes/a.md: …"),
    ],
)
def test_a_text_that_a_message_hands_over_is_no_part_of_its_wish(text: str, expected: str):
    assert wish(text) == expected


@given(st.text("aeioulmnrst ,.:?!0123456789äøß", min_size=1).filter(lambda text: text.strip(" :")))
def test_messages_that_differ_in_the_text_that_they_hand_over_have_one_wish(text: str):
    assert wish(f"Please shorten this: {text.strip(' :')}") == "Please shorten this: …"
    assert wish(f"Please shorten '{text:x<6}' for me.") == "Please shorten '…' for me."


@pytest.mark.parametrize(
    "text",
    [
        "The lamp doesn't work, and Ada's chair isn't here.",
        "Call me at 12:30.",
        "Read https://lamps.example/red and answer.",
        "notes/a.md: what is in it?",
        "question: Is it red?\nknown: It is dark.",
        "What is 'red'?",
        "Two things: a lamp, and a chair.",
    ],
)
def test_a_message_that_hands_over_no_text_is_its_wish(text: str):
    assert wish(text) == text


def test_the_arguments_of_an_act_are_asked_for_with_what_its_op_says_about_them():
    write = next(act for act in acts_of((FileOp.spec,), "") if act.fixed["op"] == "write")
    request = ModelRequest((), {}, "run", "1.1", "", task="Write the greeting.", turn=Turn("Hello Ada.", ""))
    system, said = act_messages(request, prompt_of(write), write)
    assert system.text.endswith(f"{write.fields}{FileOp.spec.advice}\n")
    assert said.text == "text"


def test_what_an_op_says_about_arguments_that_are_listed_is_not_repeated():
    args = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    schema = {"properties": {"kind": {"const": "mcp:shop/find"}, "args": args}, "required": ["kind", "args"]}
    spec = OpSpec(
        "mcp:shop/find", "Find", "pure", forms=(OpForm(None, "Find", schema, "pure", {}, {}),), advice="args: x."
    )
    [act] = acts_of((spec,), "")
    assert (act.fields, act.advice) == ("args: x (integer).\n", "")


BOOK = Act("run_skill book_a_room", {"kind": "run_skill", "skill": "book_a_room"}, "Book a room", "input: people.\n")
END = Candidate("end", "finish", "note", {}, "when done")


def asked_for(text: str, *done: PerformedOp, task: str = "", exits: tuple[Candidate, ...] = (END,)) -> ModelRequest:
    turn = Turn(text, "", done)
    return ModelRequest((), {}, "run", "1.1", "", task=task, turn=turn, candidates=exits)


def call(text: str, *, task: str = "", **fields: object) -> bool:
    act, request = BOOK, asked_for(text, task=task)
    answer = {"reason": "", "ops": [act.fixed | {"input": fields}]}
    return is_new(msgspec.json.encode(answer).decode(), request, act, text)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("Please, a table for six.", {"people": 6}),
        ("Twenty-five of us come on Monday.", {"people": 25, "day": "Monday"}),
        ("It may cost 1,200 euros.", {"most": 1200}),
        ("It may cost 1.200,50 euros.", {"most": 1200.5}),
        ("No more than 12.50.", {"most": 12.5}),
        ("Look into notes/may.md.", {"path": "notes/may.md"}),
        ("A dozen chairs.", {"number": "12"}),
        ("Just a room.", {}),
    ],
)
def test_names_and_numbers_that_were_said_are_not_invented(text: str, fields: dict[str, object]):
    assert call(text, **fields)
    assert call("Do it.", task=text, **fields)


@pytest.mark.parametrize(
    "fields", [{"people": 7}, {"people": 0}, {"path": "notes/june.md"}, {"at": "https://x.example"}]
)
def test_names_and_numbers_that_nobody_said_are_invented(fields: dict[str, object]):
    assert not call("Please, a table for six, or twenty.", **fields)


@given(st.integers(0, 99))
def test_a_number_in_words_is_the_number_in_digits(number: int):
    units, tens = _UNITS.split(), _TENS.split()
    word = units[number] if number < 20 else tens[number // 10 - 2] + (f"-{units[number % 10]}" if number % 10 else "")
    assert call(f"There are {word} of us.", people=number)


# -- after an act ---------------------------------------------------------------------------------------


def deed(kind: str = "find", result: str = "{}", *, is_ok: bool = True, **fields: object) -> PerformedOp:
    return PerformedOp({"kind": kind, **fields}, result, is_ok)


def is_further(left: str, act: Act, *done: PerformedOp, exits: tuple[Candidate, ...] = (END,), **fields: str) -> bool:
    answer = {"reason": "", "ops": [act.fixed | fields]}
    request = asked_for("Find the kettle. Send it to Ada and Joel.", *done, exits=exits)
    return is_new(msgspec.json.encode(answer).decode(), request, act, left)


def test_an_op_that_succeeded_has_to_take_something_else_from_what_is_left():
    find, send = ACTS
    assert not is_further("Send it to Joel.", send, deed("send", to="Ada"), to="Ada")
    assert not is_further("Send it to Joel.", send, deed("send", to="Ada"), to="the lamp")
    assert not is_further("Send it to Joel.", send, deed("send", to="Ada"), to="it")
    assert is_further("Send it to Joel.", send, deed("send", to="Ada"), to="Joel")
    assert is_further("Send it.", send, deed("find", what="kettle"), to="Ada")
    assert find.fixed != send.fixed


@pytest.mark.parametrize("is_ok", [True, False])
def test_the_same_arguments_are_no_work_that_is_left(is_ok: bool):
    assert not is_further("", ACTS[1], deed("send", to="Ada", is_ok=is_ok), exits=(), to="Ada")
    assert is_further("", ACTS[1], deed("send", to="Ada", is_ok=is_ok), exits=(), to="x/9")


def prompts(text: str, *done: PerformedOp, exits: tuple[Candidate, ...] = (END,)) -> list[str]:
    prompt = ActPrompt("task", text, ACTS, bool(exits), {}, "\n\n# Done so far\nfind Ada")
    return [asked.text + asked.done for asked in argument_prompts(asked_for(text, *done, exits=exits), prompt)]


def test_arguments_that_are_not_new_are_asked_for_without_those_that_the_model_has_copied():
    first = "Send it to Joel.\n\n# Done so far\nfind Ada"
    assert prompts("Send it to Joel.", deed("send", to="Ada")) == [first, "Send it to Joel."]
    assert len(prompts("Send it to Joel.")) == 1
    assert len(prompts("Send it again please.", deed("send", to="Ada"))) == 1


@pytest.mark.parametrize("exits", [(), (END,)])
def test_the_prompt_says_why_an_act_was_not_possible(exits: tuple[Candidate, ...]):
    refused = deed("send", '{"status": "denied", "error": "Ada is away"}', is_ok=False, to="Ada")
    [_, second] = prompts("Send it again please.", refused, exits=exits)
    assert second.endswith('# Not possible; use other arguments\n{"status": "denied", "error": "Ada is away"}')


def spec_of(kind: str) -> OpSpec:
    fields = {"properties": {"kind": {"const": kind}, "to": {"type": "string"}}, "required": ["kind", "to"]}
    return OpSpec(kind, f"Do {kind}", "pure", forms=(OpForm(None, f"Do {kind}", fields, "pure", {}, {}),))


@pytest.mark.parametrize(
    ("done", "labels"),
    [
        ((), ("find", "send")),
        ((deed("find", is_ok=False, to="x"),), ("send",)),
        ((deed("find", is_ok=False, to="x"), deed("send", is_ok=False, to="y")), ("find", "send")),
    ],
)
def test_of_work_that_must_be_done_what_was_refused_is_no_option_while_there_are_others(
    done: tuple[PerformedOp, ...], labels: tuple[str, ...]
):
    request = msgspec.structs.replace(asked_for("Do it.", *done, exits=()), ops=(spec_of("find"), spec_of("send")))
    prompt = act_prompt(request)
    assert prompt is not None
    assert prompt.labels == labels
    free = act_prompt(msgspec.structs.replace(request, candidates=(END,)))
    assert free is not None
    assert free.labels == ("find", "send")


def test_after_an_act_the_rest_is_compared_as_a_whole_and_then_by_its_parts():
    text = "Find the kettle. Send Ada a letter. Write to Joel: It is here."
    request = msgspec.structs.replace(asked_for(text, deed(what="kettle")), ops=(spec_of("find"), spec_of("send")))
    prompt = act_prompt(request)
    assert prompt is not None
    assert prompt.text == "Send Ada a letter. Write to Joel: It is here."
    assert prompt.wishes == ("Send Ada a letter. Write to Joel: …", "Send Ada a letter.", "Write to Joel: …")
