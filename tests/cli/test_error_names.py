"""`reyn ops` lists the names by which nodes of a skill handle errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from reyn.errors import FunctionInvalid
from reyn.functions import tool
from reyn.vocabulary.error_names import ERROR_NAMES

TOOLS = '''
from reyn import tool

class NoCredit(Exception):
    error_name = "no_credit"

@tool(effect="pure", permission=None, errors=["no_credit"])
def charge(amount: int) -> str:
    """Charge a card."""
    raise NoCredit(str(amount))
'''


@pytest.fixture
def shop(reyn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with a tool that declares the name of an error."""
    (tmp_path / "shop.py").write_text(TOOLS)
    (tmp_path / "reyn.yaml").write_text("tools: [shop:charge]\n")
    monkeypatch.chdir(tmp_path)
    assert reyn("trust", "--yes").code == 0
    return tmp_path


def test_the_list_has_the_names_of_reyn_and_of_tools(reyn, shop: Path):
    lines = reyn("ops").out.splitlines()
    listed = lines[lines.index("errors, for `retry` and `on_error` of a node:") + 1 :]
    assert {line.split()[0] for line in listed} == {*ERROR_NAMES, "no_credit"}
    assert any(line.split() == ["no_credit", "charge"] for line in listed)


def test_the_list_as_json_has_them_too(reyn, shop: Path):
    found = reyn("ops", "--json").json
    assert {one["name"]: one["ops"] for one in found["errors"]}["no_credit"] == ["charge"]
    assert {one["kind"]: one["error_names"] for one in found["ops"]}["charge"] == [
        "no_credit",
        "timeout",
        "denied",
        "failed",
    ]
    assert reyn("ops", "charge", "--json").json["error_names"] == ["no_credit", "timeout", "denied", "failed"]
    assert "Errors: `no_credit`, `timeout`, `denied`, `failed`." in reyn("ops", "charge").out


def test_a_name_of_an_error_has_a_form():
    with pytest.raises(FunctionInvalid, match="errors"):
        tool(errors=["No credit"])(lambda: None)
