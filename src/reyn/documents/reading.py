"""Read text files: within a size limit, as UTF-8, and without following a link out of a folder."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from reyn.documents.document import DocumentError
from reyn.errors import Finding

if TYPE_CHECKING:
    from pathlib import Path

MAX_BYTES = 1_000_000
UNREADABLE = "RYN110"
LINK_OUTSIDE = "RYN138"
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def read_error(error: OSError | ValueError) -> str:
    """Return why a file cannot be read or written, without an error number."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    return getattr(error, "strerror", None) or str(error)


def read_text(path: Path, label: str, *, inside: Path | None = None) -> str:
    """Return the text of a UTF-8 file, with LF line ends and without a byte-order mark.

    Args:
        path: The file.
        label: The file name for findings.
        inside: A folder that links must not lead out of; without it they may lead anywhere.

    Raises:
        DocumentError: the file is not a regular file, too large, not UTF-8, or a link leads out of the folder.
    """
    raw = read_raw(path, label, inside=inside)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DocumentError(
            Finding(label, line, 1, UNREADABLE, "the file is not UTF-8 text", "save it as UTF-8")
        ) from error
    return text.replace("\r\n", "\n")


def read_raw(path: Path, label: str, *, inside: Path | None = None) -> bytes:
    """Return the content of a file.

    Raises:
        DocumentError: the file is not a regular file, too large, or a link leads out of the folder.
    """
    try:
        handle = os.open(path, _FILE) if inside is None else _open_inside(path, inside, label)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise DocumentError(Finding(label, 1, 1, UNREADABLE, "not a regular file"))
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        raise DocumentError(Finding(label, 1, 1, UNREADABLE, f"cannot read the file: {read_error(error)}")) from error
    if len(raw) > MAX_BYTES:
        raise DocumentError(Finding(label, 1, 1, UNREADABLE, f"the file is larger than {MAX_BYTES} bytes"))
    return raw


def _open_inside(path: Path, inside: Path, label: str) -> int:
    """Open a file below a folder. Links are resolved first and not followed again, so they cannot change meanwhile."""
    root, target = os.path.realpath(inside), os.path.realpath(path)
    if not target.startswith(f"{root.rstrip('/')}/"):
        message = f"`{label}` is a link, or below a link, that leads out of `{inside.name}`; it is not read"
        raise DocumentError(Finding(label, 1, 1, LINK_OUTSIDE, message, "replace the link by a copy"))
    *folders, name = target[len(root.rstrip("/")) + 1 :].split("/")
    above = os.open(root, _FOLDER)
    try:
        for folder in folders:
            outer, above = above, os.open(folder, _FOLDER | os.O_NOFOLLOW, dir_fd=above)
            os.close(outer)
        return os.open(name, _FILE | os.O_NOFOLLOW, dir_fd=above)
    finally:
        os.close(above)
