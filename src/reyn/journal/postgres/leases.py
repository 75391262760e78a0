"""Claims on runs that several machines share: leases of a process, with a fence number for each claim.

A process has one lease, which covers all its claims and is renewed by one statement. The database's clock alone decides
whether it has expired. A claim that is taken over gets a higher fence, which is also in the row of the run: an append
compares it there, in the row that it locks anyway.
"""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import ClaimLost, JournalError, RunBusy
from reyn.journal.postgres.link import can_store, change, fetch

if TYPE_CHECKING:
    from reyn.journal.postgres.link import Link, PgConnection

_MARGIN = 0.9
"""The part of a lease that its holder counts on."""
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""It also runs while the machine sleeps."""
_WAIT_SECONDS = 0.1
"""How long to wait for another driver, which may be about to release the run."""

_RENEW = """
INSERT INTO owners VALUES (%(id)s, %(name)s, %(host)s, %(pid)s, %(began)s, clock_timestamp(),
    clock_timestamp() + make_interval(secs => %(lease)s))
ON CONFLICT (id) DO UPDATE SET lease_until = excluded.lease_until
"""
_OWN = "SELECT run_id, fence FROM claims WHERE owner = %s"
# The lock on the owner's row excludes its renewal: either it is found renewed, or its process finds the new fence.
_HOLDER = """
SELECT o.id, o.name, o.host, o.pid, o.began, o.lease_until < clock_timestamp(),
    extract(epoch FROM o.lease_until - clock_timestamp())::float8
FROM owners o WHERE o.id = (SELECT owner FROM claims WHERE run_id = %s) FOR UPDATE
"""
_CLAIM = """
INSERT INTO claims AS c VALUES (%(run)s, %(owner)s, nextval('fences'), clock_timestamp())
ON CONFLICT (run_id) DO UPDATE SET owner = excluded.owner, fence = excluded.fence, since = excluded.since
    WHERE c.owner = %(holder)s OR NOT EXISTS (SELECT FROM owners o WHERE o.id = c.owner)
RETURNING fence
"""
# One round trip for a claim that nobody holds, which is the usual case.
_CLAIM_FREE = """
WITH claim AS (
    INSERT INTO claims VALUES (%(run)s, %(owner)s, nextval('fences'), clock_timestamp())
    ON CONFLICT DO NOTHING RETURNING fence),
run AS (UPDATE runs SET fence = claim.fence FROM claim WHERE run_id = %(run)s)
SELECT fence FROM claim
"""
_FENCE = "UPDATE runs SET fence = %s WHERE run_id = %s"
_RELEASE = "DELETE FROM claims WHERE run_id = %s AND owner = %s"
_HELD = """
SELECT c.run_id, o.host, o.pid, o.began FROM claims c JOIN owners o ON o.id = c.owner
WHERE c.run_id = ANY(%s) AND o.lease_until >= clock_timestamp()
"""
_FORGET = """
DELETE FROM owners o WHERE lease_until < clock_timestamp() - interval '1 day'
    AND NOT EXISTS (SELECT FROM claims c WHERE c.owner = o.id)
"""
ALL_CLAIMS = """
SELECT c.run_id, o.id::text, o.name, c.fence, (extract(epoch FROM c.since) * 1000000)::bigint,
    extract(epoch FROM o.lease_until - clock_timestamp())::float8
FROM claims c JOIN owners o ON o.id = c.owner ORDER BY c.run_id
"""


class HeldClaim(msgspec.Struct, frozen=True):
    """A claim of any process: the run, its owner, the fence, since when, and for how many seconds it is leased."""

    run_id: str
    owner: str
    name: str
    fence: int
    since: int
    seconds: float


class Leases:
    """The claims of one process. `link` is used by the caller's threads, `renew` by the thread that keeps the lease."""

    def __init__(self, link: Link, lease: float) -> None:
        self.id = uuid.uuid4()
        self.lease = lease
        self.name = f"{socket.gethostname()}:{os.getpid()}"
        self._link = link
        self.on_claim: Callable[[], None] = lambda: None
        """Called after a claim was taken."""
        self._lock = threading.Lock()
        self._held: dict[str, int] = {}
        self._lost: set[str] = set()
        self._until = 0.0

    # -- claiming -------------------------------------------------------------------------------------

    @contextmanager
    def hold(self, run_id: str) -> Iterator[None]:
        """Hold the claim on a run during the block. Raises `RunBusy` if another driver holds it."""
        fence = self._acquire(run_id)
        try:
            yield
        finally:
            self._release(run_id, fence)

    def _acquire(self, run_id: str) -> int:
        deadline = time.monotonic() + _WAIT_SECONDS
        while True:
            with self._lock:
                if run_id in self._held:
                    raise RunBusy.in_this_process(run_id)
                self._held[run_id] = 0
            holder: Any = None
            try:
                self._check_lease()
                fence, holder = self._link.run(lambda connection: self._take(connection, run_id))
                if fence:
                    self._held[run_id] = fence
                    self._lost.discard(run_id)
                    self.on_claim()
                    return fence
            finally:
                if not self._held[run_id]:
                    del self._held[run_id]
            if time.monotonic() > deadline:
                name, seconds = holder
                raise RunBusy(
                    f"run `{run_id}` is being executed by {name}",
                    run_id=run_id,
                    hint=f"Wait for it, or stop it and resume the run. If that machine is gone, its claim ends in "
                    f"{max(seconds, 0):.0f} s.",
                )
            time.sleep(0.02)

    def _take(self, connection: PgConnection, run_id: str) -> tuple[int, tuple[str, float] | None]:
        """Take a claim that is free, expired, or of a process that died on this machine; return its fence, or 0 and the
        holder."""
        if claimed := fetch(connection, _CLAIM_FREE, {"run": run_id, "owner": self.id}):
            return int(claimed[0][0]), None
        with connection.transaction():
            found = fetch(connection, _HOLDER, (run_id,))
            holder = None
            if found:
                holder, name, host, pid, began, is_expired, seconds = found[0]
                if holder != self.id and not is_expired and not _is_dead(host, pid, began):
                    return 0, (name, seconds)
            claimed = fetch(connection, _CLAIM, {"run": run_id, "owner": self.id, "holder": holder})
            if not claimed:  # another process was faster
                return 0, ("another process", 0.0)
            fence = int(claimed[0][0])
            change(connection, _FENCE, (fence, run_id))
            return fence, None

    def _release(self, run_id: str, fence: int) -> None:
        with self._lock:
            del self._held[run_id]
            was_lost = run_id in self._lost
            self._lost.discard(run_id)
        if not was_lost:
            with suppress(JournalError):  # the lease ends by itself
                self._link.run(lambda connection: change(connection, _RELEASE, (run_id, self.id)), retry_seconds=2.0)

    # -- what is held ---------------------------------------------------------------------------------

    @property
    def runs(self) -> list[str]:
        """The runs that this process executes."""
        with self._lock:
            return [run_id for run_id, fence in self._held.items() if fence]

    def fence_of(self, run_id: str) -> int | None:
        """Return the fence of a claim; `None` without a claim."""
        return self._held.get(run_id) or None

    def check(self, run_id: str) -> None:
        """Raise `ClaimLost` if the claim on a run was lost. Asks the database only if the lease may have expired."""
        self._check_lease()
        if run_id in self._lost:
            raise self.lost(run_id)

    @staticmethod
    def lost(run_id: str) -> ClaimLost:
        return ClaimLost(f"this process was paused or disconnected, and lost its claim on run `{run_id}`")

    def is_held(self, run_id: str) -> bool:
        """Return whether a live process holds the claim on a run."""
        if self.fence_of(run_id) is not None and run_id not in self._lost:
            return True
        return bool(self.held_of([run_id]))

    def held_of(self, names: Collection[str]) -> set[str]:
        """Return those of these names on which live processes hold claims."""
        found = self._link.rows(_HELD, ([*filter(can_store, names)],))
        return {name for name, *process in found if not _is_dead(*process)}

    # -- renewing -------------------------------------------------------------------------------------

    def _check_lease(self) -> None:
        if time.clock_gettime(_BOOT_CLOCK) >= self._until:
            self._link.run(self.renew)

    def renew(self, connection: PgConnection) -> None:
        """Renew the lease, then find out which claims were lost."""
        with self._lock:
            before = dict(self._held)
        asked = time.clock_gettime(_BOOT_CLOCK)
        name, values = self.name, {"id": self.id, "lease": self.lease}
        change(connection, _RENEW, values | {"name": name, "host": _host(), "pid": os.getpid(), "began": _began()})
        found: dict[str, int] = dict(fetch(connection, _OWN, (self.id,)))
        with self._lock:
            self._lost |= {
                run_id
                for run_id, fence in before.items()
                if fence and fence == self._held.get(run_id) and found.get(run_id) != fence
            }
            self._until = max(self._until, asked + self.lease * _MARGIN)

    def register(self, connection: PgConnection) -> None:
        """Record the process, whether or not it holds claims."""
        if not self._until:
            self.renew(connection)

    def give_back(self, connection: PgConnection) -> None:
        """Remove the lease of a process that ends, with those that ended long ago."""
        change(connection, "DELETE FROM claims WHERE owner = %s", (self.id,))
        change(connection, "DELETE FROM owners WHERE id = %s", (self.id,))
        change(connection, _FORGET)


# -- processes of this machine ----------------------------------------------------------------------------


def _host() -> str:
    """Return what identifies this machine and its namespace of processes; empty if nothing does."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}:{os.stat('/proc/self/ns/pid').st_ino}"  # noqa: PTH116 - not a file
    except OSError:
        return ""


def _began(pid: int | str = "self") -> str:
    """Return when a process of this machine began; empty if there is none, or if it was killed."""
    try:
        state, *fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return "" if state in b"ZX" else fields[18].decode()
    except (OSError, IndexError):
        return ""


def _is_dead(host: str, pid: int, began: str) -> bool:
    """Return whether a process is known to have ended: it was on this machine."""
    return bool(host) and host == _host() and began != _began(pid)
