"""Parse YAML files and front matter into values with line and column numbers.

The YAML parser's event stream is read directly: no recursion, no tags, no duplicate keys, and a cap on the expansion of
aliases. Plain scalars follow YAML 1.2 (`yes` and dates are strings), because every value ends as JSON. Skills and
configuration check their own keys with `check_keys`.
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
_MAX_SUGGESTIONS = 100

UNREADABLE = "RYN110"
BAD_YAML = "RYN111"
LINK_OUTSIDE = "RYN138"
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

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


def parse_front_matter(text: str, file: str, *, yaml_1_1: bool = False) -> Document:
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
            document = parse_yaml("\n".join(lines[1:number]), file, first_line=2, yaml_1_1=yaml_1_1)
            return msgspec.structs.replace(document, body="\n".join(lines[number + 1 :]), body_line=number + 2)
    raise DocumentError(Finding(file, 1, 1, BAD_YAML, "the front matter is not closed", "end it with a line `---`"))


def parse_yaml(text: str, file: str, first_line: int = 1, *, yaml_1_1: bool = False) -> Document:
    """Parse a YAML document.

    Args:
        text: The YAML text.
        file: The file name for findings.
        first_line: The line number of the first line of `text` in the file.
        yaml_1_1: Whether unquoted `yes`, `no`, `on` and `off` are booleans.

    Raises:
        DocumentError: the text is not valid YAML, or exceeds a size limit.
    """
    try:
        builder = _Builder(file, first_line, _YAML_1_1_CONSTANTS if yaml_1_1 else _CONSTANTS)
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


def nearest(word: str, known: Iterable[str]) -> str:
    """Return ``did you mean `…`?`` with the closest known word, or an empty string."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"did you mean `{close[0]}`?" if close else ""


def check_keys(
    document: Document,
    shape: type[msgspec.Struct],
    *,
    unknown: str,
    missing: str,
    wrong: str,
    ignore: Iterable[str] = (),
) -> list[Finding]:
    """Check the keys of a mapping against the fields of a struct, and return every finding.

    Args:
        document: The mapping.
        shape: The struct whose fields are the known keys.
        unknown: The code for an unknown key.
        missing: The code for a missing required key; if empty, no key is required.
        wrong: The code for a value of the wrong type.
        ignore: Keys that are not checked.
    """
    if not isinstance(document.value, dict):
        return [document.finding(wrong, "expected a mapping of keys to values")]
    fields = {field.name: field for field in fields_of(shape)}
    findings = [
        document.finding(missing, f"missing key `{name}`", fix=f"add `{name}:`")
        for name, field in fields.items()
        if missing and field.required and name not in document.value
    ]
    for key, value in document.value.items():
        if key in ignore:
            continue
        if key not in fields:
            # Suggestions are expensive to compute, and a file of nonsense has thousands of unknown keys.
            fix = nearest(key, fields) if len(findings) < _MAX_SUGGESTIONS else ""
            findings.append(document.finding(unknown, f"unknown key `{key}`", key, fix=fix))
            continue
        try:
            msgspec.convert(value, fields[key].type)
        except msgspec.ValidationError as error:
            expected = _description(fields[key].type)
            message = f"`{key}` must be {expected}" if expected else f"`{key}`: {error}"
            findings.append(document.finding(wrong, message, key, fix=_choices(fields[key].type)))
    return findings


def _description(kind: Any) -> str:
    """Return the description in a type's metadata, or an empty string."""
    metas = [meta for part in (kind, *get_args(kind)) for meta in getattr(part, "__metadata__", ())]
    return next((meta.description for meta in metas if isinstance(meta, msgspec.Meta) and meta.description), "")


def _choices(kind: Any) -> str:
    """Return the possible values of a `Literal`, as a fix."""
    values = [f"`{value}`" for value in get_args(kind)] if get_origin(kind) is Literal else []
    return f"write {' or '.join(values)}" if values else ""


def usable_keys(document: Document, shape: type[msgspec.Struct]) -> dict[str, Any] | None:
    """Return the valid keys of a mapping; `None` if a required key is missing or invalid."""
    if not isinstance(document.value, dict):
        return None
    usable = {}
    for field in fields_of(shape):
        try:
            usable[field.name] = msgspec.convert(document.value[field.name], field.type)
        except (KeyError, msgspec.ValidationError):
            if field.required:
                return None
    return usable


@cache
def fields_of(shape: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return the fields of a struct. msgspec evaluates the annotations anew with every call, which takes long."""
    return msgspec.structs.fields(shape)


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

    def __init__(self, file: str, first_line: int, constants: dict[str, Any]) -> None:
        self._constants = constants
        self.file = file
        self.first_line = first_line
        self.value: Any = None
        self.marks: dict[KeyPath, Mark] = {}
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

    def _mark(self, event: yaml.Event) -> Mark:
        at = event.start_mark
        return Mark(at.line + self.first_line, at.column + 1) if at else Mark(self.first_line, 1)

    def _grow(self, size: int, event: yaml.Event) -> None:
        self._stack[-1].size += size
        if self._stack[-1].size > MAX_NODES:
            self._fail(event, f"the file expands to more than {MAX_NODES} values")

    def _open(self, event: yaml.MappingStartEvent | yaml.SequenceStartEvent) -> None:
        self._check_tag(event)
        if len(self._stack) >= MAX_DEPTH:
            self._fail(event, f"nesting is deeper than {MAX_DEPTH} levels")
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
        value = plain_scalar(event.value, self._constants)
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


_YAML_1_1_CONSTANTS = _CONSTANTS | {
    **dict.fromkeys(("yes", "Yes", "YES", "on", "On", "ON"), True),
    **dict.fromkeys(("no", "No", "NO", "off", "Off", "OFF"), False),
}


def plain_scalar(text: str, constants: dict[str, Any]) -> Any:
    """Return the value of an unquoted scalar; `constants` are words with a value, such as `true`."""
    if text in constants:
        return constants[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


def is_plain_text(text: str) -> bool:
    """Return whether an unquoted scalar is this text in every dialect, and not another value."""
    return bool(plain_scalar(text, _YAML_1_1_CONSTANTS) == text)
