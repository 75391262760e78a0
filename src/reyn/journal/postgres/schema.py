"""The tables of a PostgreSQL journal: their format, their migrations, and the project that they belong to.

All tables are in one schema. Another project needs another schema, or another database.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg
from psycopg import sql

from reyn.errors import StoreUnavailable

if TYPE_CHECKING:
    from reyn.journal.postgres.address import JournalAddress
    from reyn.journal.postgres.link import PgConnection

FORMAT = 1
"""The current format of the tables."""
CONVERSIONS: dict[int, str] = {}
"""The statements that convert the tables of an earlier format to the next one, by the earlier format.

Processes of the release before may be at work meanwhile. So a migration only adds, with defaults; what is not needed
any more is removed a release later.
"""
MIN_VERSION = 150000
TABLES = """
CREATE TABLE journal (
    product text NOT NULL, format int NOT NULL, project text NOT NULL, epoch bigint NOT NULL, singleton bool PRIMARY KEY
        DEFAULT true CHECK (singleton));
CREATE TABLE runs (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run_id text COLLATE "C" NOT NULL UNIQUE, skill text NOT NULL,
    rules int NOT NULL, started bigint NOT NULL, parent text COLLATE "C" NOT NULL, fork_of text COLLATE "C" NOT NULL,
    fork_seq bigint NOT NULL, imported text NOT NULL, seq bigint NOT NULL, updated bigint NOT NULL, hash bytea NOT NULL,
    state bytea NOT NULL, status text NOT NULL, taken bigint NOT NULL, charged text NOT NULL, reserving bool NOT NULL,
    fence bigint NOT NULL DEFAULT 0, active bigint NOT NULL, unindexed bigint NOT NULL DEFAULT 1)
    WITH (fillfactor = 70);
CREATE INDEX runs_by_start ON runs (started, run_id);
CREATE INDEX runs_by_status ON runs (status, started, run_id);
CREATE INDEX runs_by_skill ON runs (skill, status, started, run_id);
CREATE INDEX runs_by_activity ON runs (status, active) WHERE active > started / 60000000;
CREATE INDEX runs_unindexed ON runs (id) WHERE unindexed > 0;
CREATE INDEX runs_by_parent ON runs (parent) WHERE parent <> '';
CREATE INDEX runs_by_origin ON runs (fork_of) WHERE fork_of <> '';
CREATE INDEX runs_by_charge ON runs (charged) WHERE charged <> '';
CREATE INDEX runs_reserving ON runs (id) WHERE reserving;
CREATE TABLE run_words (run bigint PRIMARY KEY, words tsvector NOT NULL);
CREATE INDEX run_words_by_word ON run_words USING gin (words);
CREATE TABLE commits (run bigint, seq bigint, hashes bytea NOT NULL, events bytea NOT NULL, PRIMARY KEY (run, seq));
ALTER TABLE commits ALTER COLUMN events SET STORAGE EXTERNAL;
CREATE TABLE blobs (hash bytea PRIMARY KEY, content bytea NOT NULL);
ALTER TABLE blobs ALTER COLUMN content SET STORAGE EXTERNAL;
CREATE TABLE inbox (
    run_id text COLLATE "C", id bigint, payload bytea NOT NULL, token uuid NOT NULL, PRIMARY KEY (run_id, id));
CREATE TABLE inbox_heads (run_id text COLLATE "C" PRIMARY KEY, last bigint NOT NULL);
CREATE TABLE wakes (
    seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, run_id text COLLATE "C" NOT NULL, due bigint NOT NULL,
    queue text NOT NULL, priority bigint NOT NULL, held_until bigint NOT NULL);
CREATE INDEX wakes_by_run ON wakes (run_id);
CREATE INDEX wakes_by_time ON wakes (queue, held_until);
CREATE INDEX wakes_in_order ON wakes (queue, priority DESC, seq);
CREATE TABLE access_tokens (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text COLLATE "C" NOT NULL UNIQUE, value text NOT NULL);
CREATE TABLE rates (name text COLLATE "C" PRIMARY KEY, state bytea NOT NULL) WITH (fillfactor = 50);
CREATE TABLE workers (id text PRIMARY KEY, report bytea NOT NULL, seen bigint NOT NULL);
CREATE SEQUENCE fences;
CREATE TABLE owners (
    id uuid PRIMARY KEY, name text NOT NULL, host text NOT NULL, pid bigint NOT NULL, began text NOT NULL,
    since timestamptz NOT NULL, lease_until timestamptz NOT NULL) WITH (fillfactor = 50);
CREATE TABLE claims (
    run_id text COLLATE "C" PRIMARY KEY, owner uuid NOT NULL, fence bigint NOT NULL, since timestamptz NOT NULL);
CREATE INDEX claims_by_owner ON claims (owner);
CREATE TABLE approvals (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, skill text NOT NULL, skill_hash text NOT NULL, op text NOT NULL,
    rule text NOT NULL, by text NOT NULL, at bigint NOT NULL, run_id text NOT NULL, project text NOT NULL,
    UNIQUE (skill_hash, op, rule, project));
CREATE TABLE removals (run_id text COLLATE "C" PRIMARY KEY);
CREATE TABLE shares (
    account text COLLATE "C", owner text, tokens bigint NOT NULL DEFAULT 0, cost bigint NOT NULL DEFAULT 0,
    reserved_tokens bigint NOT NULL DEFAULT 0, reserved_cost bigint NOT NULL DEFAULT 0,
    granted_tokens bigint NOT NULL DEFAULT 0, granted_cost bigint NOT NULL DEFAULT 0,
    cap_tokens bigint, cap_cost bigint, PRIMARY KEY (account, owner)) WITH (fillfactor = 50);
CREATE TABLE spending (
    day text COLLATE "C", run_id text COLLATE "C", model text COLLATE "C", currency text COLLATE "C",
    skill text NOT NULL, calls bigint NOT NULL, input_tokens bigint NOT NULL, output_tokens bigint NOT NULL,
    cached_tokens bigint NOT NULL, thinking_tokens bigint NOT NULL, cost bigint NOT NULL, assumed bigint NOT NULL,
    PRIMARY KEY (day, run_id, model, currency));
"""
_FOREIGN_OWNER = """
WITH trusted AS (SELECT r.oid FROM pg_catalog.pg_roles r WHERE r.rolsuper OR pg_catalog.pg_has_role(r.oid, 'USAGE')
    OR r.oid = (SELECT datdba FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database())),
owned AS (SELECT 'the schema' AS kind, nspname AS name, nspowner AS owner, oid AS place FROM pg_catalog.pg_namespace
    UNION ALL SELECT 'the relation', relname, relowner, relnamespace FROM pg_catalog.pg_class
    UNION ALL SELECT 'the function', proname, proowner, pronamespace FROM pg_catalog.pg_proc
    UNION ALL SELECT 'the type', typname, typowner, typnamespace FROM pg_catalog.pg_type
    UNION ALL SELECT 'the operator', oprname, oprowner, oprnamespace FROM pg_catalog.pg_operator)
SELECT owned.kind, owned.name::text, pg_catalog.pg_get_userbyid(owned.owner)::text FROM owned
    JOIN pg_catalog.pg_namespace n ON n.oid = owned.place AND n.nspname = %s
    WHERE owned.owner NOT IN (SELECT oid FROM trusted) ORDER BY owned.kind = 'the schema' DESC LIMIT 1
"""
_IS_OURS = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'journal'"
_OTHERS = "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind IN ('r', 'p', 'v') LIMIT 1"


def prepare(connection: PgConnection, address: JournalAddress) -> None:
    """Check that the schema has the journal of the project, in the current format; create or convert it if needed.

    Raises:
        StoreUnavailable: It has another product's tables, another project's, or those of a newer release.
    """
    if connection.info.server_version < MIN_VERSION:
        version = connection.info.server_version // 10_000
        raise StoreUnavailable(f"`{address}` is PostgreSQL {version}; a journal needs 15 or newer", hint="Upgrade it.")
    if _check(connection, address) == FORMAT:
        return
    with connection.transaction():
        _lock(connection, address)
        while (found := _check(connection, address)) != FORMAT:
            if found is None:
                _create(connection, address)
                continue
            connection.execute(CONVERSIONS[found].encode())
            connection.execute("UPDATE journal SET format = %s", (found + 1,))


def add_tables(connection: PgConnection, address: JournalAddress, statements: str) -> None:
    """Create tables that a journal has from their first use on. The statements name those that may exist."""
    with connection.transaction():
        _lock(connection, address)
        connection.execute(statements.encode())


def _lock(connection: PgConnection, address: JournalAddress) -> None:
    """Let one process prepare the schema; others wait here, then find it prepared."""
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('reyn ' || %s, 0))", (address.schema,))
    connection.execute("SELECT set_config('search_path', %s, true)", (f"{address.schema}, pg_catalog",))


def check_owners(connection: PgConnection, address: JournalAddress, schema: str) -> None:
    """Check that no other user of the database has prepared a schema: its triggers and functions would be executed
    with the rights of the user of the address.

    Raises:
        StoreUnavailable: Something in it belongs to a role whose rights that user does not have, other than the owner
            of the database and superusers.
    """
    found = connection.execute(_FOREIGN_OWNER, (schema,)).fetchone()
    if found is not None:
        kind, name, owner = found
        raise StoreUnavailable(
            f"in the schema `{schema}` of `{address}`, {kind} `{name}` belongs to the role `{owner}`",
            hint="Another user of the database may have prepared it. Use a schema of your own (`schema=NAME`), let the "
            "owner of the database own it, or grant the role to the user of the address if you trust it.",
        )


def _check(connection: PgConnection, address: JournalAddress) -> int | None:
    """Return the format of the project's tables; `None` if there are none yet."""
    check_owners(connection, address, address.schema)
    if not connection.execute(_IS_OURS, (address.schema,)).fetchone():
        return None
    try:
        [row] = connection.execute("SELECT product, format, project FROM journal").fetchall()
    except (psycopg.errors.UndefinedColumn, ValueError):
        raise _foreign(address, "journal") from None
    product, found, project = row
    if product != "reyn":
        raise _foreign(address, "journal")
    if found > FORMAT or (found < FORMAT and found not in CONVERSIONS):
        raise StoreUnavailable(
            f"the journal `{address}` has format {found}; this release reads formats up to {FORMAT}",
            hint="Use the release of Reyn that wrote it, or a newer one.",
        )
    if project != address.project:
        raise StoreUnavailable(
            f"the journal `{address}` belongs to the project `{project}`, not to `{address.project}`",
            hint=f"If it is the same project in another folder, add `project={project}` to the parameters of the "
            "address. A second project in this database needs a schema of its own: add `schema=NAME`.",
        )
    return int(found)


def _create(connection: PgConnection, address: JournalAddress) -> None:
    name = sql.Identifier(address.schema)
    connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(name))
    check_owners(connection, address, address.schema)  # another user may have been faster
    other = connection.execute(_OTHERS, (address.schema,)).fetchone()
    if other is not None:
        raise _foreign(address, str(other[0]))
    connection.execute(TABLES.encode())
    connection.execute("INSERT INTO journal VALUES ('reyn', %s, %s, 0)", (FORMAT, address.project))


def _foreign(address: JournalAddress, table: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"the schema `{address.schema}` of `{address}` has a table `{table}` that is not Reyn's",
        hint="Use another database, or another schema: add `schema=NAME` to the parameters of the address.",
    )
