"""Lay out a Markdown reply for a terminal: what a link or an image leads to is part of the text, HTML is text.

`rich` and `markdown-it` only parse and lay out. The writer escapes and prints the lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Markdown, TableElement
from rich.table import Table
from rich.text import Text

from reyn.cli.writer import Line, Styled

if TYPE_CHECKING:
    from rich.style import Style

_MIN_COLUMN = 4
"""The width of a column of a table with its border, if two letters fit into it."""
_MAX_CHARS = 20_000
"""A longer paragraph is printed as plain text: the time of the parser grows faster than its input."""

MAX_CELLS = 2_000
"""Tables of more cells are printed as they are written. A row of one letter has as many cells as the head."""
_BLANK = re.compile(r"\n[ \t]*\n")

_MAX_CODE = 4_000
_LANGUAGES = frozenset((
    "bash", "console", "css", "diff", "go", "html", "ini", "javascript", "js", "json", "python", "rust", "sh", "sql",
    "toml", "ts", "typescript", "xml", "yaml",
))  # fmt: skip
"""Code in these languages is highlighted, up to a length. The highlighters of some others take minutes for a page."""


def markdown_lines(text: str, columns: int) -> Iterator[Line]:
    """Yield the lines of a text in Markdown."""
    if len(text) > _MAX_CHARS:
        yield from map(Line, text.split("\n"))
        return
    document = _Document("", code_theme="ansi_dark", hyperlinks=False)
    document.parsed = _with_targets(_parser(has_tables=_most_cells(text) <= MAX_CELLS).parse(text))
    console = Console(width=columns, color_system="standard", force_terminal=True, legacy_windows=False)
    for segments in console.render_lines(document, pad=False):
        parts = (Styled(one.text, _codes(one.style)) for one in segments if not one.control)
        yield Line(*parts)


class _Table(TableElement):
    """A table that cuts nothing off: a cell is wrapped, and a table of more columns than fit is printed as rows."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for table in super().__rich_console__(console, options):
            assert isinstance(table, Table)
            for column in table.columns:
                column.overflow = "fold"
            if len(table.columns) * _MIN_COLUMN <= options.max_width:
                yield table
            else:
                for row in zip(*(list(column.cells) for column in table.columns), strict=True):
                    yield Text(" | ").join(cell for cell in row if isinstance(cell, Text))


class _Code(CodeBlock):
    """A code block, highlighted if that takes a short time."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if len(self.text) > _MAX_CODE or self.lexer_name not in _LANGUAGES:
            self.lexer_name = "text"
        yield from super().__rich_console__(console, options)


class _Document(Markdown):
    elements: ClassVar = {**Markdown.elements, "table_open": _Table, "fence": _Code, "code_block": _Code}


def _parser(*, has_tables: bool) -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable("strikethrough")
    return parser.enable("table") if has_tables else parser


def _most_cells(text: str) -> int:
    """Return a number of cells that the tables of a text do not exceed: the parser adds those that a row leaves out."""
    cells = 0
    for block in _BLANK.split(text.replace("\r\n", "\n").replace("\r", "\n")):
        lines = block.split("\n")
        widths = [line.count("|") + 1 for line in lines if "-" in line and not line.strip("-|:> \t")]
        cells += max(widths, default=0) * len(lines)
    return cells


def _with_targets(tokens: list[Token]) -> list[Token]:
    """Replace links and images by their text and their target in parentheses."""
    for token in tokens:
        if token.type == "inline" and token.children is not None:
            token.children = _inline(token.children)
    return tokens


def _inline(tokens: list[Token]) -> list[Token]:
    replaced: list[Token] = []
    opened: list[tuple[str, int]] = []
    for token in tokens:
        if token.type == "link_open":
            opened.append((str(token.attrs.get("href", "")), len(replaced)))
        elif token.type == "link_close":
            target, start = opened.pop()
            label = "".join(one.content for one in replaced[start:])
            replaced += [] if label == target else [_text(f" ({target})")]
        elif token.type == "image":
            replaced.append(_text(f"{token.content} ({token.attrs.get('src', '')})"))
        else:
            replaced.append(token)
    return replaced


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _codes(style: Style | None) -> str:
    """Return the parameters of the SGR sequence of a style. It has no others: a link would be one."""
    if style is None:
        return ""
    flags = ((style.bold, "1"), (style.dim, "2"), (style.italic, "3"), (style.underline, "4"), (style.reverse, "7"))
    codes = [code for is_set, code in flags if is_set]
    for color, is_foreground in ((style.color, True), (style.bgcolor, False)):
        if color is not None:
            codes += color.get_ansi_codes(foreground=is_foreground)
    return ";".join(codes)
