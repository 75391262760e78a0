"""Load the tools that a project registers in `reyn.yaml`: `tools: [mypackage.tools:search]`.

Whether the project may load code is decided by `reyn.permissions.trust` before; an untrusted project has no tools here.
Modules are named by the configuration alone, never by a journal or an archive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.config.references import load_attribute
from reyn.errors import ModuleUnloadable, OpInvalid
from reyn.ops.op import Op

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from reyn.ops.table import OpTable


def with_tools(table: OpTable, names: Iterable[str], root: Path) -> OpTable:
    """Return a table with the tools of a project. One that cannot be loaded is a problem of the table.

    Args:
        table: The ops that are known already. They are not replaced: the caller may have passed the same tool.
        names: The tools, as `module:attribute`.
        root: The folder in which modules are found, besides the installed ones.
    """
    problems: list[str] = []
    for name in names:
        try:
            op = load_attribute(name, root)
            if not isinstance(op, Op):
                problems.append(f"tool `{name}`: a {type(op).__name__} is not a tool; decorate it with `@tool`")
            elif table.get(op.spec.kind) is None or not table.is_foreign(op.spec.kind):
                table = table.with_ops(op)
        except (ModuleUnloadable, OpInvalid) as error:
            problems.append(f"tool `{name}`: {error.message}")
    return table.with_problems(*problems)
