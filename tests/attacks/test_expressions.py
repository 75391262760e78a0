"""A skill whose expressions take long or make values without end.

The attacker writes the skill, and for some attacks the data. What is counted is the work of an evaluation and the
bytes that the journal has afterwards; nothing here depends on how fast the machine is.
"""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reyn.expressions import DataTemplate, EvaluationError, Scope, SharedWork, compile_expression, values
from reyn.expressions.types import ANY, of_schema
from reyn.jsonschema import compile_schema
from tests.kernel.support import Project
from tests.kernel.test_step_expressions import VALUE, write_order
from tests.rules import CLAIM, write_rules
from tests.support import NOTE, finish, write_skill

SCOPE = Scope({"data": ANY})
TIMES_TEN = ".map(a, [a, a, a, a, a, a, a, a, a, a])"
DATA: dict[str, Any] = {
    "x": list(range(3_000)),
    "one": "a" * 900_000,
    "same": "".join(["a"] * 900_000),
    "fields": {f"k{index}": 0 for index in range(20_000)} | {"k0": 1},
    "others": {f"k{index}": 0 for index in range(20_000)} | {"k0": 2},
    "rows": [["b"] * 1_000, ["b"] * 1_000],
}


def evaluate(text: str, data: Any = None) -> Any:
    return compile_expression(text, SCOPE).evaluate({"data": DATA if data is None else data})


@pytest.mark.parametrize(
    "comparison",
    [
        "data.one == data.same",
        "data.one <= data.same",
        "data.one != data.same",
        "data.fields == data.others",
        "data.fields != data.others",
        "data.rows[0] == data.rows[1]",
        "data.one in [data.same]",
        "data.one.contains('b')",
        "data.one.startsWith('b')",
        "data.one + 'a' == data.same",
        "data.one.matches('b')",
    ],
)
def test_every_comparison_counts_what_it_compares(comparison: str):
    with pytest.raises(EvaluationError, match="takes too long"):
        evaluate(f"data.x.map(i, {comparison})")


LOOPS = (
    "data.x.all({v}, {i})",
    "data.x.exists({v}, {i})",
    "data.x.exists_one({v}, {i})",
    "size(data.x.map({v}, {i})) > 0",
)
HANDLERS = ("({i}) || {v} < 0", "({i}) && {v} >= 0", "!({i})", "{i}")


def calls_of(work: Callable[[], Any]) -> int:
    """Return how many Python functions a piece of work calls."""
    count = 0

    def profile(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    sys.setprofile(profile)
    try:
        work()
    except EvaluationError:
        pass
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("loops", [*itertools.permutations(LOOPS, 3)], ids=lambda loops: "/".join(loops)[:60])
def test_work_that_failed_in_an_inner_loop_counts_for_the_outer_one(
    loops: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(values, "MAX_UNITS_OF_WORK", 5_000)
    for handlers in itertools.product(HANDLERS, repeat=2):
        text = "c.bad"
        for loop, handler, name in zip(loops, (*handlers, "{i}"), "cba", strict=True):
            text = handler.format(v=name, i=loop.format(v=name, i=text))
        data = {"x": list(range(30))}
        assert calls_of(lambda text=text, data=data: evaluate(text, data)) < 30_000, text


@pytest.mark.parametrize("times", [7, 20])
@pytest.mark.parametrize(
    "text", ["[data.x]" + TIMES_TEN * 20, "data.x" + TIMES_TEN * 20, "[[data.fields]]" + TIMES_TEN * 20]
)
def test_a_value_that_repeats_itself_counts_each_time(text: str, times: int):
    text = text.replace(TIMES_TEN * 20, TIMES_TEN * times)
    data = {"x": ["a" * 100] * 10, "fields": {"a": 1}}
    with pytest.raises(EvaluationError, match="the result is too large"):
        DataTemplate({"here": [f"${{{text}}}"]}, SCOPE).render({"data": data})


def test_all_values_of_an_artifact_count_together():
    texts = DataTemplate([f"${{data.one}}{number}" for number in range(100)], SCOPE)
    with pytest.raises(EvaluationError, match="the result is too large"):
        texts.render({"data": DATA})


def test_what_was_in_the_data_may_be_large():
    data = {"text": "a" * 5_000_000, "list": list(range(100_000))}
    assert DataTemplate({"a": "${data.text}", "b": "${data.list}"}, SCOPE).render({"data": data}) == {
        "a": data["text"],
        "b": data["list"],
    }


# -- in runs --------------------------------------------------------------------------------------------------

BOMB = f"${{[data.note]{TIMES_TEN * 7}}}"


def bytes_of(project: Project) -> int:
    return sum(len(event.raw) for row in project.journal.runs() for event in project.journal.read(row.run_id))


def test_the_artifact_of_a_rule_is_bounded(tmp_path: Path):
    rules = f'    - {{else: end, artifact: {{type: note, data: {{text: x, extra: "{BOMB}"}}}}}}\n'
    artifacts = {
        "note": NOTE | {"properties": {**NOTE["properties"], "extra": True}},
        "claim": CLAIM | {"required": ["amount", "kind", "note"]},
    }
    write_rules(tmp_path, rules, artifacts=artifacts)
    project = Project(tmp_path)
    ended = project.run("claims", [], {"amount": 1, "kind": "food", "note": "n"})
    assert ended.status == "failed"
    assert "the result is too large" in ended.reason
    assert bytes_of(project) < 100_000


def test_the_arguments_of_a_step_are_bounded(tmp_path: Path):
    write_skill(tmp_path, "taker", {"work": ["end"]}, artifacts={"note": {"type": "object"}})
    step = f'run_skill: {{skill: taker, input: {{text: "{BOMB}"}}}}'
    write_order(tmp_path, step.replace("data.note", "data.id"))
    project = Project(tmp_path)
    ended = project.run("order", [finish()], VALUE)
    assert ended.status == "failed"
    assert "the result is too large" in ended.reason
    assert bytes_of(project) < 100_000


HEAVY = "data.names.exists(a, data.names.exists(b, a + b == 'x'))"
"""Does less than one evaluation may, and finds nothing."""
COUNT = 12
NAMES = {"type": "array", "items": {"type": "string"}}
THING = {"type": "object", "properties": {"text": {"type": "string"}, "names": NAMES}, "required": ["text", "names"]}


def write_heavy(root: Path, graph: Any = None, steps: list[Any] | None = None, keys: str = "") -> None:
    """Write a skill `heavy`, whose phase `work` has steps, or edges or rules of its own."""
    edges: dict[str, Any] = {"work": ["end"] if graph is None else graph}
    edges |= {name: ["end"] for name in graph} if isinstance(graph, dict) else {}
    front = f"preprocessor: {json.dumps(steps)}\n" if steps else ""
    folder = write_skill(
        root, "heavy", edges, inputs=dict.fromkeys(edges, "thing"), artifacts={"thing": THING}, final_output="thing",
        phase_keys={"work": front}, skill_keys=keys,
    )  # fmt: skip
    if isinstance(graph, list):
        (folder / "phases/work.md").write_text("---\ntype: phase\nname: work\ninput: thing\n---\n")


CONDITIONS = [{"expression": f"!({HEAVY})"}] * COUNT
EDGES = {f"n{number}": {"text": f"case {number}", "when": f"!({HEAVY})"} for number in range(COUNT)}
READ = {"run_op": {"op": {"kind": "file", "op": "read", "path": f"${{{HEAVY}}}"}, "on_error": "empty"}}


def making(**data: Any) -> list[Any]:
    return [{"else": "end", "artifact": {"type": "thing", "data": {"text": "x", "names": []} | data}}]


BESIDE: dict[str, Callable[[Path], None]] = {
    "rules": lambda root: write_heavy(root, [*[{"when": HEAVY, "to": "end"}] * COUNT, {"else": "end"}]),
    "a text": lambda root: write_heavy(root, making(text=f"${{{HEAVY}}}" * COUNT)),
    "texts": lambda root: write_heavy(root, making(names=[f"is ${{{HEAVY}}}"] * COUNT)),
    "edges": lambda root: write_heavy(root, EDGES),
    "steps": lambda root: write_heavy(root, steps=CONDITIONS),
    "ops": lambda root: write_heavy(root, steps=[READ] * COUNT),
    "iteration": lambda root: write_heavy(root, steps=[{"iterate": {"over": "data.names", "apply": READ}}]),
    "checks": lambda root: write_heavy(root, keys=f"nodes: {json.dumps({'work': {'check': CONDITIONS}})}\n"),
}


@pytest.mark.parametrize("case", BESIDE)
def test_expressions_that_nothing_interrupts_share_their_work(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Each of them takes less than one may: together they could hold up a process for an hour."""
    BESIDE[case](tmp_path)
    value = {"text": "x", "names": list("abcdefghijkl")}
    project = Project(tmp_path)
    work: list[int] = []

    def spend(self: Any, run: Any, values: Any) -> Any:
        before = self._left
        try:
            return evaluate(self, run, values)
        finally:
            work.append(before - self._left)

    evaluate = SharedWork.evaluate
    monkeypatch.setattr(SharedWork, "evaluate", spend)
    monkeypatch.setattr(values, "MAX_UNITS_OF_WORK", 1_000)
    monkeypatch.setattr(values, "UNITS_TOGETHER", 5_000)
    ended = project.run("heavy", [finish(type="thing") | {"artifact": {"type": "thing", "data": value}}] * 3, value)
    assert ended.status == "failed", ended.reason
    assert "too long together" in ended.reason
    assert max(work) <= 1_000
    assert 4_000 < sum(work) <= 5_000


CHECKS: dict[str, tuple[Any, Any]] = {
    "alternatives that fail": ({"items": {"anyOf": [{"const": f"-{n}"} for n in range(60)]}}, list("abcdefgh")),
    "lists without duplicates": ({"uniqueItems": True}, [f"{n}" for n in range(2_000)]),
    "alternatives that fit": ({"items": {"anyOf": [{"const": f"{n}"} for n in range(60)]}}, ["59"] * 2_000),
    "patterns": ({"items": {"pattern": "(a|b|ab){1,50}c"}}, ["ab" * 20 + "c"]),
}


@pytest.mark.parametrize("kind", CHECKS)
def test_checks_of_schemas_that_nothing_interrupts_share_their_work(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    schema, names = CHECKS[kind]
    step = {"validate": {"schema": schema, "target": "data.names", "into": "local.found"}}
    write_heavy(tmp_path, steps=[step] * 40)
    share = compile_schema(schema).share(names, int("fail" in kind))
    assert 0 < share < 1
    project = Project(tmp_path)
    value = {"text": "x", "names": names}
    answers = [finish(type="thing") | {"artifact": {"type": "thing", "data": value}}] * 5
    one = int(share * values.MAX_UNITS_OF_WORK)
    for allowed in (39, 40):
        monkeypatch.setattr(values, "UNITS_TOGETHER", allowed * one)
        ended = project.run("heavy", answers, value, run_id=f"r{allowed}")
        assert ended.status == ("finished" if allowed == 40 else "failed"), ended.reason
        assert ("take too long together" in ended.reason) == (allowed == 39)


# -- checking -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "data.a in [{all}] && data.a in [{all}]",
        "!(data.a in [{all}]) && data.a in [{all}]",
        "data.a in [{all}] || data.a in [{all}] || data.a in [{few}]",
        "data.b in [{all}] && data.a in [{all}]",
    ],
)
def test_a_check_of_an_expression_compares_each_constant_once(text: str):
    """Every call compares a bounded number of constants, so their number is what a check takes."""
    schema = {"type": "object", "properties": {"a": True, "b": {"enum": list(range(150))}}, "required": ["a", "b"]}
    scope = Scope({"data": of_schema(schema)})
    counts = []
    for size in (100, 400):
        constants = ",".join(map(str, range(size)))
        written = text.format(all=constants, few="1,2")
        counts.append(calls_of(lambda written=written: compile_expression(written, scope)))
    assert counts[1] < 8 * counts[0]
