"""Check the arguments of decorators when they are passed."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

from reyn.errors import FunctionInvalid
from reyn.models import Model
from reyn.ops import Op

if TYPE_CHECKING:
    from collections.abc import Callable


def check_function(function: object, decorator: str) -> None:
    """Check that a decorator is applied to a function.

    Raises:
        FunctionInvalid: It is something else, or a method.
    """
    _check_no_descriptor(function, decorator)
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise FunctionInvalid(f"`@{decorator}` decorates functions, not a {type(function).__name__}")
    _check_no_method(function, decorator)


def check_tool_function(function: object) -> None:
    """Check that a tool is something that can be called and returns one value.

    Raises:
        FunctionInvalid: It is not.
    """
    _check_no_descriptor(function, "tool")
    if isinstance(function, type) or not callable(function):
        raise FunctionInvalid(f"`@tool` decorates functions, not {_kind(function)}")
    inner = underlying(function)
    if inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner):
        raise FunctionInvalid(
            f"`@tool`: `{getattr(inner, '__name__', 'the function')}` is a generator, but a tool returns one value",
            hint="Collect the values and return a list.",
        )
    _check_no_method(function, "tool")


def without_partial(function: Any) -> Any:
    """Return the function of a partial, else the function itself."""
    while isinstance(function, partial):
        function = function.func
    return function


def underlying(function: Any) -> Any:
    """Return the function that has the annotations: of a partial its function, of an object its `__call__`."""
    function = without_partial(function)
    return function if inspect.isroutine(function) else type(function).__call__


def _check_no_descriptor(function: object, decorator: str) -> None:
    if isinstance(function, staticmethod | classmethod):
        kind = type(function).__name__
        raise FunctionInvalid(
            f"`@{decorator}` is applied to a {kind}",
            hint=f"Write `@{kind}` above `@{decorator}`." if kind == "staticmethod" else "Use a function of a module.",
        )


def _check_no_method(function: Callable[..., Any], decorator: str) -> None:
    """Check that a function is not a method in the body of its class, where there is no object to bind it to."""
    name = getattr(function, "__qualname__", "")
    owner = name.rpartition(".")[0]
    if not owner or owner.endswith("<locals>") or inspect.ismethod(function):
        return
    first = next(iter(inspect.signature(function).parameters), "")
    if first in ("self", "cls"):
        raise FunctionInvalid(
            f"`@{decorator}` cannot decorate the method `{name}`: a model cannot pass `{first}`",
            hint="Decorate a function of a module. A tool may be a bound method: `tool(thing.method)`.",
        )


def _kind(value: object) -> str:
    return f"the class `{value.__name__}`" if isinstance(value, type) else f"a {type(value).__name__}"


def is_text(value: object) -> bool:
    """Return whether a value is a text that is not blank."""
    return isinstance(value, str) and bool(value.strip())


def check_toolkit(toolkit: object, what: str) -> tuple[Op, ...]:
    """Return the tools of a function.

    Raises:
        FunctionInvalid: The toolkit is no list, has something that is no tool, or two tools of one name.
    """
    if not isinstance(toolkit, list | tuple | set | frozenset):
        message = f"{what}: `toolkit` is a {type(toolkit).__name__}, not a list of tools"
        raise FunctionInvalid(message, hint="Pass `toolkit=[…]`.")
    names: set[str] = set()
    for op in toolkit:
        if not isinstance(op, Op):
            message = f"{what}: `toolkit` has a {type(op).__name__}, which is no tool"
            raise FunctionInvalid(message, hint="Decorate it with `@tool`.")
        if op.spec.kind in names:
            raise FunctionInvalid(f"{what}: `toolkit` has two tools with the name `{op.spec.kind}`")
        names.add(op.spec.kind)
    return tuple(toolkit)


def check_model(model: object, what: str) -> None:
    """Check a model that is passed from Python: an object, or the name of a configured model.

    Raises:
        FunctionInvalid: It is neither.
    """
    if model is None or is_text(model):
        return
    if isinstance(model, str):
        raise FunctionInvalid(f"{what}: `llm_interface` is {model!r}; name a model, for example `openai:gpt-4.1-mini`")
    if isinstance(model, type) or not isinstance(model, Model):
        raise FunctionInvalid(
            f"{what}: `llm_interface` is {_kind(model)}, which is no model",
            hint="Pass the name of a model, an `OpenAICompatible`, or an object with `name` and `complete`.",
        )


def check_option(value: object, name: str, what: str, *, is_valid: bool, expected: str) -> None:
    """Check an argument of a decorator.

    Raises:
        FunctionInvalid: It is not valid; the message names the expected values.
    """
    if not is_valid:
        raise FunctionInvalid(f"{what}: `{name}` is {value!r:.100}; use {expected}")


def check_count(value: object, name: str, least: int, what: str) -> None:
    """Check an option that is a whole number; `None` stands for its default."""
    is_valid = value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= least)
    check_option(value, name, what, is_valid=is_valid, expected=f"a whole number of at least {least}")


def check_flag(value: object, name: str, what: str) -> None:
    """Check an option that is true or false."""
    check_option(value, name, what, is_valid=isinstance(value, bool), expected="True or False")
