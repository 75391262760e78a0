"""`reyn lint --fix` rewrites the older form and preserves values, comments and prose."""

from __future__ import annotations

from pathlib import Path

import pytest

from reyn.cli.app import run_app
from reyn.contract import candidates_of
from reyn.errors import FixImpossible
from reyn.lint import fix_skill, lint_skill
from reyn.lint.yaml_writer import comments_of as _comments
from reyn.skills import Library
from tests.skills.test_dialects import MODULE, PAIRS, WRAPPED, phase, skill, write
from tests.support import load_skill


def fix(folder: Path) -> list[str]:
    return fix_skill(folder, Library(folder.parent.parent.parent))


@pytest.mark.parametrize("name", PAIRS)
def test_a_rewritten_skill_loads_as_an_equal_value(tmp_path: Path, name: str):
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


def test_comments_and_prose_are_preserved(tmp_path: Path):
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


def test_an_unknown_key_becomes_a_comment(tmp_path: Path):
    files = {
        "skill.md": skill(more="tier: {a: 1}\n"),
        "phases/cost.md": phase("cost"),
        "phases/price.md": phase("price"),
    }
    folder = write(tmp_path, older=True, files={**WRAPPED, **files})
    fix(folder)
    assert "# tier:" in (folder / "skill.md").read_text()
    load_skill(folder)


def test_a_skill_with_errors_is_not_changed(tmp_path: Path):
    files = {"skill.md": skill(price="[nowhere]"), "phases/cost.md": phase("cost"), "phases/price.md": phase("price")}
    folder = write(tmp_path, older=True, files={**WRAPPED, **files})
    before = {path: path.read_bytes() for path in folder.rglob("*.*")}
    with pytest.raises(FixImpossible, match="has errors"):
        fix(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*.*")} == before


def test_a_skill_in_the_documented_form_is_not_changed(tmp_path: Path):
    from tests.skills.test_dialects import BARE

    folder = write(tmp_path, older=False, files={**BARE, **MODULE, **PAIRS["steps with a type"][1]})
    assert fix(folder) == []


def test_keys_without_an_equivalent_become_comments(tmp_path: Path):
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
    for comment in ("# keep me", "#   some prose", "#   on two lines", "# description: inner prose"):
        assert comment in new
    assert _comments(new).count("# c") == 0


def test_line_ends_and_byte_order_marks_are_preserved(tmp_path: Path):
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
def test_nothing_changes_if_one_file_cannot_be_rewritten(tmp_path: Path, broken: dict):
    files = {"skill.md": skill(), "phases/cost.md": phase("cost"), "phases/price.md": phase("price")}
    folder = write(tmp_path, older=True, files={**WRAPPED, **files, **broken})
    before = {path: path.read_bytes() for path in folder.rglob("*.*")}
    with pytest.raises(FixImpossible):
        fix(folder)
    assert {path: path.read_bytes() for path in folder.rglob("*.*")} == before


BETWEEN = """---
type: phase
name: cost
input: dish
preprocessor:
  # before the first
  - type: validate
    schema: {type: object}
  # before the second

  # still before the second
  - {type: python, module: margin, function: add, into: data.sum}  # beside the second
  # before the third
  - function: add
    module: ./margin.py
    type: python
  # before the fourth
  - type: iterate
    over: data.items
    apply:
      type: run_op
      op: {kind: file, op: read, path: x}
  # at the end
---
Do it.
"""


def test_comments_between_steps_stay_between_them(tmp_path: Path):
    files = {"skill.md": skill(), "phases/cost.md": BETWEEN, "phases/price.md": phase("price")}
    folder = write(tmp_path, older=True, files={**WRAPPED, **MODULE, **files})
    fix(folder)
    lines = (folder / "phases/cost.md").read_text().split("\n")
    landmarks = [line.strip().split("  #")[-1].strip(" #") for line in lines if "#" in line or line.startswith("  - ")]
    assert landmarks == [
        "before the first",
        "- validate:",
        "before the second",
        "still before the second",
        "beside the second",
        "before the third",
        "- python:",
        "before the fourth",
        "- iterate:",
        "at the end",
    ]


UNSAFE = "permissions:\n  python: [{module: margin, function: add, mode: unsafe, reason: it must}]\n"


@pytest.mark.parametrize(
    "step",
    [
        "{type: python, module: margin, function: add}",
        "{type: iterate, over: data.items, apply: {type: python, module: ./margin.py, function: add}}",
    ],
)
def test_the_mode_of_a_permission_is_copied_to_its_step(tmp_path: Path, step: str):
    files = {
        "skill.md": skill(more=UNSAFE),
        "phases/cost.md": phase("cost", f"preprocessor:\n  - {step}\n"),
        "phases/price.md": phase("price"),
    }
    folder = write(tmp_path, older=True, files={**WRAPPED, **MODULE, **files})
    before = load_skill(folder)
    assert fix(folder)
    assert load_skill(folder) == before
    assert "mode: unsafe" in (folder / "phases/cost.md").read_text()


def test_nested_permissions_and_flat_artifacts_are_rewritten(tmp_path: Path):
    nested = "permissions:\n  # what it reads\n  file:\n    read: [{path: menus}]  # menus\n"
    files = {"skill.md": skill(more=nested), "phases/cost.md": phase("cost"), "phases/price.md": phase("price")}
    artifact = {"artifacts/dish.yaml": "name: dish\nwrapped: false\nschema: {type: object}\n"}
    folder = write(tmp_path, older=True, files={**files, **artifact})
    before = load_skill(folder)
    assert fix(folder) == ["artifacts/dish.yaml", "skill.md"]
    assert load_skill(folder) == before
    text = (folder / "skill.md").read_text()
    assert "file.read: [{path: menus}]" in text
    assert {"# what it reads", "# menus"} <= {*_comments(text.split("\n---\n")[0])}


def test_the_command_fixes_other_skills_after_one_that_it_cannot_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    good = {"skill.md": skill(), "phases/cost.md": phase("cost"), "phases/price.md": phase("price")}
    broken = good | {"phases/cost.md": phase("cost").replace("input: dish\n", "")}
    project = tmp_path / "reyn" / "project"
    for name, files in (("a_broken", broken), ("b_good", good), ("c_broken", broken)):
        folder = write(tmp_path / name, older=True, files={**WRAPPED, **files})
        text = (folder / "skill.md").read_text()
        (folder / "skill.md").write_text(text.replace("name: menu", f"name: {name}"))
        project.mkdir(parents=True, exist_ok=True)
        folder.rename(project / name)
    monkeypatch.chdir(tmp_path)
    assert run_app(("lint", "--fix")) == 1
    captured = capsys.readouterr()
    assert "rewrote reyn/project/b_good/artifacts/dish.yaml" in captured.out
    assert [line.split(":")[0] for line in captured.err.split("\n") if "RYN104" in line] == ["a_broken", "c_broken"]
    assert lint_skill(project / "b_good") == []


DESCRIBED = {
    "skill.md": skill("[price, stop, end]  # where to", "\n    - cost # again\n    - end"),
    "phases/cost.md": phase("cost"),
    "phases/price.md": phase("price").replace("dish", "sum"),
    "phases/stop.md": phase("stop").replace("dish", "halt"),
    "artifacts/dish.yaml": "description: A dish.\ntype: object\n",
    "artifacts/sum.yaml": "description: 'Choose it if: a, {b}'\ntype: object\n",
    "artifacts/halt.yaml": "description: >\n  Choose it\n  otherwise.\ntype: object\n",
}


def test_descriptions_become_edge_texts_and_the_model_sees_the_same(tmp_path: Path):
    folder = write(tmp_path, older=False, files=DESCRIBED)
    before = load_skill(folder)
    assert fix(folder) == ["skill.md"]
    after = load_skill(folder)
    assert after.edge_texts == {
        "cost": {"price": "Choose it if: a, {b}", "stop": "Choose it otherwise.", "end": "A dish."}
    }
    assert [candidates_of(after, name) for name in after.phases] == [
        candidates_of(before, name) for name in before.phases
    ]
    text = (folder / "skill.md").read_text()
    assert "cost: {price: 'Choose it if: a, {b}', stop: Choose it otherwise., end: A dish.}  # where to\n" in text
    assert "- cost # again" in text  # the same artifact leads to both: there is no text for either
    assert fix(folder) == []


def test_a_block_of_successors_becomes_a_block_of_texts(tmp_path: Path):
    files = DESCRIBED | {"skill.md": skill("\n    # first\n    - price  # money\n    - stop", "[end]")}
    folder = write(tmp_path, older=False, files=files)
    assert fix(folder) == ["skill.md"]
    text = (folder / "skill.md").read_text()
    assert "    # first\n    price: 'Choose it if: a, {b}'  # money\n    stop: Choose it otherwise.\n" in text


def test_texts_of_the_author_are_left_alone(tmp_path: Path):
    folder = write(tmp_path, older=False, files=DESCRIBED | {"skill.md": skill("{price: x, stop: }", "[end]")})
    assert fix(folder) == []


def test_a_skill_of_the_older_form_gets_edge_texts_too(tmp_path: Path):
    wrapped = {"artifacts/dish.yaml": "name: dish\ndescription: A dish.\nschema: {type: object}\n"}
    folder = write(tmp_path, older=True, files=DESCRIBED | wrapped)
    assert fix(folder) == ["artifacts/dish.yaml", "skill.md"]
    assert load_skill(folder).edge_texts["cost"]["end"] == "A dish."
