"""Content that costs more than it is large: pages, compressed bodies, framing, nesting.

The attacker controls every byte that a web page, a search service or a model server sends. The oracles are the clock of
the machine, the processes in `/proc`, and the bytes that a listening socket got rid of.
"""

from __future__ import annotations

import asyncio
import codecs
import gzip
import itertools
import os
import time
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from reyn.documents import DocumentError, parse_yaml
from reyn.models.streaming import BodyDecoder, TooManyBytes, Undecodable
from reyn.ops.web import pages as fetching
from reyn.ops.web.pages import decode_page, to_page
from reyn.sandbox.content import WORKERS, ContentFailed, MarkdownPage
from tests.models.fake_server import Connection, FakeServer, Request, whole
from tests.ops.test_web import Web
from tests.properties import examples

SLOW = "<b><p>" * 800_000
"""5 MB that take the converter minutes."""
HONEST = (
    "<html><head><title>Tea</title></head><body>"
    + "".join(
        f"<p>Paragraph {n} with <a href='/{n}'>a link</a> and <b>bold</b> words to fill it.</p>" for n in range(600)
    )
    + "</body></html>"
)


def convert(html: str, seconds: float = 60.0, most: int = 100_000) -> MarkdownPage:
    return asyncio.run(WORKERS.to_markdown(html, "http://site.example/", most=most, seconds=seconds))


def children() -> set[int]:
    """The processes that this one started, as the kernel lists them."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and fields[0] != "Z":
            found.add(int(entry.parent.name))
    return found


@pytest.fixture
def workers() -> Iterator[None]:
    WORKERS.close()
    yield
    WORKERS.close()


# -- pages --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("elements", ["div", "b", "ul li", "table tr td"])
def test_text_that_is_nested_too_deep_is_missing_and_reported(workers: None, elements: str):
    names = elements.split()
    for levels in (1, 100, *range(490 // len(names), 502 // len(names) + 2), 700):
        start = "".join(f"<{name}>" for name in names) * levels
        end = "".join(f"</{name}>" for name in reversed(names)) * levels
        page = convert(f"<html><body><p>first</p>{start}deep{end}<p>last</p></body></html>")
        assert "first" in page.text
        assert "deep" in page.text or page.is_truncated, levels
        assert page.is_truncated == (len(names) * levels > 497), levels


def test_a_page_that_takes_too_long_ends_at_the_limit_and_its_process_with_it(workers: None):
    before, started = children(), time.monotonic()
    with pytest.raises(ContentFailed, match="takes more than 1 seconds") as failed:
        convert(SLOW, seconds=1.0)
    assert failed.value.timed_out
    assert time.monotonic() - started < 15, "it would take minutes"
    assert children() <= before


def test_a_cancelled_conversion_ends_its_process(workers: None):
    before = children()

    async def cancelled() -> None:
        task = asyncio.ensure_future(WORKERS.to_markdown(SLOW, "http://x/", most=10, seconds=600.0))
        while not children() - before:  # noqa: ASYNC110 - another process, bounded by the timeout of the test
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())  # waits for the threads, too
    assert children() <= before


def test_a_page_cannot_use_more_memory_than_a_worker_has(workers: None, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("reyn.sandbox.content.MEMORY_BYTES", 120_000_000)
    with pytest.raises(ContentFailed):
        convert("<i>x</i>" * 2_000_000, seconds=60.0)


def test_honest_pages_share_a_worker_and_cost_milliseconds(workers: None):
    first, before = convert(HONEST), children()
    assert first.title == "Tea"
    spent = time.process_time()
    for _ in range(10):
        assert convert(HONEST) == first
    assert time.process_time() - spent < 1.0
    assert children() == before


HIDDEN = [
    *(f'<p style="{css}">X</p>' for css in (
        "display:none", "d\\69splay:none", "&#100;isplay:none", "display:/**/none", "DISPLAY : NONE !important",
        "visibility:collapse", "color:red; visibility:hidden", "opacity:0", "opacity: 0.0", "opacity:.0", "opacity:0%",
        "font-size:0px", "content-visibility:hidden", "dis\\000070 lay:none",
    )),
    *("<p hidden>X</p>", "<p aria-hidden=true>X</p>", "<p ARIA-HIDDEN='true'>X</p>"),
    "<p aria-hidden='&#116;rue'>X</p>",
    *("<dialog>X</dialog>", "<div popover>X</div>", "<div popover='auto'>X</div>", "<noframes>X</noframes>"),
    *("<datalist><option>X</option></datalist>", "<svg><desc>X</desc></svg>", "<svg><title>X</title></svg>"),
    *("<table><tr style='opacity:0'><td>X</td></tr><tr><td>y</td></tr></table>", "<noembed>X</noembed>"),
    # The element ends where a browser ends it.
    *("<p hidden>X", "<ul><li hidden>X<li>y</ul>", "<table><tr><td hidden>X<td>y</table>", "<b hidden>X</b>"),
    *("<table><tr hidden><td>X<tr><td>y</table>", "<dl><dt>y<dd hidden>X<dt>y</dl>", "<div><p hidden>X</div>"),
    *("<p><span hidden>X</p>", "<div hidden/>X</div>", "<div hidden>y</span>X</div>", "<div hidden>y</p>X</div>"),
    *("<div hidden><p>y<p>X</div>", "<div hidden><!-- </div> -->X</div>", "<div hidden><!--><b>X</b></div>"),
    *("<div hidden><a title='</div>'>X</a></div>", "<div hidden><select></div></select>X</div>"),
    *(f"<div hidden><{name}></div></{name}>X</div>" for name in ("noembed", "xmp", "iframe", "textarea", "script")),
    *("<div hidden><br></br>X</div>", "<b hidden>X<p>X</b>", "<p><i hidden>X</p><div>X</div></i>"),
    "<svg hidden><g/>X</svg>",
    *("<p title=a'b hidden>X</p>", "<p a=''hidden>X</p>", "<!--><p hidden>X</p>", "<h2 hidden>X<h3>y</h3>"),
    *(f"<p style='{css}'>X</p>" for css in ("opacity:.001", "opacity:-1", "opacity:calc(0)", "filter:opacity(0%)")),
    *(f"<{name}>X</{name}>" for name in ("video", "audio", "canvas", "template")),
]  # fmt: skip
SHOWN = [
    "<p style='opacity:0.5'>X</p>",
    "<p style='font-size:small;opacity:inherit'>X</p>",
    "<p aria-hidden=false>X</p>",
    "<dialog open>X</dialog>",
    "<p title='popover'>X</p>",
    *("<p hidden>y<p>X</p>", "<ul><li hidden>y<li>X</ul>", "<table><tr><td hidden>y<td>X</table>", "<img hidden>X"),
    *("<table><tr hidden><td>y<tr><td>X</table>", "<dl><dt>y<dd hidden>y<dt>X</dl>", "<div><p hidden>y</div>X"),
    *("<div hidden><p>y</div>X", "<div hidden><b></div></div>X", "<p><span hidden>y</p>X", "<a hidden>y<a>X</a>"),
    *(
        "<div hidden><div>y</div></div>X",
        "<span hidden>y</span>X",
        "<p title='<p hidden>'>X</p>",
        "<!-- <p hidden> -->X",
    ),
    *("<ul><li>y<ul><li hidden>y</ul>X</ul>", "<b hidden>y</b>X", "<div hidden><p>y<div>y</div></p></div>X"),
    *("<svg hidden><p>X</p></svg>", "<p style='opacity:1;filter:opacity(50%)'>X</p>", "<p style='opacity:10%'>X</p>"),
    *("<video src=y></video>X", "<template>y</template>X", "<td hidden>X", "<div hidden><button></div>X</button>"),
]


@pytest.mark.parametrize("element", [*HIDDEN, *SHOWN])
def test_an_element_that_its_own_tag_hides_is_dropped(workers: None, element: str):
    page = f"<html><head><title>t</title></head><body><p>before</p>{element.replace('X', 'planted')}<p>after</p></body>"
    found = convert(page)
    assert ("planted" in found.text) == (element in SHOWN)
    assert ("before" in found.text, "after" in found.text, found.title) == (True, True, "t")


def test_a_page_after_a_hostile_one_is_converted(workers: None):
    expected = convert(HONEST)
    with pytest.raises(ContentFailed):
        convert(SLOW, seconds=0.3)
    assert convert(HONEST) == expected


def test_a_worker_whose_parent_was_killed_ends_by_itself(workers: None):
    before = children()
    convert("<p>x</p>", seconds=5.0)
    [worker] = children() - before
    soft = next(
        line.split()[3] for line in Path(f"/proc/{worker}/limits").read_text().splitlines() if "cpu time" in line
    )
    assert int(soft) <= 10


TAGS = st.sampled_from(
    ["<b>", "<p>", "<a href=x>", "<table>", "<li>", "</b>", "<!--", "<svg>", "<select>", "&#x202e;", "<", "x"]
)


@examples(25)
@given(st.lists(TAGS, min_size=1, max_size=4), st.integers(1, 3_000), st.binary(max_size=40))
def test_whatever_a_page_contains_there_is_a_result_in_time(tags: list[str], count: int, noise: bytes):
    started = time.monotonic()
    with suppress(ContentFailed):
        assert len(convert("".join(tags) * count + noise.decode("latin-1"), seconds=5.0, most=1_000).text) <= 1_000
    assert time.monotonic() - started < 30


CHARACTER_SETS = [
    "utf-8",
    "utf-8-sig",
    "utf-16",
    "utf-16-le",
    "utf-32",
    "cp1252",
    "iso8859-3",
    "gb18030",
    "euc_jp",
    "iso2022_jp",
    "hz",
]


@examples(100)
@given(st.sampled_from(CHARACTER_SETS), st.one_of(st.binary(max_size=60), st.text(max_size=20)), st.integers(1, 7))
def test_a_page_is_decoded_in_pieces_as_it_would_be_at_once(name: str, page: bytes | str, size: int):
    content = page if isinstance(page, bytes) else page.encode(name, "replace")
    has_mark = content.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    assume(not has_mark or name in ("utf-16", "utf-8-sig"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fetching, "_DECODED", size)
        assert decode_page(content, f"text/plain; charset={name}") == content.decode(name, "replace")


def test_a_page_is_decoded_outside_of_the_event_loop(workers: None, monkeypatch: pytest.MonkeyPatch):
    def decode(content: bytes, content_type: str) -> str:
        with pytest.raises(RuntimeError, match="no running event loop"):
            asyncio.get_running_loop()
        return decode_page(content, content_type)

    monkeypatch.setattr(fetching, "decode_page", decode)
    for kind in ("text/plain", "text/html"):
        page = asyncio.run(to_page(b"tea", kind, "http://x/", most=10, seconds=60.0))
        assert page.text.strip() == "tea"


# -- fetched ------------------------------------------------------------------------------------------------


@pytest.fixture
def fetch(tmp_path: Path) -> Callable[..., Any]:
    def fetched(behavior: Callable[[Request, Connection], Any], **args: Any) -> Any:
        with FakeServer(behavior) as server:
            web = Web(tmp_path)
            web.allow(f"private:{server.url.removeprefix('http://').partition('/')[0]}")
            result = web.fetch(server.url, **args)
            assert web.events[-1].kind == "skill_completed", "the run goes on"
            return result

    return fetched


@pytest.mark.sockets
def test_a_fetched_page_that_cannot_be_converted_in_time_is_a_timeout_with_its_reason(fetch):
    result = fetch(whole("text/html", SLOW.encode()), timeout=2)
    assert result["status"] == "timeout"
    assert "conversion takes more than" in result["error"]
    assert result["status_code"] == 200


@pytest.mark.sockets
@pytest.mark.parametrize("tail", [b"x" * 5_000_000, b"\x00" * 100_000, gzip.compress(b"second member", mtime=0)])
def test_bytes_after_the_end_of_compressed_data_are_refused_and_not_stored(fetch, tail: bytes):
    tracemalloc.start()
    result = fetch(whole("text/plain", gzip.compress(b"tea") + tail, **{"Content-Encoding": "gzip"}))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result["status"] == "error"
    assert "follow the end" in result["error"]
    assert peak < 40_000_000


def endless(head: bytes, piece: bytes) -> tuple[Callable[[Request, Connection], Any], list[int]]:
    """A server that sends a piece for ever, and the number of bytes that it got rid of."""
    sent = [0]

    async def behavior(_: Request, connection: Connection) -> None:
        await connection.send(head)
        for _ in range(200_000_000 // len(piece)):
            await connection.send(piece)
            sent[0] += len(piece)

    return behavior, sent


CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ntransfer-encoding: chunked\r\n"
EMPTY_BLOCKS = b"\x00\x00\x00\xff\xff" * 10_000
"""Stored blocks of deflate that expand to nothing."""
GZIP_HEAD = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"


@pytest.mark.sockets
@pytest.mark.parametrize(
    ("head", "piece"),
    [
        (CHUNKED + b"\r\n", b"1;x=" + b"e" * 60_000 + b"\r\na\r\n"),
        (b"HTTP/1.1 200 OK\r\n", b"x-filler: " + b"f" * 60_000 + b"\r\n"),
        (CHUNKED + b"content-encoding: gzip\r\n\r\na\r\n" + GZIP_HEAD + b"\r\n", b"c350\r\n" + EMPTY_BLOCKS + b"\r\n"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 100 Continue\r\nx: " + b"c" * 60_000 + b"\r\n\r\n"),
    ],
    ids=["chunk extensions", "headers", "blocks that expand to nothing", "informational responses"],
)
def test_raw_bytes_that_are_no_content_count(fetch, head: bytes, piece: bytes):
    behavior, sent = endless(head, piece)
    result = fetch(behavior, timeout=60)
    assert result["status"] == "error"
    assert sent[0] < 20_000_000, "the connection ended after the limit, not after the timeout"


@pytest.mark.sockets
def test_an_answer_of_a_search_service_that_is_nested_too_deeply_is_an_error(tmp_path: Path):
    with FakeServer(whole("application/json", b"[" * 200_000)) as server:
        web = Web(tmp_path)
        web.allow(f"private:{server.url.removeprefix('http://').partition('/')[0]}")
        web.settings["web"] = {"search": {"provider": "searxng", "url": server.url}}
        result = web.run(kind="web_search", query="tea")
    assert result["status"] == "error"


# -- bodies -------------------------------------------------------------------------------------------------


def decoded(decoder: BodyDecoder, raw: bytes, size: int) -> Iterator[bytes]:
    for at in range(0, len(raw), size):
        yield from decoder.decode(raw[at : at + size])


@examples(60)
@given(st.binary(max_size=3_000), st.sampled_from(["gzip", "deflate", ""]), st.integers(1, 500), st.integers(1, 200))
def test_every_body_is_decoded_whole_however_it_is_split(content: bytes, encoding: str, size: int, repeat: int):
    content *= repeat
    raw = {"gzip": gzip.compress, "deflate": zlib.compress, "": bytes}[encoding](content)
    decoder = BodyDecoder(encoding, len(raw))
    assert b"".join(decoded(decoder, raw, size)) == content
    assert decoder.is_complete


@examples(60)
@given(st.binary(max_size=500), st.binary(min_size=1, max_size=500), st.integers(1, 100))
def test_nothing_may_follow_the_end_of_a_stream(content: bytes, tail: bytes, size: int):
    with pytest.raises(Undecodable):
        list(decoded(BodyDecoder("gzip", 10_000), gzip.compress(content) + tail, size))


def test_raw_bytes_are_counted_even_if_they_decode_to_nothing():
    decoder = BodyDecoder("gzip", 1_000_000)
    list(decoder.decode(GZIP_HEAD))
    for _ in range(19):
        assert not any(decoder.decode(EMPTY_BLOCKS))
    with pytest.raises(TooManyBytes):
        list(decoder.decode(EMPTY_BLOCKS))


def test_a_bomb_is_decoded_in_pieces_that_the_caller_can_stop():
    pieces = BodyDecoder("gzip", 1_000_000).decode(gzip.compress(bytes(100_000_000)))
    assert all(len(piece) <= 65_536 for piece in itertools.islice(pieces, 20))


# -- skills -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "[" * 500_000, "- " * 500_000, "{a: " * 300_000, "? " * 300_000, "[a," * 300_000, "a: " * 300_000,
        "&a " * 300_000, "'" + "\n" * 1_000_000, '"' + "\\x41" * 300_000, "- \n" * 60_000,
        "a: &a [x,x]\n" + "".join(f"b{n}: &b{n} [*{'a' if not n else f'b{n - 1}'}, *a]\n" for n in range(3_000)),
    ],
)  # fmt: skip
def test_yaml_of_a_skill_is_read_or_refused_in_bounded_time(text: str):
    before = time.process_time()
    with suppress(DocumentError):
        parse_yaml(text, "skill.md")
    assert time.process_time() - before < 5.0
