"""The page of the principles names, for each one, where it is enforced and the tests that show it, and all exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.docs.test_python_api import exists

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "explanation" / "principles.md"
KERNEL = ("kernel", "contract", "permissions", "workspace", "journal")
STANDARD_SKILLS = ROOT / "src" / "reyn" / "stdlib" / "skills"


def sections() -> dict[str, str]:
    text = PAGE.read_text(encoding="utf-8")
    return {found[1]: found[2] for found in re.finditer(r"^## (P\d): .*\n((?:(?!## ).*\n)*)", text, re.M)}


def faults(section: str) -> list[str]:
    """Return the places and tests of a section that do not exist, and what is missing in it."""
    places = re.findall(r"^\| `(reyn\.[\w.]+)` \| \w", section, re.M)
    tests = re.findall(r"`(tests/[\w/.-]+\.py)::(\w+)`", section)
    found = ["no place"] * (not places) + ["no test"] * (not tests)
    found += [place for place in places if not exists(place)]
    return found + [f"{path}::{name}" for path, name in tests if not is_test(path, name)]


def is_test(path: str, name: str) -> bool:
    file = ROOT / path
    return (
        file.is_file() and re.search(rf"^ *(?:async )?def {name}\(", file.read_text(encoding="utf-8"), re.M) is not None
    )


def test_every_principle_has_its_places_and_its_tests():
    found = sections()
    assert list(found) == [f"P{number}" for number in range(1, 9)]
    assert {name: faults(section) for name, section in found.items()} == {name: [] for name in found}


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("Only words.\n", ["no place", "no test"]),
        ("| `reyn.kernel.nobody` | does it |\n", ["no test", "reyn.kernel.nobody"]),
        (
            "| `reyn.ops.Env` | is it |\n\nTests: `tests/docs/test_docs.py::test_nothing`.\n",
            ["tests/docs/test_docs.py::test_nothing"],
        ),
    ],
)
def test_a_place_or_a_test_that_does_not_exist_is_found(section: str, expected: list[str]):
    assert faults(section) == expected


def test_the_kernel_has_no_name_of_a_skill_or_a_phase():
    names = {folder.name for folder in STANDARD_SKILLS.iterdir() if (folder / "skill.md").is_file()}
    names |= {path.stem for path in STANDARD_SKILLS.glob("*/phases/*.md")}
    assert {"chat", "converse", "triage"} <= names
    literals = {
        (str(path.relative_to(ROOT)), node.value)
        for package in KERNEL
        for path in (ROOT / "src" / "reyn" / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    assert {(path, value) for path, value in literals if value in names} == set()
