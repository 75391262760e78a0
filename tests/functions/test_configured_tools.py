"""`tools` in `reyn.yaml`: code of a trusted project, and of nothing else."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from reyn import SyncRuntime
from reyn.cli.app import run_app
from reyn.errors import ConfigInvalid
from reyn.permissions.trust import load_project, store_decision
from tests.support import write_skill

MODULE = '''
from pathlib import Path
from reyn import tool

Path(__file__).with_suffix(".imported").touch()

@tool(effect="pure")
def {name}(text: str) -> str:
    """Shout a text."""
    return text.upper()

def plain(text):
    return text
'''


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> tuple[Path, str]:
    """A project with a module of its own, and the module's name."""
    name = f"tools_{abs(hash(request.node.nodeid)):x}"
    (tmp_path / f"{name}.py").write_text(MODULE.format(name="shout"))
    (tmp_path / "reyn.yaml").write_text(f"tools: [{name}:shout]\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path, name


def trust(root: Path) -> None:
    store_decision(load_project(root))


def is_imported(shop: tuple[Path, str]) -> bool:
    return (shop[0] / f"{shop[1]}.imported").exists()


def test_a_project_that_is_not_trusted_loads_no_code(shop, capsys: pytest.CaptureFixture[str]):
    with SyncRuntime.open(shop[0]) as rt:
        assert rt.services.ops.get("shout") is None
        assert [grant.text for grant in rt.project.trust.ignored] == [f"tools: load {shop[1]}:shout"]
    assert not is_imported(shop)
    assert run_app(["ops"]) == 0
    assert "shout" not in capsys.readouterr().out
    assert not is_imported(shop)


def test_a_trusted_project_registers_its_tools(shop, capsys: pytest.CaptureFixture[str]):
    trust(shop[0])
    with SyncRuntime.open(shop[0]) as rt:
        assert rt.services.ops.get("shout") is not None
    assert run_app(["ops", "shout"]) == 0
    assert "Shout a text." in capsys.readouterr().out


def test_trust_is_asked_for_again_when_the_list_changes(shop):
    trust(shop[0])
    (shop[0] / "reyn.yaml").write_text(f"tools: [{shop[1]}:shout, {shop[1]}:plain]\n")
    with SyncRuntime.open(shop[0]) as rt:
        assert rt.services.ops.get("shout") is None


def test_a_skill_allows_a_tool_of_the_project_by_name(shop):
    trust(shop[0])
    write_skill(shop[0], "call", {"turn": ["end"]}, ops={"turn": "shout"}, skill_keys="permissions: {tool: [shout]}\n")
    assert run_app(["lint", "call"]) == 0
    with SyncRuntime.open(shop[0], trust=True) as rt:
        assert rt.project.load("call").phases["turn"].allowed_ops == ("shout",)


def test_a_program_needs_no_trust_for_the_tools_that_it_configures(shop):
    (shop[0] / "reyn.yaml").write_text("")
    with SyncRuntime.open(shop[0], tools=[f"{shop[1]}:shout"]) as rt:
        assert rt.services.ops.get("shout") is not None


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("{name}:missing", "has no `missing`"),
        ("{name}:plain", "a function is not a tool; decorate it with `@tool`"),
        ("no_such_module_x:tool", "cannot import `no_such_module_x`"),
        ("broken_{name}:tool", "ZeroDivisionError"),
    ],
)
def test_a_tool_that_cannot_be_loaded_is_reported_and_the_others_work(shop, entry: str, problem: str):
    root, name = shop
    (root / f"broken_{name}.py").write_text("1 / 0\n")
    (root / "reyn.yaml").write_text(f"tools: [{entry.format(name=name)}, {name}:shout]\n")
    with SyncRuntime.open(root, trust=True) as rt:
        assert rt.services.ops.get("shout") is not None
        [found] = rt.services.ops.problems
        assert problem in found


@pytest.mark.parametrize("entry", ["shop", "shop:", ":tool", "a b:c", "../shop:tool", "5"])
def test_an_entry_that_names_no_tool_is_an_error_of_the_configuration(tmp_path: Path, entry: str):
    (tmp_path / "reyn.yaml").write_text(f"tools: ['{entry}']\n")
    with pytest.raises(ConfigInvalid, match=r"reyn\.yaml:1[^$]*mypackage\.tools:search"):
        load_project(tmp_path)


def test_reading_runs_imports_no_code(shop):
    trust(shop[0])
    with SyncRuntime.open(shop[0]) as rt:
        assert rt.runs.all() == []
        assert not is_imported(shop)


def test_files_of_the_project_replace_no_installed_module(shop, monkeypatch):
    root, name = shop
    (root / "tarfile.py").write_text("raise SystemExit\n")
    (root / f"{name}.py").write_text("import tarfile\n" + MODULE.format(name="shout"))
    monkeypatch.delitem(sys.modules, "tarfile", raising=False)
    with SyncRuntime.open(root, trust=True) as rt:
        assert rt.services.ops.problems == ()
        assert rt.services.ops.get("shout") is not None
