"""`reyn secret` in a terminal and in scripts. No output contains a value."""

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
    """Set standard input."""

    def give(content: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))

    return give


@pytest.fixture(autouse=True)
def project_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_secret_is_set_listed_and_removed(reyn, piped, path: Path):
    assert reyn("secret", "list").out == "no secrets; store one with `reyn secret set NAME`\n"
    piped(f"{VALUE}\n".encode())
    result = reyn("secret", "set", "TOKEN")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"stored TOKEN in {path} (no keyring: ")
    assert open_secrets().get("TOKEN") == VALUE
    listed, as_json = reyn("secret", "list"), reyn("secret", "list", "--json")
    assert listed.out == "TOKEN  file\n"
    assert as_json.json == [{"name": "TOKEN", "store": "file", "over": [], "origins": []}]
    removed = reyn("secret", "rm", "TOKEN")
    assert (removed.code, removed.out) == (0, f"removed TOKEN from {path}\n")
    assert reyn("secret", "list", "--json").json == []
    assert VALUE not in result.out + listed.out + as_json.out + removed.out


def test_a_working_keyring_is_used(reyn, piped, fake: FakeKeyring, path: Path):
    piped(VALUE.encode())
    assert reyn("secret", "set", "TOKEN").out == f"stored TOKEN in the keyring ({fake.name})\n"
    assert fake.passwords == {("reyn", "TOKEN"): VALUE}
    assert reyn("secret", "list").out == "TOKEN  keyring\n"
    assert VALUE not in path.read_text()
    assert reyn("secret", "rm", "TOKEN").code == 0


def test_a_multi_line_value_loses_only_its_final_newline(reyn, piped):
    piped("\ufeff-----BEGIN KEY-----\nabc é\n-----END KEY-----\r\n".encode())
    assert reyn("secret", "set", "TOKEN").code == 0
    assert open_secrets().get("TOKEN") == "-----BEGIN KEY-----\nabc é\n-----END KEY-----"


def test_a_value_can_be_read_from_a_variable(reyn, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_KEY", VALUE)
    result = reyn("secret", "set", "TOKEN", "--from-env", "MY_KEY")
    assert result.code == 0
    assert VALUE not in result.out + result.err
    assert open_secrets().get("TOKEN") == VALUE
    assert reyn("secret", "set", "TOKEN", "--from-env", "NOBODY").code == 2


def test_an_overriding_variable_is_reported(reyn, piped, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REYN_SECRET_TOKEN", "from-the-variable")
    piped(VALUE.encode())
    result = reyn("secret", "set", "TOKEN")
    assert "note: the variable REYN_SECRET_TOKEN is set and takes precedence" in result.out
    assert reyn("secret", "list").out == "TOKEN  environment (overrides file)\n"
    assert "note: the variable REYN_SECRET_TOKEN" in reyn("secret", "rm", "TOKEN").out
    result = reyn("secret", "rm", "TOKEN")
    assert (result.code, "fix: Run: unset REYN_SECRET_TOKEN" in result.err) == (2, True)


def test_removal_of_an_older_value_is_reported(reyn, piped, path: Path, request: pytest.FixtureRequest):
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
def test_an_invalid_value_is_rejected(reyn, piped, path: Path, content: bytes, code: str):
    piped(content)
    result = reyn("secret", "set", "TOKEN")
    assert (result.code, code in result.err) == (2, True)
    assert "Traceback" not in result.err
    assert not path.exists()


class Unreadable(io.RawIOBase):
    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        raise OSError(5, "Input/output error")


def test_closed_or_broken_standard_input_is_an_error(reyn, monkeypatch: pytest.MonkeyPatch):
    broken = io.TextIOWrapper(io.BufferedReader(Unreadable()))
    for stdin, why in ((None, "is closed"), (broken, "Input/output error")):
        monkeypatch.setattr(sys, "stdin", stdin)
        result = reyn("secret", "set", "TOKEN")
        assert (result.code, why in result.err) == (2, True)


@pytest.mark.parametrize("words", [(VALUE,), (f"--{VALUE}",), (f"-{VALUE}",), ("--", VALUE), (f"--value={VALUE}",)])
def test_a_value_on_the_command_line_is_rejected_and_not_quoted(reyn, piped, path: Path, words: tuple[str, ...]):
    piped(b"another-value")
    result = reyn("secret", "set", "TOKEN", *words)
    assert result.code == 2
    assert "standard input" in result.err
    assert "0123456789" not in result.out + result.err
    assert not path.exists()


def test_a_value_passed_as_a_name_is_not_quoted(reyn, piped):
    piped(b"another-value")
    for words in (("set", VALUE), ("rm", VALUE)):
        result = reyn("secret", *words)
        assert (result.code, "RYN706" in result.err) == (2, True)
        assert VALUE not in result.out + result.err


def test_removing_an_unknown_secret_is_an_error(reyn):
    result = reyn("secret", "rm", "TOKEN")
    assert (result.code, "error RYN704" in result.err) == (2, True)


def test_a_file_that_others_can_read_is_an_error_with_the_command_that_fixes_it(reyn, piped, path: Path):
    piped(VALUE.encode())
    reyn("secret", "set", "TOKEN")
    path.chmod(0o644)
    for words in (("list",), ("rm", "TOKEN"), ("list", "--json")):
        result = reyn("secret", *words)
        assert result.code == 2
        assert f"chmod 600 {path}" in result.out + result.err
        assert VALUE not in result.out + result.err


def test_a_traceback_does_not_contain_the_value(reyn, piped):
    piped(b"zq9x!")
    result = reyn("--debug", "secret", "set", "TOKEN")
    assert "Traceback" in result.err
    assert "zq9x!" not in result.err


def test_the_prompt_does_not_echo_the_value(tmp_path: Path):
    terminal = Terminal(tmp_path, "secret", "set", "TOKEN")
    terminal.wait_for("value of TOKEN (not shown): ")
    terminal.type(f"{VALUE}\n")
    result = terminal.end()
    assert (result.code, "stored TOKEN in" in result.out) == (0, True)
    assert VALUE not in result.out
    assert open_secrets().get("TOKEN") == VALUE


@pytest.mark.slow
@pytest.mark.parametrize(("typed", "code"), [("\n", 2), ("\x04", 130)])
def test_an_empty_prompt_stores_nothing(tmp_path: Path, path: Path, typed: str, code: int):
    terminal = Terminal(tmp_path, "secret", "set", "TOKEN")
    terminal.wait_for("(not shown): ")
    terminal.type(typed)
    result = terminal.end()
    assert (result.code, "Traceback" in result.out) == (code, False)
    assert not path.exists()


def test_help_contains_an_example(reyn):
    for words in (("set",), ("list",), ("rm",), ()):
        result = reyn("secret", *words, "--help")
        assert result.code == 0
        assert f"Example: reyn {' '.join(('secret', *words))}" in result.out
