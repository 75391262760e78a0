"""The form `glob`, and the walk over matching files that `grep` shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.ops.budget import SEARCH_SECONDS
from reyn.ops.file.patterns import Pattern, is_plain, split
from reyn.ops.file.reading import is_readable_below
from reyn.workspace import Guard, Location, kind_of, walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.ops.budget import Deadline
    from reyn.ops.file.writing import Arguments
    from reyn.ops.op import Call, Env

TOO_LONG = f"the search took longer than {SEARCH_SECONDS:g} seconds; give a narrower path or a simpler pattern"
"""The error message of a search that timed out."""


def glob_root(arguments: Arguments) -> str:
    """Return the folder that a glob starts from."""
    folder, _ = split(_glob(arguments))
    return folder


def glob_files(call: Call, arguments: Arguments, location: Location, env: Env) -> dict[str, Any]:
    pattern = _listing(split(_glob(arguments))[1], location, env)
    matches: list[str] = []
    fields: dict[str, Any] = {"pattern": _glob(arguments), "matches": matches, "count": 0, "truncated": False}
    try:
        with env.budget.search() as deadline:
            for found in files_below(location, pattern, env, deadline, Guard(env.roots)):
                if len(matches) == arguments["max_results"]:
                    fields["truncated"] = True
                    break
                matches.append(found.display_path)
    except TimeoutError:
        return call.timeout(TOO_LONG, **fields | {"count": len(matches), "truncated": True})
    return call.ok(**fields | {"count": len(matches)})


def _glob(arguments: Arguments) -> str:
    return str(arguments["pattern"] if "pattern" in arguments else arguments["path"])


def _listing(pattern: Pattern, location: Location, env: Env) -> Pattern:
    """Expand a pattern that is the name of a folder to the files in it."""
    if not pattern.names:
        return Pattern(("*",))
    if len(pattern.names) > 1 or location.zone == "full_content" or not is_plain(pattern.names[0]):
        return pattern
    is_folder = kind_of(location.below(*pattern.names), env.roots) == "folder"
    return Pattern((*pattern.names, "*")) if is_folder else pattern


def files_below(location: Location, pattern: Pattern, env: Env, deadline: Deadline, guard: Guard) -> Iterator[Location]:
    """Yield the files below a folder that match a pattern and may be read. Raises `TimeoutError` at the deadline."""
    depth = len(location.parts)
    is_readable = is_readable_below(location, env)

    def enter(folder: Location) -> bool:
        deadline.remaining()
        return pattern.may_match_below(folder.parts[depth:])

    stored = (Location.at("full_content", (name,)) for name in sorted(env.full_content))
    for found in stored if location.zone == "full_content" else walk(location, env.roots, enter, guard):
        deadline.remaining()
        if pattern.matches(found.parts[depth:]) and is_readable(found):
            yield found
