"""Check the arguments of decorators when they are applied, before a run could record them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.errors import FunctionInvalid
from reyn.ops import Op

if TYPE_CHECKING:
    from collections.abc import Sequence


def check_toolkit(toolkit: object, what: str) -> tuple[Any, ...]:
    """Return the tools of a function.

    Raises:
        FunctionInvalid: The toolkit is no list, or has something that is no tool.
    """
    if not isinstance(toolkit, list | tuple | set | frozenset):
        message = f"{what}: `toolkit` is a {type(toolkit).__name__}, not a list of tools"
        raise FunctionInvalid(message, hint="Pass `toolkit=[…]`.")
    for op in toolkit:
        if not isinstance(op, Op):
            message = f"{what}: `toolkit` has a {type(op).__name__}, which is no tool"
            raise FunctionInvalid(message, hint="Decorate it with `@tool`.")
    return tuple(toolkit)


def check_count(value: object, name: str, least: int, what: str) -> None:
    """Check an option that is a whole number; `None` stands for its default.

    Raises:
        FunctionInvalid: It is not, or is too small.
    """
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise FunctionInvalid(f"{what}: `{name}` is {value!r:.100}; use a whole number of at least {least}")


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
    if value is not None and (not isinstance(value, int | float) or not value > 0):
        raise FunctionInvalid(f"{what}: `{name}` is {value!r:.100}; use seconds above 0, or `None` for no limit")
