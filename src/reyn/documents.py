"""Text of files becomes values that remember where they stood.

YAML is read from the parser's event stream, not through a loader: no recursion, no tags that make objects, duplicate
keys refused, aliases counted, and a line and column for every key and value. Plain scalars follow YAML 1.2 (`yes` is a
string; a date is a string), because everything read here ends as JSON. Knows nothing of skills or configuration.
"""

from __future__ import annotations

import difflib
import math
import os
import re
import stat
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, get_args, get_origin

import msgspec
import yaml

from reyn.errors import Finding

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MAX_BYTES = 1_000_000
MAX_NODES = 50_000
MAX_DEPTH = 64
_MOST_GUESSES = 100

UNREADABLE = "RYN110"
BAD_YAML = "RYN111"

Place = tuple[str | int, ...]
Severity = Literal["error", "warning"]


class Mark(NamedTuple):
    """A place in a file, counted from 1."""

    line: int
    column: int


class DocumentError(Exception):
    """A file could not be understood at all; the finding says where and why."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(str(finding))
        self.finding = finding


class Document(msgspec.Struct, frozen=True):
    """A value read from a file, the marks of its parts, and the prose that followed it."""

    file: str
    value: Any
    marks: dict[Place, Mark]
    body: str = ""
    body_line: int = 1
    prefix: Place = ()
    """Where in the file the value stands; places are counted from here."""

    def at(self, *path: str | int) -> Mark:
        """The place of a part, or of the nearest part around it that has one."""
        place = (*self.prefix, *path)
        while place and place not in self.marks:
            place = place[:-1]
        return self.marks.get(place, Mark(1, 1))

    def part(self, *path: str | int) -> Document:
        """A part of the file as a file of its own, every mark in its place."""
        value = self.value
        for step in path:
            value = value[step]
        return Document(self.file, value, self.marks, prefix=(*self.prefix, *path))

    def finding(
        self, code: str, message: str, *path: str | int, fix: str = "", severity: Severity = "error"
    ) -> Finding:
        mark = self.at(*path)
        return Finding(self.file, mark.line, mark.column, code, message, fix, severity)


def read_text(path: Path, shown: str) -> str:
    """The text of a file: capped, UTF-8, without a byte-order mark, lines ended by LF."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise DocumentError(Finding(shown, 1, 1, UNREADABLE, "is not a plain file"))
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise DocumentError(Finding(shown, 1, 1, UNREADABLE, f"cannot be read: {why}")) from error
    if len(raw) > MAX_BYTES:
        raise DocumentError(Finding(shown, 1, 1, UNREADABLE, f"is larger than {MAX_BYTES} bytes"))
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DocumentError(
            Finding(shown, line, 1, UNREADABLE, "is not UTF-8 text", "Save the file as UTF-8.")
        ) from error
    return text.replace("\r\n", "\n")


def parse_front_matter(text: str, file: str, *, yaml_1_1: bool = False) -> Document:
    """A block of YAML between two lines of `---`, then the body, stripped of blank lines around it."""
    lines = text.split("\n")
    if lines[0].rstrip() != "---":
        raise DocumentError(Finding(file, 1, 1, BAD_YAML, "has no front matter", "Start the file with a line `---`."))
    for number, line in enumerate(lines[1:], start=1):
        if line.rstrip() == "---":
            document = parse_yaml("\n".join(lines[1:number]), file, first_line=2, yaml_1_1=yaml_1_1)
            body, first = _without_blank_lines(lines[number + 1 :])
            return msgspec.structs.replace(document, body=body, body_line=number + 2 + first)
    raise DocumentError(Finding(file, 1, 1, BAD_YAML, "front matter is not closed", "End it with a line `---`."))


def _without_blank_lines(lines: list[str]) -> tuple[str, int]:
    """Lines joined, without the blank ones before and after; and how many came before."""
    written = [number for number, line in enumerate(lines) if line.strip()]
    if not written:
        return "", 0
    return "\n".join(lines[written[0] : written[-1] + 1]).rstrip(), written[0]


def parse_yaml(text: str, file: str, first_line: int = 1, *, yaml_1_1: bool = False) -> Document:
    """A value with its marks. In `yaml_1_1`, unquoted `yes`, `no`, `on` and `off` are booleans."""
    try:
        builder = _Builder(file, first_line, _OLDER_WORDS if yaml_1_1 else _WORDS)
        for event in yaml.parse(text, Loader=yaml.CSafeLoader):
            builder.take(event)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line, column = (mark.line + first_line, mark.column + 1) if mark else (first_line, 1)
        problem = getattr(error, "problem", None) or str(error)
        fix = "Quote it, or use blanks instead of a tab." if "cannot start any token" in problem else ""
        raise DocumentError(Finding(file, line, column, BAD_YAML, f"is not YAML: {problem}", fix)) from error
    except ValueError as error:  # characters that YAML does not allow
        raise DocumentError(Finding(file, first_line, 1, BAD_YAML, f"is not YAML: {error}")) from error
    return Document(file, builder.value, builder.marks)


def nearest(word: str, known: Iterable[str]) -> str:
    """` Did you mean …?` for a word nobody knows, or nothing."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"Did you mean `{close[0]}`?" if close else ""


def check_keys(
    document: Document,
    shape: type[msgspec.Struct],
    *,
    unknown: str,
    missing: str,
    wrong: str,
    passed_over: Iterable[str] = (),
) -> list[Finding]:
    """Everything that keeps a mapping from being a `shape`, all at once; the three words are codes of findings. Without
    a code for it, nothing need be there."""
    if not isinstance(document.value, dict):
        return [document.finding(wrong, "must be a mapping of keys to values")]
    fields = {field.name: field for field in _fields(shape)}
    findings = [
        document.finding(missing, f"misses the key `{name}`", fix=f"Add `{name}:`.")
        for name, field in fields.items()
        if missing and field.required and name not in document.value
    ]
    for key, value in document.value.items():
        if key in passed_over:
            continue
        if key not in fields:
            # A guess costs; nobody reads the hundredth.
            fix = nearest(key, fields) if len(findings) < _MOST_GUESSES else ""
            findings.append(document.finding(unknown, f"unknown key `{key}`", key, fix=fix))
            continue
        try:
            msgspec.convert(value, fields[key].type)
        except msgspec.ValidationError as error:
            meant = _meant(fields[key].type)
            message = f"`{key}` must be {meant}" if meant else f"`{key}`: {error}"
            findings.append(document.finding(wrong, message, key, fix=_choices(fields[key].type)))
    return findings


def _meant(kind: Any) -> str:
    """What a value has to be, where its type says so in words."""
    metas = [meta for part in (kind, *get_args(kind)) for meta in getattr(part, "__metadata__", ())]
    return next((meta.description for meta in metas if isinstance(meta, msgspec.Meta) and meta.description), "")


def _choices(kind: Any) -> str:
    """The words to choose from, where there are only some."""
    words = [repr(word) for word in get_args(kind)] if get_origin(kind) is Literal else []
    return f"Write {' or '.join(words)}." if words else ""


def usable_keys(document: Document, shape: type[msgspec.Struct]) -> dict[str, Any] | None:
    """What of a mapping fits a `shape`; nothing if a required key does not."""
    if not isinstance(document.value, dict):
        return None
    usable = {}
    for field in _fields(shape):
        try:
            usable[field.name] = msgspec.convert(document.value[field.name], field.type)
        except (KeyError, msgspec.ValidationError):
            if field.required:
                return None
    return usable


@cache
def _fields(shape: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(shape)


class _Open:
    """A list or mapping whose end has not been read yet."""

    __slots__ = ("anchor", "key", "path", "size", "value")

    def __init__(self, value: list[Any] | dict[str, Any], path: Place, anchor: str | None) -> None:
        self.value = value
        self.path = path
        self.anchor = anchor
        self.key: str | None = None
        self.size = 1


class _Builder:
    """Folds the parser's events into a value. `size` counts what aliases would expand to."""

    def __init__(self, file: str, first_line: int, words: dict[str, Any]) -> None:
        self._words = words
        self.file = file
        self.first_line = first_line
        self.value: Any = None
        self.marks: dict[Place, Mark] = {}
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._documents = 0

    def take(self, event: yaml.Event) -> None:
        match event:
            case yaml.ScalarEvent():
                self._scalar(event)
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._open(event)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                done = self._stack.pop()
                if done.anchor:
                    self._anchors[done.anchor] = (done.value, done.size)
                if self._stack:
                    self._grow(done.size, event)
            case yaml.AliasEvent():
                self._alias(event)
            case yaml.DocumentStartEvent():
                self._documents += 1
                if self._documents > 1:
                    self._refuse(event, "holds more than one YAML document")

    def _refuse(self, event: yaml.Event, message: str, fix: str = "") -> NoReturn:
        mark = self._mark(event)
        raise DocumentError(Finding(self.file, mark.line, mark.column, BAD_YAML, message, fix))

    def _mark(self, event: yaml.Event) -> Mark:
        at = event.start_mark
        return Mark(at.line + self.first_line, at.column + 1) if at else Mark(self.first_line, 1)

    def _grow(self, size: int, event: yaml.Event) -> None:
        self._stack[-1].size += size
        if self._stack[-1].size > MAX_NODES:
            self._refuse(event, f"expands to more than {MAX_NODES} values")

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        self._check_tag(event)
        if len(self._stack) >= MAX_DEPTH:
            self._refuse(event, f"is nested more than {MAX_DEPTH} deep")
        if self._stack and isinstance(self._stack[-1].value, dict) and self._stack[-1].key is None:
            self._refuse(event, "has a list or mapping as a key", "Use a plain word as the key.")
        value: list[Any] | dict[str, Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        path = self._place(value, event)
        self._stack.append(_Open(value, path, event.anchor))

    def _check_tag(self, event: yaml.ScalarEvent | yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        if event.tag is not None:
            self._refuse(event, f"has a tag `{event.tag}`", "Write plain YAML without tags.")

    def _alias(self, event: yaml.AliasEvent) -> None:
        anchor = event.anchor or ""
        if anchor not in self._anchors:
            self._refuse(event, f"refers to the unknown anchor `{anchor}`")
        value, size = self._anchors[anchor]
        self._place(value, event)
        if self._stack:
            self._grow(size, event)

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        self._check_tag(event)
        top = self._stack[-1] if self._stack else None
        if top is not None and isinstance(top.value, dict) and top.key is None:
            if event.value in top.value:
                self._refuse(event, f"has the key `{event.value}` twice", "Keep one of them.")
            top.key = event.value
            self.marks[(*top.path, event.value)] = self._mark(event)
            return
        value = event.value if event.style else self._plain(event)
        self._place(value, event)
        if event.anchor:
            self._anchors[event.anchor] = (value, 1)
        if top is not None:
            self._grow(1, event)

    def _plain(self, event: yaml.ScalarEvent) -> Any:
        value = plain_scalar(event.value, self._words)
        if isinstance(value, float) and not math.isfinite(value):
            self._refuse(event, f"has the number `{event.value}`, which JSON cannot hold", "Quote it if it is text.")
        return value

    def _place(self, value: Any, event: yaml.Event) -> Place:
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
            self._refuse(event, "has an alias as a key", "Use a plain word as the key.")
        path = (*top.path, top.key)
        top.value[top.key] = value
        top.key = None
        return path


_INTEGER = re.compile(r"[-+]?[0-9]{1,40}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", "+.inf", ".Inf", ".INF"), math.inf),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), -math.inf),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
}


_OLDER_WORDS = _WORDS | {
    **dict.fromkeys(("yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("no", "No", "NO", "off", "Off", "OFF"), False),
}


def plain_scalar(text: str, words: dict[str, Any]) -> Any:
    """What an unquoted scalar means; `words` are the ones that stand for other values than themselves."""
    if text in words:
        return words[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
