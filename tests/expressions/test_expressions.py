"""The syntax of expressions, what the check finds, and evaluation."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn.expressions import (
    EvaluationError,
    ExpressionInvalid,
    Facts,
    Problem,
    Scope,
    compile_expression,
    compile_template,
    place,
    readings,
)
from reyn.expressions.types import SIZE, object_of, of_schema
from tests.properties import examples

CLAIM = {
    "type": "object",
    "properties": {
        "amount": {"type": "number", "minimum": 0},
        "kind": {"enum": ["food", "travel"]},
        "count": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "note": {"type": ["string", "null"]},
        "by": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        "limit": {"type": "number"},
        "parts": {"type": "array", "items": {"$ref": "#/$defs/part"}},
    },
    "required": ["amount", "kind", "count", "tags", "note", "by", "parts"],
    "$defs": {
        "part": {
            "type": "object",
            "properties": {"price": {"type": "number"}, "tax": {"type": "number"}},
            "required": ["price"],
        }
    },
}
NOTE = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
SCOPE = Scope(
    {"visits": object_of({"revise": SIZE, "pay": SIZE})},
    (("claim", of_schema(CLAIM)),),
)
EITHER = Scope({}, (("claim", of_schema(CLAIM)), ("note", of_schema(NOTE))))
DATA: dict[str, Any] = {
    "amount": 3,
    "kind": "food",
    "count": 3,
    "tags": ["urgent", "ä"],
    "note": None,
    "by": {"name": "Ada"},
    "parts": [{"price": 1}, {"price": 2.5}],
}


def problems(text: str, scope: Scope = SCOPE) -> list[str]:
    try:
        return [f"{one.at}: {one.message}" for one in compile_expression(text, scope).problems]
    except ExpressionInvalid as error:
        return [f"{one.at}: {one.message}" for one in error.problems]


def evaluate(text: str, data: Any = DATA, **values: Any) -> Any:
    scope = Scope({**SCOPE.variables, **{name: of_schema(True) for name in values}}, SCOPE.artifacts)
    expression = compile_expression(text, scope)
    assert not expression.problems
    return expression.evaluate({"type": "claim", "data": data, "visits": {"revise": 1, "pay": 0}, **values})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("data.amount * 2.0", 6.0),
        ("data.amount / 2.0", 1.5),
        ("data.count / 2", 1),
        ("-7 / 2", -3),
        ("-7 % 3", -1),
        ("data.count == data.amount", True),
        ("data.amount >= 3", True),
        ("size('äö😀')", 3),
        ("'b' > 'a'", True),
        ("data['kind'] + '!'", "food!"),
        ("data.tags.exists(t, t == 'urgent') && !data.tags.all(t, t == 'urgent')", True),
        ("data.tags.exists_one(t, t.startsWith('u'))", True),
        ("data.parts.map(p, p.price)", [1.0, 2.5]),
        ("data.parts.filter(p, p.price > 2).map(p, p.price * 2.0)", [5.0]),
        ("data.parts.map(p, p.price > 2, p.price)", [2.5]),
        ("data.by.all(key, key == 'name')", True),
        ("'name' in data.by && 'urgent' in data.tags", True),
        ("has(data.limit) ? data.limit : data.amount", 3.0),
        ("data.note == null ? 'none' : data.note", "none"),
        ("visits.revise < 2 || visits.pay > 0", True),
        ("int('12') + int(2.9) + int(-1.9)", 13),
        ("string(data.amount) + string(1.5) + string(true)", "31.5true"),
        ("double('1e3')", 1000.0),
        (r"'it\'s \u00e4' + r'\d'", r"it's ä\d"),
        ("data.by.name.matches('^[A-Z][a-z]+$')", True),
        ("0x10 + 1", 17),
        ("[1, 2] + [3]", [1, 2, 3]),
        ("type", "claim"),
        ("data.kind in ['food', 'rent'] && data.count in [1, 2, 3]", True),
        ("2 in [1.0, 2.0]", True),
        ("open.a.b[1] == 2 && open.a.b[0] == 'x'", True),
    ],
)
def test_values(text: str, value: Any) -> None:
    found = evaluate(text, open={"a": {"b": ["x", 2]}})
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data.count / (data.count - 3)", "11: division by zero"),
        ("9223372036854775807 + data.count", "20: the result of `+` has more than 64 bits"),
        ("data.amount * 1e300 * 1e300", "20: the result of `*` is too large"),
        ("data.tags[5]", "11: the list has 2 items, and none at the integer 5"),
        ("open.missing", "5: `open` has no field `missing`"),
        ("open.a > 1", "7: `>` cannot compare the text 'x' with the integer 1"),
        ("open.a + 1", "7: `+` cannot combine the text 'x' with the integer 1"),
        ("open.a.b", "7: `open.a` is the text 'x', which has no field `b`"),
        ("open.a && true", "7: the text 'x' is not a condition"),
        ("open.a.exists(x, x)", "7: `exists` needs a list or an object, not the text 'x'"),
        ("int(open.a)", "0: the text 'x' is not an integer of 64 bits"),
        ("double(open.a)", "0: the text 'x' is not a number"),
        ("size(open.n)", "0: `size` takes a text, a list or an object, not null"),
    ],
)
def test_an_error_names_position_and_value_and_is_never_false(text: str, message: str) -> None:
    with pytest.raises(EvaluationError) as caught:
        evaluate(text, open={"a": "x", "n": None})
    assert f"{caught.value.at}: {caught.value.message}" == message


def test_one_side_decides_also_if_the_other_side_is_an_error() -> None:
    assert evaluate("open.missing == 1 || data.count == 3", open={}) is True
    assert evaluate("data.count == 4 && open.missing == 1", open={}) is False
    assert evaluate("data.tags.exists(t, t == 'ä' || t == open.missing)", open={}) is True
    with pytest.raises(EvaluationError):
        evaluate("open.missing == 1 || data.count == 4", open={})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "0: the expression ends too early"),
        ("data.count >", "12: the expression ends too early"),
        ("data.count = 3", "11: unexpected `=`"),
        ("data.count == 3 and true", "16: unexpected `and`"),
        ("data.count == 'x", "14: the text has no closing quotation mark"),
        ("data.count == 3)", "15: unexpected `)`"),
        ("$x", "0: unexpected `$`"),
        ("1x", "0: a number cannot be followed by a letter"),
        ("9223372036854775808", "0: `9223372036854775808` has more than 64 bits"),
        ("1e999", "0: `1e999` is too large"),
        ("{'a': 1}", "0: expressions have no objects"),
        ("now()", "0: unknown function `now`"),
        ("data.tags.first()", "10: unknown function `first`"),
        ("size()", "0: `size` takes one argument"),
        ("has(data)", "0: `has` takes a field"),
        ("data.in", "5: `in` cannot follow a dot"),
        (r"'\q'", r"0: unknown escape `\q`"),
        ("import", "0: `import` is a reserved word"),
        ("data.tags.exists(in, true)", "17: `in` is a keyword"),
        ("data.tags.exists(true, true)", "17: `true` is a keyword"),
        ("(" * 33 + "1" + ")" * 33, "32: the expression is nested deeper than 32 levels"),
        ("+".join(["1"] * 65), "0: the expression has more than 64 levels"),
        (f"[{','.join(['1'] * 1000)}]", "0: the expression has more than 1000 parts"),
        ("1" * 4001, "0: the expression is longer than 4000 characters"),
    ],
)
def test_texts_that_are_no_expressions(text: str, message: str) -> None:
    assert problems(text) == [message]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("data.amont > 1", "5: `data` has no field `amont`"),
        ("date.amount > 1", "0: unknown name `date`"),
        ("state.spent > 1", "0: unknown name `state`"),
        ("visits.revize > 1", "7: `visits` has no field `revize`"),
        ("data.by.name.first", "13: `data.by.name` is a text and has no field `first`"),
        ("data.limit > 1", "5: `data.limit` may be missing"),
        ("data.parts[0].tax > 1", "14: `data.parts[0].tax` may be missing"),
        ("data.parts.filter(p, true)[0].tax > 1", "30: `tax` may be missing"),
        ("has(data.lmit)", "0: `data` has no field `lmit`"),
        ("data.count == 'x'", "11: `==` compares an integer with a text, which are never equal"),
        ("data.by == null", "8: `==` compares an object with null, which are never equal"),
        ("data.tags > 1", "10: `>` compares a list with an integer, which have no order"),
        ("data.note > 'a'", "0: `data.note` can be null, which `>` does not take"),
        ("data.amount * 2 > 1", "12: `*` cannot combine a number with an integer"),
        ("data.tags + 'x'", "10: `+` cannot combine a list with a text"),
        ("1 in data.tags", "2: the value is an integer, and is never in a list of a text"),
        ("'x' in data.kind", "4: `in` needs a list or an object; `data.kind` is a text"),
        ("data.count && true", "0: `data.count` is an integer, not a condition"),
        ("!data.note", "1: `data.note` is a text or null, not a condition"),
        ("-data.kind", "0: `-` needs a number; `data.kind` is a text"),
        ("data.count.all(x, true)", "11: `all` needs a list or an object; `data.count` is an integer"),
        ("data.tags.all(data, true)", "10: `data` is already a name"),
        ("size(data.count)", "0: `size` takes a text or a list or an object, not an integer"),
        ("data.kind.matches('(')", '18: invalid pattern: `pattern`: "(" is not a "regex"'),
        ("data.kind.matches(data.kind)", "18: `matches` takes a pattern in quotation marks"),
        ("data.tags['x']", "10: `data.tags` is a list and has no field `x`"),
        ("data.tags[1.5]", "13: a list has no item at a number"),
    ],
)
def test_the_check_finds(text: str, message: str) -> None:
    assert problems(text) == [message]


@pytest.mark.parametrize(
    "text",
    [
        "has(data.limit) && data.limit > 1",
        "!has(data.limit) || data.limit > 1",
        "has(data.limit) ? data.limit > 1 : false",
        "'limit' in data && data.limit > 1",
        "data.note != null && data.note > 'a'",
        "data.note == null || data.note > 'a'",
        "data.parts.exists(p, p.price > 1)",
        "data.parts.exists(p, has(p.tax) && p.tax > 1)",
        "has(data.parts[0].tax) && data.parts[0].tax > 1",
    ],
)
def test_a_condition_before_makes_a_field_safe(text: str) -> None:
    assert problems(text) == []


def test_a_field_of_one_of_several_artifacts_needs_the_type() -> None:
    assert problems("data.text == 'x'", EITHER) == ["5: `data.text` may be missing"]
    assert problems("type == 'note' && data.text == 'x'", EITHER) == []
    assert problems("type != 'note' && data.amount > 1", EITHER) == []
    assert problems("type != 'note' && data.text == 'x'", EITHER) == ["23: `data` has no field `text`"]


@pytest.mark.parametrize(
    ("text", "results"),
    [
        ("data.amount < 0", {False}),
        ("data.amount >= 0", {True}),
        ("data.kind == 'rent'", {False}),
        ("data.kind in ['rent']", {False}),
        ("data.kind != 'rent'", {True}),
        ("type == 'claim'", {True}),
        ("data.count > 3 && data.count < 3", {False}),
        ("data.count > 3 || data.count <= 3", {True}),
        ("size(data.tags) < 0", {False}),
        ("visits.pay < 0", {False}),
        ("has(data.by)", {True}),
        ("data.kind == 'food' && data.kind == 'travel'", {False}),
        ("data.count > 3", {True, False}),
        ("data.kind == 'food'", {True, False}),
    ],
)
def test_conditions_that_always_have_the_same_result(text: str, results: set[bool]) -> None:
    checked = compile_expression(text, SCOPE).checked
    found = {truth for truth, facts in ((True, checked.if_true), (False, checked.if_false)) if facts is not None}
    assert found == results


def test_a_rule_knows_what_the_rules_before_it_exclude() -> None:
    first = compile_expression("data.amount >= 10", SCOPE).checked.if_false
    assert isinstance(first, Facts)
    assert compile_expression("data.amount > 20", SCOPE, first).checked.if_true is None
    assert compile_expression("data.amount > 5", SCOPE, first).checked.if_true is not None


def test_work_is_bounded() -> None:
    numbers = list(range(2_000))
    assert evaluate("open.filter(a, a > 5).size()", open=numbers) == 1994
    for text in ("open.map(a, open.map(b, open.map(c, c)))", "open.all(a, open == open)"):
        with pytest.raises(EvaluationError, match=r"takes too long|too large"):
            evaluate(text, open=numbers)
    with pytest.raises(EvaluationError, match="too large: more than 1,000,000 characters"):
        evaluate("open + open", open="x" * 600_000)


@pytest.mark.parametrize("text", ["^(a+)+$", "^(a|a)*$", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_patterns_do_not_backtrack(text: str) -> None:
    assert evaluate(f"open.matches('{text}')", open="a" * 50_000 + "!") is False


def test_templates() -> None:
    scope = Scope({"n": of_schema({"type": "integer"}), "l": of_schema({"type": "array"})})
    values = {"n": 7, "l": [1]}
    for text, value in {
        "plain": "plain",
        "": "",
        "${n}": 7,
        "${ n + 1 }": 8,
        "${l}": [1],
        "a-${n}.${n > 3 ? 'md' : 'txt'}": "a-7.md",
        "$${n} $5 {n}": "${n} $5 {n}",
        "${'}'}": "}",
    }.items():
        template = compile_template(text, scope)
        assert not template.problems
        assert template.evaluate(values) == value
    assert [one.message for one in compile_template("x ${l}", scope).problems] == [
        "`l` is a list, which is not part of a text"
    ]
    [missing] = compile_template("x ${o}", Scope({"o": of_schema({"type": ["string", "null"]})})).problems
    assert missing.message == "`o` is a text or null, which is not part of a text"
    assert missing.fix == "test it: `x != null ? x : '-'`"
    with pytest.raises(ExpressionInvalid, match="column 6"):
        compile_template("a ${n", scope)
    with pytest.raises(EvaluationError, match="a list with 1 item is not part of a text"):
        compile_template("x ${n}", scope).evaluate({"n": [1]})


def test_readings_are_the_values_that_a_decision_depends_on() -> None:
    texts = ("data.amount > 2 && size(data.tags) > 1", "data.parts.exists(p, p.price > data.amount)", "has(data.limit)")
    expressions = [compile_expression(text, SCOPE) for text in texts]
    assert readings(expressions, {"data": DATA}) == {
        "data.amount": 3,
        "data.tags": "a list with 2 items",
        "data.parts": "a list with 2 items",
    }


def test_place_names_the_line_only_where_there_are_several() -> None:
    assert place("a && b", 5) == "column 6"
    assert place("a &&\n  b", 7) == "line 2, column 3"


@given(st.text(max_size=60))
@examples(150)
def test_no_text_breaks_the_parser(text: str) -> None:
    found: tuple[Problem, ...] = ()
    try:
        compile_expression(text, SCOPE)
        compile_template(text, SCOPE)
    except ExpressionInvalid as error:
        found = error.problems
    assert all(0 <= one.at <= len(text) for one in found)


TOKENS = "data . amount tags ( ) [ ] && || ! == < in 1 'x' ? : , has size exists x"


@given(st.lists(st.sampled_from(TOKENS.split()), max_size=14))
@examples(150)
def test_no_tokens_break_the_check(tokens: list[str]) -> None:
    text, at = " ".join(tokens), 0
    try:
        compile_expression(text, SCOPE).evaluate({"data": DATA, "type": "claim", "visits": {}})
    except ExpressionInvalid:
        pass
    except EvaluationError as error:
        at = error.at
    assert 0 <= at <= len(text)


KEYWORDS = ["type", "properties", "items", "anyOf", "$ref", "enum", "const", "required", "minimum", "a"]
LEAVES = st.booleans() | st.sampled_from(["object", "array", "string", "#/$defs/a"])


@given(
    st.recursive(
        LEAVES,
        lambda inner: st.dictionaries(st.sampled_from(KEYWORDS), inner | st.lists(inner, max_size=3), max_size=4),
        max_leaves=12,
    )
)
@examples(80)
def test_no_schema_breaks_a_type(schema: Any) -> None:
    scope = Scope({}, (("a", of_schema(schema)),))
    assert compile_expression("has(data.a) && data.a.items.exists(x, x.a > 1) && data.type in ['a']", scope).type


_SECRETS = ["hunter2 and more", 424242, 4242.5, ["hunter2"], {"hunter2": 424242}, True, None]
_READS_SECRET = """
open.x | open > 1 | 1 + open | open && true | !open | -open | data.tags[open] | open[open] | 1 in open
open.exists(x, x) | int(open) | double(open) | size(open) | string(open) | open.contains('a') | open.matches('a')
open ? 1 : 2 | open.x.y | has(open.x.y) | data.kind.startsWith(open) | [open][data.count + 7] | [1, 2][open]
open % visits.pay
"""


@pytest.mark.parametrize("secret", _SECRETS, ids=str)
def test_the_outline_of_an_error_quotes_no_value(secret: object) -> None:
    outlines = []
    for text in _READS_SECRET.replace("\n", " | ").strip(" |").split(" | "):
        try:
            evaluate(text, open=secret)
        except EvaluationError as error:
            outlines.append(error.outline)
    assert len(outlines) > 8
    assert all(outline and "hunter2" not in outline and "4242" not in outline for outline in outlines)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1 / 0 == 1", ["2: division by zero"]),
        ("data.count % 0 == 1", ["11: division by zero"]),
        ("data.count / (1 - 1) == 1", ["11: division by zero"]),
        ("data.amount / 0.0 > 1.0", ["12: division by zero"]),
        ("true || 1 / 0 == 1", ["10: division by zero"]),
        ("data.tags.exists(one, size(one) / 0 > 1)", ["32: division by zero"]),
        ("9223372036854775807 + 1 > data.count", ["20: the result of `+` has more than 64 bits"]),
        ("1e308 * 10.0 > data.amount", ["6: the result of `*` is too large"]),
        ("int('abc') > data.count", ["0: the text 'abc' is not an integer of 64 bits"]),
        ("[1, 2][2] > data.count", ["8: the list has 2 items, and none at the integer 2"]),
        ("1 / (2 - 1) > data.count", []),
        ("data.count - 9223372036854775807 > 1", []),
    ],
)
def test_a_part_without_a_value_is_found_where_it_is(text: str, found: list[str]) -> None:
    assert problems(text) == found


def test_generated_constants_are_reported_if_and_only_if_they_have_no_value() -> None:
    rng, counts = random.Random(3), Counter[bool]()
    for _ in range(600):
        text = _constant(rng, 3)
        if "not a condition" in "".join(found := problems(text)) or any("cannot combine" in one for one in found):
            continue
        counts[bool(found)] += 1
        try:
            compile_expression(text, SCOPE).evaluate({})
        except EvaluationError:
            assert found, text
        else:
            assert not found, text
    assert min(counts[True], counts[False]) > 60


def _constant(rng: random.Random, depth: int) -> str:
    if depth == 0:
        return rng.choice(["0", "1", "-1", "7", "9223372036854775807", "-9223372036854775807"])
    left, right = _constant(rng, depth - 1), _constant(rng, depth - 1)
    return f"({left} {rng.choice(['+', '-', '*', '/', '%'])} {right})"
