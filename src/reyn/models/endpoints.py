"""Limits of model endpoints, shared by all runs of a process: concurrency, and a circuit breaker.

`Endpoint` admits calls in the order in which they arrive (FIFO). Its state lives in the process and is not recorded;
what a run experiences of it (a wait, a retry, a switch) is recorded by `reyn.kernel.world.llm_call_recorder`.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Literal, NamedTuple

from reyn.config.models import ADAPTERS, BUILT_IN_ADAPTERS, EndpointSettings
from reyn.errors import CircuitOpen, ModelError, ModelTimeout, ModelUnavailable, OriginInvalid, ResponseIncomplete
from reyn.secrets import origin_of

if TYPE_CHECKING:
    from reyn.config import ModelSettings

    OnWait = Callable[["Wait"], Awaitable[None]]

FAILURES = (ModelUnavailable, ModelTimeout, ResponseIncomplete, TimeoutError)
"""Errors that the circuit breaker counts. A server that rejects a request, or limits its rate, is working."""

WaitReason = Literal["concurrency", "probe"]


class Wait(NamedTuple):
    """Why a call waits.

    Attributes:
        reason: The limit that is reached; `probe` waits for the call that tests whether the endpoint works again.
        ahead: The number of calls that are admitted first.
    """

    reason: WaitReason
    ahead: int


class EndpointClock:
    """The time of an endpoint: the monotonic clock of the machine."""

    def now(self) -> float:
        """Return a time in seconds that never goes back."""
        return time.monotonic()


class Slot:
    """The permission for one call."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.event = asyncio.Event()

    def wake(self) -> None:
        """Let the waiting call look again. Its event loop may run in another thread."""
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.event.set)

    @property
    def is_abandoned(self) -> bool:
        """Whether the event loop of the call was closed before the call ended."""
        return self._loop.is_closed()


class Endpoint:
    """One endpoint. All methods can be called from any thread."""

    def __init__(self, name: str, settings: EndpointSettings, clock: EndpointClock | None = None) -> None:
        self.name = name
        self.settings = settings
        self._clock = clock or EndpointClock()
        self._lock = threading.Lock()
        self._queue: deque[Slot] = deque()
        self._active: set[Slot] = set()
        self._failures = 0
        self._opened_at: float | None = None
        self._probe: Slot | None = None

    @asynccontextmanager
    async def slot(self, on_wait: OnWait) -> AsyncIterator[Slot]:
        """Wait for a slot, and hold it while the call runs.

        Args:
            on_wait: Called once, before the call waits.

        Raises:
            CircuitOpen: The endpoint is not called for a while.
        """
        slot = Slot()
        await self._enter(slot, on_wait)
        try:
            yield slot
        except BaseException as error:
            self._leave(slot, is_failure=isinstance(error, FAILURES), is_success=_is_answer(error))
            raise
        self._leave(slot, is_success=True)

    async def _enter(self, slot: Slot, on_wait: OnWait) -> None:
        with self._lock:
            self._queue.append(slot)
        is_reported = False
        try:
            while (wait := self._try_admit(slot)) is not None:
                if not is_reported:
                    is_reported = True
                    await on_wait(wait)
                    continue
                await slot.event.wait()
                slot.event.clear()
        except BaseException:
            with self._lock:
                if slot in self._queue:
                    self._queue.remove(slot)
                self._wake_next()
            raise

    def _try_admit(self, slot: Slot) -> Wait | None:
        """Admit a call, or return why it waits."""
        with self._lock:
            now = self._clock.now()
            self._drop_abandoned()
            self._check_circuit(now)
            ahead = self._queue.index(slot)
            wait = self._obstacle()
            if ahead or wait is not None:
                return Wait(wait or "concurrency", ahead)
            self._queue.popleft()
            self._active.add(slot)
            if self._opened_at is not None:
                self._probe = slot
            self._wake_next()
            return None

    def _drop_abandoned(self) -> None:
        """Free the places of calls that can no longer end."""
        for slot in [slot for slot in (*self._active, *self._queue) if slot.is_abandoned]:
            self._active.discard(slot)
            if slot in self._queue:
                self._queue.remove(slot)
            self._probe = None if self._probe is slot else self._probe

    def _check_circuit(self, now: float) -> None:
        if self._opened_at is None:
            return
        left = self._opened_at + self.settings.cooldown - now
        if left > 0:
            message = f"{self.name} failed {self._failures} times in a row; it is called again in {left:.0f} seconds"
            error = CircuitOpen(message)
            error.retry_after = left
            raise error

    def _obstacle(self) -> WaitReason | None:
        """Return what keeps the first call of the queue from being admitted."""
        if self._probe is not None:
            return "probe"
        most = self.settings.concurrency
        return "concurrency" if most is not None and len(self._active) >= most else None

    def _leave(self, slot: Slot, *, is_success: bool = False, is_failure: bool = False) -> None:
        """End a call. One that was cancelled is neither a success nor a failure."""
        with self._lock:
            self._active.discard(slot)
            was_probe = self._probe is slot
            if was_probe:
                self._probe = None
            if is_success:
                self._failures = 0
                self._opened_at = None if was_probe else self._opened_at
            if is_failure:
                self._failures += 1
                limit = self.settings.failures
                if was_probe or (self._opened_at is None and limit is not None and self._failures >= limit):
                    self._opened_at = self._clock.now()
                    for waiting in self._queue:
                        waiting.wake()  # all of them fail
            self._wake_next()

    def _wake_next(self) -> None:
        if self._queue:
            self._queue[0].wake()


class Endpoints:
    """The endpoints that the runs of a process have used."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._endpoints: dict[str, Endpoint] = {}

    def get(self, name: str, settings: EndpointSettings) -> Endpoint:
        """Return an endpoint. If projects in one process configure it differently, the latest settings apply."""
        with self._lock:
            if name not in self._endpoints:
                self._endpoints[name] = Endpoint(name, settings)
            self._endpoints[name].settings = settings
            return self._endpoints[name]

    def reset(self) -> None:
        """Forget all endpoints and their failures."""
        with self._lock:
            self._endpoints.clear()


ENDPOINTS = Endpoints()


def endpoint_name(settings: ModelSettings) -> str:
    """Return the endpoint of a model: the origin of its server, or its adapter; empty if it has none."""
    adapter, _, rest = settings.model.partition(":")
    url = settings.base_url or (ADAPTERS[adapter].url if adapter in ADAPTERS else "")
    if url:
        try:
            return origin_of(url)
        except OriginInvalid:
            return url
    if adapter == "litellm":
        return f"litellm:{rest.partition('/')[0]}"
    return "" if adapter in BUILT_IN_ADAPTERS else adapter


def endpoint_settings(name: str, adapter: str, configured: Mapping[str, EndpointSettings]) -> EndpointSettings:
    """Return the settings of an endpoint: by its own name, by its adapter, or `default`."""
    for key in (name, adapter, "default"):
        if key in configured:
            return configured[key]
    return EndpointSettings()


def _is_answer(error: BaseException) -> bool:
    """Return whether an error shows that the endpoint works: it rejected the request."""
    return isinstance(error, ModelError) and not isinstance(error, FAILURES)
