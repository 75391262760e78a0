"""Names of skills, phases and artifacts.

Names are compared in Unicode normalization form C, because editors and file systems disagree on how to encode `é`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.documents.unicode_forms import to_normal_form
from reyn.folders import names_in
from reyn.skills.values import ABORT, END, is_skill_node, skill_of

if TYPE_CHECKING:
    from pathlib import Path

_MAX_LENGTH = 64
_MAX_BYTES = 200  # a file system allows 255 for a name with its suffix
_RESERVED = {END, "null", "true", "false", "yes", "no", "on", "off"}


def nfc(text: str) -> str:
    """Return text in Unicode normalization form C."""
    return to_normal_form("NFC", text)


def is_valid_name(name: str) -> bool:
    """Return whether a skill, phase or artifact can have this name: a letter, then letters, digits, `_` and `-`.

    Words that YAML reads as other values are reserved.
    """
    if not name[:1].isalpha() or not name.replace("-", "_").isidentifier() or name.lower() in _RESERVED:
        return False
    return len(name) <= _MAX_LENGTH and len(name.encode()) <= _MAX_BYTES


def is_reserved_phase_name(name: str) -> bool:
    """Return whether a name is a choice of every phase, so that no phase can have it: `end` or `abort`."""
    return to_normal_form("NFKC", name).lower() in (END, ABORT)


def is_valid_skill_node(node: str) -> bool:
    """Return whether a graph node has the form `@skill`, `@skill[isolated]` or `@skill[shared]`."""
    suffix = node[1:].removeprefix(skill_of(node))
    return is_skill_node(node) and is_valid_name(skill_of(node)) and suffix in ("", "[isolated]", "[shared]")


def find_path(folder: Path, relative: str) -> Path | None:
    """Return the path of an entry below a folder, whichever normalization form its names have on disk."""
    path = folder / relative
    if relative.isascii():
        return path if path.exists() else None
    found = ""
    for part in path.relative_to(folder).parts:
        # Only a name with other letters has several forms. A folder that a link leads out to is not listed.
        names = [part] if part.isascii() else names_in(folder, found)
        match = next((name for name in names if nfc(name) == nfc(part)), None)
        if match is None:
            return None
        found = f"{found}/{match}".lstrip("/")
    return folder / found if (folder / found).exists() else None
