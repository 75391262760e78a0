"""Check the arguments of decorators and of `options` when they are passed, before a run could record them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from reyn.errors import CallImpossible, FunctionInvalid
from reyn.journal.port import MAX_ROOT_RUN_ID, is_run_id
from reyn.models import Model
from reyn.ops import Op

_METHOD_PARAMETERS = ("self", "cls")


def check_function(function: object, decorator: str) -> None:
    """Check that a decorator is applied to a function.

    Raises:
        FunctionInvalid: It is something else, or a method.
    """
    if isinstance(function, staticmethod | classmethod):
        kind = type(function).__name__
        raise FunctionInvalid(
            f"`@{decorator}` is applied to a {kind}",
            hint=f"Write `@{kind}` above `@{decorator}`." if kind == "staticmethod" else "Use a function of a module.",
        )
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise FunctionInvalid(f"`@{decorator}` decorates functions, not a {type(function).__name__}")
    check_no_method(function, decorator)


def check_no_method(function: Callable[..., Any], decorator: str) -> None:
    """Check that a function is not a method in the body of its class, where there is no object to bind it to.

    Raises:
        FunctionInvalid: It is.
    """
    name = getattr(function, "__qualname__", "")
    owner = name.rpartition(".")[0]
    first = next(iter(_parameters(function)), "")
    if owner and not owner.endswith("<locals>") and first in _METHOD_PARAMETERS and not inspect.ismethod(function):
        raise FunctionInvalid(
            f"`@{decorator}` cannot decorate the method `{name}`: a model cannot pass `{first}`",
            hint="Decorate a function of a module. A tool may be a bound method: `tool(thing.method)`.",
        )


def _parameters(function: Callable[..., Any]) -> Sequence[str]:
    try:
        return list(inspect.signature(function).parameters)
    except (ValueError, TypeError):
        return ()


def check_tool_function(function: object) -> None:
    """Check that a tool is something that can be called and returns one value.

    Raises:
        FunctionInvalid: It is not.
    """
    if isinstance(function, staticmethod | classmethod):
        check_function(function, "tool")
    if isinstance(function, type) or not callable(function):
        raise FunctionInvalid(f"`@tool` decorates functions, not {_described(function)}")
    inner: Any = function
    while isinstance(inner, partial):
        inner = inner.func
    if not inspect.isroutine(inner):
        inner = type(inner).__call__
    if inspect.isasyncgenfunction(inner) or inspect.isgeneratorfunction(inner):
        name = getattr(inner, "__name__", "the function")
        raise FunctionInvalid(
            f"`@tool`: `{name}` is a generator, but a tool returns one value",
            hint="Collect the values and return a list.",
        )
    check_no_method(inner if inner is function else function, "tool")


def _described(value: object) -> str:
    return f"the class `{value.__name__}`" if isinstance(value, type) else f"a {type(value).__name__}"


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
    if model is None or (isinstance(model, str) and model.strip()):
        return
    if isinstance(model, str):
        raise FunctionInvalid(f"{what}: `llm_interface` is {model!r}; name a model, for example `openai:gpt-4.1-mini`")
    if isinstance(model, type) or not isinstance(model, Model):
        raise FunctionInvalid(
            f"{what}: `llm_interface` is {_described(model)}, which is no model",
            hint="Pass the name of a model, an `OpenAICompatible`, or an object with `name` and `complete`.",
        )


def check_params(params: object, what: str) -> None:
    """Check the template parameters of a docstring: names, or default values by name.

    Raises:
        FunctionInvalid: They are neither.
    """
    if params is None or isinstance(params, str):
        return
    if not isinstance(params, Mapping | list | tuple | set | frozenset):
        raise FunctionInvalid(f"{what}: `template_params` is {params!r:.100}; use names, or default values by name")
    for name in params:
        if not isinstance(name, str) or not name.isidentifier():
            raise FunctionInvalid(f"{what}: `template_params` has {name!r:.100}, which is not a name")


def check_count(value: object, name: str, least: int, what: str) -> None:
    """Check an option that is a whole number; `None` stands for its default.

    Raises:
        FunctionInvalid: It is not, or is too small.
    """
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise FunctionInvalid(f"{what}: `{name}` is {value!r:.100}; use a whole number of at least {least}")


def check_flag(value: object, name: str, what: str) -> None:
    """Check an option that is true or false.

    Raises:
        FunctionInvalid: It is neither.
    """
    if not isinstance(value, bool):
        raise FunctionInvalid(f"{what}: `{name}` is {value!r:.100}; use True or False")


def check_choice(value: object, name: str, choices: Sequence[str], what: str) -> None:
    """Check an option that is one of some texts.

    Raises:
        FunctionInvalid: It is none of them.
    """
    if value not in choices:
        raise FunctionInvalid(f"{what}: `{name}` is {value!r:.100}; use one of {', '.join(choices)}")


def check_seconds(value: object, name: str, what: str) -> None:
    """Check an option that is a time; `None` stands for no limit.

    Raises:
        FunctionInvalid: It is not a number above 0.
    """
    if value is not None and (not isinstance(value, int | float) or isinstance(value, bool) or not value > 0):
        raise FunctionInvalid(f"{what}: `{name}` is {value!r:.100}; use seconds above 0, or `None` for no limit")


def check_text(value: object, name: str, what: str) -> None:
    """Check an option that is a text; `None` stands for its default.

    Raises:
        FunctionInvalid: It is not, or is blank.
    """
    if value is not None and not (isinstance(value, str) and value.strip()):
        raise FunctionInvalid(f"{what}: `{name}` is {value!r:.100}; use a text")


def check_texts(value: object, name: str, what: str) -> tuple[str, ...]:
    """Return an option that is a text or a list of texts.

    Raises:
        FunctionInvalid: It is neither.
    """
    texts = (value,) if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) and text.strip() for text in texts):
        raise FunctionInvalid(f"{what}: `{name}` is {value!r:.100}; use a text, or a list of texts")
    return tuple(texts)


def check_run_id(run_id: object, what: str) -> None:
    """Check the run id of a call; `None` stands for a generated one.

    Raises:
        CallImpossible: It is not one.
    """
    if run_id is not None and not (isinstance(run_id, str) and is_run_id(run_id, MAX_ROOT_RUN_ID)):
        raise CallImpossible(
            f"{what}: `run_id` is {run_id!r:.100}",
            hint="Use a text of letters, digits, `-`, `_` and `.`, or leave it out.",
        )


def check_callback(value: object, name: str, what: str) -> None:
    """Check an option that is called with events; `None` stands for nothing.

    Raises:
        CallImpossible: It cannot be called.
    """
    if value is not None and not callable(value):
        raise CallImpossible(f"{what}: `{name}` is a {type(value).__name__}, not a function", hint="Pass a function.")


def check_values(values: object, what: str) -> dict[str, Any]:
    """Return the values of template parameters of a call, by name.

    Raises:
        CallImpossible: They are no mapping.
    """
    if values is None:
        return {}
    if not isinstance(values, Mapping):
        raise CallImpossible(
            f"{what}: `template_params` is {values!r:.100}", hint="Pass values by name: `{'tone': 'dry'}`."
        )
    return dict(values)
