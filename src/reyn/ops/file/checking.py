"""Check recorded changes of files against the arguments of their op, for a replay. Changes nothing."""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING, Any

from reyn.journal import digest
from reyn.workspace.paths import WORKSPACE

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.workspace import Change

    Content = Callable[[str], bytes]
    Resolve = Callable[[str], str]


def changes_error(
    op: str, arguments: dict[str, Any], changes: tuple[Change, ...], content: Content, resolve: Resolve
) -> str:
    """Return why recorded changes do not follow from the arguments of a file op; empty if they do.

    Args:
        op: The form.
        arguments: Its arguments, with defaults.
        changes: The recorded changes.
        content: Returns recorded content by its hash.
        resolve: Follows the symbolic links of a path in the project.
    """
    if op not in _EXPECTED:
        return f"`{op}` changes no files"
    if len(changes) != 1:
        return f"`{op}` changes one file, not {len(changes)}"
    change, path = changes[0], arguments["output_path" if op == "regenerate_index" else "path"]
    if not _names(path, change.path) and resolve(path) != change.path:
        return f"it changes `{change.path}`, but its argument is `{path}`"
    if any(not change.path.startswith(f"{folder}/") for folder in change.made):
        return f"it creates folders that are not above `{change.path}`"
    return _EXPECTED[op](arguments, change, content)


def _names(argument: str, recorded: str) -> bool:
    """Return whether an argument names a recorded path, symbolic links aside."""
    if argument.startswith(WORKSPACE):
        return WORKSPACE + posixpath.normpath(argument.removeprefix(WORKSPACE).lstrip("/")) == recorded
    plain = posixpath.normpath(argument)
    recorded = recorded.removeprefix("./")
    return plain == recorded or (plain.startswith("/") and plain.endswith(f"/{recorded}"))


def _write(arguments: dict[str, Any], change: Change, content: Content) -> str:
    return (
        "" if change.after == digest(arguments["content"].encode()) else "it writes another content than its argument"
    )


def _edit(arguments: dict[str, Any], change: Change, content: Content) -> str:
    if change.before is None:
        return "it edits a file that did not exist"
    old, new = arguments["old_string"].encode(), arguments["new_string"].encode()
    before = content(change.before)
    if change.after is None or content(change.after) != before.replace(old, new):
        return "its change is not the replacement that its arguments describe"
    return ""


def _delete(arguments: dict[str, Any], change: Change, content: Content) -> str:
    return "" if change.after is None and change.before is not None else "it does not delete a file"


def _index(arguments: dict[str, Any], change: Change, content: Content) -> str:
    """The entries come from files that are not recorded; only the header is an argument."""
    is_index = change.after is not None and content(change.after).startswith(arguments["header"].encode())
    return "" if is_index else "it does not write an index with the header of its arguments"


_EXPECTED = {"write": _write, "edit": _edit, "delete": _delete, "regenerate_index": _index}
