"""The dispatcher that needs nothing but the journal: workers take wakes from its outbox.

A wake that a worker has taken is held while the worker renews it. If the worker dies, another one gets the wake.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, ClassVar

from reyn.engines.tasks import LEASE_SECONDS, Task, serve_tasks

if TYPE_CHECKING:
    from reyn.engines.port import DriveRun, Serving
    from reyn.engines.tasks import Subscribe
    from reyn.journal import Journal


class Outbox:
    """Serves the wakes of a journal."""

    name: ClassVar[str] = "outbox"

    def __init__(self, journal: Journal, lease: float = LEASE_SECONDS, subscribe: Subscribe | None = None) -> None:
        self._journal = journal
        self._subscribe = subscribe
        self.lease = lease

    def inspect(self) -> str:
        """See `Dispatcher.inspect`."""
        return "outbox, in the journal"

    async def serve(self, drive: DriveRun, serving: Serving) -> None:
        """See `Dispatcher.serve`."""
        await serve_tasks(self, drive, serving, is_remote=self._journal.is_remote, subscribe=self._subscribe)

    def take(self, queues: Sequence[str], limit: int) -> list[Task]:
        """See `TaskSource.take`, as of the methods below."""
        return [Task(wake.run_id, wake.seq) for wake in self._journal.take_wakes(queues, limit, self.lease)]

    def renew(self, tasks: Collection[Task]) -> list[Task]:
        self._journal.hold_wakes(_seqs(tasks), self.lease)
        return []

    def finish(self, tasks: Collection[Task]) -> None:
        self._journal.finish_wakes(_seqs(tasks))

    def postpone(self, tasks: Collection[Task], seconds: float) -> None:
        self._journal.hold_wakes(_seqs(tasks), seconds)


def _seqs(tasks: Collection[Task]) -> list[int]:
    return [task.key for task in tasks if isinstance(task.key, int)]
