"""The pages name the layers that import-linter enforces, and modules that exist."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("module", "owned"),
    [
        ("run_orchestrator", "next_move"),
        ("phase_executor", "visit"),
        ("llm_call_recorder", "LlmCallRecorder"),
        ("run_state", "apply"),
        ("runtime_types", "RunNotFound"),
        ("turn", "execute_single_llm_phase"),
        ("turn", "schedule_tool_batch"),
    ],
)
def test_the_layers_of_the_kernel_have_their_names(module: str, owned: str):
    assert hasattr(importlib.import_module(f"reyn.kernel.{module}"), owned)
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    [layers] = [contract["layers"] for contract in contracts if contract.get("containers") == ["reyn.kernel"]]
    assert layers[-2:] == ["runtime_types", "versions"]  # the errors of callers depend on no other part


def test_the_services_of_conversations_have_their_names():
    folder = ROOT / "src" / "reyn" / "chat" / "services"
    assert {path.stem for path in folder.glob("*.py")} - {"__init__"} == {
        "a2a_handler",
        "auto_resume_handler",
        "budget_gateway",
        "chain_manager",
        "compaction_controller",
        "intervention_handler",
        "intervention_registry",
        "memory_service",
        "router_host_adapter",
        "skill_runner",
        "snapshot_journal",
    }


def _defined(body: list[ast.stmt]) -> Iterator[str]:
    for one in body:
        match one:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=targets):
                yield from (name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name))
            case ast.If(body=inner):
                yield from _defined(inner)


def test_a_public_name_has_one_meaning():
    modules: dict[str, set[Path]] = {}
    for path in (ROOT / "src" / "reyn").rglob("*.py"):
        for name in _defined(ast.parse(path.read_bytes()).body):
            modules.setdefault(name, set()).add(path)
    commands = ROOT / "src" / "reyn" / "cli" / "commands"
    homonyms = {
        name
        for name, paths in modules.items()
        if len(paths) > 1 and len(name) > 1 and name[0] != "_" and {path.parent for path in paths} != {commands}
    }
    # Programs have one `main` each; `reyn.cli.options` loads nothing, so it repeats two lists that a test compares.
    assert homonyms == {"main", "ENDED", "GROUPINGS"}
