"""A tenant of a PostgreSQL database, who may create schemas there, prepares what another tenant will use.

The attacker has a role of its own and knows the name of the victim's schema. The oracle is a table that functions of
the attacker write to with the rights of whoever executes them. Passwords in addresses are the second class.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import quote

import psycopg
import pytest

from reyn.config.models import without_credentials
from reyn.engines.absurd import Absurd
from reyn.errors import StoreUnavailable
from reyn.journal.postgres import schema as schemas
from reyn.journal.postgres.address import JournalAddress
from reyn.journal.postgres.journal import PostgresJournal
from reyn.journal.postgres.link import Link
from reyn.journal.postgres.schema import FORMAT, TABLES
from tests.postgres.conftest import server
from tests.postgres.server import PROJECT, Server

__all__ = ["server"]

pytestmark = pytest.mark.sockets
_names = itertools.count()


def function(head: str, result: str) -> str:
    """The statement that makes a function, which leaves the name of its user in the loot."""
    body = f"BEGIN INSERT INTO loot.taken SELECT current_user; RETURN {result}; END"
    return f"CREATE FUNCTION {head} LANGUAGE plpgsql AS $$ {body} $$"


class Tenants(NamedTuple):
    """A database of two tenants; what the victim's role was made to do is in `loot.taken`."""

    server: Server
    database: str
    mallory: str
    victim: str

    def as_mallory(self, *statements: str) -> None:
        url = self.server.url(self.database).replace("postgres@", f"{self.mallory}@").partition("&project")[0]
        with psycopg.connect(url, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def address(self, schema: str = "tenant") -> JournalAddress:
        url = self.server.url(self.database, schema=schema)
        return JournalAddress(url.replace("postgres@", f"{self.victim}@"), PROJECT)

    def taken(self) -> list[tuple]:
        return self.server.execute("SELECT who FROM loot.taken", database=self.database)


@pytest.fixture
def tenants(server: Server) -> Iterator[Tenants]:
    number = f"{os.getpid()}_{next(_names)}"
    database = server.create("template1")
    found = Tenants(server, database, f"mallory_{number}", f"victim_{number}")
    for role in found[2:]:
        server.execute(f"CREATE ROLE {role} LOGIN")
        server.execute(f"GRANT CREATE ON DATABASE {database} TO {role}")
    found.as_mallory(
        "CREATE SCHEMA loot",
        "CREATE TABLE loot.taken (who text)",
        "GRANT USAGE ON SCHEMA loot TO public; GRANT ALL ON loot.taken TO public",
    )
    try:
        yield found
    finally:
        server.drop(database)
        for role in found[2:]:
            server.execute(f"DROP ROLE {role}")


def journal(schema: str) -> list[str]:
    """The statements that make a journal that looks like the victim's own."""
    return [
        f"CREATE SCHEMA {schema}",
        f"SET search_path = {schema}",
        TABLES,
        f"INSERT INTO journal VALUES ('reyn', {FORMAT}, '{PROJECT}', 0)",
    ]


def shared(schema: str) -> list[str]:
    return [
        f"GRANT ALL ON SCHEMA {schema} TO public",
        f"GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO public",
        f"GRANT ALL ON ALL SEQUENCES IN SCHEMA {schema} TO public",
    ]


def use(address: JournalAddress) -> None:
    """Do with a journal what every process does."""
    opened = PostgresJournal(address)
    try:
        with opened.claim("a"):
            opened.runs()
    finally:
        opened.close()


PREPARED = {
    "triggers": [*journal("tenant"), function("tenant.spring() RETURNS trigger", "NEW"),
        "CREATE TRIGGER x BEFORE INSERT ON tenant.owners FOR EACH ROW EXECUTE FUNCTION tenant.spring()"],
    "policies": [*journal("tenant"),
        function("tenant.look() RETURNS bool", "true"),
        "ALTER TABLE tenant.journal ENABLE ROW LEVEL SECURITY",
        "CREATE POLICY x ON tenant.journal USING (tenant.look())"],
    "defaults": [*journal("tenant"),
        function("tenant.look() RETURNS bigint", "0"),
        "ALTER TABLE tenant.owners ADD extra bigint DEFAULT tenant.look()"],
    "functions": [*journal("tenant"),
        function("tenant.clock_timestamp() RETURNS timestamptz", "pg_catalog.clock_timestamp()")],
    "an empty schema with functions": ["CREATE SCHEMA tenant",
        function("tenant.clock_timestamp() RETURNS timestamptz", "pg_catalog.clock_timestamp()")],
    "an empty schema": ["CREATE SCHEMA tenant"],
}  # fmt: skip


@pytest.mark.parametrize("how", PREPARED)
def test_a_schema_that_another_tenant_prepared_is_not_used(tenants: Tenants, how: str):
    tenants.as_mallory(*PREPARED[how], *shared("tenant"))
    with pytest.raises(StoreUnavailable, match=f"belongs to the role `{tenants.mallory}`") as refused:
        use(tenants.address())
    assert "schema=NAME" in refused.value.hint
    assert tenants.taken() == []


def test_an_object_of_another_tenant_in_a_schema_of_ones_own_is_not_used(tenants: Tenants):
    use(tenants.address())
    tenants.server.execute(f"GRANT ALL ON SCHEMA tenant TO {tenants.mallory}", database=tenants.database)
    tenants.as_mallory(PREPARED["functions"][-1])
    with pytest.raises(StoreUnavailable, match="the function `clock_timestamp` belongs to the role"):
        use(tenants.address())
    assert tenants.taken() == []


def test_a_schema_that_appears_after_the_check_is_not_used(tenants: Tenants, monkeypatch: pytest.MonkeyPatch):
    check = schemas.check_owners
    calls = itertools.count()

    def slow(*args: Any) -> None:
        check(*args)
        if next(calls) == 1:  # the last look before the schema is created
            tenants.as_mallory("CREATE SCHEMA tenant", *shared("tenant"))

    monkeypatch.setattr(schemas, "check_owners", slow)
    with pytest.raises(StoreUnavailable, match="the schema `tenant` belongs to the role"):
        use(tenants.address())


def test_a_function_that_appears_later_replaces_none_of_the_servers(tenants: Tenants):
    opened = PostgresJournal(tenants.address())
    try:
        tenants.server.execute(f"GRANT ALL ON SCHEMA tenant TO {tenants.mallory}", database=tenants.database)
        tenants.as_mallory(PREPARED["functions"][-1])
        with opened.claim("a"):
            assert opened.take_wakes(["default"], 1, 1.0) == []
    finally:
        opened.close()
    assert tenants.taken() == []


def test_an_engine_that_another_tenant_prepared_is_not_used(tenants: Tenants):
    tenants.as_mallory(
        "CREATE SCHEMA absurd",
        function("absurd.get_schema_version() RETURNS text", "'9.9.9'"),
        *shared("absurd"),
    )
    opened = PostgresJournal(tenants.address())
    try:
        with pytest.raises(StoreUnavailable, match="`absurd` belongs to the role"):
            Absurd(opened).install(["default"])
        with pytest.raises(StoreUnavailable, match="`absurd` belongs to the role"):
            Absurd(opened).inspect()
    finally:
        opened.close()
    assert tenants.taken() == []


def test_schemas_of_trusted_roles_are_used(tenants: Tenants):
    """Of the owner of the database, and of a role that the user of the address was granted."""
    for schema, owner in (("owned", "postgres"), ("granted", tenants.mallory)):
        if owner == tenants.mallory:
            tenants.server.execute(f"GRANT {owner} TO {tenants.victim}")
        tenants.server.execute(f"CREATE SCHEMA {schema} AUTHORIZATION {owner}", database=tenants.database)
        tenants.server.execute(f"GRANT ALL ON SCHEMA {schema} TO {tenants.victim}", database=tenants.database)
        use(tenants.address(schema))


# -- addresses ------------------------------------------------------------------------------------------------

SECRET = "hunter2hunter2"
SIGNS = (*"/?#@:[]%&=,+ \"'\n", "%0", "%00", "%zz", "%40", "%%", "' host='", '" failed: FATAL: "')
"""What libpq reads as an end of the password, or cannot read; it repeats in its errors what it cannot read."""


@pytest.mark.parametrize("sign", SIGNS)
@pytest.mark.parametrize(
    "form",
    [
        "postgresql://me:{}@127.0.0.1:1/none",
        "postgres://{}:pw@h/d",
        "postgresql://me:{}@/d",
        "postgresql://127.0.0.1:1/none?password={}",
        "postgresql://me%3A{}%40127.0.0.1:1/none",
    ],
)
def test_no_part_of_a_password_is_printed(form: str, sign: str):
    """Also of one that was not encoded, so that the address means something else."""
    for place in (1, 5, len(SECRET) - 1):
        password = SECRET[:place] + sign + SECRET[place:]
        for written in (password, quote(password, safe="")):
            url = form.format(written)
            printed = [without_credentials(url)]
            try:
                address = JournalAddress(url, "p")
                printed += [str(address), repr(address)]
                if "127.0.0.1:1/" in url:
                    Link(address).open()
            except StoreUnavailable as error:
                printed += [str(error), error.hint]
            for part in (SECRET[:place], SECRET[place:]):
                assert len(part) < 4 or all(part not in text for text in printed), (url, printed)
