"""Where is the data?

Texts become places, places become files, and changes of files happen whole, once, and can be undone. Knows nothing of
who may do what, nor of ops.
"""

from reyn.journal.kinds import Change
from reyn.workspace.changes import Outcome, apply_change, revert
from reyn.workspace.files import FileFault, Guard, Image, kind_of, missing_folders, read, text_of
from reyn.workspace.paths import Place, PlaceInvalid, Roots, Zone, locate
from reyn.workspace.tree import entries_of, walk

__all__ = [
    "Change",
    "FileFault",
    "Guard",
    "Image",
    "Outcome",
    "Place",
    "PlaceInvalid",
    "Roots",
    "Zone",
    "apply_change",
    "entries_of",
    "kind_of",
    "locate",
    "missing_folders",
    "read",
    "revert",
    "text_of",
    "walk",
]
