"""Open, write and remove files by descriptor beneath an open folder, without following symbolic links.

A project may contain links that a stranger planted, and a folder may be replaced by a link at any time. Everything that
Reyn opens in a project or in the user's configuration folder goes through this package. It decides no permission.
"""

from reyn.folders.opening import (
    DEFINITIONS,
    FILE,
    FOLDER,
    OpenFolder,
    inside,
    make_folders,
    names_in,
    open_beneath,
    open_inside,
    take_lock,
)
from reyn.folders.removing import measure_tree, remove_temporary, remove_tree
from reyn.folders.writing import create_file, remove_file, replace_beneath, replace_file, replace_in

__all__ = [
    "DEFINITIONS",
    "FILE",
    "FOLDER",
    "OpenFolder",
    "create_file",
    "inside",
    "make_folders",
    "measure_tree",
    "names_in",
    "open_beneath",
    "open_inside",
    "remove_file",
    "remove_temporary",
    "remove_tree",
    "replace_beneath",
    "replace_file",
    "replace_in",
    "take_lock",
]
