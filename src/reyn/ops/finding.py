"""A pattern becomes the files that it fits."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from reyn.ops.patterns import Pattern, is_plain, split
from reyn.ops.results import result
from reyn.workspace import Guard, Place, kind_of, walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.ops.port import Call, Env
    from reyn.ops.writing import Settings

SECONDS = 2.0
TOO_LONG = f"the search took longer than {SECONDS:g} seconds; give a narrower path or a simpler pattern"
"""What is said of a search that was given up."""


class Deadline:
    def __init__(self) -> None:
        self._at = time.monotonic() + SECONDS

    def left(self) -> float:
        """How many seconds are left; `TimeoutError` if none are."""
        seconds = self._at - time.monotonic()
        if seconds <= 0:
            raise TimeoutError
        return seconds


def glob_root(settings: Settings) -> str:
    """The folder that a glob looks into."""
    folder, _ = split(_glob(settings))
    return folder


def glob_files(call: Call, settings: Settings, place: Place, env: Env) -> dict[str, Any]:
    pattern = _listing(split(_glob(settings))[1], place, env)
    matches: list[str] = []
    said: dict[str, Any] = {"pattern": _glob(settings), "matches": matches, "count": 0, "truncated": False}
    try:
        for found in files_below(place, pattern, env, Deadline(), Guard(env.roots)):
            if len(matches) == settings["max_results"]:
                said["truncated"] = True
                break
            matches.append(found.shown)
    except TimeoutError:
        return result(call, "timeout", **said | {"count": len(matches), "truncated": True}, error=TOO_LONG)
    return result(call, "ok", **said | {"count": len(matches)})


def _glob(settings: Settings) -> str:
    return str(settings["pattern"] if "pattern" in settings else settings["path"])


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
