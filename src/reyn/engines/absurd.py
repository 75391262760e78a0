"""Absurd as the dispatcher, on the PostgreSQL server that has the journal: a task of Absurd for each wake.

A trigger spawns the task in the transaction that stores the wake (`absurd.sql`). A worker claims tasks and executes
them in its event loop: the asynchronous worker of Absurd's SDK waits for all tasks that it claimed together, and the
other one has a thread for each. A task whose worker does not extend its claim goes to another one.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Collection, Sequence
from contextlib import closing
from functools import partial
from importlib import resources
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import psycopg
from psycopg import errors, sql

from reyn.engines.tasks import LEASE_SECONDS, Task, serve_tasks
from reyn.errors import EngineUnavailable, StoreUnavailable
from reyn.journal.postgres.link import Link, change, fetch
from reyn.journal.postgres.schema import check_owners

if TYPE_CHECKING:
    from reyn.engines.port import DriveRun, Serving
    from reyn.journal.postgres.address import JournalAddress
    from reyn.journal.postgres.journal import PostgresJournal
    from reyn.journal.postgres.link import PgConnection

_MIN_VERSION = (0, 5, 1)
_TRIGGER = "absurd_1"
_IS_USED = "SELECT 1 FROM pg_trigger WHERE tgrelid = to_regclass('wakes') AND tgname = %s"
_CREATE_QUEUES = """
SELECT absurd.create_queue(name) FROM unnest(%s::text[]) AS queue, absurd_queue(queue, 3) AS name
WHERE NOT EXISTS (SELECT FROM absurd.queues WHERE queue_name = name)
"""
_RELAYED_AT_ONCE = 100
_CLEAN_EVERY = 60
"""The looks for tasks between two removals of what is finished: about a minute."""
_REMOVED = (errors.UndefinedTable, errors.UndefinedFunction, errors.InvalidSchemaName)
"""Errors of a schema of Absurd that was removed."""
_LOST = ("AB001", "AB002", "P0001", *(error.sqlstate for error in _REMOVED))
"""The states of errors about a claim that this worker lost, or about a task that was cancelled in Absurd."""


class _Key(NamedTuple):
    """The key of a task: its queue and its run in Absurd, and its wake."""

    queue: str
    task: str
    wake: int


class Absurd:
    """Serves the wakes of a PostgreSQL journal through Absurd."""

    name: ClassVar[str] = "absurd"

    def __init__(self, journal: PostgresJournal, lease: float = LEASE_SECONDS) -> None:
        self._journal = journal
        self.lease = lease
        self._link = Link(journal.address)
        self._name = f"{socket.gethostname()}:{os.getpid()}"
        self._looks = 0

    def inspect(self) -> str:
        """See `Dispatcher.inspect`."""
        with closing(Link(self._journal.address)) as link:
            if (version := link.run(partial(_version, address=self._journal.address))) is not None:
                _check_version(version, self._journal.address)
                return f"absurd {_dotted(version)}, in the database of the journal"
        _schema_of_absurd()
        return "absurd, in the database of the journal; the first worker installs it"

    async def serve(self, drive: DriveRun, serving: Serving) -> None:
        """See `Dispatcher.serve`."""
        self._link = Link(self._journal.address)
        with closing(self._link):
            self.install(serving.queues)
            await serve_tasks(self, drive, serving, is_remote=True, subscribe=self._journal.subscribe)

    def install(self, queues: Sequence[str]) -> None:
        """Install Absurd in the database of the journal, and let the journal use it for these queues, unless that was
        done.

        Raises:
            EngineUnavailable: There is a version of Absurd that is too old, or none, and the extra is not installed.
        """
        with closing(Link(self._journal.address)) as link:
            link.run(partial(_install, address=self._journal.address, queues=queues))

    def take(self, queues: Sequence[str], limit: int) -> list[Task]:
        """See `TaskSource.take`, as of the methods below."""
        self._looks += 1
        served = list(queues)

        def take(connection: PgConnection) -> list[Task]:
            if self._looks % _CLEAN_EVERY == 0:
                fetch(
                    connection,
                    "SELECT absurd.cleanup_tasks(queue_name, 60, 10000) FROM absurd.queues "
                    "WHERE starts_with(queue_name, %s)",
                    (f"{self._journal.address.schema}.",),
                )
            fetch(connection, "SELECT absurd_relay(%s::text[], %s)", (served, _RELAYED_AT_ONCE))
            query = "SELECT name, task::text, run, wake FROM absurd_claim(%s::text[], %s, %s, %s)"
            values = (served, self._name, max(1, round(self.lease)), limit)
            return [Task(run, _Key(name, task, wake)) for name, task, run, wake in fetch(connection, query, values)]

        error: BaseException | None = None
        for repair in (self.install, self._make_queues_anew, None):  # each hands over all wakes again
            try:
                return self._link.run(take)
            except StoreUnavailable as failure:
                error = failure.__cause__
                if not isinstance(error, _REMOVED):
                    raise
            if repair is not None:
                repair(queues)
        raise EngineUnavailable(
            f"Absurd in `{self._journal.address}` is damaged: {str(error).splitlines()[0]}",
            hint="Repair it. If nothing else uses it, remove the schema `absurd`: the next worker installs it again, "
            "and no wake is lost.",
        )

    def _make_queues_anew(self, queues: Sequence[str]) -> None:
        """Replace the queues of this journal, of which tables were removed."""

        def drop(connection: PgConnection) -> None:
            query = "SELECT absurd.drop_queue(queue_name) FROM absurd.queues WHERE starts_with(queue_name, %s)"
            fetch(connection, query, (f"{self._journal.address.schema}.",))
            _prepare(connection, self._journal.address)

        self._link.run(drop)
        self.install(queues)

    def renew(self, tasks: Collection[Task]) -> list[Task]:
        query, seconds = "SELECT absurd.extend_claim(%s, %s::uuid, %s)", max(1, round(self.lease))
        return [task for task in tasks if not self._call(query, (*_key(task)[:2], seconds))]

    def finish(self, tasks: Collection[Task]) -> None:
        for task in tasks:
            queue, name, wake = _key(task)
            # First the wake: if the claim was lost meanwhile, the task is another worker's, and finds nothing to do.
            query = "WITH done AS (DELETE FROM wakes WHERE seq = %s) SELECT absurd.complete_run(%s, %s::uuid)"
            if not self._call(query, (wake, queue, name)):
                self._journal.finish_wakes([wake])

    def postpone(self, tasks: Collection[Task], seconds: float) -> None:
        query = "SELECT absurd.schedule_run(%s, %s::uuid, absurd.current_time() + make_interval(secs => %s))"
        for task in tasks:
            self._call(query, (*_key(task)[:2], float(seconds)))

    def _call(self, query: str, values: Sequence[object]) -> bool:
        """Call a function of Absurd about a claimed task; return whether this worker still holds the claim."""

        def call(connection: PgConnection) -> bool:
            try:
                fetch(connection, query, values)
            except psycopg.Error as error:
                if error.sqlstate in _LOST:
                    return False
                raise
            return True

        return self._link.run(call)


def _key(task: Task) -> _Key:
    assert isinstance(task.key, _Key)
    return task.key


def _install(connection: PgConnection, address: JournalAddress, queues: Sequence[str]) -> None:
    if not fetch(connection, _IS_USED, (_TRIGGER,)) or not _version(connection, address):
        _prepare(connection, address)
    # The queues of the usual priority. Others are created with their first wake.
    fetch(connection, _CREATE_QUEUES, (sorted(queues),))


def _prepare(connection: PgConnection, address: JournalAddress) -> None:
    with connection.transaction():
        # One worker installs it; others wait here, then find it installed.
        connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('reyn absurd', 0))")
        version = _version(connection, address)
        if version is None:
            connection.execute(_schema_of_absurd().encode())
        else:
            _check_version(version, address)
        text = (resources.files("reyn.engines") / "absurd.sql").read_text(encoding="utf-8")
        names = {"schema": sql.Identifier(address.schema), "schema_text": sql.Literal(address.schema)}
        connection.execute(sql.SQL(text).format(**names))


def stop_using(journal: PostgresJournal) -> None:
    """Let a journal use another engine. Absurd and its tables stay."""

    def uninstall(connection: PgConnection) -> None:
        if fetch(connection, _IS_USED, (_TRIGGER,)):
            with connection.transaction():
                connection.execute(f"DROP TRIGGER IF EXISTS {_TRIGGER} ON wakes".encode())
                change(connection, "UPDATE wakes SET held_until = 0")

    with closing(Link(journal.address)) as link:
        link.run(uninstall)


def _version(connection: PgConnection, address: JournalAddress) -> tuple[int, ...] | None:
    check_owners(connection, address, "absurd")
    [(name,)] = fetch(connection, "SELECT to_regprocedure('absurd.get_schema_version()')::text")
    if name is None:
        return None
    [(version,)] = fetch(connection, "SELECT absurd.get_schema_version()")
    if not re.fullmatch(r"\d+(\.\d+)*", version):  # a development version
        return _MIN_VERSION
    return tuple(map(int, version.split(".")))


def _check_version(version: tuple[int, ...], address: JournalAddress) -> None:
    if version < _MIN_VERSION:
        raise EngineUnavailable(
            f"`{address}` has Absurd {_dotted(version)}; Reyn needs {_dotted(_MIN_VERSION)} or newer",
            hint="Upgrade it: `absurdctl migrate`.",
        )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _schema_of_absurd() -> str:
    try:
        from absurdctl import BUNDLED_SCHEMA_SQL
    except ImportError:
        message = "the engine `absurd` needs the extra `postgres`"
        raise EngineUnavailable(message, hint="pip install 'reyn[postgres]'") from None
    return str(BUNDLED_SCHEMA_SQL)
