"""The text of a fetched page. The op imports this module when it has fetched one: most commands fetch none."""

from __future__ import annotations

import asyncio
import codecs
import re

from reyn.ops.budget import OpFailed
from reyn.ops.web.client import WEB_EXTRA_MISSING
from reyn.sandbox.content import WORKERS, ContentFailed, MarkdownPage, missing_package

__all__ = ["ContentFailed", "decode_page", "to_page"]

_HTML = ("text/html", "application/xhtml+xml")
_TEXTUAL = re.compile(r"text/.+|application/(.+\+)?(json|xml|yaml|javascript|toml|x-ndjson|rss\+xml|atom\+xml)")
_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([A-Za-z0-9_.:-]{1,40})")
_CHARACTER_SETS = re.compile(
    r"utf-(8|16|32)[a-z-]*|ascii|iso8859-\d+|cp\d+|koi8-\w|mac-\w+|gb2312|gbk|gb18030|hz|big5\w*|euc_\w+|shift_jis\w*"
    r"|iso2022_\w+|johab|tis-620"
)
"""Codecs that a page may name. Others of Python are not for pages: decoding megabytes of `punycode` takes hours."""


_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
_DECODED = 16_384
"""Bytes that are decoded at once."""


async def to_page(content: bytes, content_type: str, url: str, *, most: int, seconds: float) -> MarkdownPage:
    """Return the text of a response. HTML is converted in a process of its own.

    Raises:
        OpFailed: The content is not text.
        ContentFailed: The page exceeds a limit of the conversion.
    """
    kind = content_type.partition(";")[0].strip().lower()
    if kind in _HTML or (not kind and content[:200].lstrip()[:1] == b"<"):
        if missing_package():
            raise OpFailed(WEB_EXTRA_MISSING)
        html = await asyncio.to_thread(decode_page, content, content_type)
        return await WORKERS.to_markdown(html, url, most=most, seconds=seconds)
    if kind and not _TEXTUAL.fullmatch(kind):
        raise OpFailed(f"the content has the type `{kind[:80]}`, which is not text")
    text = await asyncio.to_thread(decode_page, content, content_type)
    return MarkdownPage(text[:most], "", len(text) > most)


def decode_page(content: bytes, content_type: str) -> str:
    """Decode by the byte order mark, the header, or the `meta` tag of a page; UTF-8 without any of them.

    It takes up to a microsecond for a byte, and is called in a thread: other threads run between two pieces.
    """
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
    if known in ("utf-16", "utf-32") and not content.startswith(_MARKS):
        known += "-le"
    decoder = codecs.getincrementaldecoder(known if _CHARACTER_SETS.fullmatch(known) else "utf-8")("replace")
    pieces = [decoder.decode(content[start : start + _DECODED]) for start in range(0, len(content), _DECODED)]
    return "".join((*pieces, decoder.decode(b"", final=True)))
