"""The content of the SQLite journal, in the tables `blobs` and `names`.

Blobs are stored in the order of their commits. The index by hash is a table of its own, because every new hash changes
another page of it: after some hundred blobs, a commit enters all of them at once. Until then, a blob is found by
reading the recent ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from reyn.errors import BlobMissing
from reyn.journal.canonical import Blob, digest

if TYPE_CHECKING:
    from reyn.journal.database import Database

_MAX_RECENT = 256
"""Blobs that may be missing in the index. A commit enters them when there are more."""
_CACHE_ENTRIES = 2_048
_NAME = 16
"""The index has so many bytes of a hash; they suffice to identify a blob, and make it small."""
_ENTERED = "(SELECT ifnull(max(blob), 0) FROM names WHERE name = x'')"
"""The last blob in the index, which is stored under an empty name."""
_HASH = "CAST(ifnull(hash, '') AS BLOB)"
"""The hash, which can have any type if it is damaged."""
_RECENT = f"SELECT id, {_HASH} FROM blobs WHERE id > max(?, {_ENTERED})"  # noqa: S608 - constants
_NAMED = f"(SELECT blob FROM names WHERE name = substr(:hash, 1, {_NAME}))"  # noqa: S608 - constants
_UNNAMED = f"(SELECT id FROM blobs WHERE id > {_ENTERED} AND hash = :hash)"  # noqa: S608 - constants
_FIND = f"SELECT id, length(content), content FROM blobs WHERE hash = :hash AND id = ifnull({_NAMED}, {_UNNAMED})"  # noqa: S608 - constants
_STORE = f"INSERT INTO blobs (hash, content) SELECT :hash, :content WHERE {_NAMED} IS NULL"
_ENTER = (
    f"INSERT OR IGNORE INTO names SELECT substr(hash, 1, {_NAME}), id FROM blobs WHERE id > {_ENTERED} ORDER BY 1",  # noqa: S608 - constants
    "INSERT OR REPLACE INTO names SELECT x'', ifnull(max(id), 0) FROM blobs",
)
_NEAR = 16
_AHEAD = 64
_MAX_AHEAD = 32_768
"""If a blob is at most `_NEAR` blobs after the last one, the next `_AHEAD` blobs up to this size are read with it."""
_READ_AHEAD = f"SELECT id, {_HASH}, content FROM blobs WHERE id > ? AND id <= ? AND length(content) <= ?"  # noqa: S608 - constants


class BlobStore:
    """Content by its hash. Callers of the methods that write hold the transaction."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._stored: OrderedDict[str, None] = OrderedDict()
        """The hashes of content that is stored, those of all recent blobs included."""
        self._seen = self._recent = 0
        self._ahead: dict[str, Any] = {}
        self._last_read = 0

    # -- writing --------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Forget what is stored: a run was deleted, or a transaction failed."""
        self._stored.clear()
        self._ahead = {}
        self._seen = self._recent = 0

    def refresh(self) -> None:
        """Find out what other connections have stored."""
        recent = self._db.own_rows(_RECENT, (self._seen,))
        self._stored.update((name.hex(), None) for _, name in recent)
        self._recent += len(recent)
        self._seen = recent[-1][0] if recent else self._seen

    def is_known(self, hash: str) -> bool:
        """Return whether content was stored when this was last checked. Runs may have been deleted since."""
        return hash in self._stored

    def store(self, blobs: Iterable[Blob]) -> None:
        """Store the blobs that are not known to be stored. If the transaction fails, `forget` has to be called."""
        stored = self._stored
        new = {blob.hash: blob.content for blob in blobs if blob.hash not in stored}
        if not new:
            return
        # `bytearray`, because sqlite3 searches for an adapter of every value that is `bytes`.
        rows = [{"hash": bytearray.fromhex(name), "content": bytearray(content)} for name, content in new.items()]
        self._db.writer.executemany(_STORE, rows)
        self._recent += len(rows)
        if self._recent > _MAX_RECENT:
            self._enter()
        stored.update(dict.fromkeys(new))
        while len(stored) > _CACHE_ENTRIES:
            stored.popitem(last=False)

    def remove(self, names: Collection[bytes]) -> None:
        """Remove content."""
        self._ahead = {}
        self._enter()
        for name in names:
            for number, *_ in self._db.own_rows(_FIND, {"hash": name}):
                self._db.writer.execute("DELETE FROM blobs WHERE id = ?", (number,))
                self._db.writer.execute("DELETE FROM names WHERE name = ?", (name[:_NAME],))
        self._enter()  # the numbers of the last blobs may be used again

    def _enter(self) -> None:
        """Enter recent blobs into the index."""
        for statement in _ENTER:
            self._db.writer.execute(statement)
        self._recent = 0

    # -- reading --------------------------------------------------------------------------------------

    def size(self, name: bytes) -> int | None:
        """Return the size of content, as the writing connection sees it; `None` if it is missing."""
        found = self._db.own_rows(_FIND, {"hash": name})
        return found[0][1] if found else None

    def read(self, hash: str) -> bytes:
        """Return content. Raises `BlobMissing` if it is missing or does not match its hash."""
        content = self._ahead.pop(hash, None)
        if content is None:
            content = self._load(hash)
        if not isinstance(content, bytes) or digest(content) != hash:
            raise BlobMissing(f"blob `{hash}` is damaged: its content does not match its hash")
        return content

    def _load(self, hash: str) -> Any:
        """Load content, and what follows it if this is what was done before: a replay reads in the order of storage."""
        try:
            name = bytes.fromhex(hash)
        except ValueError:
            raise BlobMissing(f"`{hash}` is not a blob hash") from None
        found = self._db.rows(_FIND, {"hash": name})
        if not found:
            raise BlobMissing(f"blob `{hash}` is missing")
        number, _, content = found[0]
        is_next, self._last_read = 0 < number - self._last_read <= _NEAR, number
        if is_next:
            self._read_ahead(number)
        return content

    def _read_ahead(self, number: int) -> None:
        rows = self._db.rows(_READ_AHEAD, (number, number + _AHEAD, _MAX_AHEAD))
        self._ahead = {name.hex(): content for _, name, content in rows}
        if rows:
            self._last_read = rows[-1][0]
