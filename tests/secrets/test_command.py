"""`reyn secret` as a person or a script uses it. No value is ever shown."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from reyn.secrets import open_secrets
from tests.cli.support import Terminal
from tests.secrets.conftest import FakeKeyring

VALUE = "sk-test-0123456789"


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch):
    """What comes on standard input."""

    def give(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return give


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_secret_goes_in_is_listed_and_goes_out(reyn, piped, path: Path):
    assert reyn("secret", "list").out == "no secrets; store one with `reyn secret set NAME`\n"
    piped(f"{VALUE}\n".encode())
    said = reyn("secret", "set", "TOKEN")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith(f"stored TOKEN in {path} (no keyring: ")
    assert open_secrets().get("TOKEN") == VALUE
    listed, as_json = reyn("secret", "list"), reyn("secret", "list", "--json")
    assert listed.out == "TOKEN  file\n"
    assert as_json.json == [{"name": "TOKEN", "store": "file", "over": []}]
    removed = reyn("secret", "rm", "TOKEN")
    assert (removed.code, removed.out) == (0, f"removed TOKEN from {path}\n")
    assert reyn("secret", "list", "--json").json == []
    assert VALUE not in said.out + listed.out + as_json.out + removed.out


def test_it_goes_into_the_keyring_where_one_works(reyn, piped, fake: FakeKeyring, path: Path):
    piped(VALUE.encode())
    assert reyn("secret", "set", "TOKEN").out == f"stored TOKEN in the keyring ({fake.name})\n"
    assert fake.kept == {("reyn", "TOKEN"): VALUE}
    assert reyn("secret", "list").out == "TOKEN  keyring\n"
    assert VALUE not in path.read_text()
    assert reyn("secret", "rm", "TOKEN").code == 0


def test_lines_are_kept_but_for_the_end_of_the_last(reyn, piped):
    piped("\ufeff-----BEGIN KEY-----\nabc é\n-----END KEY-----\r\n".encode())
    assert reyn("secret", "set", "TOKEN").code == 0
    assert open_secrets().get("TOKEN") == "-----BEGIN KEY-----\nabc é\n-----END KEY-----"


def test_a_value_can_come_from_a_variable(reyn, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_KEY", VALUE)
    said = reyn("secret", "set", "TOKEN", "--from-env", "MY_KEY")
    assert said.code == 0
    assert VALUE not in said.out + said.err
    assert open_secrets().get("TOKEN") == VALUE
    assert reyn("secret", "set", "TOKEN", "--from-env", "NOBODY").code == 2


def test_a_variable_that_wins_is_told(reyn, piped, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REYN_SECRET_TOKEN", "from-the-variable")
    piped(VALUE.encode())
    said = reyn("secret", "set", "TOKEN")
    assert "note: the variable REYN_SECRET_TOKEN is set and takes precedence" in said.out
    assert reyn("secret", "list").out == "TOKEN  environment (overrides file)\n"
    assert "note: the variable REYN_SECRET_TOKEN" in reyn("secret", "rm", "TOKEN").out
    said = reyn("secret", "rm", "TOKEN")
    assert (said.code, "fix: Run: unset REYN_SECRET_TOKEN" in said.err) == (2, True)


def test_an_older_value_elsewhere_is_removed_and_told(reyn, piped, path: Path, request: pytest.FixtureRequest):
    piped(VALUE.encode())
    reyn("secret", "set", "TOKEN")
    request.getfixturevalue("fake")
    piped(b"another-value")
    assert f"removed the previous value from {path}\n" in reyn("secret", "set", "TOKEN").out
    assert "another-value" not in path.read_text()


@pytest.mark.parametrize(
    ("content", "code"),
    [(b"", "RYN707"), (b"\n", "RYN707"), (b"  \n", "RYN707"), (b"short", "RYN707"), (b"\xffabcdef", "UTF-8")],
)
def test_a_value_that_does_not_do_is_refused(reyn, piped, path: Path, content: bytes, code: str):
    piped(content)
    said = reyn("secret", "set", "TOKEN")
    assert (said.code, code in said.err) == (2, True)
    assert "Traceback" not in said.err
    assert not path.exists()


class Unreadable(io.RawIOBase):
    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        raise OSError(5, "Input/output error")


def test_a_closed_or_broken_standard_input_is_told(reyn, monkeypatch: pytest.MonkeyPatch):
    broken = io.TextIOWrapper(io.BufferedReader(Unreadable()))
    for stdin, why in ((None, "is closed"), (broken, "Input/output error")):
        monkeypatch.setattr(sys, "stdin", stdin)
        said = reyn("secret", "set", "TOKEN")
        assert (said.code, why in said.err) == (2, True)


@pytest.mark.parametrize("words", [(VALUE,), (f"--{VALUE}",), (f"-{VALUE}",), ("--", VALUE), (f"--value={VALUE}",)])
def test_a_value_on_the_command_line_is_refused_and_not_repeated(reyn, piped, path: Path, words: tuple[str, ...]):
    piped(b"another-value")
    said = reyn("secret", "set", "TOKEN", *words)
    assert said.code == 2
    assert "standard input" in said.err
    assert "0123456789" not in said.out + said.err
    assert not path.exists()


def test_a_value_in_the_place_of_a_name_is_not_repeated(reyn, piped):
    piped(b"another-value")
    for words in (("set", VALUE), ("rm", VALUE)):
        said = reyn("secret", *words)
        assert (said.code, "RYN706" in said.err) == (2, True)
        assert VALUE not in said.out + said.err


def test_one_that_is_not_there_cannot_be_removed(reyn):
    said = reyn("secret", "rm", "TOKEN")
    assert (said.code, "error RYN704" in said.err) == (2, True)


def test_a_file_that_others_may_read_is_an_error_with_the_command_that_mends_it(reyn, piped, path: Path):
    piped(VALUE.encode())
    reyn("secret", "set", "TOKEN")
    path.chmod(0o644)
    for words in (("list",), ("rm", "TOKEN"), ("list", "--json")):
        said = reyn("secret", *words)
        assert said.code == 2
        assert f"chmod 600 {path}" in said.out + said.err
        assert VALUE not in said.out + said.err


def test_debugging_does_not_show_it(reyn, piped):
    piped(b"zq9x!")
    said = reyn("--debug", "secret", "set", "TOKEN")
    assert "Traceback" in said.err
    assert "zq9x!" not in said.err


def test_at_a_terminal_it_is_asked_for_without_showing_it(tmp_path: Path):
    terminal = Terminal(tmp_path, "secret", "set", "TOKEN")
    terminal.wait_for("value of TOKEN (not shown): ")
    terminal.type(f"{VALUE}\n")
    said = terminal.end()
    assert (said.code, "stored TOKEN in" in said.out) == (0, True)
    assert VALUE not in said.out
    assert open_secrets().get("TOKEN") == VALUE


@pytest.mark.parametrize(("typed", "code"), [("\n", 2), ("\x04", 130)])
def test_at_a_terminal_nothing_is_no_value(tmp_path: Path, path: Path, typed: str, code: int):
    terminal = Terminal(tmp_path, "secret", "set", "TOKEN")
    terminal.wait_for("(not shown): ")
    terminal.type(typed)
    said = terminal.end()
    assert (said.code, "Traceback" in said.out) == (code, False)
    assert not path.exists()


def test_every_part_explains_itself_with_an_example(reyn):
    for words in (("set",), ("list",), ("rm",), ()):
        said = reyn("secret", *words, "--help")
        assert said.code == 0
        assert f"Example: reyn {' '.join(('secret', *words))}" in said.out
