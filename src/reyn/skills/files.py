"""The files of a skill as contents by path: limits, reading a folder, writing YAML and front matter.

Values are written so that the loader reads the same values back.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import yaml

from reyn.documents import DocumentError, is_plain_text, parse_yaml, read_error
from reyn.errors import AgentSkillInvalid

if TYPE_CHECKING:
    from pathlib import Path

MAX_FILES = 200
"""The number of files of a skill that is drafted, imported or installed, unless an operator raises it."""
MAX_BYTES = 5_000_000
"""Their size together, likewise."""
_MAX_DEPTH = 20
_WIDTH = 110
_SHORT = 80


class _Dumper(yaml.SafeDumper):
    """Quotes what Reyn would read as another value than a text, and writes texts of several lines as blocks."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None if is_plain_text(text) else "'"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _represent_list(dumper: yaml.SafeDumper, items: list[Any]) -> yaml.SequenceNode:
    """Write a short list of plain values in one line."""
    is_plain = all(isinstance(item, str | int | float | bool) and "\n" not in str(item) for item in items)
    is_short = is_plain and sum(len(str(item)) + 2 for item in items) <= _SHORT
    return dumper.represent_sequence("tag:yaml.org,2002:seq", items, flow_style=is_short)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(list, _represent_list)


def to_yaml(value: Any) -> str:
    """Return a JSON value as YAML. Keys keep their order."""
    text = str(yaml.dump(value, Dumper=_Dumper, allow_unicode=True, sort_keys=False, width=_WIDTH))
    try:
        if parse_yaml(text, "").value == value:
            return text
    except DocumentError:
        pass
    # YAML has corners that no quoting rule covers; JSON is YAML without them.
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n"


def to_front_matter(keys: Mapping[str, Any], body: str) -> str:
    """Return a Markdown file: the keys as front matter, then the body verbatim."""
    return f"---\n{to_yaml(dict(keys))}---\n{body}"


def printable_line(text: str) -> str:
    """Return a text of a foreign file in one line of printable characters."""
    line = "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))
    return line[:200]


def read_folder(
    folder: Path,
    read: Callable[[str], bytes] | None = None,
    *,
    max_files: int = MAX_FILES,
    max_bytes: int = MAX_BYTES,
) -> tuple[dict[str, bytes], list[str]]:
    """Return the files of a folder, and a sentence about each entry that is left out.

    Args:
        folder: The folder.
        read: Returns the content of a file by its path in the folder; by default it is opened without following links.
        max_files: Maximum number of files.
        max_bytes: Maximum size of all files together.

    Raises:
        AgentSkillInvalid: It cannot be read, is too large, or a link leads out of it.
    """
    files: dict[str, bytes] = {}
    left_out: list[str] = []
    size = 0
    try:
        root = os.path.realpath(folder)
        for name in _names(root, left_out):
            content = _read(f"{root}/{name}", max_bytes) if read is None else read(name)
            size += len(content)
            if len(files) >= max_files or size > max_bytes:
                what = f"{max_bytes:,} bytes" if size > max_bytes else f"{max_files:,} files"
                hint = AgentSkillInvalid.size_hint
                raise AgentSkillInvalid(f"`{folder.name}` has more than {what}", hint=hint)
            files[name] = content
    except (OSError, ValueError) as error:
        raise AgentSkillInvalid(f"cannot read `{folder.name}`: {read_error(error)}") from error
    return files, left_out


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is no part of a skill: its name begins with a dot, or Python made it."""
    return name.startswith(".") or name == "__pycache__"


def _names(root: str, left_out: list[str]) -> Iterator[str]:
    """Yield the paths of the files below a folder. A link that leads out of it is an error."""
    pending = [""]
    while pending:
        here = pending.pop()
        with os.scandir(f"{root}/{here}") as scan:
            entries = sorted(scan, key=lambda entry: entry.name)
        for entry in entries:
            path = f"{here}{entry.name}"
            if entry.is_symlink():
                if not f"{os.path.realpath(entry.path)}/".startswith(f"{root}/"):
                    raise AgentSkillInvalid(f"`{printable_line(path)}` is a symbolic link that leads out of the folder")
                left_out.append(f"`{printable_line(path)}` is a symbolic link and is not copied")
            elif is_hidden(entry.name) or not entry.name.isprintable():
                left_out.append(f"`{printable_line(path)}` is not copied: its name is hidden or not plain text")
            elif entry.is_dir():
                if path.count("/") >= _MAX_DEPTH:
                    raise AgentSkillInvalid(f"`{printable_line(path)}` is more than {_MAX_DEPTH} folders deep")
                pending.append(f"{path}/")
            elif entry.is_file():
                yield path
            else:
                left_out.append(f"`{printable_line(path)}` is not a regular file and is not copied")


def _read(path: str, max_bytes: int) -> bytes:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        if os.fstat(handle).st_size > max_bytes:
            message = f"`{os.path.basename(path)}` is larger than {max_bytes:,} bytes"  # noqa: PTH119 - text in, text out
            raise AgentSkillInvalid(message, hint=AgentSkillInvalid.size_hint)
        return file.read(max_bytes + 1)
