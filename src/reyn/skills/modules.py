"""The modules of python steps: found inside the skill's folder, parsed but never run, and kept for the pin."""

from __future__ import annotations

import ast
from contextlib import suppress
from typing import TYPE_CHECKING

from reyn.documents import DocumentError, nearest, read_text
from reyn.skills import codes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reyn.documents import Document, Place
    from reyn.skills.folder import SkillFolder
    from reyn.skills.values import PythonCall


class Modules:
    """Each is read once. `add` takes a finding: document, code, message, place and fix."""

    def __init__(self, folder: SkillFolder, add: Callable[..., None]) -> None:
        self._folder = folder
        self._add = add
        self._sources: dict[str, str | None] = {}

    def check(self, part: Document, index: int, step: PythonCall) -> None:
        place = (index, next(iter(part.value[index])), "module")
        if step.module not in self._sources:
            self._sources[step.module] = self._read_module(part, place, step.module)
        source = self._sources[step.module]
        if source is not None and step.function not in set(_functions(source)):
            fix = nearest(step.function, _functions(source))
            message = f"`{step.module}` has no function `{step.function}` at its top"
            self._add(part, codes.BAD_MODULE, message, index, fix=fix)

    def _read_module(self, part: Document, place: Place, module: str) -> str | None:
        path = self._folder.path / module
        try:
            inside = path.resolve().is_relative_to(self._folder.path.resolve())
        except (OSError, RuntimeError, ValueError):
            inside = False
        if not inside or not module.endswith(".py"):
            self._add(part, codes.BAD_MODULE, f"`{module}` is not a `.py` file inside the skill's folder", *place)
            return None
        try:
            source = read_text(path, module)
            ast.parse(source)
        except DocumentError as error:
            self._add(part, codes.BAD_MODULE, f"`{module}` {error.finding.message}", *place)
            return None
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            self._add(part, codes.BAD_MODULE, f"`{module}` is not Python: {error}", *place)
            return None
        return source

    def all(self) -> dict[str, str]:
        """The sources that are called, and those beside them, which they may import."""
        found = {name: source for name, source in self._sources.items() if source is not None}
        if found:
            for path in sorted(self._folder.path.glob("*.py")):
                with suppress(DocumentError):
                    found.setdefault(f"./{path.name}", read_text(path, path.name))
        return dict(sorted(found.items()))


def _functions(source: str) -> Iterator[str]:
    """The names of a module's top-level functions."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
