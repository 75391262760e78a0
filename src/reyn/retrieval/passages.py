"""Split documents into passages that an answer can quote: each with its heading and its lines.

Markdown and text are split where they have headings and empty lines. HTML is converted to Markdown first, in a worker
process with limits, because a document may be hostile; its passages have numbers instead of lines.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from itertools import groupby
from typing import NamedTuple

import msgspec

from reyn.errors import DocumentUnreadable, SandboxStartFailed
from reyn.sandbox.content import WORKERS, ContentFailed, missing_package

FORM = 1
"""Counts the ways in which documents were split: a document that was split in another way is indexed again."""
_MARKDOWN = (".md", ".markdown")
_HTML = (".html", ".htm")
SUFFIXES = (*_MARKDOWN, ".txt", ".rst", *_HTML)
MAX_PASSAGE = 1_200
"""The characters of a passage, about 300 tokens. A longer paragraph is split."""
_MIN_PASSAGE = 40
"""A shorter paragraph is joined with the next one of its section."""
MAX_PASSAGES = 20_000
"""Of one document."""
_MAX_TEXT = 20_000_000
_MAX_HEADING = 200
_CONVERT_SECONDS = 30
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*?)[ \t]*#*[ \t]*\Z")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_CUT = re.compile(r"(?<=[.!?;\u3002\uff01\uff1f])\s+|\s+")


class Passage(msgspec.Struct, frozen=True, array_like=True):
    """A part of a document.

    Attributes:
        text: The text, as it is in the document.
        heading: The headings above it, the outermost first, joined by ` > `.
        line: The first line, from 1; 0 in a converted document.
        end_line: The last line.
    """

    text: str
    heading: str = ""
    line: int = 0
    end_line: int = 0

    @property
    def searched(self) -> str:
        """What it is found by with words; its vector is that of the text alone."""
        return f"{self.heading}\n{self.text}" if self.heading else self.text


class SourceDocument(msgspec.Struct, frozen=True):
    """A document to index: where it comes from, a digest of its content, and its passages when they are needed."""

    path: str
    digest: str
    read: Callable[[], Awaitable[list[Passage]]]


def is_document(path: str) -> bool:
    """Return whether the name of a file is that of a document."""
    return path.lower().endswith(SUFFIXES)


async def convert_html(html: str, path: str) -> str:
    """Return a page as Markdown, without scripts and what is hidden.

    Raises:
        DocumentUnreadable: It exceeds a limit of the conversion, or the converter is missing.
    """
    if missing_package():
        hint = "pip install 'reyn[retrieval]'"
        raise DocumentUnreadable(f"`{path}` is HTML, which needs the extra `retrieval`", hint=hint)
    try:
        page = await WORKERS.to_markdown(html, "", most=_MAX_TEXT, seconds=_CONVERT_SECONDS)
    except (ContentFailed, SandboxStartFailed) as error:
        raise DocumentUnreadable(f"`{path}`: {error}") from error
    if page.is_truncated:
        raise DocumentUnreadable(
            f"`{path}` is nested too deep to be converted, or has more than {_MAX_TEXT:,} characters"
        )
    return page.text


def is_html(path: str) -> bool:
    """Return whether a document has to be converted."""
    return path.lower().endswith(_HTML)


def read_passages(text: str, path: str) -> list[Passage]:
    """Return the passages of a document.

    Args:
        text: The text; of an HTML document, its Markdown.
        path: The path, whose suffix says what it is.

    Raises:
        DocumentUnreadable: It has too many.
    """
    has_headings = path.lower().endswith((*_MARKDOWN, *_HTML))
    passages: list[Passage] = []
    for block in _joined(_blocks(text, has_headings=has_headings)):
        passages += _cut(block)
        if len(passages) > MAX_PASSAGES:
            raise DocumentUnreadable(f"`{path}` has more than {MAX_PASSAGES} passages")
    if is_html(path):
        return [Passage(one.text, one.heading) for one in passages]
    return passages


class _Paragraph(NamedTuple):
    """Lines that belong together."""

    heading: str
    lines: list[str]
    first: int
    section: int = 0

    @property
    def size(self) -> int:
        return sum(map(len, self.lines)) + len(self.lines)


def _blocks(text: str, *, has_headings: bool) -> Iterator[_Paragraph]:
    """Yield the paragraphs of a text. A fenced block of code is a part of the paragraph before it."""
    above: list[tuple[int, str]] = []
    heading, fence, section = "", "", 0
    current = _Paragraph("", [], 0)
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        found = _FENCE.match(line) if has_headings else None
        if found:
            fence = "" if fence and line.strip().startswith(fence) else fence or found[1]
        title = _HEADING.match(line) if has_headings and not fence else None
        is_end = title is not None or not (line.strip() or fence)
        if is_end and current.lines:
            yield current
            current = _Paragraph("", [], 0)
        if title is not None:
            level, section = len(title[1]), number
            above = [one for one in above if one[0] < level] + [(level, " ".join(title[2].split())[:_MAX_HEADING])]
            heading = " > ".join(name for _, name in above)[-2 * _MAX_HEADING :]
        elif not is_end:
            current = current if current.lines else _Paragraph(heading, [], number, section)
            current.lines.append(line)
    if current.lines:
        yield current


def _joined(blocks: Iterator[_Paragraph]) -> Iterator[_Paragraph]:
    """Join short paragraphs of a section with what follows them."""
    for _, parts in groupby(blocks, key=lambda block: block.section):
        current: _Paragraph | None = None
        for block in parts:
            if current is None:
                current = block
            elif min(current.size, block.size) < _MIN_PASSAGE and current.size + block.size <= MAX_PASSAGE:
                gap = block.first - current.first - len(current.lines)
                current = current._replace(lines=[*current.lines, *[""] * gap, *block.lines])
            else:
                yield current
                current = block
        if current is not None:
            yield current


def _cut(block: _Paragraph) -> Iterator[Passage]:
    """Yield a paragraph in parts of a limited size, if possible between lines, else between sentences or words."""
    lines: list[str] = []
    size, first = 0, block.first
    for number, line in enumerate(block.lines, block.first):
        if lines and size + len(line) > MAX_PASSAGE:
            yield _passage(block, lines, first, number - 1)
            lines, size, first = [], 0, number
        while len(line) > MAX_PASSAGE:
            places = [one.end() for one in _CUT.finditer(line, MAX_PASSAGE // 2, MAX_PASSAGE)]
            at = places[-1] if places else MAX_PASSAGE
            yield _passage(block, [line[:at]], number, number)
            line, first = line[at:], number
        lines.append(line)
        size += len(line) + 1
    if any(line.strip() for line in lines):
        yield _passage(block, lines, first, block.first + len(block.lines) - 1)


def _passage(block: _Paragraph, lines: list[str], first: int, last: int) -> Passage:
    return Passage("\n".join(lines).strip("\n"), block.heading, first, last)
