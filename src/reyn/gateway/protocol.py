"""HTTP/1.1 as uvicorn speaks it, with a bound on the time that a client may take for the head of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from asyncio import TimerHandle, Transport

HEAD_SECONDS: float = 20


class PatientProtocol(H11Protocol):
    """A connection. Without a whole request for `HEAD_SECONDS`, it is closed: the server has a limited number of them.

    uvicorn bounds the time between a response and the first byte of the next request, and the guard that of a body.
    """

    _head_ends: TimerHandle | None = None

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._forget()

    def _watch(self) -> None:
        """Start to wait for the head of a request, unless one is in progress."""
        if not self._is_idle:
            self._forget()
        elif self._head_ends is None:
            self._head_ends = self.loop.call_later(HEAD_SECONDS, self._expire)

    @property
    def _is_idle(self) -> bool:
        cycle: Any = self.cycle
        return cycle is None or cycle.response_complete

    def _forget(self) -> None:
        if self._head_ends is not None:
            self._head_ends.cancel()
            self._head_ends = None

    def _expire(self) -> None:
        self._head_ends = None
        if self._is_idle and not self.transport.is_closing():
            self.transport.close()
