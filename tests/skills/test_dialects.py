"""The older form loads as the same value as the documented one."""

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
    "YAML 1.1 booleans": (
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
    "a word for a list": (
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
def test_both_forms_give_the_same_skill(tmp_path: Path, name: str):
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


def test_most_pairs_are_runnable():
    assert len(RUNNABLE) >= 6


def test_unknown_keys_are_warnings_only_in_the_older_form(tmp_path: Path):
    files = {"skill.md": skill(more="tier: 3\n"), "phases/cost.md": phase("cost"), "phases/price.md": phase("price")}
    result = read_skill(write(tmp_path, older=True, files={**WRAPPED, **files}))
    assert [(finding.code, finding.severity) for finding in result.findings] == [("RYN112", "warning")]
    with pytest.raises(SkillInvalid, match="unknown key `tier`"):
        load_skill(write(tmp_path, older=False, files={**BARE, **files}))


def test_yaml_1_1_booleans_are_strings_in_the_documented_form(tmp_path: Path):
    files = {
        "skill.md": skill(),
        "phases/cost.md": phase("cost", "can_finish: yes\n"),
        "phases/price.md": phase("price"),
    }
    with pytest.raises(SkillInvalid, match="`can_finish` must be `true` or `false`, not 'yes'"):
        load_skill(write(tmp_path, older=False, files={**BARE, **files}))


def test_the_pin_covers_modules_but_not_other_files(tmp_path: Path):
    _, new = PAIRS["steps with a type"]
    folder = write(tmp_path, older=False, files={**BARE, **MODULE, **new})
    before = pin(load_skill(folder)).hash
    (folder / "margin.py").write_text("def add(artifact):\n    return 2\n")
    assert pin(load_skill(folder)).hash != before
    (folder / "margin.py").write_text(MODULE["margin.py"])
    assert pin(load_skill(folder)).hash == before
    (folder / "notes.txt").write_text("not part of the skill")
    assert pin(load_skill(folder)).hash == before


def test_errors_in_the_older_form_are_reported(tmp_path: Path):
    files = {
        "skill.md": skill(more="postprocessor: 3\n"),
        "phases/cost.md": phase("cost", "preprocessor:\n  - type: iterate\n    over: data\n    apply: 3\n  - 4\n"),
        "phases/price.md": phase("price").replace("input: dish\n", ""),
    }
    result = read_skill(write(tmp_path, older=True, files={**WRAPPED, **files}))
    assert {(finding.file, finding.code) for finding in result.findings} == {
        ("skill.md", "RYN114"),
        ("phases/cost.md", "RYN114"),
        ("phases/cost.md", "RYN123"),
    }


TWO_PHASES = {"skill.md": skill(), "phases/cost.md": phase("cost"), "phases/price.md": phase("price")}


@pytest.mark.parametrize(
    "schema",
    [
        SCHEMA,
        f"{{type: object, required: [type, data], properties: {{type: {{const: dish}}, data: {SCHEMA}}}}}",
    ],
)
def test_an_artifact_without_a_wrapper_loads_with_a_warning(tmp_path: Path, schema: str):
    flat = {"artifacts/dish.yaml": f"name: dish\ndescription: A dish.\nwrapped: no\nschema: {schema}\n"}
    folder = write(tmp_path, older=True, files={**flat, **TWO_PHASES})
    result = read_skill(folder)
    assert [(f.line, f.code, f.severity) for f in result.findings] == [(3, "RYN135", "warning")]
    assert result.skill == load_skill(write(tmp_path, older=False, files={**BARE, **TWO_PHASES}))


def test_a_copy_of_the_built_in_user_message_is_a_warning(tmp_path: Path):
    shape = "{type: object, properties: {text: {type: string, description: The text.}}, required: [text]}"
    own = {"artifacts/user_message.yaml": f"name: user_message\nschema: {shape}\n"}
    result = read_skill(write(tmp_path, older=True, files={**WRAPPED, **TWO_PHASES, **own}))
    assert [(f.file, f.code, f.severity) for f in result.findings] == [
        ("artifacts/user_message.yaml", "RYN115", "warning")
    ]
    assert result.skill is not None


def test_another_user_message_is_an_error(tmp_path: Path):
    own = {"artifacts/user_message.yaml": "name: user_message\nschema: {type: object, required: [body]}\n"}
    with pytest.raises(SkillInvalid, match="RYN115 `user_message` is built in and cannot be redefined"):
        load_skill(write(tmp_path, older=True, files={**WRAPPED, **TWO_PHASES, **own}))


def test_nested_file_permissions_load_as_flat_ones(tmp_path: Path):
    nested = "permissions:\n  file:\n    read: [{path: menus}]\n    write: [{path: prices}]\n"
    flat = "permissions:\n  file.read: [{path: menus}]\n  file.write: [{path: prices}]\n"
    files = {**TWO_PHASES, "skill.md": skill(more=nested)}
    older = load_skill(write(tmp_path, older=True, files={**WRAPPED, **files}))
    documented = load_skill(write(tmp_path, older=False, files={**BARE, **TWO_PHASES, "skill.md": skill(more=flat)}))
    assert older == documented


def test_a_module_name_without_suffix_is_a_file_of_the_folder(tmp_path: Path):
    def files(module: str, step: str) -> dict[str, str]:
        permission = f"permissions:\n  python: [{{module: {module}, function: add}}]\n"
        return {
            "skill.md": skill(more=permission),
            "phases/cost.md": phase("cost", f"preprocessor: [{step}]\n"),
            "phases/price.md": phase("price"),
        }

    old = files("margin", "{type: python, module: margin, function: add}")
    new = files("./margin.py", "{python: {module: ./margin.py, function: add}}")
    older = load_skill(write(tmp_path, older=True, files={**WRAPPED, **MODULE, **old}))
    assert older == load_skill(write(tmp_path, older=False, files={**BARE, **MODULE, **new}))
    with pytest.raises(SkillInvalid, match=r"`margin` is not a `\.py` file\n  write `\./margin\.py`"):
        load_skill(
            write(
                tmp_path / "strict",
                older=False,
                files={**BARE, **MODULE, **files("margin", "{python: {module: margin, function: add}}")},
            )
        )


def test_an_unreadable_pin_blocks_the_run():
    from reyn.errors import RunBlocked
    from reyn.skills import unpin

    with pytest.raises(RunBlocked):
        unpin(b"{}")


def test_in_the_older_form_the_permission_has_the_mode_of_a_python_step(tmp_path: Path):
    permission = "permissions:\n  python: [{module: ./margin.py, function: add, mode: unsafe, reason: it must}]\n"
    files = {
        "skill.md": skill(more=permission),
        "phases/cost.md": phase("cost", "preprocessor: [{type: python, module: ./margin.py, function: add}]\n"),
        "phases/price.md": phase("price"),
    }
    loaded = load_skill(write(tmp_path, older=True, files={**WRAPPED, **MODULE, **files}))
    assert loaded.phases["cost"].preprocessor[0].mode == "unsafe"


def test_a_draft_7_schema_of_the_older_form_is_marked_as_draft_7(tmp_path: Path):
    files = {"skill.md": skill(), "phases/cost.md": phase("cost"), "phases/price.md": phase("price")}
    artifact = {"artifacts/dish.yaml": "name: dish\nschema: {type: array, items: [{type: string}]}\n"}
    loaded = load_skill(write(tmp_path, older=True, files={**artifact, **files}))
    assert loaded.final_output.schema["$schema"].endswith("draft-07/schema")


def test_the_form_of_a_shared_file_is_its_own(tmp_path: Path):
    files = {"skill.md": skill(), "phases/cost.md": phase("cost")}
    folder = write(tmp_path, older=False, files={**BARE, **files})
    shared = folder.parent.parent / "shared" / "phases"
    shared.mkdir(parents=True)
    (shared / "price.md").write_text(phase("price", "can_finish: yes\npreprocessor: [{type: lint_plan}]\n"))
    loaded = load_skill(folder)
    assert loaded.phases["price"].can_finish is True


def test_modules_next_to_a_called_one_are_pinned(tmp_path: Path):
    folder = write(tmp_path, older=False, files={**BARE, **MODULE, **PAIRS["steps with a type"][1]})
    before = pin(load_skill(folder))
    (folder / "helper.py").write_text("x = 1\n")
    assert pin(load_skill(folder)) != before
