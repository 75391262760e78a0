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
        answer, text = convert(source.read(request["size"]).decode("utf-8", "replace"), request)
        target.write(json.dumps(answer | {"size": len(text)}).encode() + b"\n" + text)
        target.flush()


def limit_cpu(seconds: float) -> None:
    """End this process after so many seconds of CPU time, also if its parent was killed."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(usage.ru_utime + usage.ru_stime + seconds) + 2, hard))


def convert(html: str, request: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
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
        result = converter.convert(with_hidden_marked(html), options)
    except Exception as error:  # noqa: BLE001 - becomes the answer
        return {"error": type(error).__name__}, b""
    title = getattr(getattr(result.metadata, "document", None), "title", None) or ""
    text = without_front_matter(result.content or "")
    answer = {"title": str(title)[:1_000], "truncated": len(text) > request["most"]}
    return answer, text[: request["most"]].encode("utf-8", "replace")


_TAG = re.compile(r"""<([a-zA-Z][^\s/>]*+)((?:[^'">]++|"[^"]*+"|'[^']*+')*+)>""")
_STYLE = re.compile(r"""\sstyle\s*=\s*("[^"]*"|'[^']*'|[^\s>]+)""", re.IGNORECASE)
_NOT_SHOWN = re.compile(r"""\s(?:aria-hidden\s*=\s*["']?true|popover(?=[\s=/]|$))""", re.IGNORECASE)
_INVISIBLE = re.compile(
    r"(?:^|;)(?:display:none|visibility:(?:hidden|collapse)|content-visibility:hidden"
    r"|(?:opacity|font-size):(?:0+(?:\.0*)?|\.0+)[a-z%]*(?=[;!]|$))"
)
_UNSEEN = frozenset(("datalist", "noembed", "noframes", "desc", "metadata"))
_CSS_ESCAPE = re.compile(r"/\*.*?\*/|\\(?:([0-9a-fA-F]{1,6})\s?|(.))", re.DOTALL)


def with_hidden_marked(html: str) -> str:
    """Return a page in which elements that a browser does not show have the attribute `hidden`, as far as tags tell."""
    drawing = html.lower().find("<svg")

    def marked(tag: re.Match[str]) -> str:
        name = tag[1].lower()
        is_hidden = (
            name in _UNSEEN
            or (name == "dialog" and not re.search(r"\sopen(?=[\s=/]|$)", tag[2], re.IGNORECASE))
            or (name == "title" and 0 <= drawing < tag.start())
            or (bool(tag[2]) and (bool(_NOT_SHOWN.search(unescape(tag[2]))) or _is_invisible(tag[2])))
        )
        return f"<{tag[1]} hidden{tag[2]}>" if is_hidden else tag[0]

    return _TAG.sub(marked, html)


def _is_invisible(attributes: str) -> bool:
    style = _STYLE.search(attributes)
    if style is None:
        return False
    css = _CSS_ESCAPE.sub(_css_character, unescape(style[1].strip("\"'")))
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
