"""The form `grep`: search files for a regular expression, within a time limit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from reyn.ops.file.finding import TOO_LONG, Deadline, files_below
from reyn.ops.file.patterns import anywhere
from reyn.ops.file.reading import lines_of, not_found, text_at
from reyn.ops.op import OpFailed
from reyn.workspace import FileError, Guard, Location, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.ops.file.writing import Arguments
    from reyn.ops.op import Call, Env

_MAX_LINE_CHARS = 400
_RECURSION = re.compile(r"\(\?(?:R|[+-]?\d|&|P>)")


def grep_files(call: Call, arguments: Arguments, location: Location, env: Env) -> dict[str, Any]:
    search = _Search(arguments, location, env)
    try:
        search.run()
    except TimeoutError:
        search.truncated = True
        return call.timeout(TOO_LONG, **search.fields())
    except MemoryError:
        raise OpFailed("the pattern takes too much memory; give a simpler one") from None
    return call.ok(**search.fields())


class _Search:
    """One search and the matches found so far; a timeout returns them."""

    def __init__(self, arguments: Arguments, location: Location, env: Env) -> None:
        self.expression = _compile(arguments["pattern"], ignore_case=arguments["case_insensitive"])
        self.arguments = arguments
        self.location = location
        self.env = env
        self.deadline = Deadline()
        self.matches: list[dict[str, Any]] = []
        self.files: list[str] = []
        self.count = 0
        self.skipped = 0
        self.truncated = False

    def run(self) -> None:
        guard = Guard(self.env.roots)
        for source in self._sources(guard):
            text = self._text(source, guard)
            if text is not None:
                self._search_lines(source, lines_of(text))
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
        return {"pattern": self.arguments["pattern"], **fields, "truncated": self.truncated, **skipped}

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

    def _search_lines(self, source: Location, lines: list[str]) -> None:
        mode, limit = self.arguments["output_mode"], self.arguments["head_limit"]
        for number, line in enumerate(lines):
            column = self._column(line)
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
            self.matches.append(self._match(source, lines, number, column))

    def _column(self, line: str) -> int | None:
        match = self.expression.search(line.rstrip("\r\n"), timeout=self.deadline.remaining())
        return match.start() if match else None

    def _match(self, source: Location, lines: list[str], number: int, column: int) -> dict[str, Any]:
        match = {"path": source.display_path, "line_number": number + 1, "content": _shorten(lines[number], column)}
        before, after = self.arguments["context_before"], self.arguments["context_after"]
        if before or after:
            match["context"] = {
                "before": [_shorten(line) for line in lines[max(0, number - before) : number]],
                "after": [_shorten(line) for line in lines[number + 1 : number + 1 + after]],
            }
        return match


def _compile(pattern: str, *, ignore_case: bool) -> Any:
    import regex  # type: ignore[import-untyped]

    if _RECURSION.search(pattern):
        # A recursive pattern can use a gigabyte of memory before the time limit is reached.
        raise OpFailed("a pattern that calls itself is not allowed")
    try:
        return regex.compile(pattern, regex.IGNORECASE if ignore_case else 0)
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
