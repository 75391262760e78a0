"""A project whose journal is on PostgreSQL: the command line, trust, and addresses that must not be printed."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import psycopg
import pytest

from reyn import SyncRuntime
from reyn.cli.app import run_app
from reyn.errors import StoreUnavailable
from reyn.journal.listing import RunQuery
from reyn.journal.postgres.address import JournalAddress
from reyn.journal.postgres.journal import PostgresJournal
from reyn.journal.postgres.link import unavailable
from reyn.journal.postgres.run_list import postgres_source
from reyn.journal.run_list import read_page
from reyn.testing import ScriptedModel
from tests.postgres.server import Server, database_of
from tests.support import finish, go, write_skill

pytestmark = pytest.mark.sockets
PASSWORD = "hunter2-secret"


@pytest.fixture
def project(tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_skill(tmp_path, "writing", {"draft": ["check"], "check": ["end"]})
    (tmp_path / "answers.jsonl").write_text("\n".join(map(json.dumps, (go("check"), finish()))))
    (tmp_path / "reyn.yaml").write_text("model: scripted:answers.jsonl\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_runs_are_recorded_in_the_database_and_nowhere_else(
    project: Path,
    address: JournalAddress,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
):
    monkeypatch.setenv("REYN_JOURNAL", server.url(database_of(address)))
    assert run_app(("run", "writing", '{"text": "in"}', "--run-id", "first")) == 0
    assert not (project / ".reyn/journal.db").exists()
    for words in (("runs",), ("show", "first"), ("replay", "first"), ("verify", "first"), ("usage",)):
        assert run_app(words) == 0, words
    capsys.readouterr()
    run_app(("doctor", "--json"))
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert "1 runs" in checks["journal"]["text"]
    assert "`fsync`" in checks["journal"]["text"]
    assert checks["engine"]["text"] == "absurd, in the database of the journal; the first worker installs it"


def test_a_run_in_python_waits_and_continues(project: Path, address: JournalAddress):
    with SyncRuntime.open(
        project, journal=PostgresJournal(address), model=ScriptedModel([go("check"), finish()])
    ) as rt:
        assert rt.run("writing", {"text": "in"}, run_id="a").status == "finished"
    with SyncRuntime.open(project, journal=PostgresJournal(address)) as rt:
        assert rt.runs.replay("a").visits == 2


def test_a_password_is_never_printed(
    project: Path, server: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    url = f"postgresql://me:{PASSWORD}@127.0.0.1:1/none"
    (project / "reyn.yaml").write_text(f"model: scripted:answers.jsonl\njournal: {url}\n")
    commands = [("trust", "--yes"), ("trust", "--json"), ("config",), ("config", "--json"), ("doctor",), ("runs",)]
    for words in [("trust", "--json"), *commands, ("run", "writing", '{"text": "in"}')]:
        run_app(words)
    (project / "reyn.yaml").write_text(f"journal: 'postgresql ://me:{PASSWORD}@h/d'\n")
    run_app(("config",))
    monkeypatch.setenv("REYN_JOURNAL", f"postgresql://me:{PASSWORD}@[h/d?x=%zz&schema=Not!")
    run_app(("runs",))
    printed = capsys.readouterr()
    assert PASSWORD not in printed.out + printed.err
    assert "127.0.0.1:1/none" in printed.out


def test_another_project_needs_a_schema_of_its_own(address: JournalAddress, server: Server):
    database = database_of(address)
    with pytest.raises(StoreUnavailable, match="belongs to the project `tests`, not to `other`"):
        PostgresJournal(JournalAddress(server.url(database).replace("project=tests", "project=other"), ""))
    second = JournalAddress(server.url(database, schema="second"), "")
    PostgresJournal(second).close()
    assert str(second).endswith("?schema=second")


def test_a_database_of_another_product_or_a_newer_release_is_refused(address: JournalAddress, server: Server):
    database = database_of(address)
    server.execute("UPDATE reyn.journal SET format = 99", database=database)
    with pytest.raises(StoreUnavailable, match="has format 99"):
        PostgresJournal(address)
    server.execute("CREATE SCHEMA shop", database=database)
    server.execute("CREATE TABLE shop.orders (id int)", database=database)
    with pytest.raises(StoreUnavailable, match="table `orders` that is not Reyn's"):
        PostgresJournal(JournalAddress(server.url(database, schema="shop"), ""))
    server.execute("DROP TABLE shop.orders; CREATE TABLE shop.journal (product text)", database=database)
    with pytest.raises(StoreUnavailable, match="table `journal` that is not Reyn's"):
        PostgresJournal(JournalAddress(server.url(database, schema="shop"), ""))
    assert server.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'shop'", database=database) == [(1,)]


@pytest.mark.parametrize("lease", ["abc", "0", "", "nan", "1e999", "9" * 400])
def test_a_lease_that_is_no_time_is_named(lease: str):
    with pytest.raises(StoreUnavailable, match="`lease` is from 1 to 3600 seconds"):
        JournalAddress(f"postgresql://a/b?lease={lease}", "p")


@pytest.mark.parametrize(
    "text",
    [
        'FATAL:  role "secret" does not exist',
        'FATAL:  no pg_hba.conf entry for host "::1", user "secret", database "b", SSL off',
        'FATAL:  too many connections for role "secret"',
        'FATAL:  role "secret" is not permitted to log in',
        'FATAL:  password authentication failed for user "secret"',
    ],
)
def test_no_message_of_the_server_names_the_user_of_the_address(text: str):
    error = unavailable(
        JournalAddress("postgresql://secret:word@a/b", "p"), psycopg.OperationalError(f"failed: {text}")
    )
    assert "secret" not in error.message
    assert "cannot be used: " in error.message


@pytest.mark.parametrize(
    "rest", ["mysql://a/b", "postgresql://a/b?schema=pg_x", "postgresql://a/b?lease=0", "postgresql://["]
)
def test_a_wrong_address_is_an_error_that_does_not_repeat_it(rest: str):
    with pytest.raises(StoreUnavailable, match="the address in `journal` is invalid") as caught:
        JournalAddress(rest, "p")
    assert rest not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('connection failed: connection to server at "h", port 1 failed: refused\n\tIs the server running?', "refused"),
        ('connection to server on socket "/x" failed: FATAL:  database "y" does not exist', '"y" does not exist'),
        ('connection failed: FATAL:  password authentication failed for user "u"\n', "password authentication failed"),
        ("failed to resolve host 'h': [Errno -2] Name or service not known", "failed to resolve host 'h'"),
        ('failed: FATAL:  database "y" does not exist\nDETAIL:  It seems to have just been dropped.', "does not exist"),
        ("", "OperationalError"),
    ],
)
def test_the_reason_of_a_lost_connection_is_one_line_without_the_user(address: JournalAddress, text: str, shown: str):
    error = unavailable(address, psycopg.OperationalError(text))
    assert shown in error.message
    assert "\n" not in error.message + error.hint
    assert '"u"' not in error.message


def test_a_server_that_is_down_or_a_missing_database_is_an_error_at_once(server: Server):
    with pytest.raises(StoreUnavailable, match="cannot be used"):
        PostgresJournal(JournalAddress("postgresql://127.0.0.1:1/none", "p"))
    with pytest.raises(StoreUnavailable, match="does not exist"):
        PostgresJournal(JournalAddress(server.url("no_such_database"), "p"))


def test_an_index_is_shared_by_the_processes_of_a_project_and_belongs_to_it(
    project: Path, address: JournalAddress, server: Server
):
    (project / "docs").mkdir()
    (project / "docs/shop.md").write_text("# Shop\n\nRefunds are paid within 14 days of the purchase.\n")
    with SyncRuntime.open(project, journal=PostgresJournal(address)) as rt:
        assert rt.project.indexes() == []
        assert rt.project.write_index("docs", "docs").embedded == 1
    with SyncRuntime.open(project, journal=PostgresJournal(address)) as rt:
        assert rt.project.write_index("docs", "docs").unchanged == 1
        [found] = rt.project.search_index("docs", "how do I get my money back").found
        assert (found.path, found.passage.line) == ("docs/shop.md", 3)
    with pytest.raises(StoreUnavailable, match="belongs to the project"):
        PostgresJournal(JournalAddress(server.url(database_of(address)).replace("project=tests", "project=other"), ""))
    with SyncRuntime.open(project, journal=PostgresJournal(address)) as rt:
        assert (rt.project.drop_index("docs"), rt.project.indexes()) == (1, [])


class Explained:
    """A connection that records the plan of each query of a page."""

    def __init__(self, address: JournalAddress) -> None:
        self._connection = psycopg.connect(**address.parameters, options="-c search_path=reyn", autocommit=True)
        self.plans: list[str] = []

    def rows(self, text: str, values: Any = ()) -> list[Any]:
        plan = self._connection.execute(f"EXPLAIN {text}", values).fetchall()
        self.plans.append("\n".join(line for (line,) in plan))
        return self._connection.execute(text, values).fetchall()

    def close(self) -> None:
        self._connection.close()


def test_words_that_few_runs_have_are_found_by_the_index_of_words(address: JournalAddress, server: Server):
    words = "CASE WHEN n % 5000 = 0 THEN 'rare' ELSE 'common' END"
    fill = f"INSERT INTO reyn.run_words SELECT n, to_tsvector('simple', {words}) FROM generate_series(1, 20000) AS n"
    server.execute(fill, database=database_of(address))
    server.execute("ANALYZE reyn.run_words", database=database_of(address))
    with closing(Explained(address)) as link:
        source = postgres_source(cast(Any, link))
        read_page(source, RunQuery(search="rare"), 50, "")
        assert "Index Scan on run_words_by_word" in link.plans[-1]
        assert "Sort Key: ((w.run + 0)) DESC" in link.plans[-1]
        read_page(source, RunQuery(search="common"), 50, "")
        assert "+ 0" not in link.plans[-1]
