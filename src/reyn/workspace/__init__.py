"""Files of a run and of the project: path resolution, reading by descriptor, atomic changes, restore, recorded content.

This package keeps the state directory out of reach. All other permissions are decided in `reyn.permissions`.
"""

from reyn.journal.kinds import Change
from reyn.workspace.changes import apply_change, revert
from reyn.workspace.files import (
    ChangeUncertain,
    FileChange,
    FileError,
    FileImage,
    Guard,
    decode_text,
    entries_of,
    kind_of,
    look,
    read,
    walk,
)
from reyn.workspace.paths import Location, PathInvalid, Roots, locate
from reyn.workspace.recorded import RecordedFiles

__all__ = [
    "Change",
    "ChangeUncertain",
    "FileChange",
    "FileError",
    "FileImage",
    "Guard",
    "Location",
    "PathInvalid",
    "RecordedFiles",
    "Roots",
    "apply_change",
    "decode_text",
    "entries_of",
    "kind_of",
    "locate",
    "look",
    "read",
    "revert",
    "walk",
]
