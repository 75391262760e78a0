"""Open the engine that the configuration names. Without one, it is Absurd on PostgreSQL, and the outbox elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from reyn.engines.outbox import Outbox
from reyn.engines.tasks import LEASE_SECONDS
from reyn.errors import EngineUnavailable

if TYPE_CHECKING:
    from reyn.engines.port import Dispatcher
    from reyn.journal import Journal
    from reyn.journal.postgres.journal import PostgresJournal


def open_engine(setting: str, journal: Journal, project: str, resolve: Callable[[str], str]) -> Dispatcher:
    """Open the engine that `engine` names.

    Args:
        setting: `absurd`, `outbox`, an address, the handle of a secret with one, or empty for the default.
        journal: The journal whose wakes it delivers.
        project: The name of the project, unless the journal has one.
        resolve: Returns the value of a secret.

    Raises:
        EngineUnavailable: The extra is missing, or the engine cannot be used with this journal.
        SecretMissing: There is no such secret.
    """
    url = resolve(setting) if setting.startswith(("secret://", "env://")) else setting
    database = _database(journal)
    if url in ("", "absurd"):
        if database is not None:
            from reyn.engines.absurd import Absurd

            return Absurd(database, _lease(database))
        if url:
            message = "the engine `absurd` needs a journal on PostgreSQL"
            raise EngineUnavailable(message, hint="Name it in `journal`, or remove `engine`.")
    if url.startswith("temporal://"):
        return _open_temporal(url, journal, project, database)
    if url not in ("", "outbox"):
        message = "the value of `engine` is neither `absurd`, `outbox` nor an address `temporal://HOST:PORT/NAMESPACE`"
        raise EngineUnavailable(message, hint="Correct `engine`, or the secret that it names.")
    return Outbox(journal, _lease(database), subscribe=database.subscribe if database is not None else None)


def start_engine(setting: str, journal: Journal, project: str, resolve: Callable[[str], str]) -> Dispatcher:
    """Open an engine as `open_engine` does, for a worker: wakes that another engine has are its own from now on."""
    engine, database = open_engine(setting, journal, project, resolve), _database(journal)
    if database is not None and engine.name != "absurd":
        from reyn.engines.absurd import stop_using

        stop_using(database)
    return engine


def _open_temporal(url: str, journal: Journal, project: str, database: PostgresJournal | None) -> Dispatcher:
    try:
        from reyn.engines.temporal import Temporal, TemporalAddress
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "temporalio":
            raise
        message = "the engine `temporal` needs the extra `temporal`"
        raise EngineUnavailable(message, hint="pip install 'reyn[temporal]'") from None
    if database is None:
        return Temporal(journal, TemporalAddress(url), project)
    name = f"{database.address.project}.{database.address.schema}"
    return Temporal(journal, TemporalAddress(url), name, _lease(database), subscribe=database.subscribe)


def _lease(database: PostgresJournal | None) -> float:
    """Return how long a wake is held without a sign of life: no longer than a claim on a run, which is waited for."""
    return LEASE_SECONDS if database is None else min(LEASE_SECONDS, database.address.lease)


def _database(journal: Journal) -> PostgresJournal | None:
    if not journal.is_remote:
        return None
    from reyn.journal.postgres.journal import PostgresJournal

    return journal if isinstance(journal, PostgresJournal) else None
