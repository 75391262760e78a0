"""Build what a value shows in a notebook: text, and HTML without scripts, style sheets, ids and addresses.

A text becomes HTML by being escaped: only `element` makes `Html`. Whatever a value holds, `bundle` bounds its size.
The values themselves (`InNotebook`) say what they show.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatch
from typing import Any

import msgspec

from reyn.characters import clean, escape
from reyn.texts import truncated

_MARKUP = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})
ACCENT = "#0969da"
MAX_HTML = 300_000
"""The number of bytes above which HTML is replaced by the text."""
MAX_PLAIN = 20_000
MAX_LINES = 40
"""The number of rows, or of lines, that a value shows of a list."""
_MAX_FIELD, _MAX_JSON, _MAX_CELL = 2_000, 8_000, 100
_STYLES = {
    "table": "border-collapse: collapse; margin: 4px 0",
    "th": "text-align: left; font-weight: 600; padding: 2px 12px 2px 0",
    "td": "text-align: left; vertical-align: top; padding: 2px 12px 2px 0",
    "pre": "white-space: pre-wrap; overflow-wrap: anywhere; margin: 4px 0; font-size: 12px",
}
_RED = "#cf222e"
_COLOURS = {"finished": "#1a7f37", "failed": _RED, "aborted": _RED, "limited": "#9a6700", "waiting": "#8250df"}
_NO_FORMULAS = "tex2jax_ignore mathjax_ignore"
"""The classes of elements in which MathJax, which notebooks load, leaves `$` as it is."""
MimeBundle = dict[str, str]


class Html(str):
    """Markup that `element` made."""

    __slots__ = ()


def limited(text: str, length: int = _MAX_FIELD) -> str:
    """Return a text that a reader can trust, truncated: what is invisible or steers is escaped."""
    return truncated(escape(text[: length + 1]), length)


def element(tag: str, *children: str, **attributes: object) -> Html:
    """Return an element. Children and attributes that are no `Html` are escaped."""
    inner = "".join(one if isinstance(one, Html) else limited(one).translate(_MARKUP) for one in children)
    attributes = {"style": _STYLES[tag]} | attributes if tag in _STYLES else attributes
    names = ((name.strip("_").replace("_", "-"), value) for name, value in attributes.items())
    head = "".join(f' {name}="{clean(str(value)).translate(_MARKUP)}"' for name, value in names)
    return Html(f"<{tag}{head}>{inner}</{tag}>")


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Html:
    """Return a table, or the rows of one without a head."""
    titles = [element("tr", *(element("th", name) for name in head))] if head else []
    return element("table", *titles, *(element("tr", *(element("td", cell) for cell in row)) for row in rows))


def aligned(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as text with aligned columns."""
    cells = [[clean(limited(cell, _MAX_CELL)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells)


def status_badge(status: str) -> Html:
    """Return a status in its colour."""
    return element("b", status, style=f"color: {_COLOURS.get(status, ACCENT)}")


def preformatted(text: str, length: int = _MAX_JSON) -> Html:
    """Return a text with its line breaks."""
    return element("pre", Html(limited(text, length).translate(_MARKUP)))


def json_text(value: Any) -> str:
    """Return a JSON value with indentation, truncated."""
    return limited(msgspec.json.format(msgspec.json.encode(value), indent=2).decode("utf-8", "replace"), _MAX_JSON)


def bundle(text: str, *parts: Html) -> MimeBundle:
    """Return a value as text and as HTML."""
    text = limited(text, MAX_PLAIN)
    found = element("div", *parts, style="max-width: 100%; overflow-x: auto", class_=_NO_FORMULAS)
    if len(found.encode()) > MAX_HTML:
        found = preformatted(text, MAX_PLAIN)  # MathJax leaves `pre` as it is
    return {"text/plain": text, "text/html": str(found)}


@singledispatch
def mimebundle(value: Any) -> MimeBundle:
    """Return what a value shows. Its module, or one beside it, registers how."""
    return bundle(repr(value))


class InNotebook:
    """A value that notebooks and IPython show as `mimebundle` says."""

    __slots__ = ()

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> MimeBundle:
        return mimebundle(self)
