"""The forms `glob` and `grep`: find files by a pattern, and lines in them by a regular expression, within a time limit.

In a pattern, `*`, `?` and `[…]` match within one name, `**` matches any number of folders. No wildcard matches a name
that begins with a dot, unless the pattern spells the dot.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fnmatch import translate
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.ops.budget import SEARCH_SECONDS, Deadline, OpBudgetExceeded, OpFailed
from reyn.ops.file.reading import (
    TextLine,
    entries_at,
    is_folder,
    is_readable_below,
    iterate_lines,
    lines_after,
    lines_before,
    not_found,
    text_at,
)
from reyn.workspace import FileError, Guard, Location, walk
from reyn.workspace.paths import MAX_DEPTH, WORKSPACE

if TYPE_CHECKING:
    from reyn.ops.file.writing import Arguments
    from reyn.ops.op import Call, Env

_ANY = "**"


class Pattern(msgspec.Struct, frozen=True, dict=True):
    """A glob pattern, split into names."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, names: list[str]) -> Pattern:
        significant = tuple(name for name in names if name not in ("", "."))
        if ".." in significant:
            raise OpFailed("`..` cannot stand in a pattern after a wildcard, nor at its end")
        if len(significant) > MAX_DEPTH:
            raise OpFailed(f"the pattern has more than {MAX_DEPTH} names")
        return cls(significant)

    @cached_property
    def _expressions(self) -> tuple[re.Pattern[str], ...]:
        """The names as expressions. `fnmatch` would keep thousands of those that a model made up."""
        return tuple(re.compile(translate(name)) for name in self.names)

    def matches(self, path: tuple[str, ...]) -> bool:
        return len(self.names) in self._reached(path)

    def may_match_below(self, path: tuple[str, ...]) -> bool:
        return any(position < len(self.names) for position in self._reached(path))

    def _reached(self, path: tuple[str, ...]) -> set[int]:
        """Return every position of the pattern that a path can advance to (an NFA simulation)."""
        reached = self._skip_any({0})
        for name in path:
            reached = self._skip_any({after for position in reached for after in self._after(position, name)})
        return reached

    def _after(self, position: int, name: str) -> tuple[int, ...]:
        if position == len(self.names):
            return ()
        expected = self.names[position]
        if name.startswith(".") and not expected.startswith("."):
            return ()
        if expected == _ANY:
            return (position, position + 1) if position + 1 == len(self.names) else (position,)
        return (position + 1,) if self._expressions[position].match(name) else ()

    def _skip_any(self, positions: set[int]) -> set[int]:
        """Add the positions after each `**`, which also matches no folder. At the end, `a/**` means files in `a`."""
        for position in sorted(positions):
            while position + 1 < len(self.names) and self.names[position] == _ANY:
                position += 1
                positions.add(position)
        return positions


def split(text: str) -> tuple[str, Pattern]:
    """Split a pattern into the folder before the first wildcard and the rest."""
    scheme = WORKSPACE if text.startswith(WORKSPACE) else ""
    names = text.removeprefix(scheme).split("/")
    plain = list(takewhile(has_no_wildcards, names[:-1]))
    folder = "/".join(plain) or ("/" if plain else "" if scheme else ".")
    return scheme + folder, Pattern.of(names[len(plain) :])


def anywhere(text: str) -> Pattern:
    """Return a pattern that matches at any depth if it has no slash."""
    return Pattern.of(text.split("/") if "/" in text else [_ANY, text])


def has_no_wildcards(name: str) -> bool:
    """Return whether a name has no wildcards."""
    return not any(wildcard in name for wildcard in "*?[")


def spelled_names(arguments: Arguments) -> tuple[str, ...]:
    """Return the names before the first wildcard of a search, below the folder that it starts from."""
    pattern = split(_glob(arguments))[1] if arguments["op"] == "glob" else anywhere(arguments["glob"])
    return tuple(takewhile(has_no_wildcards, pattern.names))


# -- glob -----------------------------------------------------------------------------------------------------

TOO_LONG = f"the search took longer than {SEARCH_SECONDS:g} seconds; give a narrower path or a simpler pattern"
"""The error message of a search that timed out."""


def glob_root(arguments: Arguments) -> str:
    """Return the folder that a glob starts from."""
    folder, _ = split(_glob(arguments))
    return folder


def glob_files(call: Call, arguments: Arguments, location: Location, env: Env) -> dict[str, Any]:
    pattern = _listing(split(_glob(arguments))[1], location, env)
    matches: list[str] = []
    fields: dict[str, Any] = {"pattern": _glob(arguments), "matches": matches, "count": 0, "truncated": False}
    try:
        with env.budget.search() as deadline:
            for found in files_below(location, pattern, env, deadline, Guard(env.roots)):
                if len(matches) == arguments["max_results"]:
                    fields["truncated"] = True
                    break
                matches.append(found.display_path)
    except TimeoutError:
        return call.timeout(TOO_LONG, **fields | {"count": len(matches), "truncated": True})
    return call.ok(**fields | {"count": len(matches)})


def _glob(arguments: Arguments) -> str:
    """Return the pattern of a search: `pattern` below `path`, or the one of them that is set."""
    given = [str(arguments[name]) for name in ("path", "pattern") if name in arguments]
    if len(given) == 1 or given[0] in ("", "."):
        return given[-1]
    return given[0] + ("" if given[0].endswith(("/", ":")) else "/") + given[1]


def _listing(pattern: Pattern, location: Location, env: Env) -> Pattern:
    """Expand a pattern that is the name of a folder to the files in it."""
    if not pattern.names:
        return Pattern(("*",))
    if len(pattern.names) > 1 or not has_no_wildcards(pattern.names[0]):
        return pattern
    return Pattern((*pattern.names, "*")) if is_folder(location.below(*pattern.names), env) else pattern


def files_below(location: Location, pattern: Pattern, env: Env, deadline: Deadline, guard: Guard) -> Iterator[Location]:
    """Yield the files below a folder that match a pattern and may be read. Raises `TimeoutError` at the deadline."""
    depth = len(location.parts)
    is_readable = is_readable_below(location, env)

    def enter(folder: Location) -> bool:
        deadline.remaining()
        return pattern.may_match_below(folder.parts[depth:])

    for found in walk(location, lambda folder: entries_at(folder, env, guard), enter):
        deadline.remaining()
        if pattern.matches(found.parts[depth:]) and is_readable(found):
            yield found


# -- grep -----------------------------------------------------------------------------------------------------

_MAX_LINE_CHARS = 400
_MAX_SEARCHED_CHARS = 100_000
"""A search can take hundreds of bytes of memory for each character of its line."""
_SHORTENED = f"longer lines were searched in their first {_MAX_SEARCHED_CHARS} characters only"
_RECURSION = re.compile(r"\(\?(?:R|[+-]?\d|&|P>)")
_VERBOSE = re.compile(r"\(\?[\w-]*x")
_REPEAT = re.compile(r"\\.|\{([0-9]+),?[0-9]*\}", re.DOTALL)
_MAX_EXPANDED = 100_000
"""The length of a pattern with its repeats written out: `regex` takes up to a kilobyte for each of its characters."""


def grep_files(call: Call, arguments: Arguments, location: Location, env: Env) -> dict[str, Any]:
    with env.budget.search() as deadline:
        search = _Grep(arguments, location, env, deadline)
        try:
            search.run()
        except TimeoutError:
            search.truncated = True
            return call.timeout(TOO_LONG, **search.fields())
        except OpBudgetExceeded as error:
            search.truncated = True
            return call.error(str(error), **search.fields())
        except MemoryError:
            raise OpFailed("the pattern takes too much memory; give a simpler one") from None
        return call.ok(**search.fields())


class _Grep:
    """One search and the matches found so far; a timeout returns them."""

    def __init__(self, arguments: Arguments, location: Location, env: Env, deadline: Deadline) -> None:
        self.expression = _compile(arguments["pattern"], ignore_case=arguments["case_insensitive"])
        self.arguments = arguments
        self.location = location
        self.env = env
        self.deadline = deadline
        self.matches: list[dict[str, Any]] = []
        self.files: list[str] = []
        self.count = 0
        self.skipped = 0
        self.shortened = 0
        self.truncated = False

    def run(self) -> None:
        guard = Guard(self.env.roots)
        for source in self._sources(guard):
            text = self._text(source, guard)
            if text is not None:
                self.env.budget.add_matched(len(text))
                self._search_lines(source, text)
            if self.truncated:
                return

    def fields(self) -> dict[str, Any]:
        fields: dict[str, Any]
        match self.arguments["output_mode"]:
            case "content":
                fields = {"matches": self.matches, "count": len(self.matches)}
            case "files_with_matches":
                fields = {"files": self.files, "count": len(self.files)}
            case _:
                fields = {"count": self.count}
        skipped = {"skipped": self.skipped} if self.skipped else {}
        note = {"note": f"{self.shortened} {_SHORTENED}"} if self.shortened else {}
        return {"pattern": self.arguments["pattern"], **fields, "truncated": self.truncated, **skipped, **note}

    def _sources(self, guard: Guard) -> Iterator[Location]:
        """Yield the named file, or the files below the named folder that `glob` and `file_type` select."""
        if not is_folder(self.location, self.env):
            yield self.location
            return
        pattern, kind = anywhere(self.arguments["glob"]), self.arguments.get("file_type", "").removeprefix(".")
        for source in files_below(self.location, pattern, self.env, self.deadline, guard):
            if not kind or source.parts[-1].endswith(f".{kind}"):
                yield source

    def _text(self, source: Location, guard: Guard) -> str | None:
        """Return the text of a file. Skip a file that cannot be read, unless it is the one that was named."""
        try:
            text = text_at(source, self.env, guard)
        except FileError:
            if source is self.location:
                raise
            self.skipped += 1
            return None
        if text is None and source is self.location:
            raise not_found(source, self.env)
        return text

    def _search_lines(self, source: Location, text: str) -> None:
        mode, limit = self.arguments["output_mode"], self.arguments["head_limit"]
        for line in iterate_lines(text):
            column = self._column(line.text)
            if column is None:
                continue
            self.count += 1
            if mode == "count":
                continue
            if len(self.files if mode == "files_with_matches" else self.matches) == limit:
                self.truncated = True
                return
            if mode == "files_with_matches":
                self.files.append(source.display_path)
                return
            self.matches.append(self._match(source, text, line, column))

    def _column(self, line: str) -> int | None:
        searched = line.rstrip("\r\n")
        if len(searched) > _MAX_SEARCHED_CHARS:
            searched, self.shortened = searched[:_MAX_SEARCHED_CHARS], self.shortened + 1
        match = self.expression.search(searched, timeout=self.deadline.remaining())
        return match.start() if match else None

    def _match(self, source: Location, text: str, line: TextLine, column: int) -> dict[str, Any]:
        match = {"path": source.display_path, "line_number": line.number + 1, "content": _shorten(line.text, column)}
        before, after = self.arguments["context_before"], self.arguments["context_after"]
        if before or after:
            match["context"] = {
                "before": list(map(_shorten, lines_before(text, line.start, before))),
                "after": list(map(_shorten, lines_after(text, line.start + len(line.text), after))),
            }
        return match


def _compile(pattern: str, *, ignore_case: bool) -> Any:
    import regex  # type: ignore[import-untyped]  # it has no type hints

    if _RECURSION.search(pattern):
        # A recursive pattern can use a gigabyte of memory before the time limit is reached.
        raise OpFailed("a pattern that calls itself is not allowed")
    if _VERBOSE.search(pattern):
        raise OpFailed("the flag `x` is not allowed in a pattern")
    if _expanded(pattern) > _MAX_EXPANDED:
        raise OpFailed("the pattern repeats too much; give smaller minimums of `{…}`")
    try:
        # Not cached: a pattern holds the memory of its longest search.
        return regex.compile(pattern, regex.IGNORECASE if ignore_case else 0, cache_pattern=False)
    except regex.error as error:
        raise OpFailed(f"`pattern` is not a regular expression: {error}") from None
    except Exception:  # noqa: BLE001 - `regex` raises undocumented exceptions for some malformed patterns
        raise OpFailed("`pattern` is not a regular expression that can be used") from None


def _expanded(pattern: str) -> int:
    """Return at least the length of a pattern in which everything is written as often as it has to match.

    A count after a letter, a digit, a dot or a set repeats one character; any other may repeat what repeats itself.
    """
    single, nested = 1, 1
    for repeat in _REPEAT.finditer(pattern):
        if repeat[1] is None:
            continue
        count = int(repeat[1])
        before = pattern[: repeat.start()][-1:]
        if before.isalnum() or before in ("_", ".", "]"):
            single += count
        else:
            nested *= max(1, count)
    return len(pattern) * single * nested


def _shorten(line: str, column: int = 0) -> str:
    """Return a line without its end; of a long one, the part around the match."""
    text = line.rstrip("\r\n")
    if len(text) <= _MAX_LINE_CHARS:
        return text
    first = max(0, min(column - _MAX_LINE_CHARS // 4, len(text) - _MAX_LINE_CHARS))
    last = first + _MAX_LINE_CHARS
    return ("…" if first else "") + text[first:last] + ("…" if last < len(text) else "")
