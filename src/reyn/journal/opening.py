"""Where the journal of a project is. Nothing else opens one that the configuration names.

A journal that is passed to a runtime, in tests and programs, was opened by its caller.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from reyn.errors import StoreUnavailable
from reyn.journal.port import STATE
from reyn.journal.state_folder import has_journal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Self

    from reyn.journal.port import Journal
    from reyn.journal.postgres.journal import PostgresJournal
    from reyn.journal.sqlite import SqliteJournal


@dataclass(frozen=True)
class JournalPlace:
    """Where a journal is: in a state folder, or on PostgreSQL.

    Attributes:
        folder: The state folder. The folder above it names the project.
        address: The address on PostgreSQL, or the handle of a secret with it; empty if the journal is in the folder.
        resolve: Returns the value of a secret; by default of the user's secrets.
        adopts: Whether to trust the journal in the folder even if another user created it.
    """

    folder: Path
    address: str = ""
    resolve: Callable[[str], str] | None = None
    adopts: bool = False

    @classmethod
    def of(cls, root: Path, address: str = "", *, adopts: bool = False) -> Self:
        """Return where the journal of a project is; `address` is the key `journal` of its configuration."""
        return cls(root / STATE, address, adopts=adopts)

    @property
    def has_journal(self) -> bool:
        """Whether there is a journal. One at an address is prepared when it is opened."""
        return bool(self.address) or has_journal(self.folder)

    @property
    def is_read_only(self) -> bool:
        """Whether the journal is in a folder that this process cannot write."""
        return not self.address and not os.access(self.folder, os.W_OK)

    def open(self, *, create: bool = True) -> Journal:
        """Open the journal.

        Args:
            create: Whether to create it if it is missing; if not, an empty one in memory stands for it.

        Raises:
            StoreUnavailable: The address is invalid, the extra is missing, or the database cannot be used.
            StateFolderUnsafe: The state folder is not safe to use.
            SecretMissing: There is no such secret.
        """
        if create or self.has_journal:
            return self.open_remote() if self.address else self.open_file()
        from reyn.journal.memory import MemoryJournal

        return MemoryJournal()

    def open_file(self) -> SqliteJournal:
        """Open the journal in the folder. It is created if needed, with the mark of the user of this process.

        If there is one in a folder that cannot be written, it is read only.
        """
        from reyn.journal.sqlite import SqliteJournal

        if self.is_read_only and self.has_journal:
            return SqliteJournal(self.folder, is_read_only=True)
        from reyn.config.user import journal_key

        journal = SqliteJournal(self.folder, owner=journal_key())
        try:
            if self.adopts:
                journal.adopt()
        except BaseException:
            journal.close()
            raise
        return journal

    def open_remote(self) -> PostgresJournal:
        """Open the journal at the address."""
        try:
            from reyn.journal.postgres.address import JournalAddress
            from reyn.journal.postgres.journal import PostgresJournal
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] != "psycopg":
                raise
            message, hint = "a journal on PostgreSQL needs the extra `postgres`", "pip install 'reyn[postgres]'"
            raise StoreUnavailable(message, hint=hint) from None
        url, resolve = self.address, self.resolve
        if url.startswith(("secret://", "env://")):
            if resolve is None:
                from reyn.config.user import user_config
                from reyn.secrets import open_secrets

                resolve = open_secrets(origins=user_config()).resolve
            url = resolve(url)
        return PostgresJournal(JournalAddress(url, self.folder.parent.name))
