"""Pages for users of other libraries: each has the same program in both, what corresponds, and what Reyn lacks.

`test_docs` executes Reyn's half, and checks the imports of the other half if that library is installed.
"""

from __future__ import annotations

import importlib.metadata
import re

import pytest

from tests.docs.test_docs import ROOT, Block, blocks, check_other_code

FOLDER = ROOT / "docs" / "coming-from"
LIBRARIES = {
    "langgraph": "langgraph",
    "pydantic-ai": "pydantic-ai",
    "simplellmfunc": "SimpleLLMFunc",
    "temporal": "temporalio",
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_page_has_the_same_program_in_both_libraries(name: str):
    page = FOLDER / f"{name}.md"
    languages = [block.language for block in blocks(page)]
    assert languages.count("py") == 1  # theirs, which comes first
    assert languages.index("py") < languages.index("python")
    assert any(block.language == "python" and not block.title for block in blocks(page))  # ours is executed


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_page_says_what_corresponds_and_what_reyn_lacks(name: str):
    headings = re.findall(r"^## (.*)$", (FOLDER / f"{name}.md").read_text(encoding="utf-8"), re.M)
    assert headings[0].endswith(" in both")
    assert headings[1] == "Concepts"
    assert headings[-1] == "What Reyn does not have"


@pytest.mark.parametrize(("name", "library"), LIBRARIES.items())
def test_a_page_names_the_version_that_its_code_is_for(name: str, library: str):
    opening = (FOLDER / f"{name}.md").read_text(encoding="utf-8").partition("\n## ")[0]
    [version] = re.findall(r"(?:`[\w-]+`|version) (\d+\.\d+(?:\.\d+)?)\b", opening.replace("\n", " "))
    try:
        installed = importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return
    assert installed.split(".")[0] == version.split(".")[0], "check the page against the version that is installed"


def test_every_page_is_checked():
    assert {page.stem for page in FOLDER.glob("*.md")} == set(LIBRARIES)


@pytest.mark.parametrize("code", ["from reyn import Nobody\n", "from temporalio.client import Nobody\n", "x = (\n"])
def test_code_of_another_library_with_a_wrong_import_or_syntax_is_found(code: str):
    with pytest.raises((AssertionError, SyntaxError)):
        check_other_code(Block("py", "", code))


def test_code_of_a_library_that_is_not_installed_is_only_parsed():
    check_other_code(Block("py", "", "from no_such_library.models import Model\n"))
