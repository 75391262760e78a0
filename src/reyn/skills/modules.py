"""Read the modules of python steps.

Modules must lie inside the skill's folder. They are parsed, never executed; their source is pinned with the skill.
"""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING, Any

from reyn.documents import Document, DocumentError, KeyPath, nearest
from reyn.documents.unicode_forms import has_many_marks, to_normal_form
from reyn.errors import codes
from reyn.skills.names import find_path

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.skills.folder import SkillFolder
    from reyn.skills.step_types import PythonCall

_STRINGS = re.compile(
    r"""#[^\n]*+|(?P<f>[fF][rR]?+|[rR][fF])?+(?:"{3}(?:[^"\\]++|\\.|"(?!""))*+(?:"{3}|\Z)|'{3}(?:[^'\\]++|\\.|'(?!''))*+"""
    r"""(?:'{3}|\Z)|"(?:[^"\\\n]++|\\.)*+["\n]?+|'(?:[^'\\\n]++|\\.)*+['\n]?+)""",
    re.DOTALL,
)
"""Comments and strings; a string that does not end is an error, after which Python parses nothing."""
_FIELD_WORK, _MAX_WORK = 10_000, 500_000_000
"""Characters that Python 3.11 can search in the time that it needs to parse a field, and in about half a second."""


def parse_module(source: str) -> ast.Module:
    """Parse a module that may be hostile. Parsing cannot be interrupted, so its time is bounded beforehand.

    Until Python 3.12, each field of an f-string is searched for in the whole string. Names are normalized.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: It is not valid Python, or takes too long.
    """
    lines = source.replace("\r\n", "\n").replace("\r", "\n")  # as Python reads them
    strings = (found.group() for found in _STRINGS.finditer(lines) if found["f"])
    if sum(text.count("{") * (len(text) + _FIELD_WORK) for text in strings) > _MAX_WORK:
        raise ValueError("its f-strings have too many fields")
    if has_many_marks(source):
        raise ValueError("a name has too many marks")
    return ast.parse(source)


class Modules:
    """The modules that a skill's python steps name. Each is read and parsed once."""

    def __init__(self, folder: SkillFolder) -> None:
        self._folder = folder
        self._sources: dict[str, str | None] = {}
        self._functions: dict[str, set[str]] = {}

    def check(self, steps: Document, index: int, step: PythonCall) -> None:
        """Report a python step whose module or function does not exist."""
        path = (index, next(iter(steps.value[index])), "module")
        if step.module not in self._sources:
            self._sources[step.module] = self._read(steps, path, step.module)
        if self._sources[step.module] is None:
            return
        functions = self._functions[step.module]
        # Python compares identifiers in normalization form KC.
        if to_normal_form("NFKC", step.function) not in functions:
            message = f"`{step.module}` has no top-level function `{step.function}`"
            self._folder.report(steps, codes.BAD_MODULE, message, index, fix=nearest(step.function, sorted(functions)))

    def sources(self) -> dict[str, str]:
        """Return the source of every module that is called, and of the modules next to it that it may import."""
        sources = {name: source for name, source in self._sources.items() if source is not None}
        if sources:
            for path in sorted(self._folder.path.glob("*.py")):
                try:
                    sources.setdefault(
                        f"./{path.name}", self._folder.read_files.read(path, path.name, self._folder.path)
                    )
                except DocumentError as error:
                    if error.finding.code == codes.LINK_OUTSIDE:
                        self._folder.findings.append(error.finding)
        return dict(sorted(sources.items()))

    def _read(self, steps: Document, path: KeyPath, module: str) -> str | None:
        if not module.endswith(".py"):
            message = f"`{module}` is not a `.py` file"
            fix = f"write `./{module.removeprefix('./')}.py`"
            self._folder.report(steps, codes.BAD_MODULE, message, *path, fix=fix)
            return None
        file = self._file_inside(module)
        if file is None:
            fix = "write a path below the skill's folder, without `..`"
            self._folder.report(steps, codes.BAD_MODULE, f"`{module}` is outside the skill's folder", *path, fix=fix)
            return None
        try:
            source = self._folder.read_files.read(file, module, self._folder.path)
            tree = parse_module(source)
        except DocumentError as error:
            self._folder.report(steps, codes.BAD_MODULE, f"`{module}`: {error.finding.message}", *path)
            return None
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            self._folder.report(steps, codes.BAD_MODULE, f"`{module}` is not valid Python: {error}", *path)
            return None
        self._functions[module] = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        return source

    def _file_inside(self, module: str) -> Path | None:
        """Return the path of a module; `None` if it leads, or may lead, out of the skill's folder."""
        folder = self._folder.path
        if module.startswith("/") or ".." in module.split("/"):
            return None
        try:
            file = find_path(folder, module) or folder / module
            return file if file.resolve().is_relative_to(folder.resolve()) else None
        except (OSError, RuntimeError, ValueError):
            return None


def python_entry(permissions: dict[str, Any], module: str, function: str) -> dict[str, Any]:
    """Return the first `permissions.python` entry of a function; empty if there is none."""
    entries = permissions.get("python")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and (entry.get("module"), entry.get("function")) == (module, function):
            return entry
    return {}
