"""Build values from the events of the YAML parser.

The event stream is read directly: no recursion, no tags, no duplicate keys. What comes out is bounded, not what goes
in: an alias counts as much as what it stands for, in values and in characters.
"""

from __future__ import annotations

import math
import re
from typing import Any, NamedTuple, NoReturn

import yaml

from reyn.documents.document import Document, DocumentError, KeyPath, Position, Split
from reyn.documents.yaml_scalars import plain_scalar
from reyn.errors import Finding
from reyn.errors.codes import BAD_YAML

_MAX_NODES = 50_000
MAX_YAML_CHARACTERS = 1_000_000
"""The largest number of characters in all keys and values. A file without aliases has as many bytes at most."""
MAX_YAML_KEY = 1_024
"""The longest key, as YAML has it for keys in one line. Findings about the values in a mapping repeat its key."""
MAX_YAML_TAGS = 100
"""The largest number of `%TAG` directives. The parser compares each with all others."""
MAX_YAML_DEPTH = 64
_TAG_DIRECTIVE = re.compile("(?:^|[\n\r\x85\u2028\u2029])%TAG")


class _Extent(NamedTuple):
    """The size of a value, with everything in it."""

    nodes: int
    characters: int

    def plus(self, other: _Extent) -> _Extent:
        return _Extent(self.nodes + other.nodes, self.characters + other.characters)


def build_value(text: str, file: str, first_line: int) -> Document:
    """Return the value of a YAML text, and where its parts are. `parse_yaml` documents the arguments and errors."""
    if len(_TAG_DIRECTIVE.findall(text)) > MAX_YAML_TAGS:
        message = f"the file has more than {MAX_YAML_TAGS} `%TAG` directives"
        raise DocumentError(Finding(file, first_line, 1, BAD_YAML, message, "remove them: tags are not allowed"))
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
    return Document(file, builder.value, builder.marks, splits=tuple(builder.splits))


class _Container:
    """A list or mapping that is being built; `key` is the key whose value comes next."""

    __slots__ = ("anchor", "is_flow", "key", "key_event", "last", "path", "size", "value")

    def __init__(self, value: list[Any] | dict[str, Any], path: KeyPath, anchor: str | None) -> None:
        self.value = value
        self.path = path
        self.anchor = anchor
        self.key: str | None = None
        self.key_event: yaml.ScalarEvent | None = None
        self.last: tuple[str, yaml.ScalarEvent] | None = None
        self.is_flow = False
        self.size = _Extent(1, 0)


class _Builder:
    """Builds a value from parser events. The size of a container counts aliases as their expansion."""

    def __init__(self, file: str, first_line: int) -> None:
        self.file = file
        self.first_line = first_line
        self.value: Any = None
        self.marks: dict[KeyPath, Position] = {}
        self.splits: list[Split] = []
        self._stack: list[_Container] = []
        self._anchors: dict[str, tuple[Any, _Extent]] = {}
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

    def _grow(self, size: _Extent, event: yaml.Event) -> None:
        grown = self._stack[-1].size = self._stack[-1].size.plus(size)
        if grown.nodes > _MAX_NODES:
            self._fail(event, f"the file expands to more than {_MAX_NODES} values")
        if grown.characters > MAX_YAML_CHARACTERS:
            self._fail(event, f"the file expands to more than {MAX_YAML_CHARACTERS} characters")

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        self._check_tag(event)
        if len(self._stack) >= MAX_YAML_DEPTH:
            self._fail(event, f"nesting is deeper than {MAX_YAML_DEPTH} levels")
        if self._stack and isinstance(self._stack[-1].value, dict) and self._stack[-1].key is None:
            self._fail(event, "a key is a list or a mapping", "use a plain word as the key")
        value: list[Any] | dict[str, Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        path = self._insert(value, event)
        self._stack.append(_Container(value, path, event.anchor))
        self._stack[-1].is_flow = bool(event.flow_style)

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
            if len(event.value) > MAX_YAML_KEY:
                self._fail(event, f"a key is longer than {MAX_YAML_KEY} characters")
            if event.value in top.value:
                self._fail(event, f"duplicate key `{event.value}`", "remove one of them")
            top.key, top.key_event = event.value, event
            self.marks[(*top.path, event.value)] = self._mark(event)
            self._grow(_Extent(0, len(event.value)), event)
            return
        if top is not None and top.is_flow and top.key is not None:
            self._note_split(top, event)
        value, size = event.value if event.style else self._plain(event), _Extent(1, len(event.value))
        self._insert(value, event)
        if event.anchor:
            self._anchors[event.anchor] = (value, size)
        if top is not None:
            self._grow(size, event)

    def _note_split(self, top: _Container, event: yaml.ScalarEvent) -> None:
        """Note `{a: b, c}`: without a colon, `c` was probably meant as the rest of the text `b, c`."""
        key, before = top.key_event, top.last
        top.last = None if event.style else (top.key or "", event)
        if event.value or key is None or key.style or before is None or not (event.start_mark and key.end_mark):
            return
        if event.start_mark.index == key.end_mark.index:
            name, left = before
            self.splits.append(Split(name, self._mark(left), left.value, key.value))
            top.last = before

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
