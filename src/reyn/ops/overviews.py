"""What an op can act on, for the prompt of a conversation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import msgspec

from reyn.vocabulary import OpTarget

if TYPE_CHECKING:
    from reyn.ops.op import Env


class Overview(msgspec.Struct, frozen=True):
    """What an op can act on, for the prompt of a conversation.

    Attributes:
        heading: The heading of the list.
        lines: One line for each thing.
        targets: The things that a call can name; `None` if calls are not limited to what is listed.
    """

    heading: str
    lines: tuple[str, ...]
    targets: tuple[OpTarget, ...] | None = None


@runtime_checkable
class HasOverview(Protocol):
    """An op that lists what it can act on. Its specification sets `has_overview`."""

    def overview(self, query: str, env: Env) -> Overview:
        """Return what the op can act on now, without side effects.

        Args:
            query: What the user said last. If not everything fits the prompt, what matches it best comes first.
            env: What the op may use.
        """
        ...


MAX_LISTING_AGE = 1.0
"""Overviews notice a file that was written in place after so many seconds at most, and any other change at once."""


def fitting(lines: Sequence[str], order: Iterable[int], max_chars: int) -> list[int]:
    """Return the numbers of the lines that fit a size, in their order."""
    chosen: list[int] = []
    for number in order:
        max_chars -= len(lines[number])
        if max_chars < 0:
            break
        chosen.append(number)
    return chosen
