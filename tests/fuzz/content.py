"""Hostile pages and texts: a page is converted or refused in time, and no text that is printed steers a terminal."""

from __future__ import annotations

import asyncio
import random
import sys
import time

from reyn.sandbox.content import WORKERS, ContentFailed
from tests.fuzz.harness import Case
from tests.fuzz.oracles import check_terminal
from tests.fuzz.project import Terminal

SECONDS = 2.0
SPARE_SECONDS = 15
"""What a conversion may take beyond its time, on a machine that is busy with other things."""
MOST = 5_000

_TAGS = (
    "b",
    "p",
    "a href=x",
    "table",
    "tr",
    "li",
    "svg",
    "math",
    "template",
    "select",
    "option",
    "pre",
    "form",
    "/b",
    "/p",
)
_PIECES = (
    "<",
    "<!--",
    "-->",
    "<![CDATA[",
    "&#x202e;",
    "&#x1b;[2J",
    "&amp" * 9,
    "\x00",
    "\x1b]52;c;eA==\x07",
    "\u202e",
    "x ",
)
_MARKS = ("[a](http://b)", "![", "](", "**", "`", "```\n", "\n\n", "> ", "- ", "|-|", "<b>", "&#8238;", "\\", "~~")


def target(case: Case) -> None:
    chance = case.random
    html = _page(chance)
    started, title, text = time.monotonic(), "", ""
    try:
        page = asyncio.run(WORKERS.to_markdown(html, "http://site.example/", most=MOST, seconds=SECONDS))
        text, title = page.text, page.title
        if len(text) > MOST:
            case.found("page-too-long", len(text))
    except ContentFailed as error:
        case.label("refused")
        text = str(error)
    if (spent := time.monotonic() - started) > SECONDS + SPARE_SECONDS:
        case.found("time", f"{spent:.0f} s for {html[:60]!r}")
    with case.guarded("print"):
        check_terminal(case, "chat", _printed([text[:2_000], title, _noise(chance)]))
    WORKERS.close()


def _page(chance: random.Random) -> str:
    parts = [
        f"<{chance.choice(_TAGS)}>" if chance.random() < 0.7 else chance.choice(_PIECES)
        for _ in range(chance.randint(1, 6))
    ]
    attributes = "".join(f" a{number}={number}" for number in range(chance.choice((0, 10, 20_000))))
    page = f"<title>t</title><p{attributes}>" + "".join(parts) * chance.choice((1, 50, 5_000, 100_000))
    return page[:1_000_000]  # the memory of larger ones is bounded by the worker, not by the limit of a case


def _noise(chance: random.Random) -> str:
    pieces = [
        chance.choice((*_MARKS, *_PIECES, chr(chance.randrange(0x3000)), chr(chance.randrange(0x110000))))
        for _ in range(80)
    ]
    return "".join(pieces)


def _printed(texts: list[str]) -> str:
    """Print texts in every way: as a line, raw, as JSON, as a piece, as a reply, by a library."""
    from reyn.cli.chat.markdown import markdown_lines
    from reyn.cli.writer import Raw, guard_streams, out, styled

    screen, before = Terminal(), (sys.stdout, sys.stderr)
    sys.stdout = sys.stderr = screen
    try:
        guard_streams()
        for text in texts:
            for line in (text, Raw(text), styled(text, "red"), *markdown_lines(text, 80)):
                out.line(line)
            out.text(text)
            out.json(text.encode("utf-8", "replace").decode())
            sys.stderr.write(text)
    finally:
        sys.stdout, sys.stderr = before
    return screen.getvalue()
