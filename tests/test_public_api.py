import re
from pathlib import Path

import pytest

import reyn

ROOT = Path(__file__).parent.parent
FOR_USERS = {"reyn", "reyn.chat", "reyn.client", "reyn.functions", "reyn.ops", "reyn.testing", "reyn.testing.crash"}
SEED_NAMES = {("reyn.context", "CompiledContext"), ("reyn.context", "CompiledTurnContext")}


def test_the_public_api_is_sorted_and_frozen():
    assert reyn.__all__ == [
        "LATER",
        "Event",
        "Model",
        "ModelAnswer",
        "ModelRequest",
        "OSRuntime",
        "People",
        "Question",
        "ReynError",
        "RunResult",
        "Runtime",
        "SyncRuntime",
        "Usage",
        "__version__",
        "llm_chat",
        "llm_function",
        "tool",
    ]


def test_every_public_name_can_be_imported():
    for name in reyn.__all__:
        assert getattr(reyn, name) is not None
    assert reyn.Runtime is reyn.OSRuntime


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing"):
        reyn.nothing  # noqa: B018 - raises


def test_every_name_that_an_internal_package_exports_is_imported_from_it():
    folders = ("src", "tests", "tools", "bench", "examples")
    files = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    used = {name for path in files for name in imported_names(path.read_text())}
    exported = {
        (".".join(path.parent.relative_to(ROOT / "src").parts), name)
        for path in (ROOT / "src" / "reyn").rglob("__init__.py")
        for listed in re.findall(r"^__all__ = \[(.*?)\]", path.read_text(), re.M | re.S)
        for name in re.findall(r"\w+", listed)
    }
    assert ("reyn.journal", "Event") in exported
    assert sorted(one for one in exported - used - SEED_NAMES if one[0] not in FOR_USERS) == []


def imported_names(text: str) -> set[tuple[str, str]]:
    """Return what a module imports from Reyn, by package, with the attributes of the packages that it imports."""
    found = {
        (package, name.strip())
        for package, names in re.findall(r"^ *from (reyn[\w.]*) import (\([^)]*\)|.*)$", text, re.M)
        for name in re.sub(r" as \w+|[()]|#.*", "", names).split(",")
    }
    modules = {name: f"{package}.{name}" for package, name in found}
    return found | {
        (modules[name], attribute) for name, attribute in re.findall(r"\b(\w+)\.(\w+)", text) if name in modules
    }
