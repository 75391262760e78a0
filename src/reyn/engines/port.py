"""The port of dispatchers. `reyn.testing.DispatcherConformance` tests an implementation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol

if TYPE_CHECKING:
    from reyn.journal import Event

DriveRun = Callable[[str], Awaitable[float | None]]
"""Executes a run; returns after how many seconds to call it again, or `None` if it has nothing to do any more."""
Refusals = dict[str, str]
"""Why a worker does not take runs, by run."""


@dataclass(kw_only=True, eq=False)
class Serving:
    """What one worker does.

    Attributes:
        queues: The queues that it serves.
        concurrency: How many runs it executes at once.
        is_once: Whether to return when nothing is due.
        labels: What it has that some runs need.
        active: The runs that it executes.
        refusals: Why it does not take runs, by run. `reyn queue` shows it.
        listener: Receives every event of the runs that it executes, after it is durable.
        stop: Set it to drain: runs in progress are interrupted, and given back at once.
    """

    queues: Sequence[str]
    concurrency: int = 1
    is_once: bool = False
    labels: Collection[str] = ()
    active: set[str] = field(default_factory=set)
    refusals: Refusals = field(default_factory=dict)
    listener: Callable[[Event], None] | None = None
    stop: asyncio.Event = field(default_factory=asyncio.Event)


class Dispatcher(Protocol):
    """Delivers wakes to workers: each at least once, also if the worker that has it dies."""

    name: ClassVar[str]
    """The name of the engine, such as `absurd`."""

    def inspect(self) -> str:
        """Describe the engine as `reyn doctor` prints it.

        Raises:
            EngineUnavailable: It is not reached, not installed, or cannot be used.
        """

    async def serve(self, drive: DriveRun, serving: Serving) -> None:
        """Execute what is due, until `serving.stop` is set."""
