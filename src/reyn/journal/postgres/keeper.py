"""The thread that keeps the lease of a process, reads the inboxes of its runs, and passes hints between processes.

It has a connection of its own, and shares nothing with the event loop. One query reads the inboxes of all runs that
this process executes. A hint (`NOTIFY`) only makes it come earlier; without hints it comes every half second. Hints are
sent after the commit and several at once: inside an append, they would serialise all commits of the server.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING

import psycopg

from reyn.errors import JournalError
from reyn.journal.messages import InboxMessage, decode_payload
from reyn.journal.postgres.link import Link, fetch

if TYPE_CHECKING:
    from reyn.journal.postgres.address import JournalAddress
    from reyn.journal.postgres.leases import Leases
    from reyn.journal.postgres.link import PgConnection

_POLL_SECONDS = 0.5
_GATHER_SECONDS = 0.01
"""How long hints are collected before they are sent together."""
_MAX_HINT = 7_000
"""The size of a hint that names runs; a longer one would be refused, so it names none."""
_RETRY_SECONDS = 0.25
_INBOX = """
SELECT i.run_id, i.id, i.payload FROM unnest(%s::text[], %s::bigint[]) AS w (run_id, after)
JOIN inbox i ON i.run_id = w.run_id AND i.id > w.after ORDER BY i.run_id, i.id
"""


class Keeper:
    """Keeps the lease of a process. The thread starts with the first claim, subscriber or hint."""

    def __init__(self, address: JournalAddress, leases: Leases) -> None:
        self._leases = leases
        self._link = Link(address)
        self._channel = f"reyn_{address.schema}"
        self._lock = threading.Lock()
        self._hints: set[str] = set()
        self._watched: dict[str, int] = {}
        """The runs whose inboxes are read, each with the id of the last message that was found."""
        self._found: dict[str, list[InboxMessage]] = {}
        self._subscribers: list[Callable[[Collection[str]], None]] = []
        self._thread: threading.Thread | None = None
        self._wakeup: tuple[int, int] | None = None
        self._is_closing = False
        self._renew_at = self._poll_at = 0.0
        self._listening: PgConnection | None = None

    # -- the caller's side ----------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread; if it runs, let it look at once."""
        with self._lock:
            if self._is_closing:
                return
            if self._thread is None:
                self._wakeup = os.pipe()
                self._thread = threading.Thread(target=self._work, name="reyn-lease", daemon=True)
                self._thread.start()
        self._nudge()

    def hint(self, run_ids: Collection[str]) -> None:
        """Let other processes know that these runs have something to do."""
        with self._lock:
            self._hints.update(run_ids)
        self.start()

    def subscribe(self, callback: Callable[[Collection[str]], None]) -> Callable[[], None]:
        """Call a function with the runs that a hint names, or with none if it may be any. Returns how to end that."""
        with self._lock:
            self._subscribers.append(callback)
        self.start()

        def unsubscribe() -> None:
            with self._lock, suppress(ValueError):
                self._subscribers.remove(callback)

        return unsubscribe

    def messages(self, run_id: str, after: int) -> list[InboxMessage] | None:
        """Return the messages to a run that were found; `None` if its inbox is not read."""
        with self._lock:
            if run_id not in self._watched:
                return None
            found = self._found.get(run_id)
            if not found:
                return []
            found = self._found[run_id] = [message for message in found if message.id > after]
            return list(found)

    def watch(self, run_id: str, after: int, found: list[InboxMessage]) -> None:
        """Read the inbox of a run from now on, after the messages that were found."""
        with self._lock:
            self._watched[run_id] = max(after, found[-1].id if found else 0)
            self._found[run_id] = list(found)

    def forget(self, run_id: str) -> None:
        """Stop reading the inbox of a run."""
        with self._lock:
            self._watched.pop(run_id, None)
            self._found.pop(run_id, None)

    def close(self) -> None:
        """Send the last hints, and stop."""
        with self._lock:
            self._is_closing = True
        self._nudge()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        if self._wakeup is not None:
            for end in self._wakeup:
                os.close(end)
            self._wakeup = None
        self._link.close()

    def _nudge(self) -> None:
        if self._wakeup is not None:
            with suppress(OSError):
                os.write(self._wakeup[1], b".")

    # -- the thread -----------------------------------------------------------------------------------

    def _work(self) -> None:
        while True:
            try:
                is_closing = self._is_closing
                self._link.run(self._step, retry_seconds=_RETRY_SECONDS)
                if is_closing:
                    return
            except (JournalError, OSError):
                if self._is_closing:
                    return
                # The server is not reached. Drivers notice when their lease may have ended.
                self._wait(None, _RETRY_SECONDS)

    def _step(self, connection: PgConnection) -> None:
        """Do what is due, then wait for what comes next."""
        if self._listening is not connection:
            connection.execute(psycopg.sql.SQL("LISTEN {}").format(psycopg.sql.Identifier(self._channel)))
            self._listening = connection
            self._poll_at = 0.0
        self._send_hints(connection)
        if self._is_closing:
            return
        now = time.monotonic()
        if self._leases.runs and now >= self._renew_at:
            self._leases.renew(connection)
            self._renew_at = now + self._leases.lease / 3
        if now >= self._poll_at:
            self._read_inboxes(connection)
            self._poll_at = now + _POLL_SECONDS
        ends = [self._poll_at] if self._watched else []
        ends += [self._renew_at] if self._leases.runs else []
        self._wait(connection, max(min(ends, default=now + 60.0) - time.monotonic(), 0.0))
        self._receive(connection)

    def _wait(self, connection: PgConnection | None, seconds: float) -> None:
        assert self._wakeup is not None
        poller = select.poll()
        poller.register(self._wakeup[0], select.POLLIN)
        if connection is not None:
            poller.register(connection.fileno(), select.POLLIN)
        ready = poller.poll(seconds * 1000)
        if any(handle == self._wakeup[0] for handle, _ in ready):
            os.read(self._wakeup[0], 4096)

    def _receive(self, connection: PgConnection) -> None:
        for notified in connection.notifies(timeout=0):
            run_ids = notified.payload.split(",") if notified.payload else []
            with self._lock:
                if not run_ids or any(run_id in self._watched for run_id in run_ids):
                    self._poll_at = 0.0
                subscribers = list(self._subscribers)
            for callback in subscribers:
                callback(run_ids)

    def _send_hints(self, connection: PgConnection) -> None:
        if not self._hints:
            return
        time.sleep(_GATHER_SECONDS)
        with self._lock:
            run_ids, self._hints = self._hints, set()
        payload = ",".join(run_ids)
        connection.execute("SELECT pg_notify(%s, %s)", (self._channel, payload if len(payload) <= _MAX_HINT else ""))

    def _read_inboxes(self, connection: PgConnection) -> None:
        with self._lock:
            watched = dict(self._watched)
        if not watched:
            return
        for run_id, number, payload in fetch(connection, _INBOX, (list(watched), list(watched.values()))):
            with self._lock:
                if self._watched.get(run_id, number) < number:
                    self._watched[run_id] = number
                    self._found[run_id].append(InboxMessage(number, decode_payload(payload)))
