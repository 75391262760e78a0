"""Older skills, and their documented twins: the same value."""

from __future__ import annotations

from pathlib import Path

import pytest

from reyn.errors import SkillInvalid
from reyn.skills import pin
from tests.support import load_skill, read_skill

SCHEMA = "{type: object, properties: {dish: {type: string}, items: {type: array, items: {type: string}}}}"

SKILL = """---
type: skill
name: {name}
entry: cost
final_output: dish
graph:
  cost: {cost}
  price: {price}
{more}---
"""

PHASE = """---
{type}name: {name}
input: dish
{more}---
Do it.
"""


def write(root: Path, *, older: bool, files: dict[str, str]) -> Path:
    folder = root / ("older" if older else "documented") / "reyn" / "project" / "menu"
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def skill(cost: str = "[price]", price: str = "[end]", more: str = "") -> str:
    return SKILL.format(name="menu", cost=cost, price=price, more=more)


def phase(name: str, more: str = "", kind: str = "type: phase\n") -> str:
    return PHASE.format(type=kind, name=name, more=more)


WRAPPED = {"artifacts/dish.yaml": f"name: dish\ndescription: A dish.\nschema: {SCHEMA}\n"}
BARE = {"artifacts/dish.yaml": SCHEMA.replace("{type: object", "{type: object, description: A dish.", 1)}
MODULE = {"margin.py": "def add(artifact):\n    return 1\n"}
PAIRS = {
    "a wrapped artifact": (
        {"skill.md": skill(price="[]"), "phases/cost.md": phase("cost"), "phases/price.md": phase("price")},
        {"skill.md": skill(price="[end]"), "phases/cost.md": phase("cost"), "phases/price.md": phase("price")},
    ),
    "zero act turns": (
        {"skill.md": skill(), "phases/cost.md": phase("cost", "max_act_turns: 0\n"), "phases/price.md": phase("price")},
        {"skill.md": skill(), "phases/cost.md": phase("cost"), "phases/price.md": phase("price")},
    ),
    "words for booleans": (
        {
            "skill.md": skill(),
            "phases/cost.md": phase("cost", "can_finish: yes\n"),
            "phases/price.md": phase("price", "can_finish: off\n"),
        },
        {
            "skill.md": skill(),
            "phases/cost.md": phase("cost", "can_finish: true\n"),
            "phases/price.md": phase("price", "can_finish: false\n"),
        },
    ),
    "lone words for lists": (
        {
            "skill.md": skill(cost="price", more="finish_criteria: it is cheap, it is good\n"),
            "phases/cost.md": phase("cost"),
            "phases/price.md": phase("price"),
        },
        {
            "skill.md": skill(more="finish_criteria: [it is cheap, it is good]\n"),
            "phases/cost.md": phase("cost"),
            "phases/price.md": phase("price"),
        },
    ),
    "steps with a type": (
        {
            "skill.md": skill(),
            "phases/cost.md": phase(
                "cost",
                "preprocessor:\n"
                "  - {type: run_op, op: {kind: file, op: glob}, args_from: {path: data.dish}, into: data.found}\n"
                "  - type: iterate\n    over: data.items\n    into: data.texts\n    on_error: skip\n"
                "    apply: {type: run_op, op: {kind: file, op: read, path: x}, args_from: {path: _iter.item}}\n"
                "  - {type: python, module: ./margin.py, function: add, into: data.sum}\n"
                "  - {type: validate, schema: {type: object}}\n",
            ),
            "phases/price.md": phase("price"),
        },
        {
            "skill.md": skill(),
            "phases/cost.md": phase(
                "cost",
                "preprocessor:\n"
                "  - run_op: {op: {kind: file, op: glob}, args_from: {path: data.dish}, into: data.found}\n"
                "  - iterate:\n      over: data.items\n      into: data.texts\n      on_error: skip\n"
                "      apply: {run_op: {op: {kind: file, op: read, path: x}, args_from: {path: _iter.item}}}\n"
                "  - python: {module: ./margin.py, function: add, into: data.sum}\n"
                "  - validate: {schema: {type: object}}\n",
            ),
            "phases/price.md": phase("price"),
        },
    ),
    "a postprocessor": (
        {
            "skill.md": skill(
                more="postprocessor:\n  output: dish\n  steps:\n"
                "    - {type: python, module: ./margin.py, function: add, into: data.gross}\n"
            ),
            "phases/cost.md": phase("cost"),
            "phases/price.md": phase("price"),
        },
        {
            "skill.md": skill(
                more="postprocessor:\n  output_schema: dish\n  steps:\n"
                "    - python: {module: ./margin.py, function: add, into: data.gross}\n"
            ),
            "phases/cost.md": phase("cost"),
            "phases/price.md": phase("price"),
        },
    ),
    "a branch, a union and a loop": (
        {
            "skill.md": skill(cost="[price, cost]", price="[cost]"),
            "phases/cost.md": phase("cost").replace("input: dish", "input: dish | other"),
            "phases/price.md": phase("price", "can_finish: on\nallowed_ops: [ ]\n"),
            "artifacts/other.yaml": "name: other\nschema: {type: object, required: [x]}\n",
        },
        {
            "skill.md": skill(cost="[price, cost]", price="[cost]"),
            "phases/cost.md": phase("cost").replace("input: dish", "input: dish | other"),
            "phases/price.md": phase("price", "can_finish: true\nallowed_ops: []\n"),
            "artifacts/other.yaml": "{type: object, required: [x]}\n",
        },
    ),
    "provenance and routing": (
        {
            "skill.md": skill(price="end", more="routing: {tier: 1}\nimported_from: elsewhere\n"),
            "phases/cost.md": phase("cost", "role: cook\n"),
            "phases/price.md": phase("price"),
        },
        {
            "skill.md": skill(),
            "phases/cost.md": phase("cost", "role: cook\n"),
            "phases/price.md": phase("price"),
        },
    ),
    "no type, no name": (
        {
            "skill.md": skill().replace("type: skill\n", ""),
            "phases/cost.md": phase("cost", kind="").replace("name: cost\n", ""),
            "phases/price.md": phase("price"),
        },
        {"skill.md": skill(), "phases/cost.md": phase("cost"), "phases/price.md": phase("price")},
    ),
}


@pytest.mark.parametrize("name", PAIRS)
def test_an_older_skill_is_its_documented_twin(tmp_path: Path, name: str):
    old, new = PAIRS[name]
    older = load_skill(write(tmp_path, older=True, files={**WRAPPED, **MODULE, **old}))
    documented = load_skill(write(tmp_path, older=False, files={**BARE, **MODULE, **new}))
    assert older == documented
    assert pin(older) == pin(documented)


RUNNABLE = [name for name in PAIRS if name not in ("steps with a type", "a postprocessor")]


@pytest.mark.parametrize("name", RUNNABLE)
def test_an_older_skill_runs(tmp_path: Path, name: str):
    from reyn import SyncRuntime
    from reyn.testing import MemoryJournal, ScriptedModel
    from tests.support import finish, go

    old, _ = PAIRS[name]
    folder = write(tmp_path, older=True, files={**WRAPPED, **MODULE, **old})
    answers = [go("price", type="dish"), finish(type="dish")]
    with SyncRuntime.open(folder.parent.parent.parent, model=ScriptedModel(answers), journal=MemoryJournal()) as rt:
        assert rt.run("menu", {"type": "dish", "data": {"dish": "ramen"}}).ok


def test_enough_older_skills_run():
    assert len(RUNNABLE) >= 6


def test_unknown_keys_of_an_older_skill_are_warnings_and_of_a_documented_one_errors(tmp_path: Path):
    files = {"skill.md": skill(more="tier: 3\n"), "phases/cost.md": phase("cost"), "phases/price.md": phase("price")}
    reading = read_skill(write(tmp_path, older=True, files={**WRAPPED, **files}))
    assert [(finding.code, finding.severity) for finding in reading.findings] == [("RYN112", "warning")]
    with pytest.raises(SkillInvalid, match="unknown key `tier`"):
        load_skill(write(tmp_path, older=False, files={**BARE, **files}))


def test_words_for_booleans_are_words_in_a_documented_skill(tmp_path: Path):
    files = {
        "skill.md": skill(),
        "phases/cost.md": phase("cost", "can_finish: yes\n"),
        "phases/price.md": phase("price"),
    }
    with pytest.raises(SkillInvalid, match="Expected `bool`, got `str`"):
        load_skill(write(tmp_path, older=False, files={**BARE, **files}))


def test_a_pin_changes_with_everything_that_can_change_a_run(tmp_path: Path):
    _, new = PAIRS["steps with a type"]
    folder = write(tmp_path, older=False, files={**BARE, **MODULE, **new})
    before = pin(load_skill(folder)).hash
    (folder / "margin.py").write_text("def add(artifact):\n    return 2\n")
    assert pin(load_skill(folder)).hash != before
    (folder / "margin.py").write_text(MODULE["margin.py"])
    assert pin(load_skill(folder)).hash == before
    (folder / "notes.txt").write_text("not part of the skill")
    assert pin(load_skill(folder)).hash == before


def test_what_is_wrong_in_an_older_skill_is_still_found(tmp_path: Path):
    files = {
        "skill.md": skill(more="postprocessor: 3\n"),
        "phases/cost.md": phase("cost", "preprocessor:\n  - type: iterate\n    over: data\n    apply: 3\n  - 4\n"),
        "phases/price.md": phase("price").replace("input: dish\n", ""),
    }
    reading = read_skill(write(tmp_path, older=True, files={**WRAPPED, **files}))
    assert {(finding.file, finding.code) for finding in reading.findings} == {
        ("skill.md", "RYN114"),
        ("phases/cost.md", "RYN114"),
        ("phases/cost.md", "RYN123"),
    }


def test_a_flat_artifact_is_not_performed_and_said_so(tmp_path: Path):
    files = {"skill.md": skill(), "phases/cost.md": phase("cost"), "phases/price.md": phase("price")}
    flat = {"artifacts/dish.yaml": f"name: dish\nwrapped: no\nschema: {SCHEMA}\n"}
    with pytest.raises(SkillInvalid, match="RYN103"):
        load_skill(write(tmp_path, older=True, files={**flat, **files}))


def test_a_copy_that_cannot_be_read_blocks_the_run():
    from reyn.errors import RunBlocked
    from reyn.skills import unpin

    with pytest.raises(RunBlocked):
        unpin(b"{}")


def test_the_mode_of_a_python_step_stands_on_its_permission_in_an_older_skill(tmp_path: Path):
    permission = "permissions:\n  python: [{module: ./margin.py, function: add, mode: unsafe, reason: it must}]\n"
    files = {
        "skill.md": skill(more=permission),
        "phases/cost.md": phase("cost", "preprocessor: [{type: python, module: ./margin.py, function: add}]\n"),
        "phases/price.md": phase("price"),
    }
    loaded = load_skill(write(tmp_path, older=True, files={**WRAPPED, **MODULE, **files}))
    assert loaded.phases["cost"].preprocessor[0].mode == "unsafe"


def test_an_older_schema_of_draft_7_is_read_as_one(tmp_path: Path):
    files = {"skill.md": skill(), "phases/cost.md": phase("cost"), "phases/price.md": phase("price")}
    artifact = {"artifacts/dish.yaml": "name: dish\nschema: {type: array, items: [{type: string}]}\n"}
    loaded = load_skill(write(tmp_path, older=True, files={**artifact, **files}))
    assert loaded.final_output.schema["$schema"].endswith("draft-07/schema")


def test_a_shared_file_means_the_same_whoever_shares_it(tmp_path: Path):
    files = {"skill.md": skill(), "phases/cost.md": phase("cost")}
    folder = write(tmp_path, older=False, files={**BARE, **files})
    shared = folder.parent.parent / "shared" / "phases"
    shared.mkdir(parents=True)
    (shared / "price.md").write_text(phase("price", "can_finish: yes\npreprocessor: [{type: lint_plan}]\n"))
    loaded = load_skill(folder)
    assert loaded.phases["price"].can_finish is True


def test_a_helper_module_is_pinned_with_the_one_that_may_import_it(tmp_path: Path):
    folder = write(tmp_path, older=False, files={**BARE, **MODULE, **PAIRS["steps with a type"][1]})
    before = pin(load_skill(folder))
    (folder / "helper.py").write_text("x = 1\n")
    assert pin(load_skill(folder)) != before
