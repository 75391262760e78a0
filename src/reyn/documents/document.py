"""A parsed file with the position of every value."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

from reyn.errors import Finding

KeyPath = tuple[str | int, ...]
"""The path of a value in a document: `("graph", "review", 0)`."""
Severity = Literal["error", "warning", "info"]


class Mark(NamedTuple):
    """A position in a file, counted from 1."""

    line: int
    column: int


class DocumentError(Exception):
    """A file cannot be read or parsed; `finding` has the position and the reason."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


class Document(msgspec.Struct, frozen=True):
    """A parsed file, or a part of one.

    Attributes:
        file: The file name for findings.
        value: The parsed value.
        marks: The position of every key and list item, by its path from the root of the file.
        body: The text below the front matter, verbatim.
        body_line: The line on which the body starts.
        prefix: The path of `value` in the file; paths passed to methods are relative to it.
    """

    file: str
    value: Any
    marks: dict[KeyPath, Mark]
    body: str = ""
    body_line: int = 1
    prefix: KeyPath = ()

    def at(self, *path: str | int) -> Mark:
        """Return the position of a value, or of its nearest ancestor that has one."""
        full = (*self.prefix, *path)
        while full and full not in self.marks:
            full = full[:-1]
        return self.marks.get(full, Mark(1, 1))

    def part(self, *path: str | int) -> Document:
        """Return a part of the document as a document with the same positions."""
        value = self.value
        for step in path:
            value = value[step]
        return Document(self.file, value, self.marks, prefix=(*self.prefix, *path))

    def finding(
        self, code: str, message: str, *path: str | int, fix: str = "", severity: Severity = "error"
    ) -> Finding:
        """Return a finding at the position of a value."""
        mark = self.at(*path)
        return Finding(self.file, mark.line, mark.column, code, message, fix, severity)
