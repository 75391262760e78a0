"""A pattern becomes the files that it fits."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from reyn.ops.file.patterns import Pattern, is_plain, split
from reyn.workspace import Guard, Place, kind_of, walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.ops.file.writing import Arguments
    from reyn.ops.op import Call, Env

SECONDS = 2.0
TOO_LONG = f"the search took longer than {SECONDS:g} seconds; give a narrower path or a simpler pattern"
"""What is fields of a search that was given up."""


class Deadline:
    def __init__(self) -> None:
        self._at = time.monotonic() + SECONDS

    def left(self) -> float:
        """How many seconds are left; `TimeoutError` if none are."""
        seconds = self._at - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds


def glob_root(arguments: Arguments) -> str:
    """The folder that a glob looks into."""
    folder, _ = split(_glob(arguments))
    return folder


def glob_files(call: Call, arguments: Arguments, place: Place, env: Env) -> dict[str, Any]:
    pattern = _listing(split(_glob(arguments))[1], place, env)
    matches: list[str] = []
    fields: dict[str, Any] = {"pattern": _glob(arguments), "matches": matches, "count": 0, "truncated": False}
    try:
        for found in files_below(place, pattern, env, Deadline(), Guard(env.roots)):
            if len(matches) == arguments["max_results"]:
                fields["truncated"] = True
                break
            matches.append(found.shown)
    except TimeoutError:
        return call.timeout(TOO_LONG, **fields | {"count": len(matches), "truncated": True})
    return call.ok(**fields | {"count": len(matches)})


def _glob(arguments: Arguments) -> str:
    return str(arguments["pattern"] if "pattern" in arguments else arguments["path"])


def _listing(pattern: Pattern, place: Place, env: Env) -> Pattern:
    """A pattern that is just the name of a folder means what is in it."""
    if not pattern.names:
        return Pattern(("*",))
    if len(pattern.names) > 1 or place.zone == "kept" or not is_plain(pattern.names[0]):
        return pattern
    is_folder = kind_of(place.below(*pattern.names), env.roots) == "folder"
    return Pattern((*pattern.names, "*")) if is_folder else pattern


def files_below(place: Place, pattern: Pattern, env: Env, deadline: Deadline, guard: Guard) -> Iterator[Place]:
    depth = len(place.parts)

    def enter(folder: Place) -> bool:
        deadline.left()
        return pattern.may_fit_below(folder.parts[depth:])

    kept = (Place.at("kept", (name,)) for name in sorted(env.kept))
    for found in kept if place.zone == "kept" else walk(place, env.roots, enter, guard):
        deadline.left()
        if pattern.fits(found.parts[depth:]):
            yield found
