"""Python types as JSON: schemas keep bounds and descriptions, values come back typed, the rest is refused."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import math
import subprocess
import sys
import uuid
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Generic, Literal, NamedTuple, NewType, Optional, TypedDict, TypeVar, Union

import msgspec
import pydantic
import pytest

from reyn.errors import FunctionInvalid
from reyn.functions.types import ConversionError, json_type, to_json
from reyn.jsonschema import compile_schema

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Dish:
    """A dish on the menu."""

    name: str
    price: float = 0.0
    tags: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Drink:
    label: str
    served_with: Dish | None = None


@dataclasses.dataclass
class Blob:
    content: bytes


@dataclasses.dataclass
class Tree:
    value: int
    children: list[Tree] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Forest:
    tree: Tree | Drink
    more: dict[str, Tree | Drink] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Odd:
    number: int

    def __post_init__(self) -> None:
        if self.number % 2 == 0:
            raise ValueError("the number must be odd")


@dataclasses.dataclass
class Range:
    low: int | None
    high: int | None

    def __post_init__(self) -> None:
        _ = self.low + self.high


@dataclasses.dataclass
class Box(Generic[T]):
    content: T


class Movie(TypedDict, total=False):
    title: str
    year: int


class Point(NamedTuple):
    x: int
    y: int = 0


class Invoice(pydantic.BaseModel):
    """An invoice."""

    number: str = pydantic.Field(pattern=r"^INV-\d+$", description="the number of the invoice")
    total: int = pydantic.Field(ge=0)

    @pydantic.field_validator("total")
    @classmethod
    def is_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("the total must be even")
        return value


class Account(msgspec.Struct):
    owner: str
    balance: Annotated[int, msgspec.Meta(ge=0, description="in cents")] = 0


class Cash(msgspec.Struct, tag="cash"):
    amount: int


class Card(msgspec.Struct, tag="card"):
    digits: str


@dataclasses.dataclass
class Order:
    invoice: Invoice
    dish: Dish


class Purchase(msgspec.Struct):
    invoice: Invoice


UserId = NewType("UserId", int)

ROUND_TRIPS = [
    (str, "text"),
    (int, 7),
    (float, 1.5),
    (bool, True),
    (type(None), None),
    (Any, {"any": ["thing", 1]}),
    (list, [1, "a"]),
    (list[int], [1, 2]),
    (Sequence[str], ["a"]),
    (set[int], {1, 2}),
    (frozenset[str], frozenset({"a"})),
    (dict, {"a": 1}),
    (dict[str, float], {"a": 1.5}),
    (Mapping[str, int], {"a": 1}),
    (dict[int, str], {1: "a"}),
    (tuple[int, str], (1, "a")),
    (tuple[int, ...], (1, 2, 3)),
    (Optional[int], None),  # noqa: UP045 - both spellings
    (int | None, 3),
    (Union[int, str], "007"),  # noqa: UP007 - both spellings
    (Literal["a", "b", 3], 3),
    (Colour, Colour.BLUE),
    (Level, Level.HIGH),
    (UserId, 5),
    (Dish, Dish("soup", 3.0, ["hot"])),
    (list[Dish], [Dish("soup"), Dish("bread")]),
    (Dish | Drink, Drink("tea", Dish("cake"))),
    (Dish | Blob, Blob(b"\x00\xff")),
    (list[Dish | Drink | None], [Drink("tea"), None, Dish("soup")]),
    (tuple[Dish | Drink, int], (Dish("soup"), 1)),
    (dict[str, Dish | Drink], {"a": Dish("soup")}),
    (Tree, Tree(1, [Tree(2), Tree(3, [Tree(4)])])),
    (Forest, Forest(Tree(1), {"b": Drink("tea")})),
    (Box[int], Box(3)),
    (Box[Dish | Drink], Box(Drink("tea"))),
    (Movie, {"title": "M", "year": 1931}),
    (Point, Point(1, 2)),
    (Account, Account("Ada", 3)),
    (Cash | Card, Card("1234")),
    (Invoice, Invoice(number="INV-1", total=2)),
    (list[Invoice], [Invoice(number="INV-1", total=2)]),
    (Invoice | None, None),
    (dict[str, Invoice], {"a": Invoice(number="INV-2", total=0)}),
    (Order, Order(Invoice(number="INV-1", total=2), Dish("soup"))),
    (Invoice | Dish, Dish("soup")),
    (Annotated[int, pydantic.Field(ge=1)], 4),
    (datetime.date, datetime.date(2024, 2, 29)),
    (datetime.datetime, datetime.datetime(2024, 2, 29, 12, tzinfo=datetime.UTC)),
    (uuid.UUID, uuid.UUID(int=1)),
    (Decimal, Decimal("1.10")),
    (bytes, b"\x00\xff"),
]


@pytest.mark.parametrize(("annotation", "value"), ROUND_TRIPS, ids=lambda one: str(one)[:60])
def test_a_value_returns_from_json_with_its_own_type(annotation: Any, value: Any):
    found = json_type(annotation, "x")
    data = to_json(value)
    assert compile_schema(found.schema).first_error(data) is None, found.schema
    decoded = found.decode(data)
    assert decoded == value
    assert type(decoded) is type(value)


def test_bounds_and_descriptions_are_kept():
    class Bounded(msgspec.Struct):
        name: Annotated[str, msgspec.Meta(min_length=2, max_length=5, pattern="^a", description="short")]

    assert json_type(Bounded, "x").schema["properties"]["name"] == {
        "type": "string",
        "minLength": 2,
        "maxLength": 5,
        "pattern": "^a",
        "description": "short",
    }
    assert json_type(Annotated[float, msgspec.Meta(gt=0, le=1)], "x").schema == {
        "type": "number",
        "exclusiveMinimum": 0,
        "maximum": 1,
    }
    assert json_type(Annotated[str, "the city"], "x").schema == {"type": "string", "description": "the city"}
    invoice = json_type(Invoice, "x").schema
    assert invoice["description"] == "An invoice."
    assert invoice["properties"]["number"]["pattern"] == r"^INV-\d+$"
    assert invoice["properties"]["total"]["minimum"] == 0
    assert json_type(Annotated[int, pydantic.Field(ge=3, description="three")], "x").schema == {
        "type": "integer",
        "minimum": 3,
        "description": "three",
    }
    either = json_type(Annotated[list[Dish | Drink], msgspec.Meta(min_length=1, description="orders")], "x").schema
    assert (either["minItems"], either["description"]) == (1, "orders")


def test_generated_titles_cost_no_tokens_and_a_field_called_title_stays():
    class Book(pydantic.BaseModel):
        title: str

    schema = json_type(Book, "x").schema
    assert "title" not in schema
    assert schema["properties"] == {"title": {"type": "string"}}


def test_a_definition_is_inlined_if_it_is_used_once_and_shared_if_it_is_used_often():
    once = json_type(list[Dish], "x").schema
    assert once["items"]["description"] == "A dish on the menu."
    assert "$defs" not in once
    twice = json_type(tuple[Dish, Dish], "x").schema
    assert twice["prefixItems"] == [{"$ref": "#/$defs/Dish"}] * 2


def test_two_classes_of_the_same_name_stay_apart():
    def made(kind: type) -> type:
        return dataclasses.make_dataclass("Same", [("field", kind)])

    one, two = made(int), made(str)
    found = json_type(tuple[one | two, one, two], "x")
    decoded = found.decode([{"field": "a"}, {"field": 1}, {"field": "b"}])
    assert [type(item) for item in decoded] == [two, one, two]


@pytest.mark.parametrize(
    ("annotation", "data", "path"),
    [
        (int, "1", "$"),
        (bool, 1, "$"),
        (list[int], [1, "a"], "$[1]"),
        (Dish, {"name": "soup", "price": "dear"}, "$.price"),
        (Odd, {"number": 2}, "$"),
        (Invoice, {"number": "INV-1", "total": 3}, "$.total"),
        (list[Invoice], [{"number": "INV-1", "total": 2}, {"number": "x", "total": 2}], "$[1].number"),
        (Order, {"invoice": {"number": "INV-1", "total": 1}, "dish": {"name": "A"}}, "$.invoice.total"),
        (dict[str, Dish | Drink], {"a": 1}, "$.a"),
        (Dish | Range, {"low": None, "high": 1}, "$"),
        (Dish | Odd, {"number": 2}, "$"),
        (datetime.date, "yesterday", "$"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_path(annotation: Any, data: Any, path: str):
    with pytest.raises(ConversionError) as caught:
        json_type(annotation, "x").decode(data)
    assert caught.value.path == path
    assert str(caught.value)


def test_a_whole_number_that_json_writes_as_a_float_is_an_integer():
    assert json_type(int, "x").decode(2.0) == 2
    assert type(json_type(list[int], "x").decode([2.0])[0]) is int
    assert type(json_type(Dish | Tree, "x").decode({"value": 2.0}).value) is int
    with pytest.raises(ConversionError):
        json_type(int, "x").decode(2.5)


def test_text_that_looks_like_a_number_stays_text():
    assert json_type(int | str, "x").decode("007") == "007"
    assert json_type(list[str], "x").decode(["1", "true"]) == ["1", "true"]


@pytest.mark.parametrize(
    ("annotation", "needs_check"),
    [
        (int, False),
        (Dish, False),
        (Colour, False),
        (list[Movie], False),
        (Tree, False),
        (Odd, True),
        (Invoice, True),
        (list[Odd], True),
        (dict[str, Invoice], True),
        (datetime.date, True),
        (uuid.UUID, True),
        (Box[Odd], True),
        (Box[Dish], False),
        (Dish | Drink, False),
        (Dish | Odd, True),
    ],
)
def test_only_types_that_python_code_validates_need_a_check(annotation: Any, needs_check: bool):
    assert json_type(annotation, "x").needs_check is needs_check


class Opaque:
    pass


@pytest.mark.parametrize("annotation", [Opaque, list[Opaque], complex, type, Dish | Opaque, dict[str, Opaque]])
def test_a_type_without_a_json_form_is_refused(annotation: Any):
    with pytest.raises(FunctionInvalid, match=r"parameter `p`: the type `.*` has no JSON form"):
        json_type(annotation, "parameter `p`")


@dataclasses.dataclass
class Percentage:
    value: Annotated[int, msgspec.Meta(ge=0, le=100)]


@pytest.mark.parametrize("annotation", [Purchase, Account | Dish, Percentage | Dish])
def test_msgspec_types_in_a_type_that_only_pydantic_supports_are_refused(annotation: Any):
    with pytest.raises(FunctionInvalid, match=r"does not support `msgspec\.Struct` and `msgspec\.Meta`"):
        json_type(annotation, "x")
    assert json_type(Percentage, "x").schema["properties"]["value"]["maximum"] == 100


def test_a_type_that_needs_pydantic_names_the_extra_if_it_is_not_installed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pydantic", None)
    with pytest.raises(FunctionInvalid, match=r"`.*Dish \| .*Drink` needs pydantic") as caught:
        json_type(Dish | Drink, "x")
    assert "reyn[functions]" in (caught.value.own_hint or "")


def test_a_value_without_a_json_form_is_refused():
    circle: list[Any] = []
    circle.append(circle)
    for value in (Opaque(), {"a": [Opaque()]}, circle, len):
        with pytest.raises(TypeError):
            to_json(value)
    assert math.isnan(to_json(math.nan))  # refused with the whole input


@pytest.mark.slow
def test_pydantic_is_not_imported_for_other_types():
    code = """
import sys
from dataclasses import dataclass
from reyn import llm_function, tool

@dataclass
class Point:
    x: int

@tool
def double(point: Point) -> Point:
    "Double a point."

@llm_function(toolkit=[double])
def move(point: Point) -> Point | None:
    "Move the point."

assert move.skill
assert "pydantic" not in sys.modules, "pydantic was imported"
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("value", [{1: "a", "1": "b"}, {"x": [{2: 1, "2": 2}]}, {1.5: 1, "1.5": 2}])
def test_keys_that_json_cannot_tell_apart_are_refused(value: Any):
    with pytest.raises(TypeError, match="several keys of a dict are"):
        to_json(value)


def test_keys_that_are_not_texts_become_texts():
    assert to_json({1: "a", "2": (1, {3: 4})}) == {"1": "a", "2": [1, {"3": 4}]}
    with pytest.raises(TypeError):
        to_json({(1, 2): 3})
