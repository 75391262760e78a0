"""Decide from its source which interpreter a safe python step needs: Monty, or CPython in the process sandbox.

Monty starts within a millisecond but has a part of Python. The decision is a function of the source; a step that fails
in Monty for another reason is executed by CPython as well, whose result counts.
"""

from __future__ import annotations

import ast
import builtins
from functools import lru_cache
from typing import TYPE_CHECKING

from reyn.sandbox.monty_names import BUILTINS, MODULES

if TYPE_CHECKING:
    from collections.abc import Iterator

_SYNTAX: tuple[tuple[type[ast.AST], str], ...] = (
    (ast.Yield, "`yield`"),
    (ast.YieldFrom, "`yield from`"),
    (ast.Delete, "`del`"),
    (ast.AsyncFunctionDef, "`async def`"),
    (ast.TryStar, "`except*`"),
)
_ALL_BUILTINS = frozenset(dir(builtins))


@lru_cache(maxsize=256)
def needs_cpython(source: str) -> str:
    """Return why a module needs CPython; empty if Monty can run it.

    The source is valid Python: the loader has checked it.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "it cannot be parsed"
    return next(_reasons(tree), "")


def _reasons(tree: ast.Module) -> Iterator[str]:
    modules: dict[str, str] = {}
    defined: set[str] = set()
    for node in ast.walk(tree):
        yield from _import_reasons(node, modules, defined)
        yield from _syntax_reasons(node)
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            defined.add(node.id)
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            module = modules.get(node.value.id)
            if module is not None and node.attr not in MODULES[module]:
                yield f"it uses `{module}.{node.attr}`"
        elif isinstance(node, ast.Name) and node.id in _ALL_BUILTINS - BUILTINS and node.id not in defined:
            yield f"it uses `{node.id}`"


def _import_reasons(node: ast.AST, modules: dict[str, str], defined: set[str]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.name not in MODULES:
                yield f"it imports `{alias.name}`"
            else:
                modules[alias.asname or alias.name] = alias.name
    elif isinstance(node, ast.ImportFrom):
        name = node.module or "."
        if name == "__future__":
            return
        if node.level or name not in MODULES:
            yield f"it imports `{name}`"
            return
        for alias in node.names:
            if alias.name not in MODULES[name]:
                yield f"it imports `{name}.{alias.name}`"
            defined.add(alias.asname or alias.name)


def _syntax_reasons(node: ast.AST) -> Iterator[str]:
    for kind, name in _SYNTAX:
        if isinstance(node, kind):
            yield f"it uses {name}"
    if isinstance(node, ast.ClassDef):
        if node.bases or node.keywords:
            yield f"the class `{node.name}` has a base class"
        for member in node.body:
            if isinstance(member, ast.FunctionDef) and member.decorator_list:
                yield f"the method `{node.name}.{member.name}` has a decorator"
