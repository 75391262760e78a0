"""Convert the content of a response to text: HTML to Markdown, other texts as they are."""

from __future__ import annotations

import codecs
import re
from typing import NamedTuple

from reyn.ops.budget import OpFailed
from reyn.ops.web.client import MISSING_EXTRA

_HTML = ("text/html", "application/xhtml+xml")
_TEXTUAL = re.compile(r"text/.+|application/(.+\+)?(json|xml|yaml|javascript|toml|x-ndjson|rss\+xml|atom\+xml)")
_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})")
_CHARACTER_SETS = re.compile(
    r"utf-(8|16|32)[a-z-]*|ascii|iso8859-\d+|cp\d+|koi8-\w|mac-\w+|gb2312|gbk|gb18030|hz|big5\w*|euc_\w+|shift_jis\w*"
    r"|iso2022_\w+|johab|tis-620"
)
"""Codecs that a page may name. Others of Python are not for pages: decoding megabytes of `punycode` takes hours."""
_MAX_DEPTH = 500


class Page(NamedTuple):
    """The text of a page, and its title if it has one."""

    text: str
    title: str = ""


def to_page(content: bytes, content_type: str, url: str) -> Page:
    """Return the text of a response.

    Raises:
        OpFailed: The content is not text.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind in _HTML or (not kind and content[:200].lstrip()[:1] == b"<"):
        return _markdown(_decode(content, content_type), url)
    if kind and not _TEXTUAL.fullmatch(kind):
        raise OpFailed(f"the content has the type `{kind[:80]}`, which is not text")
    return Page(_decode(content, content_type))


def _decode(content: bytes, content_type: str) -> str:
    """Decode by the byte order mark, the header, or the `meta` tag of a page; UTF-8 without any of them."""
    declared = _CHARSET.search(content_type) or _CHARSET.search(content[:1024].decode("ascii", "replace"))
    name = declared[1] if declared else "utf-8"
    if content.startswith(codecs.BOM_UTF8):
        name = "utf-8-sig"
    elif content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        name = "utf-16"
    try:
        known = codecs.lookup(name).name
    except LookupError:
        known = ""
    return content.decode(known if _CHARACTER_SETS.fullmatch(known) else "utf-8", "replace")


def _markdown(html: str, url: str) -> Page:
    """Convert HTML without scripts, navigation, forms and hidden elements, in which instructions may be planted."""
    try:
        import html_to_markdown as converter
    except ImportError as error:
        raise OpFailed(MISSING_EXTRA) from error
    options = converter.ConversionOptions(
        preprocessing=converter.PreprocessingOptions(),
        base_url=url,
        extract_metadata=True,
        hidden_content="drop",
        inline_data_media="alt_text_only",
        max_depth=_MAX_DEPTH,
    )
    try:
        result = converter.convert(html, options)
    except Exception as error:
        raise OpFailed(f"the page cannot be converted: {type(error).__name__}") from error
    title = getattr(getattr(result.metadata, "document", None), "title", None) or ""
    return Page(_without_front_matter(result.content or ""), str(title))


def _without_front_matter(text: str) -> str:
    if not text.startswith("---\n"):
        return text
    end = text.find("\n---\n", 4)
    return text[end + 5 :].lstrip("\n") if end >= 0 else text
