"""A journal of somebody else is copied: what it has must not become the user's own by that.

The attacker ships a state folder with a standing approval, a reply to an approval, a submitted run and an access token
that they know. The oracle is what a server and a runtime accept, and the files of the project.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from reyn.cli.app import run_app
from reyn.config.user import journal_key
from reyn.gateway.access import new_token
from reyn.journal.sqlite import SqliteJournal
from tests.permissions.test_ownership import as_user, open_project, shipped

__all__ = ["shipped"]


def with_token(root: Path, author: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Add an access token to the shipped journal, as its author."""
    as_user("author", author, monkeypatch)
    journal = SqliteJournal(root / ".reyn", owner=journal_key())
    new_token(journal, "mallory", ("admin",), now=1)
    journal.close()
    as_user("victim", author, monkeypatch)


def copied(capsys: pytest.CaptureFixture, *words: str) -> tuple[int, str]:
    code = run_app(("journal", "copy", *words))
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def test_a_journal_of_another_user_is_not_copied(
    shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    with_token(shipped, tmp_path, monkeypatch)
    monkeypatch.chdir(shipped)
    code, text = copied(capsys, ".reyn", "mine")
    assert code
    assert "was not created by you" in text
    assert not (shipped / "mine" / "journal.db").exists()
    assert not (shipped / "output").exists()


def test_nothing_is_copied_into_a_journal_of_another_user(
    shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    own = tmp_path / "own"
    monkeypatch.chdir(shipped)
    journal = SqliteJournal(own / ".reyn", owner=journal_key())
    journal.close()
    before = (shipped / ".reyn" / "journal.db").read_bytes()
    code, text = copied(capsys, str(own / ".reyn"), ".reyn")
    assert code
    assert "was not created by you" in text
    assert (shipped / ".reyn" / "journal.db").read_bytes() == before


def test_a_journal_that_was_trusted_is_copied_with_everything(
    shipped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
):
    """The attack would have worked: this is what a copy of a journal that is not one's own would bring."""
    with_token(shipped, tmp_path, monkeypatch)
    with open_project(shipped, trust=True) as rt:
        rt.services.journal.adopt()
    monkeypatch.chdir(shipped)
    code, text = copied(capsys, ".reyn", "mine")
    assert not code, text
    journal = SqliteJournal(shipped / "mine", owner=journal_key())
    try:
        assert [token.name for token in journal.access_tokens()] == ["mallory"]
        assert journal.is_own()
        assert len(journal.approvals()) == 1
        assert len(journal.drain("approved")) == 1
    finally:
        journal.close()
