"""HTTP/1.1 as uvicorn speaks it: bounded time for the head of a request, and a problem document for what is none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import h11
import msgspec
from uvicorn.protocols.http.h11_impl import H11Protocol

from reyn.errors import RequestInvalid
from reyn.gateway.guard import HEADERS
from reyn.gateway.problems import PROBLEM, problem_of

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

    def send_400_response(self, msg: str) -> None:
        """Answer what is no request of HTTP as every other error is answered."""
        problem = problem_of(RequestInvalid(msg))
        body = msgspec.json.encode(msgspec.structs.replace(problem, title="Bad Request", status=400))
        headers = {**HEADERS, "Content-Type": PROBLEM, "Content-Length": str(len(body)), "Connection": "close"}
        pairs = [(name.encode(), text.encode()) for name, text in headers.items()]
        for event in (h11.Response(status_code=400, headers=pairs), h11.Data(data=body), h11.EndOfMessage()):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

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
