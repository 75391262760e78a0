"""The decorated functions of this process, whose tools a run of one needs.

A run names the function that defines its skill. A runtime that lacks the tools continues the run with those of the
function, if its module is imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from reyn.kernel.world.services import Services


class FunctionTools(Protocol):
    """A decorated function."""

    def equip(self, services: Services) -> Services:
        """Return services with the tools, settings and model of the function."""
        ...


_functions: WeakValueDictionary[str, FunctionTools] = WeakValueDictionary()


def register_function(place: str, function: FunctionTools) -> None:
    """Register a function by its place, `module:name`. A later definition replaces an earlier one."""
    _functions[place] = function


def find_function(place: str) -> FunctionTools | None:
    """Return the function of a place, if this process has it."""
    return _functions.get(place)
