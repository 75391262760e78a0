"""A regular expression becomes the lines that it is found in."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from reyn.ops.file.finding import TOO_LONG, Deadline, files_below
from reyn.ops.file.patterns import anywhere
from reyn.ops.file.reading import lines_of, not_found, text_at
from reyn.ops.op import OpFailed
from reyn.workspace import FileFault, Guard, Place, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reyn.ops.file.writing import Arguments
    from reyn.ops.op import Call, Env

_LONGEST_LINE = 400
_RECURSION = re.compile(r"\(\?(?:R|[+-]?\d|&|P>)")


def grep_files(call: Call, arguments: Arguments, place: Place, env: Env) -> dict[str, Any]:
    search = _Search(arguments, place, env)
    try:
        search.run()
    except TimeoutError:
        search.truncated = True
        return call.timeout(TOO_LONG, **search.fields())
    except MemoryError:
        raise OpFailed("the pattern takes too much memory; give a simpler one") from None
    return call.ok(**search.fields())


class _Search:
    """One grep, as far as it has come."""

    def __init__(self, arguments: Arguments, place: Place, env: Env) -> None:
        self.expression = _compiled(arguments["pattern"], ignore_case=arguments["case_insensitive"])
        self.arguments = arguments
        self.place = place
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
                self._take(source, lines_of(text))
            if self.truncated:
                return

    def fields(self) -> dict[str, Any]:
        found: dict[str, Any]
        match self.arguments["output_mode"]:
            case "content":
                found = {"matches": self.matches, "count": len(self.matches)}
            case "files_with_matches":
                found = {"files": self.files, "count": len(self.files)}
            case _:
                found = {"count": self.count}
        skipped = {"skipped": self.skipped} if self.skipped else {}
        return {"pattern": self.arguments["pattern"], **found, "truncated": self.truncated, **skipped}

    def _sources(self, guard: Guard) -> Iterator[Place]:
        """The place itself, or if it is a folder the files below it that were asked for."""
        if not self._is_folder():
            yield self.place
            return
        pattern, kind = anywhere(self.arguments["glob"]), self.arguments.get("file_type", "").removeprefix(".")
        for source in files_below(self.place, pattern, self.env, self.deadline, guard):
            if not kind or source.parts[-1].endswith(f".{kind}"):
                yield source

    def _is_folder(self) -> bool:
        if self.place.zone == "kept":
            return not self.place.parts
        return not self.place.parts or kind_of(self.place, self.env.roots) == "folder"

    def _text(self, source: Place, guard: Guard) -> str | None:
        """What cannot be read is passed over, unless it is the very file that was named."""
        try:
            text = text_at(source, self.env, guard)
        except FileFault:
            if source is self.place:
                raise
            self.skipped += 1
            return None
        if text is None and source is self.place:
            raise not_found(source, self.env)
        return text

    def _take(self, source: Place, lines: list[str]) -> None:
        mode, most = self.arguments["output_mode"], self.arguments["head_limit"]
        for number, line in enumerate(lines):
            at = self._found(line)
            if at is None:
                continue
            self.count += 1
            if mode == "count":
                continue
            if len(self.files if mode == "files_with_matches" else self.matches) == most:
                self.truncated = True
                return
            if mode == "files_with_matches":
                self.files.append(source.shown)
                return
            self.matches.append(self._match(source, lines, number, at))

    def _found(self, line: str) -> int | None:
        found = self.expression.search(line.rstrip("\r\n"), timeout=self.deadline.left())
        return found.start() if found else None

    def _match(self, source: Place, lines: list[str], number: int, at: int) -> dict[str, Any]:
        match = {"path": source.shown, "line_number": number + 1, "content": _shortened(lines[number], at)}
        before, after = self.arguments["context_before"], self.arguments["context_after"]
        if before or after:
            match["context"] = {
                "before": [_shortened(line) for line in lines[max(0, number - before) : number]],
                "after": [_shortened(line) for line in lines[number + 1 : number + 1 + after]],
            }
        return match


def _compiled(pattern: str, *, ignore_case: bool) -> Any:
    import regex  # type: ignore[import-untyped]

    if _RECURSION.search(pattern):
        # It takes a gigabyte before it takes two seconds.
        raise OpFailed("a pattern that calls itself is not allowed")
    try:
        return regex.compile(pattern, regex.IGNORECASE if ignore_case else 0)
    except regex.error as error:
        raise OpFailed(f"`pattern` is not a regular expression: {error}") from None
    except Exception:  # noqa: BLE001 (it has been seen to stumble over odd patterns, in more ways than it tells)
        raise OpFailed("`pattern` is not a regular expression that can be used") from None


def _shortened(line: str, at: int = 0) -> str:
    """A line without its end; of a very long one the part around the match."""
    text = line.rstrip("\r\n")
    if len(text) <= _LONGEST_LINE:
        return text
    first = max(0, min(at - _LONGEST_LINE // 4, len(text) - _LONGEST_LINE))
    last = first + _LONGEST_LINE
    return ("…" if first else "") + text[first:last] + ("…" if last < len(text) else "")
