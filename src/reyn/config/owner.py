"""The key of the user's journals: `~/.config/reyn/journal.key`.

A journal that Reyn creates holds a mark that only this key can make. A journal without one came with a project, or from
another user or machine: its runs and standing approvals are not the user's own.
"""

from __future__ import annotations

import hmac
import os
import secrets
from typing import TYPE_CHECKING

from reyn.errors import UserConfigUnavailable
from reyn.private_files import PrivateFile, user_folder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NAME = "journal.key"
_KEY_BYTES = 32
_NONCE_BYTES = 16
_PURPOSE = b"reyn journal\0"


class JournalKey:
    """Makes and recognizes the marks of the user's journals.

    Without a writable home directory there is no key. Then there are no marks, and every journal counts as the
    user's own, because Reyn cannot check who created it.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._file = PrivateFile(path, UserConfigUnavailable, is_confidential=True) if path else None
        self._loaded: bytes | None = None

    def __repr__(self) -> str:
        return f"JournalKey({str(self.path)!r})"

    def new_mark(self) -> bytes | None:
        """Return a mark for a journal; `None` if no key can be stored."""
        key, nonce = self._key(), secrets.token_bytes(_NONCE_BYTES)
        return None if key is None else nonce + _mac(key, nonce)

    def recognizes(self, marks: list[bytes]) -> bool:
        """Return whether the user's key made one of the marks."""
        key = self._key()
        return key is None or any(
            hmac.compare_digest(mark[_NONCE_BYTES:], _mac(key, mark[:_NONCE_BYTES])) for mark in marks
        )

    def _key(self) -> bytes | None:
        """Return the key, which is created on first use; `None` if that is impossible.

        Raises:
            UserConfigUnavailable: Other users have access to the key, or it is damaged.
        """
        if self._loaded is None and self._file is not None:
            content = self._file.read() or self._created(self._file)
            if content is not None and len(content) != _KEY_BYTES:
                raise self._file.refusal(self._file.path, "is not a key", "Restore it from a backup, or delete it.")
            self._loaded = content
        return self._loaded

    @staticmethod
    def _created(file: PrivateFile) -> bytes | None:
        try:
            file.update(lambda content: None if content else secrets.token_bytes(_KEY_BYTES))
        except UserConfigUnavailable as error:
            if isinstance(error.__cause__, OSError):
                return None
            raise
        return file.read()


def journal_key(environ: Mapping[str, str] | None = None) -> JournalKey:
    """Return the key of the user who runs this process. Without a home directory there is none."""
    try:
        return JournalKey(user_folder(os.environ if environ is None else environ) / NAME)
    except RuntimeError:
        return JournalKey(None)


def _mac(key: bytes, nonce: bytes) -> bytes:
    return hmac.digest(key, _PURPOSE + nonce, "sha256")
