"""Follow the events of a run from any sequence number, whichever process executes it.

The journal is the source, so that a reader misses nothing and little is stored for one that is slow. Commits of this
process wake a reader at once, and hand it their events; it looks for those of other processes in growing intervals.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from reyn.errors import RunNotFound
from reyn.journal import ENDED, Event, decode, kinds
from reyn.journal.submission import is_left_to_workers
from reyn.streams import ItemStream

if TYPE_CHECKING:
    from reyn.kernel.world.services import Services
    from reyn.kernel.world.watchers import OnDelta

_FIRST_PAUSE, _LONGEST_PAUSE = 0.01, 0.1
"""Seconds between two looks at a run that another process may execute."""
_LOOKS_A_SECOND = 500
"""How often the readers of this process look at the most, all together: with more than fifty, each waits longer."""
_EVENTS_AT_ONCE = 200
"""The events after which a reader of a long history lets other tasks run."""


class Tail:
    """The recorded events of a run that its reader has not seen yet. Use it as a context manager.

    Args:
        services: The services of the runtime.
        run_id: The run.
        after: The sequence number of the last event that the reader has seen.
        has_children: Whether to report the events of the runs that it awaits, too.
        on_delta: Receives the pieces of the model's answers while this process executes the run.
    """

    def __init__(
        self, services: Services, run_id: str, after: int, *, has_children: bool, on_delta: OnDelta | None = None
    ) -> None:
        self._services, self._run_id, self._after, self._has_children = services, run_id, after, has_children
        self._on_delta = on_delta
        self._exits = ExitStack()
        self._seen: dict[str, int] = {} if has_children else {run_id: after}
        self._children: dict[str, dict[str, int]] = {}
        """The runs that each run awaits, with the time since when it does."""
        self._pause = _FIRST_PAUSE

    def __enter__(self) -> Self:
        watching = self._services.watchers.watching(self._run_id, self._on_delta, has_children=self._has_children)
        self._watcher = self._exits.enter_context(watching)
        return self

    def __exit__(self, *_: object) -> None:
        self._watcher.forget()
        self._exits.close()

    def new_events(self) -> Iterator[Event]:
        """Yield the events that were recorded since the last call: those of a child before its parent's next one."""
        for event in self._of(self._run_id, 0) if self._has_children else self._own():
            self._pause = _FIRST_PAUSE
            yield event

    def _read(self, run_id: str) -> Iterable[Event]:
        seen = self._seen.get(run_id, 0)
        return self._watcher.take(run_id, seen) or self._services.existing_journal.read(run_id, seen)

    def _own(self) -> Iterator[Event]:
        for event in self._read(self._run_id):
            self._seen[self._run_id] = event.seq
            yield event

    def _of(self, run_id: str, since: int) -> Iterator[Event]:
        children = self._children.setdefault(run_id, {})
        for event in self._read(run_id):
            self._seen[run_id] = event.seq
            if event.ts < since:  # of an earlier message to an agent
                continue
            is_new = run_id != self._run_id or event.seq > self._after
            body = decode(event)
            if isinstance(body, kinds.ChildEnded) and body.run in children:
                start = children.pop(body.run)
                if is_new:
                    yield from self._of(body.run, start)
            if is_new:
                yield event
            if isinstance(body, kinds.ChildStarted) and body.type != "background":
                children[body.run] = event.ts
        for child, start in list(children.items()):
            yield from self._of(child, start)

    async def changed(self) -> None:
        """Wait until there may be new events."""
        if await self._watcher.wait(self._pause):
            await asyncio.sleep(_FIRST_PAUSE)  # one look for all commits of a run that makes many
        else:
            longest = max(_LONGEST_PAUSE, self._services.watchers.count / _LOOKS_A_SECOND)
            self._pause = min(2 * self._pause, longest)

    def is_over(self, *, follow: bool) -> bool:
        """Return whether the run has ended or stopped, which is that no process executes it; with `follow`, ended.

        While it makes commits in this process, that is not looked up.

        Raises:
            RunNotFound: It was deleted.
        """
        journal, run_id = self._services.existing_journal, self._run_id
        if self._watcher.has_new(run_id):
            return False
        row = journal.find(run_id)
        if row is None:
            raise RunNotFound(f"run `{run_id}` was deleted while it was watched")
        is_over = row.status in ENDED or not (follow or journal.is_claimed(run_id) or is_left_to_workers(journal, row))
        if is_over:
            self._watcher.forget()  # another process may have recorded the last events
        return is_over


class RunWatch(ItemStream[Event]):
    """The events of a run, from any process. Leaving the loop ends the watch, and never the run."""


async def watched_events(tail: Tail, *, follow: bool) -> AsyncGenerator[Event]:
    """Yield the events of a run until it ends or stops; with `follow`, until it ends for good."""
    with tail:
        while True:
            # Looked at first: what was recorded before the run stopped is yielded.
            is_last = tail.is_over(follow=follow)
            for count, event in enumerate(tail.new_events(), 1):
                yield event
                if count % _EVENTS_AT_ONCE == 0:
                    await asyncio.sleep(0)
            if is_last:
                return
            await tail.changed()
