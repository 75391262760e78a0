"""The op that is being performed: functions that its code calls are children of its run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from reyn.errors import CallImpossible
from reyn.journal import digest

if TYPE_CHECKING:
    from reyn.journal.kinds import ChildStarted, HistoryPart, ImageRef
    from reyn.kernel.core.effects import PerformOp
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.world.budgets import Above
    from reyn.kernel.world.services import Services

_KEY_LENGTH = 12


def call_name(
    skill_hash: str, input_hash: str, history: Iterable[HistoryPart] = (), images: Iterable[ImageRef] = ()
) -> str:
    """Return the name of a call of a function with an input.

    It derives from what is called, not from the order of calls: when the op is performed again after a crash, each call
    finds the sub-run that it started before.
    """
    earlier = (f"{part.content}{part.system or ''}" for part in history)
    more = "".join([*earlier, *(image.content or image.url for image in images)])
    name = digest(f"{input_hash}{more}".encode()) if more else input_hash
    return digest(f"{skill_hash}{name}".encode())[:_KEY_LENGTH]


class RunScope:
    """One op that is being performed.

    Attributes:
        services: What the run uses.
        tape: The tape of the run.
        loop: The event loop that executes it.
        above: Returns the runs above it, on whose budgets sub-runs draw as well.
        is_repeated: Whether the op is performed again: it was interrupted before it had an outcome.
    """

    def __init__(self, services: Services, tape: Tape, call: str, above: Above, *, is_repeated: bool) -> None:
        self.services = services
        self.tape = tape
        self.above = above
        self.is_repeated = is_repeated
        self.loop = asyncio.get_running_loop()
        self._call = call
        self.calls: dict[str, ChildStarted] = {}
        """The functions that the code of the op has called, and that have not ended, by their ids."""
        self.waiting: list[ChildStarted] = []
        """Those that have stopped with a question. Only the op itself, if it is performed again, can continue them."""
        self._counts: dict[str, int] = {}
        self._is_open = True

    @property
    def call(self) -> str:
        """The id of the op's call in its run."""
        return self._call

    def next_key(self, name: str) -> str:
        """Return the id of the next call of a function, unique in the run; `call_name` names what is called."""
        self.check_open()
        count = self._counts[name] = self._counts.get(name, 0) + 1
        return f"{self._call}.{name}" if count == 1 else f"{self._call}.{name}-{count}"

    def check_open(self) -> None:
        """Raise `CallImpossible` if the op has returned: its run may have moved on."""
        if not self._is_open:
            raise CallImpossible(
                f"the op `{self._call}` of run `{self.tape.run_id}` has ended, so that it can start no more sub-runs",
                hint="Await every call before the tool returns.",
            )

    def close(self) -> None:
        self._is_open = False


_scope: ContextVar[RunScope | None] = ContextVar("reyn_run_scope", default=None)


def current_scope() -> RunScope | None:
    """Return the op that is being performed here, if any."""
    return _scope.get()


@contextmanager
def run_scope(services: Services, tape: Tape, effect: PerformOp, above: Above) -> Iterator[RunScope]:
    """Make an op the current scope of the calls in the block."""
    # An unsafe op that is performed again has no unknown outcome any more: a person has decided about it.
    is_repeated = bool(effect.resolution) or effect.key in tape.state.recovery.unknown_outcomes
    scope = RunScope(services, tape, effect.key, above, is_repeated=is_repeated)
    token = _scope.set(scope)
    try:
        yield scope
    finally:
        scope.close()
        _scope.reset(token)
