"""Run every code block of README and docs, and compare its output with the page."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest
import yaml

from tests import forked
from tests.properties import ALL_CASES

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^( *)```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)^\1```$", re.M | re.S)


class Block:
    def __init__(self, language: str, title: str, text: str) -> None:
        self.language, self.title, self.text = language, title, text


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = [Block(match[2], match[3], textwrap.dedent(match[4])) for match in FENCE.finditer(text)]
    assert len(re.findall("^ *```", text, re.M)) == 2 * len(found), (
        f"{page.name}: a fence without a language, or not closed"
    )
    return found


def matches(output: str, expected: str) -> bool:
    """Whether an output is the one that the page shows; `…` matches any text."""
    pattern = "".join(".*" if part == "…" else re.escape(part) for part in re.split("(…)", expected.strip()))
    return re.fullmatch(pattern, output.strip(), re.S) is not None


def needs_shell(command: str) -> bool:
    """Whether a command is another program than `reyn`, or has syntax that only a shell understands."""
    unquoted = re.sub("'[^']*'", "", command)
    return not command.startswith("reyn ") or re.search(r"[|&;<>$`()*?~\\]", unquoted) is not None


def run_console(block: Block, folder: Path, environ: dict[str, str]) -> None:
    """Run commands; those that need no shell in forks of a process that has imported Reyn, unless all cases are run."""
    for session in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
        command, _, expected = session.partition("\n")
        if ALL_CASES or needs_shell(command):
            both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            done = subprocess.run(command, shell=True, cwd=folder, env=environ, text=True, **both)
        else:
            done = forked.run_command(shlex.split(command)[1:], folder, environ, together=True)
        output = done.stdout + (f"[exit {done.returncode}]\n" if done.returncode else "")
        assert matches(output, expected), f"$ {command}\n{output}\nbut the page shows:\n{expected}"


def run_python(block: Block, folder: Path, environ: dict[str, str]) -> None:
    if ALL_CASES:
        words = [sys.executable, "-W", "error::SyntaxWarning", "-c", block.text]
        done = subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True)
    else:
        done = forked.run_program(block.text, folder, environ)
    assert done.returncode == 0, done.stderr


@pytest.mark.sampled
@pytest.mark.sockets
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_a_page_runs(page: Path, tmp_path: Path):
    folder = tmp_path / "project"
    folder.mkdir()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {key: value for key, value in os.environ.items() if not key.startswith("REYN_")} | {"PATH": path}
    cells: list[str] = []
    for block in blocks(page):
        if block.title:
            target = folder / block.title
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            run_console(block, folder, environ)
        elif block.language == "python" and page.name == "use-in-a-notebook.md":
            cells.append(block.text)
        elif block.language == "python":
            run_python(block, folder, environ)
        elif block.language == "py":
            check_other_code(block)
        elif block.language == "sh":
            check_shell(block)
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "yaml":
            yaml.safe_load(block.text)
        else:
            assert block.language == "text", f"blocks of `{block.language}` cannot be tested"
    if cells:
        run_python(Block("python", "", "".join(cells)), folder, environ)


def check_other_code(block: Block) -> None:
    """Check code that is shown and not run, such as that of another library: it parses, and its imports exist.

    A library that is not installed is not checked; the page names the version for which it was.
    """
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and node.module and is_installed(node.module):
            module = importlib.import_module(node.module)
            for name in node.names:
                assert hasattr(module, name.name) or is_installed(f"{node.module}.{name.name}"), ast.unparse(node)


def is_installed(module: str) -> bool:
    """Whether a module can be imported; if its package is installed, it has to be."""
    package = module.partition(".")[0]
    return importlib.util.find_spec(package) is not None and importlib.util.find_spec(module) is not None


def check_shell(block: Block) -> None:
    """Check that make has the target, or pip the extras. Running them would install packages or run these tests."""
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"].keys()
    for line in block.text.splitlines():
        if line in ("git clone REPOSITORY reyn", "cd reyn"):
            continue
        if line.startswith("make "):
            assert line.split()[1] in targets
        else:
            package = re.fullmatch(r"pip install (?:--editable )?'?(?:\.|reyn)(?:\[([\w,]+)\])?'?", line)
            assert package, line
            assert set(filter(None, (package[1] or "").split(","))) <= extras


def test_the_plot_of_the_guide_to_budgets_is_what_the_command_prints():
    program = ROOT / "tools" / "docs_usage_plot.py"
    assert subprocess.run([sys.executable, program, "--check"]).returncode == 0


def test_the_recorded_conversation_is_what_the_commands_print():
    program = ROOT / "tools" / "record_chat.py"
    done = subprocess.run([sys.executable, program, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_makefile_has_few_verbs():
    text = (ROOT / "Makefile").read_text()
    verbs = set(re.findall(r"^## (\w+):", text, re.M))
    assert len(verbs) <= 14
    phony = re.search(r"^\.PHONY: (.*)$", text, re.M).group(1).split()
    assert verbs == {name.partition("-")[0] for name in phony}  # `chaos-cluster` is a variant of `chaos`


def test_the_readme_shows_the_skill_of_a_new_project():
    files = {block.title: block.text for block in blocks(ROOT / "README.md") if block.title}
    project = ROOT / "src" / "reyn" / "cli" / "new_project"
    paths = (str(path.relative_to(project)) for path in project.rglob("reyn/**/*.*"))
    assert files.keys() == {path for path in paths if "/cases/" not in path}
    for path, text in files.items():
        assert (project / path).read_text(encoding="utf-8") == text


def test_the_readme_and_the_docs_have_something_to_run():
    kinds = {page.name: {block.language for block in blocks(page)} for page in PAGES}
    assert {"console", "python", "sh"} <= kinds["README.md"]
    assert "console" in kinds["tutorial.md"]
    assert "console" in kinds["one-decision.md"]


def exported_names() -> set[str]:
    """Return the names that packages of Reyn export."""
    files = (ROOT / "src" / "reyn").rglob("__init__.py")
    listed = [text for file in files for text in re.findall(r"^__all__ = \[(.*?)\]", file.read_text(), re.M | re.S)]
    return {name for text in listed for name in re.findall(r"\w+", text)}


def calls_in(code: str) -> set[str]:
    """Return the names that Python code calls; none if it is no Python."""
    try:
        nodes = list(ast.walk(ast.parse(code.replace("…", "..."))))
    except SyntaxError:
        return set()
    return {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "guides").glob("*.md")), ids=lambda page: page.name)
def test_a_guide_says_where_the_names_come_from_that_its_sentences_use(page: Path):
    text = page.read_text(encoding="utf-8")
    imported = set(re.findall(r"\w+", " ".join(re.findall(r"^ *from reyn\S* import (.*)$", text, re.M))))
    named = set(re.findall(r"`reyn\.(?:\w+\.)*(\w+)`", text))
    used = {name for code in re.findall(r"`([^`\n]+)`", FENCE.sub("", text)) for name in calls_in(code)}
    assert used & exported_names() - imported - named == set()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_leads_somewhere(page: Path):
    for target, anchor in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", page.read_text(encoding="utf-8")):
        if not target.startswith("http"):
            found = page.parent / target if target else page
            assert found.exists(), target
            assert not anchor or anchor in anchors(found), f"{target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """The anchors that the site and GitHub generate for headings."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_error_has_its_place_in_the_documentation():
    from reyn.errors import all_errors

    text = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    tree = importlib.import_module("reyn.errors").__doc__
    for cls in all_errors():
        if cls.code != "RYN000":
            assert f"\n## {cls.code}\n" in text
            assert cls.__name__ in tree
            assert cls.code in tree


def test_the_docs_site_can_show_every_page():
    navigation = (ROOT / "zensical.toml").read_text()
    for page in (ROOT / "docs").rglob("*.md"):
        assert f'"{page.relative_to(ROOT / "docs")}"' in navigation


def test_every_test_that_a_page_names_exists():
    named = {
        (page.name, path, name)
        for page in PAGES
        for path, name in re.findall(r"`(tests/[\w/.-]+\.py)::(\w+)`", page.read_text(encoding="utf-8"))
    }
    assert len({name for page, _, name in named if page == "security.md"}) > 50
    for page, path, name in sorted(named):
        assert re.search(rf"^ *(?:async )?def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.M), (
            page,
            path,
            name,
        )
