"""The table of packages is the list of layers that import-linter enforces."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_table_of_packages_lists_every_layer_in_order():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [layers] = [contract["layers"] for contract in contracts if contract.get("containers") == ["reyn"]]
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    table = page[page.index("| package, top to bottom |") :].partition("\n\n")[0]
    first_cells = [row.split("|")[1] for row in table.splitlines()[2:]]
    assert [name for cell in first_cells for name in re.findall(r"`reyn\.(\w+)`", cell)] == layers


def test_the_linter_knows_no_exceptions():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    assert not any("ignore_imports" in contract for contract in contracts)
    assert {contract["type"] for contract in contracts} == {"layers", "acyclic_siblings"}
