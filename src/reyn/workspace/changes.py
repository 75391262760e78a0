"""A change of one file becomes so: if the file is as it was when the change was planned, and whole or not at all.

A change names contents by hash and holds none, so it can stand in the journal. Performing one again does no harm;
turned around, it undoes itself.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Literal, NamedTuple

from reyn.journal import digest
from reyn.journal.kinds import Change
from reyn.workspace.files import FileFault, Guard, Seen, faults_told, look, opened_folder, stamp_of
from reyn.workspace.paths import Place, PlaceInvalid, Roots, locate

if TYPE_CHECKING:
    from collections.abc import Callable

TEMPORARY = ".reyn-tmp-"
"""What the name of a file begins with that is being written."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

Outcome = Literal["done", "already", "conflict"]


def apply_change(
    change: Change, roots: Roots, content: Callable[[str], bytes], token: str, place: Place | None = None
) -> Outcome:
    """Apply a change of a file.

    Returns `conflict` if the file is neither as before nor as after the change; it is then left alone. `token` is the
    same whenever the same change is applied again, and unique otherwise. `place` is where the path leads, if known.
    """
    place = _relocated(change.path, roots, place)
    with faults_told(place):
        guard = Guard(roots)
        if change.before is None and change.after is not None:
            _make_folders(place, change, guard)
        try:
            with opened_folder(place.zone, place.parts[:-1], guard) as folder:
                return _swap(_Spot(folder, place, guard), change, content, token)
        except FileNotFoundError:
            return "already" if change.after is None else "conflict"


def revert(change: Change, roots: Roots, content: Callable[[str], bytes], token: str) -> Outcome:
    """The change backwards, and the folders gone that were made for it, unless something else is in them now."""
    backwards = Change(change.path, change.after, change.before, change.mode)
    outcome = apply_change(backwards, roots, content, token)
    if outcome != "conflict":
        for path in reversed(change.made):
            _remove_empty(path, roots)
    return outcome


def _relocated(path: str, roots: Roots, place: Place | None = None) -> Place:
    """Return where a recorded path leads now, which must be where it led when it was recorded."""
    try:
        place = place or locate(path, roots)
    except PlaceInvalid as error:
        raise FileFault(str(error)) from error
    if place.zone not in ("project", "workspace") or place.shown != path or not place.parts:
        raise FileFault(f"`{path}` leads elsewhere than it did")
    return place


class _Spot(NamedTuple):
    """A place whose folder is open."""

    folder: int
    place: Place
    guard: Guard

    @property
    def name(self) -> str:
        return self.place.parts[-1]


def _swap(spot: _Spot, change: Change, content: Callable[[str], bytes], token: str) -> Outcome:
    temporary = f"{TEMPORARY}{digest(token.encode())[:16]}"
    _unlink(spot.folder, temporary)
    seen = look(*spot)
    now = seen.hash if seen else None
    if now == change.after:
        # Whoever made it so may have died before it was durable.
        os.fsync(spot.folder)
        return "already"
    if now != change.before:
        return "conflict"
    if change.after is None:
        return _delete(spot, seen)
    return _replace(spot, seen, temporary, content(change.after), change.mode)


def _replace(spot: _Spot, seen: Seen | None, temporary: str, content: bytes, mode: int | None) -> Outcome:
    try:
        _write(spot.folder, temporary, content, mode)
        if _is_touched(spot, seen):
            _unlink(spot.folder, temporary)
            return "conflict"
        os.rename(temporary, spot.name, src_dir_fd=spot.folder, dst_dir_fd=spot.folder)
    except OSError:
        _unlink(spot.folder, temporary)
        raise
    os.fsync(spot.folder)
    return "done"


def _delete(spot: _Spot, seen: Seen | None) -> Outcome:
    if _is_touched(spot, seen):
        return "conflict"
    os.unlink(spot.name, dir_fd=spot.folder)
    os.fsync(spot.folder)
    return "done"


def _is_touched(spot: _Spot, seen: Seen | None) -> bool:
    """Whether the file is another than was looked at a moment ago."""
    try:
        status = os.stat(spot.name, dir_fd=spot.folder, follow_symlinks=False)
    except FileNotFoundError:
        return seen is not None
    return seen is None or stamp_of(status) != seen.stamp


def _make_folders(place: Place, change: Change, guard: Guard) -> None:
    """The folders down to a place, durable. Those the change has to make may be there without being so."""
    if not change.made and _is_folder(place.above(), guard):
        return
    if place.zone == "workspace" and not guard.roots.workspace.is_dir():
        _make_workspace(guard.roots)
    folders = place.parts[:-1]
    for depth, name in enumerate(folders):
        with opened_folder(place.zone, folders[:depth], guard) as above:
            if _make(above, name) or depth >= len(folders) - len(change.made):
                os.fsync(above)


def _is_folder(place: Place, guard: Guard) -> bool:
    try:
        with opened_folder(place.zone, place.parts, guard):
            return True
    except FileNotFoundError:
        return False


def _make(above: int, name: str) -> bool:
    try:
        os.mkdir(name, dir_fd=above)
    except FileExistsError:
        return False
    return True


def _make_workspace(roots: Roots) -> None:
    roots.workspace.mkdir(parents=True, exist_ok=True)
    for folder in (roots.workspace.parent, roots.workspace.parent.parent):
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _write(folder: int, name: str, content: bytes, mode: int | None) -> None:
    # A file that only some may read must not be readable by others for a moment.
    handle = os.open(name, _NEW, 0o666 if mode is None else 0o600, dir_fd=folder)
    try:
        written = 0
        while written < len(content):
            written += os.write(handle, content[written:] if written else content)
        if mode is not None:
            os.fchmod(handle, mode & 0o777)
        os.fsync(handle)
    finally:
        os.close(handle)


def _unlink(folder: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=folder)
    except FileNotFoundError:
        return


def _remove_empty(path: str, roots: Roots) -> None:
    try:
        place = _relocated(path, roots)
        with opened_folder(place.zone, place.parts[:-1], Guard(roots)) as above:
            os.rmdir(place.parts[-1], dir_fd=above)
            os.fsync(above)
    except (OSError, FileFault):
        return
