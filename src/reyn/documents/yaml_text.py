"""Parse YAML and front matter into values with line and column numbers.

The YAML parser's event stream is read directly: no recursion, no tags, no duplicate keys, and a cap on the expansion of
aliases. Plain scalars follow YAML 1.2 (`yes` and dates are strings), because every value ends as JSON.
"""

from __future__ import annotations

import math
import re
from typing import Any, NoReturn

import msgspec
import yaml

from reyn.documents.document import Document, DocumentError, KeyPath, Position
from reyn.errors import Finding
from reyn.errors.codes import BAD_YAML

MAX_NODES = 50_000
MAX_YAML_DEPTH = 64


def parse_front_matter(text: str, file: str) -> Document:
    """Parse a YAML block between two `---` lines, followed by a body.

    The body is every character after the second `---` line, blank lines included.

    Raises:
        DocumentError: the front matter is missing, not closed or not valid YAML.
    """
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        raise DocumentError(
            Finding(file, 1, 1, BAD_YAML, "the file has no front matter", "start the file with a line `---`")
        )
    for number, line in enumerate(lines[1:], start=1):
        if line.rstrip() == "---":
            document = parse_yaml("\n".join(lines[1:number]), file, first_line=2)
            return msgspec.structs.replace(document, body="\n".join(lines[number + 1 :]), body_line=number + 2)
    raise DocumentError(Finding(file, 1, 1, BAD_YAML, "the front matter is not closed", "end it with a line `---`"))


def parse_yaml(text: str, file: str, first_line: int = 1) -> Document:
    """Parse a YAML document.

    Args:
        text: The YAML text.
        file: The file name for findings.
        first_line: The line number of the first line of `text` in the file.

    Raises:
        DocumentError: the text is not valid YAML, or exceeds a size limit.
    """
    try:
        builder = _Builder(file, first_line)
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            builder.add(event)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line, column = (mark.line + first_line, mark.column + 1) if mark else (first_line, 1)
        problem = getattr(error, "problem", None) or str(error)
        fix = "quote the value, or indent with spaces instead of a tab" if "cannot start any token" in problem else ""
        raise DocumentError(Finding(file, line, column, BAD_YAML, f"invalid YAML: {problem}", fix)) from error
    except ValueError as error:  # the reader raises it for characters that YAML does not allow
        raise DocumentError(Finding(file, first_line, 1, BAD_YAML, f"invalid YAML: {error}")) from error
    return Document(file, builder.value, builder.marks)


class _Container:
    """A list or mapping that is being built; `key` is the key whose value comes next."""

    __slots__ = ("anchor", "key", "path", "size", "value")

    def __init__(self, value: list[Any] | dict[str, Any], path: KeyPath, anchor: str | None) -> None:
        self.value = value
        self.path = path
        self.anchor = anchor
        self.key: str | None = None
        self.size = 1


class _Builder:
    """Builds a value from parser events. The size of a container counts aliases as their expansion."""

    def __init__(self, file: str, first_line: int) -> None:
        self.file = file
        self.first_line = first_line
        self.value: Any = None
        self.marks: dict[KeyPath, Position] = {}
        self._stack: list[_Container] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._documents = 0

    def add(self, event: yaml.Event) -> None:
        match event:
            case yaml.ScalarEvent():
                self._scalar(event)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._open(event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                closed = self._stack.pop()
                if closed.anchor:
                    self._anchors[closed.anchor] = (closed.value, closed.size)
                if self._stack:
                    self._grow(closed.size, event)
            case yaml.AliasEvent():
                self._alias(event)
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    self._fail(event, "the file has more than one YAML document")

    def _fail(self, event: yaml.Event, message: str, fix: str = "") -> NoReturn:
        mark = self._mark(event)
        raise DocumentError(Finding(self.file, mark.line, mark.column, BAD_YAML, message, fix))

    def _mark(self, event: yaml.Event) -> Position:
        at = event.start_mark
        return Position(at.line + self.first_line, at.column + 1) if at else Position(self.first_line, 1)

    def _grow(self, size: int, event: yaml.Event) -> None:
        self._stack[-1].size += size
        if self._stack[-1].size > MAX_NODES:
            self._fail(event, f"the file expands to more than {MAX_NODES} values")

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        self._check_tag(event)
        if len(self._stack) >= MAX_YAML_DEPTH:
            self._fail(event, f"nesting is deeper than {MAX_YAML_DEPTH} levels")
        if self._stack and isinstance(self._stack[-1].value, dict) and self._stack[-1].key is None:
            self._fail(event, "a key is a list or a mapping", "use a plain word as the key")
        value: list[Any] | dict[str, Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        path = self._insert(value, event)
        self._stack.append(_Container(value, path, event.anchor))

    def _check_tag(self, event: yaml.ScalarEvent | yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        if event.tag is not None:
            self._fail(event, f"tag `{event.tag}` is not allowed", "remove the tag")

    def _alias(self, event: yaml.AliasEvent) -> None:
        anchor = event.anchor or ""
        if anchor not in self._anchors:
            self._fail(event, f"unknown anchor `{anchor}`")
        value, size = self._anchors[anchor]
        self._insert(value, event)
        if self._stack:
            self._grow(size, event)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        self._check_tag(event)
        top = self._stack[-1] if self._stack else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            if event.value in top.value:
                self._fail(event, f"duplicate key `{event.value}`", "remove one of them")
            top.key = event.value
            self.marks[(*top.path, event.value)] = self._mark(event)
            return
        value = event.value if event.style else self._plain(event)
        self._insert(value, event)
        if event.anchor:
            self._anchors[event.anchor] = (value, 1)
        if top is not None:
            self._grow(1, event)

    def _plain(self, event: yaml.ScalarEvent) -> Any:
        value = plain_scalar(event.value)
        if isinstance(value, float) and not math.isfinite(value):
            self._fail(event, f"`{event.value}` is not a JSON number", "quote it if it is text")
        return value

    def _insert(self, value: Any, event: yaml.Event) -> KeyPath:
        if not self._stack:
            self.value = value
            self.marks[()] = self._mark(event)
            return ()
        top = self._stack[-1]
        if isinstance(top.value, list):
            path = (*top.path, len(top.value))
            self.marks[path] = self._mark(event)
            top.value.append(value)
            return path
        if top.key is None:
            self._fail(event, "a key is an alias", "use a plain word as the key")
        path = (*top.path, top.key)
        top.value[top.key] = value
        top.key = None
        return path


_INTEGER = re.compile(r"[-+]?[0-9]{1,40}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_CONSTANTS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", "+.inf", ".Inf", ".INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}
_YAML_1_1_BOOLEANS = {"yes", "no", "on", "off"}


def plain_scalar(text: str) -> Any:
    """Return the value of an unquoted scalar."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def is_plain_text(text: str) -> bool:
    """Return whether an unquoted scalar is this text, also for readers of YAML 1.1."""
    return bool(plain_scalar(text) == text) and text.lower() not in _YAML_1_1_BOOLEANS
