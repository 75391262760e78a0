"""The address of a PostgreSQL journal: what libpq connects to, and the project that it holds.

An address may contain a password, so it is never printed: `str` and `repr` show server and database only.
"""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from reyn.config.models import without_credentials
from reyn.errors import StoreUnavailable

SCHEMES = ("postgresql://", "postgres://")
_SCHEMA = re.compile(r"[a-z_][a-z0-9_]{0,47}")
_NUMBER = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")
_LEASE_SECONDS = 10.0
_LEASES = (1.0, 3600.0)
_ENCODING = (
    "in a user name or password, `/`, `?`, `#`, `@`, `%` and spaces are written as `%2F` and so on; parameters are "
    "those of libpq"
)


class JournalAddress:
    """A parsed address.

    Attributes:
        parameters: What libpq connects to. They may contain a password.
        schema: The schema of the project's tables. Each project of a database has its own.
        project: The name of the project.
        lease: For how many seconds a process holds its claims without renewing them.
    """

    def __init__(self, url: str, project: str) -> None:
        """Parse the URL of a journal.

        Args:
            url: `postgresql://USER@HOST:PORT/DATABASE`, with parameters of libpq, and with those of Reyn: `schema`,
                `project` and `lease`.
            project: The name of the project, unless the URL has one.

        Raises:
            StoreUnavailable: It is not such a URL. The message does not repeat it.
        """
        try:
            parts = urlsplit(url)
            query = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
            self.schema = query.pop("schema", "reyn")
            self.project = query.pop("project", project)
            lease = query.pop("lease", str(_LEASE_SECONDS))
            self._shown = without_credentials(url)
        except ValueError:
            raise self._malformed("it is not a URL") from None
        if not url.startswith(SCHEMES):
            raise self._malformed("it does not begin with `postgresql://`")
        if self._shown.endswith("…"):  # libpq would name a part of the password in its error
            raise self._malformed(_ENCODING)
        if not _SCHEMA.fullmatch(self.schema) or self.schema.startswith("pg_"):
            raise self._malformed("`schema` is lower-case letters, digits and `_`, and does not begin with `pg_`")
        self.lease = float(lease) if _NUMBER.fullmatch(lease) else 0.0
        if not _LEASES[0] <= self.lease <= _LEASES[1]:
            raise self._malformed(f"`lease` is from {_LEASES[0]:g} to {_LEASES[1]:g} seconds")
        if not self.project or "\0" in self.project or not self.project.isprintable():
            raise self._malformed("`project` is the name of a project")
        try:
            self.parameters = conninfo_to_dict(urlunsplit(parts._replace(query=urlencode(query, quote_via=quote))))
        except ProgrammingError:  # it repeats the part of the address that libpq cannot read, often the password
            raise self._malformed(_ENCODING) from None

    def __str__(self) -> str:
        return self._shown if self.schema == "reyn" else f"{self._shown}?schema={self.schema}"

    def __repr__(self) -> str:
        return f"JournalAddress({str(self)!r})"

    @staticmethod
    def _malformed(reason: str) -> StoreUnavailable:
        return StoreUnavailable(
            f"the address in `journal` is invalid: {reason}",
            hint="Write `postgresql://USER@HOST/DATABASE`, or `secret://NAME` for a secret with the whole address.",
        )
