"""Temporal as the dispatcher: a standalone activity for each wake, and no workflow.

The journal has wakes, times and results; Temporal calls a worker, and another one if that dies. So a wake stays in the
journal until its run has nothing to do, and workers hand over wakes that Temporal has had for a while without an end.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.parse import parse_qsl, urlsplit

from temporalio import activity
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, GetSystemInfoRequest
from temporalio.client import Client
from temporalio.common import ActivityIDConflictPolicy, ActivityIDReusePolicy, Priority, RetryPolicy
from temporalio.exceptions import ActivityAlreadyStartedError, ApplicationError
from temporalio.service import RPCError
from temporalio.worker import Worker

from reyn.engines.tasks import LEASE_SECONDS
from reyn.errors import EngineUnavailable
from reyn.journal.wakes import microseconds

if TYPE_CHECKING:
    from reyn.engines.port import DriveRun, Serving
    from reyn.engines.tasks import Subscribe
    from reyn.journal import Journal
    from reyn.journal.wakes import PendingWake

    T = TypeVar("T")

_ACTIVITY = "drive"
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.25
_RELAYED_AT_ONCE = 50
_RELAY_AGAIN_SECONDS = 60.0
"""After how long a wake is handed over again that Temporal was given and that has not ended."""
_RETRY_SECONDS = 1.0
"""After how long a server is tried again that was not reached."""
_CONNECT_SECONDS = 10.0
_RETRIES = RetryPolicy(initial_interval=timedelta(milliseconds=100), maximum_interval=timedelta(seconds=30))
_LONGEST_DRIVE = timedelta(days=365)


class TemporalAddress:
    """A parsed address, `temporal://HOST:PORT/NAMESPACE?tls=true&api_key=KEY`. `str` shows no key."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        self.host = parts.netloc
        self.namespace = parts.path.strip("/") or "default"
        self.api_key = query.pop("api_key", None)
        self.tls = query.pop("tls", "true" if self.api_key else "false") == "true"
        if parts.scheme != "temporal" or not parts.hostname or "@" in parts.netloc or query:
            raise EngineUnavailable(
                "the address in `engine` is invalid",
                hint="Write `temporal://HOST:PORT/NAMESPACE`; the parameters are `tls` and `api_key`.",
            )

    def __str__(self) -> str:
        return f"temporal://{self.host}/{self.namespace}"


class Temporal:
    """Serves the wakes of a journal through Temporal.

    Args:
        journal: The journal.
        address: The server and the namespace.
        project: A name that no other project of the namespace has.
        lease: After how many seconds without a heartbeat a wake goes to another worker.
        subscribe: Calls a function, in another thread, when there may be a wake; returns how to end that.
    """

    name: ClassVar[str] = "temporal"

    def __init__(
        self,
        journal: Journal,
        address: TemporalAddress,
        project: str,
        lease: float = LEASE_SECONDS,
        subscribe: Subscribe | None = None,
    ) -> None:
        self._journal = journal
        self._address = address
        self._project = project
        self._lease = lease
        self._subscribe = subscribe

    def inspect(self) -> str:
        """See `Dispatcher.inspect`."""
        return f"temporal {asyncio.run(self._connect())[1]}, {self._address}"

    async def _connect(self) -> tuple[Client, str]:
        """Connect to the server, and check that it has the namespace; return its version as well."""
        client = await self._reach()
        try:
            info = await client.workflow_service.get_system_info(GetSystemInfoRequest())
            await client.workflow_service.describe_namespace(
                DescribeNamespaceRequest(namespace=self._address.namespace)
            )
        except RPCError as error:
            raise self.unavailable(error) from None
        return client, info.server_version

    async def _reach(self) -> Client:
        address = self._address
        connecting = Client.connect(address.host, namespace=address.namespace, api_key=address.api_key, tls=address.tls)
        try:
            return await asyncio.wait_for(connecting, _CONNECT_SECONDS)
        except (RuntimeError, RPCError, TimeoutError) as error:
            raise self.unavailable(error) from None

    def unavailable(self, error: BaseException) -> EngineUnavailable:
        """Return the error of an engine that is not reached, or refuses."""
        text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        return EngineUnavailable(f"the engine `{self._address}` cannot be used: {text}")

    async def serve(self, drive: DriveRun, serving: Serving) -> None:
        """See `Dispatcher.serve`. The server has to be reached at the start; later, it is tried until it is back."""
        client, _ = await self._connect()
        while not serving.stop.is_set():
            try:
                await _Session(self._journal, client, self, drive, serving).run(self._subscribe)
            except (RPCError, RuntimeError):  # the server is gone; the journal has the wakes
                with suppress(TimeoutError):
                    await asyncio.wait_for(serving.stop.wait(), _RETRY_SECONDS)
            else:
                return

    def task_queue(self, queue: str) -> str:
        """Return the name of a queue in Temporal."""
        return f"reyn/{self._project}/{queue}"

    async def start(self, client: Client, wake: PendingWake) -> None:
        """Hand over a wake. Doing it twice does it once."""
        name = f"{self._project}/{wake.run_id}:{wake.seq}"
        try:
            await self._start(client, wake, name)
        except ActivityAlreadyStartedError:
            # It has ended, and its end removes the wake: so this was another wake, before a backup was restored.
            await self._start(client, wake, f"{name}:{uuid.uuid4().hex}")

    async def _start(self, client: Client, wake: PendingWake, name: str) -> None:
        await client.start_activity(
            _ACTIVITY,
            args=[wake.run_id, wake.seq],
            id=name,
            task_queue=self.task_queue(wake.queue),
            start_to_close_timeout=_LONGEST_DRIVE,
            heartbeat_timeout=timedelta(seconds=self._lease),
            id_conflict_policy=ActivityIDConflictPolicy.USE_EXISTING,
            id_reuse_policy=ActivityIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
            retry_policy=_RETRIES,
            priority=Priority(priority_key=_level(wake.priority)),
        )

    @property
    def heartbeat_seconds(self) -> float:
        """The interval between two heartbeats."""
        return self._lease / 3


class _Session:
    """What one worker does while its connection lasts."""

    def __init__(self, journal: Journal, client: Client, engine: Temporal, drive: DriveRun, serving: Serving) -> None:
        self._journal = journal
        self._client = client
        self._engine = engine
        self._drive = drive
        self._serving = serving
        self._is_relaying = asyncio.Event()
        self._unreached: set[str] = set()
        """The runs whose wakes could not be handed over."""

    async def run(self, subscribe: Subscribe | None) -> None:
        """Execute activities and hand over wakes, until `serving.stop` is set."""
        loop = asyncio.get_running_loop()

        @activity.defn(name=_ACTIVITY)
        async def execute(run_id: str, seq: int) -> None:
            await self._call(run_id, seq)

        def hint(_: Any) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(self._is_relaying.set)

        unsubscribe = subscribe(hint) if subscribe else None
        workers = [
            Worker(
                self._client,
                task_queue=self._engine.task_queue(queue),
                activities=[execute],
                max_concurrent_activities=self._serving.concurrency,
                graceful_shutdown_timeout=timedelta(0),
            )
            for queue in dict.fromkeys(self._serving.queues)
        ]
        running = [asyncio.ensure_future(worker.run()) for worker in workers]
        relaying = asyncio.ensure_future(self._relay())
        try:
            done, _ = await asyncio.wait({relaying, *running}, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        finally:
            relaying.cancel()
            if unsubscribe is not None:
                unsubscribe()
            await asyncio.gather(*(worker.shutdown() for worker in workers), return_exceptions=True)
            await asyncio.gather(relaying, *running, return_exceptions=True)

    async def _call(self, run_id: str, seq: int) -> None:
        """Execute a run, as an activity. Temporal repeats it later if it raises."""
        serving = self._serving
        if len(serving.active) >= serving.concurrency:  # by the activities of another queue
            raise _later(_LONGEST_PAUSE)
        call = asyncio.ensure_future(self._drive(run_id))
        serving.active.add(run_id)
        try:
            activity.heartbeat()
            while not (await asyncio.wait({call}, timeout=self._engine.heartbeat_seconds))[0]:
                activity.heartbeat()
            seconds = call.result()
        except asyncio.CancelledError:  # the worker drains, or Temporal gave the run to another one
            call.cancel()
            await asyncio.wait({call})
            details = activity.cancellation_details()
            if details is not None and details.worker_shutdown:
                raise _later(0) from None
            raise
        except Exception as error:  # noqa: BLE001 - whatever a driver raises is tried again
            # Temporal shows the text of an error to its users, so it gets none.
            raise ApplicationError(type(error).__name__) from None
        finally:
            serving.active.discard(run_id)
        if seconds is None:
            await self._do(self._journal.finish_wakes, [seq])
            return
        await self._do(self._journal.hold_wakes, [seq], seconds + _RELAY_AGAIN_SECONDS)
        raise _later(seconds)

    async def _relay(self) -> None:
        """Hand over the wakes of the journal that are due."""
        serving, pause = self._serving, _FIRST_PAUSE
        stopping = asyncio.ensure_future(serving.stop.wait())
        try:
            while not serving.stop.is_set():
                self._is_relaying.clear()
                taken = await self._do(self._journal.take_wakes, serving.queues, _RELAYED_AT_ONCE, _RELAY_AGAIN_SECONDS)
                await self._hand_over(taken)
                if serving.is_once and not taken and not serving.active and not await self._is_due():
                    return
                pause = _FIRST_PAUSE if taken else min(2 * pause, _LONGEST_PAUSE)
                hinted = asyncio.ensure_future(self._is_relaying.wait())
                await asyncio.wait({stopping, hinted}, timeout=pause, return_when=asyncio.FIRST_COMPLETED)
                hinted.cancel()
        finally:
            stopping.cancel()

    async def _hand_over(self, wakes: Sequence[PendingWake]) -> None:
        if not wakes:
            return
        results = await asyncio.gather(
            *(self._engine.start(self._client, wake) for wake in wakes), return_exceptions=True
        )
        failed = []
        for wake, error in zip(wakes, results, strict=True):
            if error is None:
                if wake.run_id in self._unreached:
                    self._unreached.discard(wake.run_id)
                    self._serving.refusals.pop(wake.run_id, None)
                continue
            if not isinstance(error, RPCError | RuntimeError):
                raise error
            failed.append(wake.seq)
            self._unreached.add(wake.run_id)
            refused = self._engine.unavailable(error)
            self._serving.refusals[wake.run_id] = f"{refused.code}: {refused.message}"
        if failed:
            await self._do(self._journal.hold_wakes, failed, _RETRY_SECONDS)

    async def _is_due(self) -> bool:
        """Return whether a wake of the queues is due: those to be tried later are held longer than others."""
        latest = microseconds() + _RELAY_AGAIN_SECONDS * 1_000_000
        wakes = await self._do(self._journal.wakes)
        return any(max(one.due, one.held_until) <= latest and one.queue in self._serving.queues for one in wakes)

    async def _do(self, call: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.to_thread(call, *arguments) if self._journal.is_remote else call(*arguments)


def _later(seconds: float) -> ApplicationError:
    """Return the error that lets Temporal call an activity again after some seconds."""
    return ApplicationError("later", next_retry_delay=timedelta(seconds=max(seconds, 0.001)))


def _level(priority: int) -> int:
    """Return the level of a priority in Temporal: from 1, the highest, to 5."""
    return 1 if priority >= 100 else 2 if priority > 0 else 3 if priority == 0 else 4 if priority > -100 else 5
