"""The program that converts hostile pages to Markdown: a worker process with limits, which its parent kills in time.

It is executed as a script: `content_worker.py MEMORY_BYTES FOLDER…`, the folders of the libraries. Each request is a
line of JSON (`url`, `depth`, `seconds`, `size`, `most`) and `size` bytes of UTF-8; each answer a line of JSON
(`error`, `title`, `size`, `truncated`) and `size` bytes. It ends with its input.
"""

from __future__ import annotations

import json
import re
import resource
import sys
from contextlib import suppress
from html import unescape
from typing import Any


def main() -> None:
    memory = int(sys.argv[1])
    if sys.platform == "linux":  # others do not enforce it, or refuse to set it
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.path += sys.argv[2:]
    source, target = sys.stdin.buffer, sys.stdout.buffer
    while line := source.readline():
        request = json.loads(line)
        limit_cpu(request["seconds"])
        answer, text = to_markdown(source.read(request["size"]).decode("utf-8", "replace"), request)
        target.write(json.dumps(answer | {"size": len(text)}).encode() + b"\n" + text)
        target.flush()


def limit_cpu(seconds: float) -> None:
    """End this process after so many seconds of CPU time, also if its parent was killed."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(usage.ru_utime + usage.ru_stime + seconds) + 2, hard))


def to_markdown(html: str, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Convert HTML without scripts, navigation, forms and hidden elements, in which instructions may be planted."""
    try:
        import html_to_markdown as converter

        options = converter.ConversionOptions(
            preprocessing=converter.PreprocessingOptions(),
            base_url=request["url"],
            extract_metadata=True,
            hidden_content="drop",
            inline_data_media="alt_text_only",
            max_depth=request["depth"],
        )
        page = VisiblePage(html)
        result = converter.convert(page.text(), options)
    except Exception as error:  # noqa: BLE001 - becomes the answer
        return {"error": type(error).__name__}, b""
    title = getattr(getattr(result.metadata, "document", None), "title", None) or ""
    text = without_front_matter(result.content or "")
    is_too_deep = page.depth + _ADDED >= request["depth"]  # the converter leaves out what is deeper
    answer = {"title": str(title)[:1_000], "truncated": is_too_deep or len(text) > request["most"]}
    return answer, text[: request["most"]].encode("utf-8", "replace")


_ADDED = 2
"""The elements `html` and `body` around each page."""
_TOKEN = re.compile(
    r"""<!--(?:-?>|.*?(?:--!?>|\Z))|<(?:[!?]|/(?![a-z]))[^>]*>?|</(?P<end>[a-z][^\s/>]*+)[^>]*>?"""
    r"""|<(?P<start>[a-z][^\s/>]*+)"""
    r"""(?P<attributes>(?:[\s/]++|[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>"'][^\s>]*+)?)?+)*+)>""",
    re.IGNORECASE | re.DOTALL,
)
_ATTRIBUTE = re.compile(r"""([^\s/>][^\s/>=]*+)(?:\s*+=\s*+("[^"]*+"|'[^']*+'|[^\s>]++)?)?+""")
_CLEAR = r"(?:calc\()?(?:-|0+(?:\.0*)?(?=[;!)]|$)|0*\.0|\d?(?:\.\d*)?%|[\d.]+e-)"
_INVISIBLE = re.compile(
    r"(?:^|;)(?:display:none|visibility:(?:hidden|collapse)|content-visibility:hidden"
    rf"|opacity:{_CLEAR}|filter:[^;]*opacity\({_CLEAR}|font-size:(?:0+(?:\.0*)?|\.0+)[a-z%]*(?=[;!]|$))"
)
_CSS_ESCAPE = re.compile(r"/\*.*?\*/|\\(?:([0-9a-fA-F]{1,6})\s?|(.))", re.DOTALL)


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_UNSEEN = _names("datalist noembed noframes desc metadata template annotation")
_FALLBACK = _names("audio canvas video")
"""Elements whose content is for browsers that do not know them."""
_VOID = _names("area base br col embed hr img input link meta param source track wbr frame keygen basefont bgsound")
_RAW = _names("script style textarea title xmp iframe noembed noframes noscript plaintext")
_FORMATS = _names("a b big code em font i nobr s small strike strong tt u")
_HEADINGS = _names("h1 h2 h3 h4 h5 h6")
_ENDS_PARAGRAPH = _HEADINGS | _names(
    "address article aside blockquote center dd details dialog dir div dl dt fieldset figcaption figure footer form "
    "header hgroup hr li listing main menu nav ol p plaintext pre search section summary table ul xmp"
)
_SCOPE = _names("applet caption table td th marquee object template select")
_ROWS = _names("tbody thead tfoot")
_CELLS = _names("td th")
_IN_TABLES = _ROWS | _CELLS | _names("tr caption colgroup col")
_BLOCKS = _ENDS_PARAGRAPH | _SCOPE | _IN_TABLES | _names("button iframe noembed noframes noscript script style title")
_FOREIGN = _names("svg math")
_NOT_FOREIGN = (
    _FORMATS - {"a"} | _ENDS_PARAGRAPH - _names("form details summary dialog") | _names("br img span sub sup")
)
_ENDED_BY = {"li": _names("li"), "dd": _names("dd dt"), "dt": _names("dd dt")}


class VisiblePage:
    """Copies a page without the elements that their own tags hide. Where an element ends is decided as browsers do."""

    def __init__(self, html: str) -> None:
        self._html = html
        self._pieces: list[str] = []
        self._copied = 0
        self.depth = 0
        """How deep its elements are nested."""
        self._open: list[str] = []
        self._count: dict[str, int] = {}
        self._hidden = -1
        """The position of the outermost hidden element in `_open`; -1 if there is none."""

    def text(self) -> str:
        position = 0
        while token := _TOKEN.search(self._html, position):
            position = token.end()
            if token["start"]:
                position = self._start(token)
            elif token["end"]:
                self._end(token["end"].lower(), token.start(), token.end())
        if self._hidden < 0:
            self._pieces.append(self._html[self._copied :])
        return "".join(self._pieces)

    def _start(self, token: re.Match[str]) -> int:
        """Open an element; return where the next token begins."""
        name = token["start"].lower()
        if name in ("html", "head", "body") or (name in _IN_TABLES and not self._count.get("table")):
            return token.end()
        is_foreign = any(self._count.get(one) for one in _FOREIGN) and not self._count.get("foreignobject")
        if is_foreign and name in _NOT_FOREIGN:
            self._pop(min(self._open.index(one) for one in _FOREIGN if self._count.get(one)), token.start())
            is_foreign = False
        self._close_before(name, token.start())
        is_hidden = self._hidden < 0 and _is_hidden(name, token["attributes"], is_drawing=is_foreign)
        shows_tag = name in _FALLBACK and not is_hidden
        begin = token.end() if shows_tag else token.start()
        if name in _VOID or (is_foreign and token["attributes"].endswith("/")):
            if is_hidden:
                self._pieces.append(self._html[self._copied : begin])
                self._copied = token.end()
            return token.end()
        self._open.append(name)
        self.depth = max(self.depth, len(self._open))
        self._count[name] = self._count.get(name, 0) + 1
        if is_hidden or (shows_tag and self._hidden < 0):
            self._pieces.append(self._html[self._copied : begin])
            self._hidden = len(self._open) - 1
        if name in _RAW and not is_foreign:
            end = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(self._html, token.end())
            return end.start() if end and name != "plaintext" else len(self._html)
        return token.end()

    def _close_before(self, name: str, position: int) -> None:
        """Close the elements that a start tag ends."""
        top = self._open[-1] if self._open else ""
        if name in _IN_TABLES:
            context = {"table", "template"} | (_ROWS if name == "tr" or name in _CELLS else frozenset())
            context |= {"tr"} if name in _CELLS else frozenset()
            self._pop(next(n for n in range(len(self._open), 0, -1) if self._open[n - 1] in context), position)
        elif name in _ENDED_BY:
            self._close(_ENDED_BY[name], _BLOCKS - _names("address div p"), position)
        elif name in ("a", "nobr", "button"):
            self._end(name, position, position)
        elif (name in _HEADINGS and top in _HEADINGS) or (name in ("option", "optgroup") and top == "option"):
            self._pop(len(self._open) - 1, position)
        if name in _ENDS_PARAGRAPH:
            self._close(frozenset(("p",)), _SCOPE | {"button"}, position)

    def _close(self, names: frozenset[str], barrier: frozenset[str], position: int) -> None:
        """Close the innermost of some elements, unless it is outside of an element that is a barrier."""
        if not any(self._count.get(name) for name in names):
            return
        for number in range(len(self._open) - 1, -1, -1):
            if self._open[number] in names:
                self._pop(number, position)
                return
            if self._open[number] in barrier:
                return

    def _end(self, name: str, position: int, after: int) -> None:
        """Handle an end tag."""
        if not self._count.get(name):
            return
        if name in _IN_TABLES or name == "table":
            barrier = frozenset(("table", "template"))
        elif name in _BLOCKS or name in _FORMATS:
            barrier = _SCOPE | {"button"} if name == "p" else _SCOPE
        else:
            barrier = _BLOCKS
        hidden = self._hidden
        if 0 <= hidden < len(self._open) and self._open[hidden] == name:
            # Its own end tag is part of a hidden element; that of a fallback is shown, and so is its start tag.
            is_own = not any(one == name or one in barrier for one in self._open[hidden + 1 :])
            if is_own:
                self._pop(hidden, position if name in _FALLBACK else after, is_own=True)
                return
        self._close(frozenset((name,)), barrier, position)

    def _pop(self, number: int, position: int, *, is_own: bool = False) -> None:
        """Close the elements from a position in `_open` on. What is hidden among them ends at `position`."""
        closed = self._open[number:]
        del self._open[number:]
        for name in closed:
            self._count[name] -= 1
        if not number <= self._hidden:
            return
        name = closed[self._hidden - number]
        if name in _FORMATS and not is_own and not _SCOPE.intersection(closed):
            self._hidden = len(self._open)  # a format goes on in the next element, until its end tag
            self._open.append(name)
            self._count[name] += 1
            return
        self._hidden, self._copied = -1, position


def _is_hidden(name: str, attributes: str, *, is_drawing: bool) -> bool:
    if name in _UNSEEN or (name == "title" and is_drawing):
        return True
    values: dict[str, str] = {}
    for attribute in _ATTRIBUTE.finditer(attributes):
        values.setdefault(attribute[1].lower(), unescape((attribute[2] or "").strip("\"'")))
    if "hidden" in values or "popover" in values or values.get("aria-hidden", "").strip().lower() == "true":
        return True
    if name == "dialog" and "open" not in values:
        return True
    css = _CSS_ESCAPE.sub(_css_character, values.get("style", ""))
    return _INVISIBLE.search("".join(css.lower().split())) is not None


def _css_character(escaped: re.Match[str]) -> str:
    if escaped[1]:
        code = int(escaped[1], 16)
        return chr(code) if code <= sys.maxunicode else ""
    return escaped[2] or ""


def without_front_matter(text: str) -> str:
    if not text.startswith("---\n"):
        return text
    end = text.find("\n---\n", 4)
    return text[end + 5 :].lstrip("\n") if end >= 0 else text


if __name__ == "__main__":
    with suppress(BrokenPipeError, KeyboardInterrupt):
        main()
