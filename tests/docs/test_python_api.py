"""The names of Reyn in the pages: each can be imported from where a page says, and is described in the reference."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from reyn import OSRuntime, SyncRuntime
from reyn.functions import llm_function
from reyn.testing import MemoryJournal
from tests.docs.test_docs import FENCE, PAGES, ROOT

REFERENCE = ROOT / "docs" / "reference" / "python"
GUIDES = [page for page in PAGES if page.parent.name == "guides" or page.name == "tutorial.md"]
FILES = {"reyn.yaml", "reyn.local.yaml"}
IMPORT = re.compile(r"\bfrom (reyn[\w.]*) import (\([^)]*\)|[^`\n]*)")
DOTTED = re.compile(r"(?<![\w./-])reyn(?:\.[A-Za-z_]\w*)+")


def names_in(text: str) -> set[str]:
    """Return the dotted names of Reyn that a text imports or spells out."""
    imported = {
        f"{module}.{name}"
        for module, names in IMPORT.findall(text)
        for name in re.findall(r"\w+", re.sub(r" as \w+|#.*", "", names))
    }
    return imported | set(DOTTED.findall(text)) - FILES


def exists(name: str) -> bool:
    """Whether a dotted name can be imported: a module, or an attribute of one."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_name_of_a_page_can_be_imported_from_where_it_says(page: Path):
    assert [name for name in sorted(names_in(page.read_text(encoding="utf-8"))) if not exists(name)] == []


def test_a_name_that_cannot_be_imported_is_found():
    text = "`reyn.models.Nothing`, see reyn.yaml\nfrom reyn.models import (\n    Model,\n    Nobody as Somebody,\n)\n"
    assert {name for name in names_in(text) if not exists(name)} == {"reyn.models.Nothing", "reyn.models.Nobody"}


@cache
def classes() -> set[str]:
    """Return the names of the classes that Reyn defines, without those that `typing` has, too."""
    trees = (ast.parse(path.read_bytes()) for path in (ROOT / "src" / "reyn").rglob("*.py"))
    return {node.name for tree in trees for node in tree.body if isinstance(node, ast.ClassDef)} - set(typing.__all__)


@cache
def described() -> set[str]:
    """Return the names that have a heading in the reference of the Python API, and those of errors."""
    pages = [page.read_text(encoding="utf-8") for page in REFERENCE.glob("*.md")]
    errors = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    return {name for page in pages for name in re.findall(r"^## (\w+)", page, re.M)} | set(re.findall(r"\w+", errors))


@pytest.mark.parametrize("page", GUIDES, ids=lambda page: page.name)
def test_a_class_that_a_guide_names_is_described_or_imported_there(page: Path):
    text = page.read_text(encoding="utf-8")
    used = set(re.findall(r"`([A-Z]\w*[a-z]\w*)(?:\([^`\n]*\))?`", FENCE.sub("", text))) & classes()
    spelled = {name.rpartition(".")[2] for name in names_in(text)}
    assert used - described() - spelled == set()


@cache
def runtime_names() -> dict[str, set[str]]:
    """Return the names of a runtime by its groups; those of the runtime itself under an empty name."""
    with SyncRuntime.open(ROOT, journal=MemoryJournal()) as rt:
        groups = ("runs", "project", "permissions", "conversations", "workers")
        of_groups = {name: set(dir(getattr(rt.async_form, name))) for name in groups}
        return of_groups | {"": {*dir(rt), *dir(OSRuntime), *groups}}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_method_of_a_runtime_that_a_page_names_exists(page: Path):
    text, names = page.read_text(encoding="utf-8"), runtime_names()
    assert {name for name in re.findall(r"\brt\.(\w+)", text) if name not in names[""]} == set()
    of_groups = re.findall(r"\brt\.(\w+)\.(\w+)", text)
    assert {(group, name) for group, name in of_groups if group in names and name not in names[group]} == set()


def public_packages() -> Iterator[str]:
    for page in REFERENCE.glob("*.md"):
        yield re.search(r"^```py\nimport (\S+)\n```", page.read_text(encoding="utf-8"), re.M)[1]


def test_the_reference_has_a_page_for_each_public_package():
    packages = set(public_packages())
    assert packages >= {"reyn", "reyn.chat", "reyn.client", "reyn.functions", "reyn.models", "reyn.ops", "reyn.testing"}
    exported = {name for package in packages for name in importlib.import_module(package).__all__}
    assert exported - {"__version__"} - described() == set()


@pytest.mark.parametrize("package", sorted(public_packages()))
def test_every_public_class_and_function_has_a_docstring(package: str):
    module = importlib.import_module(package)
    values = {name: getattr(module, name) for name in module.__all__}
    own = {name: value for name, value in values.items() if inspect.isclass(value) or inspect.isfunction(value)}
    assert [name for name, value in own.items() if is_undocumented(value)] == []


def is_undocumented(value: object) -> bool:
    """Whether a class or a function has no docstring of its own; msgspec gives one to every struct."""
    doc = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
    return not doc or doc.startswith("A base class for defining efficient serializable objects")


def test_a_signature_has_the_parameters_of_the_function():
    runtime = (REFERENCE / "runtime.md").read_text(encoding="utf-8")
    [shown] = re.findall(r"^async def run\(\n.*?^\)", runtime, re.M | re.S)[:1]
    assert [line.strip("* ").partition(":")[0] for line in shown.splitlines()[1:-1] if ":" in line] == [
        name for name in inspect.signature(OSRuntime.run).parameters if name != "self"
    ]
    options = inspect.signature(typing.get_overloads(llm_function)[-1])
    functions = (REFERENCE / "functions.md").read_text(encoding="utf-8")
    [shown] = re.findall(r"^def llm_function\(\n.*?^\)", functions, re.M | re.S)
    assert re.findall(r"^    (\w+):", shown, re.M) == list(options.parameters)


@pytest.mark.parametrize("page", sorted(REFERENCE.glob("*.md")), ids=lambda page: page.name)
def test_the_arguments_that_a_docstring_describes_are_those_of_the_signature(page: Path):
    entries = re.split(r"^##+ ", page.read_text(encoding="utf-8"), flags=re.M)[1:]
    for entry in entries:
        shown = re.search(r"^```py\n((?:async )?def .*?)\n```", entry, re.M | re.S)
        table = re.search(r"^\| argument \| meaning \|\n\|---\|---\|\n((?:\|.*\n)*)", entry, re.M)
        if shown is None or table is None:
            continue
        [function] = ast.parse(shown[1]).body
        names = {one.arg for one in ast.walk(function) if isinstance(one, ast.arg)}
        described = {name.strip("*") for name in re.findall(r"^\| `([\w*]+)` \|", table[1], re.M)}
        without_arguments = {"function"}  # of a decorator, which is shown as it is called with options
        assert described - without_arguments <= names, entry.partition("\n")[0]
