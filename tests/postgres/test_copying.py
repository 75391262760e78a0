"""`reyn journal copy` between SQLite and PostgreSQL."""

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from reyn.cli.app import run_app
from reyn.config.user import journal_key
from reyn.journal import Blob, kinds
from reyn.journal.copying import copy_journal
from reyn.journal.postgres.address import JournalAddress
from reyn.journal.postgres.journal import PostgresJournal
from reyn.journal.sqlite import SqliteJournal
from reyn.testing.fixtures import NOTE, events_after, run_started
from tests.journal.test_copying import check_copy, content_of, fill
from tests.postgres.server import Server, database_of

pytestmark = pytest.mark.sockets


def test_a_copy_to_postgres_has_everything(tmp_path: Path, address: JournalAddress):
    with closing(SqliteJournal(tmp_path)) as source, closing(PostgresJournal(address)) as target:
        check_copy(source, target)


def test_a_copy_from_postgres_has_everything(tmp_path: Path, address: JournalAddress):
    with closing(PostgresJournal(address)) as source, closing(SqliteJournal(tmp_path)) as target:
        check_copy(source, target)


def test_a_content_of_64_megabytes_goes_there_and_back(tmp_path: Path, address: JournalAddress):
    large = Blob.of(b'"' + os.urandom(32 << 20).hex().encode() + b'"')
    started = replace(run_started("large"), input=kinds.ArtifactRef("note", large.hash))
    with (
        closing(SqliteJournal(tmp_path / "a")) as first,
        closing(PostgresJournal(address)) as second,
        closing(SqliteJournal(tmp_path / "b")) as third,
    ):
        first.append("large", 0, events_after("large", [started]), [NOTE, large])
        copy_journal(first, second)
        copy_journal(second, third)
        assert third.blob(large.hash) == large.content
        assert [*third.read("large")] == [*first.read("large")]


def test_a_copy_whose_process_is_killed_continues(tmp_path: Path, address: JournalAddress, server: Server):
    with closing(SqliteJournal(tmp_path / ".reyn")) as source:
        fill(source, 40)
        rows = len(source.runs())
        for point in (1, 9, 30):
            killed = (
                "import os, sys\n"
                "from pathlib import Path\n"
                "from reyn.journal.copying import copy_journal\n"
                "from reyn.journal.opening import JournalPlace\n"
                "from reyn.journal.sqlite import SqliteJournal\n"
                "target = JournalPlace.of(Path('tests'), sys.argv[2]).open()\n"
                "restore, left = target.restore, [int(sys.argv[3])]\n"
                "def counted(batch, imported):\n"
                "    left[0] -= 1\n"
                "    if left[0] < 0: os.kill(os.getpid(), 9)\n"
                "    return restore(batch, imported)\n"
                "target.restore = counted\n"
                "copy_journal(SqliteJournal(Path(sys.argv[1])), target)\n"
            )
            arguments = (str(tmp_path / ".reyn"), server.url(database_of(address)), str(point))
            assert subprocess.run([sys.executable, "-c", killed, *arguments], check=False).returncode == -9
        with closing(PostgresJournal(address)) as target:
            found = len(target.runs())
            assert 0 < found < rows
            report = copy_journal(source, target)
            assert (report.runs, report.added_runs) == (rows, rows - found)
            assert content_of(target) == content_of(source)


def test_the_command_copies_and_says_what_is_next(
    tmp_path: Path,
    address: JournalAddress,
    server: Server,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
):
    monkeypatch.chdir(tmp_path)
    with closing(SqliteJournal(tmp_path / ".reyn", owner=journal_key())) as source:
        fill(source)
    monkeypatch.setenv("ADDRESS", server.url(database_of(address)))
    assert run_app(("journal", "copy", ".reyn", "env://ADDRESS")) == 0
    text = capsys.readouterr().out
    assert "9 runs" in text
    assert "all verified" in text
    assert "next: " in text
    assert run_app(("journal", "copy", "env://ADDRESS", "other", "--json")) == 0
    assert json.loads(capsys.readouterr().out)["added_runs"] == 9
    for words, code in ((("nothing", "other"), 2), (("other", "./other"), 2)):
        assert run_app(("journal", "copy", *words)) == code
    with closing(SqliteJournal(tmp_path / "third", owner=journal_key())) as third:
        fill(third, 3)
        third.delete(["r2"])
    assert run_app(("journal", "copy", "third", "env://ADDRESS", "--json")) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "RYN445"
