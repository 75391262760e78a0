"""`--fix`: the documented form of the same skill, with every comment and all prose."""

from __future__ import annotations

from pathlib import Path

import pytest

from reyn.errors import FixImpossible
from reyn.lint import fix_skill, lint_skill
from reyn.lint.fix import _comments
from reyn.skills import Library
from tests.skills.test_dialects import MODULE, PAIRS, WRAPPED, phase, skill, write
from tests.support import load_skill


def fix(folder: Path) -> list[str]:
    return fix_skill(folder, Library(folder.parent.parent.parent))


@pytest.mark.parametrize("name", PAIRS)
def test_every_older_skill_is_rewritten_to_the_same_value(tmp_path: Path, name: str):
    folder = write(tmp_path, older=True, files={**WRAPPED, **MODULE, **PAIRS[name][0]})
    before = load_skill(folder)
    assert fix(folder)
    assert load_skill(folder) == before
    assert [finding.code for finding in lint_skill(folder) if finding.code == "RYN135"] == []
    assert fix(folder) == []


COMMENTED = """---
# about the phase
type: phase  # its type
name: cost
input: dish
max_act_turns: 0  # the default
preprocessor:
  # first a check
  - type: validate  # its kind
    schema: {type: object}  # of anything
  - type: python
    # where it lives
    module: ./margin.py
    function: add
    into: data.sum  # 'quoted # not a comment'
---

Do it.

  # not a comment but prose
"""


def test_no_comment_and_no_prose_is_lost(tmp_path: Path):
    artifact = "# above\nname: dish  # its name\ndescription: A dish.\nschema:  # below\n  type: object  # an object\n"
    files = {"skill.md": skill(), "phases/cost.md": COMMENTED, "phases/price.md": phase("price")}
    folder = write(tmp_path, older=True, files={**MODULE, **files, "artifacts/dish.yaml": artifact})
    before = load_skill(folder)
    fix(folder)
    assert load_skill(folder) == before
    for file, old in (("phases/cost.md", COMMENTED), ("artifacts/dish.yaml", artifact)):
        new = (folder / file).read_text()
        assert sorted(_comments(old.split("\n---\n")[0])) == sorted(_comments(new.split("\n---\n")[0]))
    assert (folder / "phases/cost.md").read_text().endswith("---\n\nDo it.\n\n  # not a comment but prose\n")


def test_a_key_that_nobody_knows_becomes_a_comment(tmp_path: Path):
    files = {
        "skill.md": skill(more="tier: {a: 1}\n"),
        "phases/cost.md": phase("cost"),
        "phases/price.md": phase("price"),
    }
    folder = write(tmp_path, older=True, files={**WRAPPED, **files})
    fix(folder)
    assert "# tier:" in (folder / "skill.md").read_text()
    load_skill(folder)


def test_a_skill_with_errors_is_left_alone(tmp_path: Path):
    files = {"skill.md": skill(price="[nowhere]"), "phases/cost.md": phase("cost"), "phases/price.md": phase("price")}
    folder = write(tmp_path, older=True, files={**WRAPPED, **files})
    before = {path: path.read_bytes() for path in folder.rglob("*.*")}
    with pytest.raises(FixImpossible, match="has errors"):
        fix(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*.*")} == before


def test_a_documented_skill_needs_no_fix(tmp_path: Path):
    from tests.skills.test_dialects import BARE

    folder = write(tmp_path, older=False, files={**BARE, **MODULE, **PAIRS["steps with a type"][1]})
    assert fix(folder) == []


def test_what_has_no_place_in_the_documented_form_becomes_a_comment(tmp_path: Path):
    files = {"skill.md": skill(), "phases/cost.md": phase("cost"), "phases/price.md": phase("price")}
    artifact = (
        "name: dish\nnotes: |\n  some prose\n  on two lines\ndescription: The chef's dish.  # keep me\n"
        'schema:\n  description: inner prose\n  type: object\n  title: "a # b\n    # c"\n'
    )
    folder = write(tmp_path, older=True, files={**files, "artifacts/dish.yaml": artifact})
    before = load_skill(folder)
    fix(folder)
    new = (folder / "artifacts/dish.yaml").read_text()
    assert load_skill(folder) == before
    for kept in ("# keep me", "#   some prose", "#   on two lines", "# description: inner prose"):
        assert kept in new
    assert _comments(new).count("# c") == 0


def test_line_ends_and_marks_are_kept(tmp_path: Path):
    files = {"skill.md": skill(), "phases/cost.md": phase("cost"), "phases/price.md": phase("price")}
    folder = write(tmp_path, older=True, files={**WRAPPED, **files})
    path = folder / "artifacts/dish.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    before = load_skill(folder)
    fix(folder)
    new = path.read_bytes()
    assert new.startswith(b"\xef\xbb\xbf")
    assert new.count(b"\r\n") == new.count(b"\n") > 0
    assert load_skill(folder) == before


@pytest.mark.parametrize(
    "broken",
    [
        {"phases/lost.md": "no front matter"},
        {"phases/lost.md": "---\n- a list\n---\n"},
        {"phases/lost.md": "---\na: 1\na: 2\n---\n"},
        {"artifacts/lost.yaml": "{unclosed"},
        {"phases/cost.md": phase("cost").replace("input: dish\n", "")},
    ],
)
def test_a_file_that_cannot_be_rewritten_leaves_all_as_it_was(tmp_path: Path, broken: dict):
    files = {"skill.md": skill(), "phases/cost.md": phase("cost"), "phases/price.md": phase("price")}
    folder = write(tmp_path, older=True, files={**WRAPPED, **files, **broken})
    before = {path: path.read_bytes() for path in folder.rglob("*.*")}
    with pytest.raises(FixImpossible):
        fix(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*.*")} == before
