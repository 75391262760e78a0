"""Which files of the project are memories, or parts of skills of this machine, so that rules about those apply, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.workspace import Location
from reyn.workspace.paths import folded

if TYPE_CHECKING:
    from reyn.permissions.paths import AccessMode

SHARED = "shared"
"""The scope of the memories of all agents."""
SKILL_WRITE = "skill.write"
"""The capability to write skills of this machine, below `reyn/local/`."""


def any_memory(scope: str) -> Location:
    """Return a file of a scope that stands for all of them."""
    return Location.at("project", ("reyn", "memory", *(() if scope == SHARED else (scope,)), "any.md"))


def memory_scope(parts: tuple[str, ...]) -> str | None:
    """Return the scope of the memory in a file of the project: `shared`, or an agent; `None` if it is no memory."""
    if parts[:2] != ("reyn", "memory") or not parts[-1].endswith(".md"):
        return None
    return {3: SHARED, 4: parts[2] if len(parts) == 4 else ""}.get(len(parts))


ANY_NAME = "\ufdd0"
"""A name that no pattern spells: what restricts it restricts every name."""


def scopes_in(folder: Location) -> tuple[str, ...]:
    """Return the scopes of the memories in a folder that has nothing else."""
    names = tuple(map(folded, folder.parts)) if folder.zone == "project" else ()
    if names[:2] != ("reyn", "memory") or len(names) > 3:
        return ()
    return names[2:] or (SHARED, ANY_NAME)


def local_skill(parts: tuple[str, ...]) -> str | None:
    """Return the skill of this machine that a file belongs to; `None` for other files, and for hidden ones."""
    is_inside = parts[:2] == ("reyn", "local") and len(parts) > 3
    return parts[2] if is_inside and not any(name.startswith(".") for name in parts[2:]) else None


def owner_of(location: Location, access: AccessMode, *, is_folded: bool = False) -> tuple[str, str] | None:
    """Return the capability, with its target, whose rules also decide about a file: a memory, or a skill."""
    if location.zone != "project" or len(location.parts) < 3:
        return None
    parts = tuple(map(folded, location.parts)) if is_folded else location.parts
    if (scope := memory_scope(parts)) is not None:
        return "memory", scope
    if access == "write" and (name := local_skill(parts)) is not None:
        return SKILL_WRITE, name
    return None
