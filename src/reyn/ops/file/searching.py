"""The form `grep`: search files for a regular expression, within a time limit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from reyn.ops.budget import BudgetExceeded, OpFailed
from reyn.ops.file.finding import TOO_LONG, files_below
from reyn.ops.file.lines import Line, iterate_lines, lines_after, lines_before
from reyn.ops.file.patterns import anywhere
from reyn.ops.file.reading import not_found, text_at
from reyn.workspace import FileError, Guard, Location, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.ops.budget import Deadline
    from reyn.ops.file.writing import Arguments
    from reyn.ops.op import Call, Env

_MAX_LINE_CHARS = 400
_MAX_SEARCHED_CHARS = 100_000
"""A search can take hundreds of bytes of memory for each character of its line."""
_SHORTENED = f"longer lines were searched in their first {_MAX_SEARCHED_CHARS} characters only"
_RECURSION = re.compile(r"\(\?(?:R|[+-]?\d|&|P>)")


def grep_files(call: Call, arguments: Arguments, location: Location, env: Env) -> dict[str, Any]:
    with env.budget.search() as deadline:
        search = _Search(arguments, location, env, deadline)
        return _run(search, call)


def _run(search: _Search, call: Call) -> dict[str, Any]:
    try:
        search.run()
    except TimeoutError:
        search.truncated = True
        return call.timeout(TOO_LONG, **search.fields())
    except BudgetExceeded as error:
        search.truncated = True
        return call.error(str(error), **search.fields())
    except MemoryError:
        raise OpFailed("the pattern takes too much memory; give a simpler one") from None
    return call.ok(**search.fields())


class _Search:
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
        if not self._is_folder():
            yield self.location
            return
        pattern, kind = anywhere(self.arguments["glob"]), self.arguments.get("file_type", "").removeprefix(".")
        for source in files_below(self.location, pattern, self.env, self.deadline, guard):
            if not kind or source.parts[-1].endswith(f".{kind}"):
                yield source

    def _is_folder(self) -> bool:
        if self.location.zone == "full_content":
            return not self.location.parts
        return not self.location.parts or kind_of(self.location, self.env.roots) == "folder"

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

    def _match(self, source: Location, text: str, line: Line, column: int) -> dict[str, Any]:
        match = {"path": source.display_path, "line_number": line.number + 1, "content": _shorten(line.text, column)}
        before, after = self.arguments["context_before"], self.arguments["context_after"]
        if before or after:
            match["context"] = {
                "before": list(map(_shorten, lines_before(text, line.start, before))),
                "after": list(map(_shorten, lines_after(text, line.start + len(line.text), after))),
            }
        return match


def _compile(pattern: str, *, ignore_case: bool) -> Any:
    import regex  # type: ignore[import-untyped]

    if _RECURSION.search(pattern):
        # A recursive pattern can use a gigabyte of memory before the time limit is reached.
        raise OpFailed("a pattern that calls itself is not allowed")
    try:
        # Not cached: a pattern holds the memory of its longest search.
        return regex.compile(pattern, regex.IGNORECASE if ignore_case else 0, cache_pattern=False)
    except regex.error as error:
        raise OpFailed(f"`pattern` is not a regular expression: {error}") from None
    except Exception:  # noqa: BLE001 - `regex` raises undocumented exceptions for some malformed patterns
        raise OpFailed("`pattern` is not a regular expression that can be used") from None


def _shorten(line: str, column: int = 0) -> str:
    """Return a line without its end; of a long one, the part around the match."""
    text = line.rstrip("\r\n")
    if len(text) <= _MAX_LINE_CHARS:
        return text
    first = max(0, min(column - _MAX_LINE_CHARS // 4, len(text) - _MAX_LINE_CHARS))
    last = first + _MAX_LINE_CHARS
    return ("…" if first else "") + text[first:last] + ("…" if last < len(text) else "")
