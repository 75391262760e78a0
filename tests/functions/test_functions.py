"""`@llm_function`: a call is a run, the value comes back typed, and what is wrong is rejected or reported."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
from pathlib import Path
from typing import Any, Literal

import pydantic
import pytest

from reyn import SyncRuntime, llm_chat, llm_function, tool
from reyn.errors import (
    CallImpossible,
    CallStopped,
    FunctionInvalid,
    InputInvalid,
    ReturnInvalid,
    RunIdTaken,
    TemplateInvalid,
    UpgradeIncompatible,
)
from reyn.functions import ambient, use_runtime
from reyn.journal.sqlite import SqliteJournal
from reyn.runtime import OSRuntime
from tests.functions.support import Answers, async_runtime, finish, kinds, sync_runtime, value


@dataclasses.dataclass
class City:
    """A city."""

    name: str
    people: int


class Even(pydantic.BaseModel):
    number: int

    @pydantic.field_validator("number")
    @classmethod
    def is_even(cls, number: int) -> int:
        if number % 2:
            raise ValueError("the number must be even")
        return number


@llm_function
def describe(name: str, detail: Literal["short", "long"] = "short") -> City:
    """Describe the city. An example of JSON: {"name": "Oslo"} and {braces} and {0}."""
    raise AssertionError("the body is never executed")


@llm_function
def length(text: str) -> int:
    """Count the characters."""


@llm_function
async def sum_of(numbers: list[int]) -> int:
    """Add the numbers."""


@llm_function
def even(seed: int) -> Even:
    """Return an even number."""


def test_a_call_returns_the_typed_value_and_is_a_run(tmp_path: Path):
    with sync_runtime(tmp_path, finish({"name": "Oslo", "people": 700_000.0})) as rt, use_runtime(rt):
        result = describe.run("Oslo")
        assert result.value == City("Oslo", 700_000)
        [row] = rt.runs.all()
        assert (row.run_id, row.skill, row.status) == (result.run_id, "describe", "finished")
        assert rt.runs.replay(result.run_id).events == len(kinds(rt, result.run_id))
        rt.runs.verify(result.run_id)


def test_the_docstring_is_the_instruction_and_its_braces_are_text(tmp_path: Path):
    with sync_runtime(tmp_path, finish({"name": "Oslo", "people": 1})) as rt, use_runtime(rt):
        describe(detail="long", name="Oslo")
        prompt = rt.runs.prompt_at(rt.runs.all()[0].run_id)
        assert 'An example of JSON: {"name": "Oslo"} and {braces} and {0}.' in prompt[0][1]
        assert prompt[1][1].startswith("name: Oslo\ndetail: long")


def test_a_wrong_answer_is_asked_for_again(tmp_path: Path):
    answers = (value("many"), value(3))
    with sync_runtime(tmp_path, *answers) as rt, use_runtime(rt):
        result = length.run("abc")
        assert result.value == 3
        assert kinds(rt, result.run_id).count("validation_error") == 1


def test_fields_are_required_at_every_depth(tmp_path: Path):
    @llm_function
    def cities(text: str) -> list[City]:
        """List the cities."""

    answers = (value([{"name": "Oslo"}]), value([{"name": "Oslo", "people": 1}]))
    with sync_runtime(tmp_path, *answers) as rt, use_runtime(rt):
        assert cities("Oslo") == [City("Oslo", 1)]


def test_a_value_that_python_code_refuses_is_asked_for_again_and_replays_without_that_code(tmp_path: Path):
    journal = SqliteJournal(tmp_path / ".reyn")
    with SyncRuntime.open(tmp_path, model=Answers(finish({"number": 3}), finish({"number": 4})), journal=journal) as rt:
        with use_runtime(rt):
            result = even.run(1)
        assert result.value == Even(number=4)
        [error] = [event.data for event in rt.runs.events(result.run_id) if event.kind == "validation_error"]
        assert (error["class"], error["path"]) == ("value", "$.artifact.data.number")
        assert "the number must be even" in rt.runs.prompt_at(result.run_id)[-2][1]
        assert rt.runs.replay(result.run_id).events == len(kinds(rt, result.run_id))


def test_values_that_python_code_always_refuses_fail_the_call(tmp_path: Path):
    with sync_runtime(tmp_path, finish({"number": 3})) as rt, use_runtime(rt):
        with pytest.raises(CallStopped, match="the number must be even") as caught:
            even(1)
        assert caught.value.status == "failed"
        assert caught.value.action is not None


def test_a_run_that_is_resumed_without_its_function_says_that_the_output_was_not_checked(tmp_path: Path):
    class Interrupting(Answers):
        async def complete(self, request):
            if not self.requests:
                self.requests.append(request)
                raise asyncio.CancelledError
            return await super().complete(request)

    model = Interrupting(finish({"number": 3}))
    with sync_runtime(tmp_path) as rt, use_runtime(rt):
        with pytest.raises(asyncio.CancelledError):
            rt.derive(model=model).run(even.skill, {"seed": 1}, run_id="k")
        result = rt.derive(model=model).resume("k")
        assert result.ok
        assert any("not checked" in warning for warning in result.warnings)
        with pytest.raises(ReturnInvalid, match="the number must be even"):
            even.resume("k")


def test_a_function_continues_its_own_interrupted_run(tmp_path: Path):
    class Interrupting(Answers):
        is_interrupted = False

        async def complete(self, request):
            if not self.is_interrupted:
                self.is_interrupted = True
                raise asyncio.CancelledError
            return await super().complete(request)

    with sync_runtime(tmp_path) as rt:
        model = Interrupting(finish({"number": 3}), finish({"number": 8}))
        bound = llm_function(llm_interface=model, runtime=rt)(even.__wrapped__)
        with pytest.raises(asyncio.CancelledError):
            bound.options(run_id="k").run(5)
        assert bound.options(run_id="k")(5) == Even(number=8)
        assert bound.resume("k").value == Even(number=8)
        with pytest.raises(RunIdTaken, match="different input"):
            bound.options(run_id="k")(6)


@pytest.mark.parametrize("status", ["aborted", "failed"])
def test_a_call_without_a_value_names_the_run_and_its_status(tmp_path: Path, status: str):
    abort = {
        "control": {
            "type": "abort",
            "decision": "abort",
            "next_phase": None,
            "confidence": 1,
            "reason": {"summary": "no city"},
        }
    }
    answer = abort if status == "aborted" else "nothing"
    with sync_runtime(tmp_path, answer) as rt, use_runtime(rt):
        with pytest.raises(CallStopped) as caught:
            length("x")
        [row] = rt.runs.all()
        assert (caught.value.run_id, caught.value.status) == (row.run_id, status)
        assert caught.value.as_json()["run_id"] == row.run_id


def test_arguments_are_recorded_in_the_order_of_the_parameters_however_they_are_passed():
    @llm_function
    def ordered(first: str, second: int = 2, *, third: str = "c") -> str:
        """Repeat."""

    signature = ordered.definition.signature
    whole = {"first": "a", "second": 2, "third": "c"}
    assert signature.bind(("a",), {}) == whole
    assert list(signature.bind((), {"third": "c", "first": "a"}).items()) == list(whole.items())
    assert signature.bind(("a", 2), {}) == whole
    with pytest.raises(TypeError, match="too many positional"):
        signature.bind(("a", 2, "c"), {})
    assert describe.definition.signature.bind(("Oslo", "long"), {}) == {"name": "Oslo", "detail": "long"}


def test_arguments_that_do_not_fit_start_no_run(tmp_path: Path):
    with sync_runtime(tmp_path, value(1)) as rt, use_runtime(rt):
        with pytest.raises(TypeError):
            length()
        with pytest.raises(TypeError):
            length("a", "b")
        with pytest.raises(InputInvalid, match=r"data\.text"):
            length(5)
        with pytest.raises(InputInvalid, match="the argument `text` has no JSON form"):
            length(object())
        with pytest.raises(InputInvalid, match="nan is not JSON"):
            length.options()({"a": float("nan")})
        with pytest.raises(InputInvalid):
            length("\ud800")
        assert rt.runs.all() == []


def test_an_argument_of_ten_megabytes_is_recorded_once_and_truncated_in_the_prompt(tmp_path: Path):
    text = "word " * 2_000_000
    with sync_runtime(tmp_path, value(3)) as rt, use_runtime(rt):
        result = length.run(text)
        assert "content_truncated" in kinds(rt, result.run_id)
        assert len(rt.runs.prompt_at(result.run_id)[1][1]) < 100_000


def test_the_arguments_may_be_called_type_and_data(tmp_path: Path):
    @llm_function
    def odd_names(type: str, data: dict[str, int]) -> str:
        """Join them."""

    with sync_runtime(tmp_path, value("ok")) as rt, use_runtime(rt):
        assert odd_names("a", {"b": 1}) == "ok"


# -- templates ------------------------------------------------------------------------------------------------


@llm_function(template_params={"tone": "plain", "topic": "cities"})
def write(text: str) -> str:
    """Write about {topic} in a {tone} tone. Literal: {"tone": "x"}, {other}, {{tone}}."""


def test_template_parameters_are_filled_and_other_braces_are_text(tmp_path: Path):
    with sync_runtime(tmp_path, value("ok")) as rt, use_runtime(rt):
        write.options(template_params={"tone": "dry {topic}"})("x")
        system = rt.runs.prompt_at(rt.runs.all()[0].run_id)[0][1]
    assert 'Write about cities in a dry {topic} tone. Literal: {"tone": "x"}, {other}, {dry {topic}}.' in system


def test_a_template_parameter_without_a_value_is_an_error():
    @llm_function(template_params=["tone"])
    def greet(name: str) -> str:
        """Greet in a {tone} tone."""

    with pytest.raises(TemplateInvalid, match="`tone` has no value"):
        _ = greet.skill
    assert "friendly" in greet.options(template_params={"tone": "friendly"}).skill.phases["greet"].instructions
    with pytest.raises(TemplateInvalid, match="no template parameter `colour`; declared: `tone`"):
        _ = greet.options(template_params={"colour": "red"}).skill
    with pytest.raises(TemplateInvalid, match="no template parameter `x`; declared: none"):
        _ = length.options(template_params={"x": 1}).skill


def test_a_declared_template_parameter_must_be_in_the_docstring():
    with pytest.raises(TemplateInvalid, match=r"does not contain `\{tone\}`"):

        @llm_function(template_params=["tone"])
        def greet(name: str) -> str:
            """Greet."""


# -- definitions ----------------------------------------------------------------------------------------------


def test_what_cannot_be_a_function_is_refused_when_it_is_defined():
    with pytest.raises(FunctionInvalid, match="has no docstring"):

        @llm_function
        def silent(x: int) -> int: ...

    with pytest.raises(FunctionInvalid, match="has no return type"):

        @llm_function
        def endless(x: int):
            """Do."""

    with pytest.raises(FunctionInvalid, match=r"takes any number of arguments"):

        @llm_function
        def variadic(*numbers: int) -> int:
            """Add."""

    options: Any
    for options in ({"max_act_turns": -1}, {"max_act_turns": "2"}, {"max_retries": -1}, {"toolkit": None}):
        with pytest.raises(FunctionInvalid, match=f"`{next(iter(options))}` is "):

            @llm_function(**options)
            def configured(x: int) -> int:
                """Do."""

    with pytest.raises(FunctionInvalid, match="which is no tool"):

        @llm_function(toolkit=[print])
        def armed(x: int) -> int:
            """Do."""

    with pytest.raises(FunctionInvalid, match="return type: the type `complex` has no JSON form"):

        @llm_function
        def opaque(x: int) -> complex:
            """Do."""


class Desk:
    def method(self, x: int) -> int:
        """Do."""

    @staticmethod
    def helper(x: int) -> int:
        """Do."""


@pytest.mark.parametrize("decorator", [llm_function, llm_chat])
def test_methods_and_other_things_are_refused_with_what_they_are(decorator: Any):
    for wrong, words in (
        (Desk.method, "cannot decorate the method `Desk.method`"),
        (classmethod(Desk.method), "applied to a classmethod"),
        (staticmethod(Desk.helper), "applied to a staticmethod"),
        (functools.partial(Desk.helper, 1), "not a partial"),
        (Desk, "not a type"),
        (5, "not a int"),
    ):
        with pytest.raises(FunctionInvalid, match=words):
            decorator(wrong)


@pytest.mark.parametrize(
    "options",
    [
        {"template_params": 5},
        {"template_params": [5]},
        {"llm_interface": 5},
        {"llm_interface": ""},
        {"llm_interface": Answers},
        {"include_must_principles": "yes"},
    ],
)
@pytest.mark.parametrize("decorator", [llm_function, llm_chat])
def test_an_argument_of_another_type_is_refused_when_the_function_is_defined(decorator: Any, options: dict):
    with pytest.raises(FunctionInvalid, match=f"`{next(iter(options))}` (is|has) "):

        @decorator(**options)
        def configured(x: str) -> str:
            """Do."""


@pytest.mark.parametrize(
    "options", [{"run_id": 5}, {"run_id": "a b"}, {"template_params": 5}, {"listener": 5}, {"on_delta": "x"}]
)
def test_an_option_of_another_type_is_refused_when_it_is_set(options: dict):
    for decorated in (length, sum_of):
        with pytest.raises(CallImpossible, match=f"`{next(iter(options))}` is ") as found:
            decorated.options(**options)
        assert found.value.code == "RYN165"


def test_the_advice_of_tools_and_the_rule_about_calls_follow_the_docstring(tmp_path: Path):
    @tool(best_practices=["Search before you answer.", "Use short words."])
    def search(text: str) -> str:
        """Search."""

    @tool(best_practices="Look only\nonce.")
    def look(text: str) -> str:
        """Look."""

    model = Answers(value(1))
    with sync_runtime(tmp_path) as rt:

        @llm_function(
            runtime=rt, llm_interface=model, toolkit=[search, look, tool(Desk.helper)], include_must_principles=True
        )
        def answer(x: int) -> int:
            """Answer."""

        assert answer(1) == 1
        told = model.prompt()
        assert told.index("Answer.") < told.index(
            "# Tools\n- look: Look only once.\n- search: Search before you answer.\n"
        )
        assert "Call a tool through the tool call interface." in told
        assert "- helper:" not in told
        [row] = rt.runs.all()
        assert rt.runs.replay(row.run_id).events == len(kinds(rt, row.run_id))


def test_two_tools_of_one_name_are_refused():
    def one(x: int) -> int:
        """Do."""

    with pytest.raises(FunctionInvalid, match="two tools with the name `one`"):

        @llm_function(toolkit=[tool(one), tool(one)])
        def armed(x: int) -> int:
            """Do."""


def test_an_annotation_may_name_a_type_that_is_defined_later(tmp_path: Path):
    namespace: dict = {"__name__": __name__}
    source = (
        "from __future__ import annotations\n"
        "from reyn import llm_function\n"
        "from typing import TypedDict\n"
        "@llm_function\n"
        "def make(name: str) -> Later:\n"
        "    'Make one.'\n"
    )
    exec(source, namespace)
    with pytest.raises(FunctionInvalid, match="'Later' is not defined"):
        _ = namespace["make"].skill
    exec("class Later(TypedDict):\n    name: str\n", namespace)
    with sync_runtime(tmp_path, finish({"name": "x"})) as rt, use_runtime(rt):
        assert namespace["make"]("x") == {"name": "x"}


@pytest.mark.parametrize("name", ["end", "abort", "_private", "yes"])
def test_a_function_may_have_a_name_that_no_phase_has(tmp_path: Path, name: str):
    def made(text: str) -> str:
        """Answer."""

    made.__name__ = name
    with sync_runtime(tmp_path, value("ok")) as rt, use_runtime(rt):
        assert llm_function(made)("x") == "ok"


# -- models and runtimes --------------------------------------------------------------------------------------


def test_a_model_may_be_an_object_or_a_name(tmp_path: Path):
    (tmp_path / "answers.jsonl").write_text(json.dumps(value(2)) + "\n")
    with sync_runtime(tmp_path, value(1)) as rt, use_runtime(rt):
        assert llm_function(llm_interface=Answers(value(3)))(length.__wrapped__)("x") == 3
        assert length("x") == 1
    with SyncRuntime.open(tmp_path, model="scripted:missing.jsonl") as rt, use_runtime(rt):
        assert llm_function(llm_interface="scripted:answers.jsonl")(length.__wrapped__)("x") == 2


def test_a_runtime_of_the_wrong_kind_is_refused(tmp_path: Path):
    with sync_runtime(tmp_path) as rt:
        with pytest.raises(FunctionInvalid, match="`runtime` is a SyncRuntime"):
            llm_function(runtime=rt)(sum_of.__wrapped__)
        with pytest.raises(FunctionInvalid, match="`runtime` is a OSRuntime"):
            llm_function(runtime=rt.async_form)(length.__wrapped__)
        with use_runtime(rt.async_form), pytest.raises(CallImpossible, match="must be a `SyncRuntime`"):
            length("x")


def test_without_a_runtime_the_project_around_the_current_folder_is_used(tmp_path: Path, monkeypatch):
    (tmp_path / "reyn.yaml").write_text("model: scripted:answers.jsonl\n")
    (tmp_path / "answers.jsonl").write_text(json.dumps(value(6)) + "\n")
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    monkeypatch.chdir(below)
    try:
        assert length("x") == 6
        assert asyncio.run(sum_of([1])) == 6
        with SyncRuntime.open(tmp_path) as rt:
            assert sorted(row.skill for row in rt.runs.all()) == ["length", "sum_of"]
    finally:
        ambient.close()


def test_a_plain_function_works_where_an_event_loop_is_running(tmp_path: Path, monkeypatch):
    (tmp_path / "reyn.yaml").write_text("model: scripted:answers.jsonl\n")
    (tmp_path / "answers.jsonl").write_text(json.dumps(value(6)) + "\n")
    monkeypatch.chdir(tmp_path)

    async def notebook() -> int:
        return length("x") + length("y")

    try:
        assert asyncio.run(notebook()) == 12
    finally:
        ambient.close()
    with sync_runtime(tmp_path, value(1)) as rt, use_runtime(rt):
        assert asyncio.run(notebook()) == 2


def test_the_runtime_of_an_event_loop_is_closed_with_the_loop(tmp_path: Path, monkeypatch):
    closed = []
    original = OSRuntime.aclose

    async def aclose(self):
        closed.append(self.project.root)
        await original(self)

    monkeypatch.setattr(OSRuntime, "aclose", aclose)
    (tmp_path / "reyn.yaml").write_text("model: scripted:answers.jsonl\n")
    (tmp_path / "answers.jsonl").write_text(json.dumps(value(6)) + "\n")
    monkeypatch.chdir(tmp_path)
    assert asyncio.run(sum_of([1])) == 6
    assert closed == [tmp_path.resolve()]


@pytest.mark.slow
def test_a_thousand_concurrent_calls_share_commits(tmp_path: Path):
    commits = []

    class Counting(SqliteJournal):
        def append_many(self, batches):
            commits.append(len(batches))
            return super().append_many(batches)

    async def main() -> list[int]:
        options = {"model": Answers(value(4)), "journal": Counting(tmp_path / ".reyn")}
        async with OSRuntime.open(tmp_path, **options) as rt:
            with use_runtime(rt):
                return await asyncio.gather(*(sum_of([number]) for number in range(1000)))

    assert asyncio.run(main()) == [4] * 1000
    assert sum(commits) == 2000  # each call commits its intent, and its outcome
    assert len(commits) <= 100


def test_calls_are_independent_of_each_other(tmp_path: Path):
    class Echo(Answers):
        async def complete(self, request):
            await asyncio.sleep(0)
            self._answers = (value(sum(request.input["data"]["numbers"])),)
            return await super().complete(request)

    async def main() -> list[int]:
        async with async_runtime(tmp_path) as rt:
            bound = llm_function(llm_interface=Echo(), runtime=rt)(sum_of.__wrapped__)
            return await asyncio.gather(*(bound([number, 1]) for number in range(20)))

    assert asyncio.run(main()) == [number + 1 for number in range(20)]


def test_a_function_is_not_upgraded_to_a_skill_of_the_same_name(tmp_path: Path):
    from tests.support import write_skill

    write_skill(tmp_path, "length", {"turn": ["end"]})
    with sync_runtime(tmp_path, value(1)) as rt, use_runtime(rt):
        run = length.run("x").run_id
        with pytest.raises(UpgradeIncompatible, match="is the Python function"):
            rt.rerun(run, upgrade=True)
        assert rt.rerun(run).ok


def test_a_run_of_a_function_can_be_forked_exported_and_imported(tmp_path: Path):
    with sync_runtime(tmp_path, value(1)) as rt, use_runtime(rt):
        run = length.run("x").run_id
        fork = rt.fork(run, at=1)
        assert fork.ok
        lines = list(rt.runs.export(run))
    with sync_runtime(tmp_path / "..", value(2)) as other:
        other.runs.import_(lines)
        assert other.runs.replay(run).events
        assert other.rerun(run, run_id="again").artifact["data"] == {"value": 2}
