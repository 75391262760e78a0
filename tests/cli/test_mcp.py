"""`reyn mcp`: add, list and test servers."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

from tests.mcp.test_mcp import SERVER

pytestmark = pytest.mark.sockets


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "reyn.yaml").write_text("# mine\n")
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_a_server_is_added_trusted_tested_and_listed(reyn, tmp_path: Path):
    command = (sys.executable, str(SERVER), str(tmp_path / "calls"), "ok")
    assert "added desk" in reyn("mcp", "add", "desk", "--", *command).out
    listed = json.loads(reyn("mcp", "list", "--json").out)
    assert listed["servers"] == []
    assert len(listed["ignored"]) == 1
    assert reyn("mcp", "test", "desk").code == 2
    assert reyn("trust", "--yes").code == 0
    first = reyn("mcp", "test", "desk")
    assert (first.code, first.out.splitlines()[0]) == (1, "+ echo  Repeat a text.")
    assert first.out.splitlines()[1] == "    args: {text: string}."
    assert "not usable as an op because of its name: not a name!" in first.err
    assert reyn("mcp", "test", "desk", "--accept").code == 0
    assert "desk: OK, 4 tools, none has changed" in reyn("mcp", "test", "desk").out
    assert json.loads(reyn("mcp", "list", "--json").out)["servers"][0]["tools"] == ["echo", "do", "look", "put"]


def test_a_second_server_is_added_beside_the_first_and_comments_stay(reyn, tmp_path: Path):
    path = tmp_path / "reyn.local.yaml"
    path.write_text(
        "model: local  # the small one\nmcp:\n  servers:\n    # first\n    one:\n      url: http://one.test\n"
    )
    assert reyn("mcp", "add", "two", "--url", "http://two.test", "--header", "X=secret://KEY").code == 0
    text = path.read_text()
    assert "# the small one" in text
    assert "# first" in text
    assert yaml.safe_load(text)["mcp"]["servers"] == {
        "one": {"url": "http://one.test"},
        "two": {"url": "http://two.test", "headers": {"X": "secret://KEY"}},
    }


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("Bad Name", "--url", "http://x"), "cannot be added"),
        (("a",), "either a program"),
        (("a", "--url", "http://x", "--", "y"), "either a program"),
        (("a", "--url", "not a url"), "cannot be added"),
        (("a", "--url", "http://x", "--header", "X"), "is not NAME=VALUE"),
        (("a", "--url", "http://x", "--header", "X=env://HOME"), "cannot be added"),
        (("a", "--url", "http://x", "--env", "X=1"), "cannot be added"),
    ],
)
def test_a_wrong_server_is_not_added(reyn, tmp_path: Path, args: tuple, words: str):
    result = reyn("mcp", "add", *args)
    assert result.code == 2
    assert words in result.err
    assert not (tmp_path / "reyn.local.yaml").exists()


@pytest.mark.parametrize(("content", "words"), [("mcp: [", "invalid YAML"), ("- a", "not a mapping")])
def test_a_server_is_not_added_to_a_file_that_cannot_be_read(reyn, tmp_path: Path, content: str, words: str):
    (tmp_path / "reyn.local.yaml").write_text(content)
    result = reyn("mcp", "add", "desk", "--", "program")
    assert (result.code, words in result.err) == (2, True), result.err
    assert (tmp_path / "reyn.local.yaml").read_text() == content


def test_a_server_is_not_added_through_a_planted_link(reyn, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory):
    victim = tmp_path_factory.mktemp("elsewhere") / "victim"
    (tmp_path / "reyn.local.yaml").symlink_to(victim)
    assert reyn("mcp", "add", "desk", "--", "program").code == 2
    assert not victim.exists()
