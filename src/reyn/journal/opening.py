"""Open the journal that the configuration names: on PostgreSQL. Without one, the journal is in the state folder."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.errors import StoreUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from reyn.journal.postgres.journal import PostgresJournal


def open_remote(setting: str, root: Path, resolve: Callable[[str], str] | None = None) -> PostgresJournal:
    """Open the journal at the address in `journal`.

    Args:
        setting: The address, or the handle of a secret with it.
        root: The project's folder, which gives the project its name.
        resolve: Returns the value of a secret; by default of the user's secrets.

    Raises:
        StoreUnavailable: The address is invalid, the extra is missing, or the database cannot be used.
        SecretMissing: There is no such secret.
    """
    try:
        from reyn.journal.postgres.address import JournalAddress
        from reyn.journal.postgres.journal import PostgresJournal
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "psycopg":
            raise
        message, hint = "a journal on PostgreSQL needs the extra `postgres`", "pip install 'reyn[postgres]'"
        raise StoreUnavailable(message, hint=hint) from None
    url = setting
    if setting.startswith(("secret://", "env://")):
        if resolve is None:
            from reyn.config.user import user_config
            from reyn.secrets import open_secrets

            resolve = open_secrets(origins=user_config()).resolve
        url = resolve(setting)
    return PostgresJournal(JournalAddress(url, root.name))
