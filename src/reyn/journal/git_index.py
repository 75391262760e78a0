"""Ask the index of git whether it tracks a folder. Git itself is not started: the repository may be a stranger's.

Reads the `index` of the repository around a folder, also of a worktree, a submodule or a repository in another place. A
split index is not followed.
"""

from __future__ import annotations

import os
import re
import stat

from reyn.folders import FILE, FOLDER, OpenFolder, open_beneath

_CHUNK = 1 << 20
_LONGEST = 8_192
"""No path in an index is longer; chunks overlap by so many bytes."""
_MAX_BYTES = 200_000_000
"""The size of an index with about two million files."""
_MAX_CANDIDATES = 100_000
"""Places in an index where the searched name may be. Few have other files of such a name; each takes a look."""
_LONGEST_NUMBER = 5
_LONGEST_ENTRY = 44 + 32 + _LONGEST_NUMBER + _LONGEST
"""The most bytes of one entry of version 4."""
_LINK = re.compile(rb"gitdir: ([^\0\n]{1,4096})\n*\Z")
_NAME_LENGTH = 0xFFF
_EXTENDED = 0x4000
_HASH_BYTES = (20, 32)


def is_tracked(folder: str) -> bool:
    """Return whether git tracks a folder, something in it, or a link or a submodule in its place.

    Raises:
        OSError: The index cannot be read.
    """
    parent, inner = os.path.split(folder)
    above = os.path.realpath(parent)
    while (repository := _repository(above)) is None:
        above, outer = os.path.split(above)
        if not outer:
            return False
        inner = f"{outer}/{inner}"
    with repository as handle:
        try:
            index = OpenFolder("", open_beneath(handle, "index", FILE))
        except FileNotFoundError:  # nothing was added or checked out yet
            return False
    with index as file:
        return _holds(file, os.fsencode(inner).lower())


def _repository(folder: str) -> OpenFolder | None:
    """Open the repository whose files are in a folder; `None` if there is none."""
    path = f"{folder}/.git"
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISDIR(mode):
            return OpenFolder(path, os.open(path, FOLDER | os.O_NOFOLLOW))
        if stat.S_ISREG(mode):
            with OpenFolder(path, os.open(path, FILE | os.O_NOFOLLOW)) as file:
                found = _LINK.match(os.read(file, _LONGEST))
            path = os.path.join(folder, os.fsdecode(found[1])) if found else ""  # noqa: PTH118 - text
        # A file or a link may be a stranger's: it leads to a repository, or it is not followed.
        return OpenFolder(path, os.open(path, FOLDER)) if _is_repository(path) else None
    except OSError:
        return None


def _is_repository(path: str) -> bool:
    """Return whether a folder has what git makes in every repository, worktree and submodule."""
    has_objects = any(os.path.exists(f"{path}/{name}") for name in ("objects", "commondir"))  # noqa: PTH110 - text
    return has_objects and os.path.isfile(f"{path}/HEAD")  # noqa: PTH113 - text


def _holds(index: int, path: bytes) -> bool:
    """Return whether an index has an entry of a path or below it. `path` is in lower case: a disk may ignore case."""
    status, head = os.fstat(index), os.pread(index, 12, 0)
    if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_BYTES or head[:4] != b"DIRC" or len(head) < 12:
        raise OSError("the index of git cannot be read")
    if int.from_bytes(head[4:8]) == 4:
        count = int.from_bytes(head[8:12])
        found = (_has_compressed(index, path, count, size) for size in _HASH_BYTES)
        if (answer := next((one for one in found if one is not None), None)) is None:
            raise OSError("the index of git cannot be read")
        return answer
    return _has_plain(index, path)


def _has_plain(index: int, path: bytes) -> bool:
    """Search the names of versions 2 and 3. The length of a name precedes it, whatever the size of hashes."""
    position, candidates = 0, 0
    while chunk := os.pread(index, _CHUNK + _LONGEST, position):
        lowered = chunk.lower()
        at = lowered.find(path)
        while at >= 0:
            candidates += 1
            if candidates > _MAX_CANDIDATES:
                raise OSError("the index of git cannot be read")
            flags = (int.from_bytes(chunk[at - size : at - size + 2]) for size in (2, 4) if at >= size)
            if lowered[at + len(path) : at + len(path) + 1] in (b"/", b"\0") and any(
                _has_length(chunk, at, one & _NAME_LENGTH) for one in flags
            ):
                return True
            at = lowered.find(path, at + 1)
        position += _CHUNK
    return False


def _has_length(chunk: bytes, at: int, length: int) -> bool:
    """Return whether a name that begins at a position ends after so many bytes; long ones have the greatest length."""
    if length < _NAME_LENGTH:  # a look at the end comes first: a search from every position takes too long
        return chunk[at + length : at + length + 1] == b"\0" and chunk.find(b"\0", at) == at + length
    return chunk.find(b"\0", at, at + _LONGEST) - at >= length


def _has_compressed(index: int, path: bytes, count: int, hash_bytes: int) -> bool | None:
    """Search the names of version 4, where each is the previous one without its end, and a new end.

    Only the beginning of the last name is in memory. Returns `None` if this is no index with hashes of this size.
    """
    is_found, beginning, length, content, start, at = False, b"", 0, b"", 12, 0
    most = len(path) + 1
    for _ in range(count):
        if len(content) - at < _LONGEST_ENTRY:
            start, at = start + at, 0
            content = os.pread(index, _CHUNK, start)
        flags = int.from_bytes(content[at + 40 + hash_bytes : at + 42 + hash_bytes])
        at += 44 + hash_bytes if flags & _EXTENDED else 42 + hash_bytes
        removed, at = _varint(content, at)
        end = content.find(b"\0", at, at + _LONGEST)
        if end < 0 or removed > length:
            return None
        beginning = (beginning[: length - removed] + content[at : min(end, at + most)])[:most]
        length += end - at - removed
        if length > _LONGEST or flags & _NAME_LENGTH != min(length, _NAME_LENGTH):
            return None
        is_found = is_found or beginning.lower() in (path, path + b"/")
        at = end + 1
    return is_found


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return a number and the position after it; one that no name has, if it does not end."""
    value = -1
    for position in range(at, min(at + _LONGEST_NUMBER, len(content))):
        byte = content[position]
        value = (value + 1 << 7) | (byte & 0x7F)
        if not byte & 0x80:
            return value, position + 1
    return _MAX_BYTES, at
