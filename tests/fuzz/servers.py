"""Hostile servers behind the `openai` adapter: the key stays secret, memory and time stay bounded."""

from __future__ import annotations

import base64
import functools
import gzip
import json
import logging
import random
import ssl
import time
import zlib
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from reyn.errors import ReynError
from tests.fuzz.harness import Case
from tests.fuzz.oracles import STATUSES, check_disclosure, check_state_size, recorded
from tests.fuzz.project import command, make_surroundings
from tests.models.calling import KEY, Caller
from tests.models.fake_server import (
    Behavior,
    Connection,
    FakeServer,
    Request,
    chunk,
    drip,
    event,
    good,
    hang_up,
    silence,
    status,
    stream,
    whole,
)
from tests.support import finish

TIMEOUT = 1
RETRIES = 1
SPARE_SECONDS = 15
"""What a run may take beyond its timeouts, on a machine that is busy with other things."""
_CHUNK = b"x" * 65_536
certificates = functools.cache(ssl.create_default_context)
"""Read once: every client reads them, for 50 ms."""


def target(case: Case) -> None:
    chance = case.random
    ssl.create_default_context = certificates  # nothing here is encrypted
    _without_rests()
    root = make_surroundings(case.folder)
    logged = _Logged()
    make = chance.choices([maker for maker, _ in MIXES], [weight for _, weight in MIXES])[0]
    case.label(make.__name__)
    manners = [make(chance) for _ in range(chance.randint(1, 2))]
    with FakeServer(*manners, good(finish())) as server:
        caller = Caller(
            root, server, timeout=TIMEOUT, retries=RETRIES, mode=chance.choice(["auto", "free", "json_object"])
        )
        texts: list[str] = []
        started = time.monotonic()
        with case.guarded("run"):
            try:
                result = caller.run()
            except ReynError as error:
                texts.append(f"{error!r} {error} {error.hint}")
                raise
            texts.append(repr(result))
            if result.status not in STATUSES:
                case.found("status", result.status)
        spent = time.monotonic() - started
        # Every mode of a schema may be tried, each with its retries.
        if spent > 4 * (RETRIES + 1) * TIMEOUT + SPARE_SECONDS:
            case.found("time", f"{make.__name__}: {spent:.0f} s with a timeout of {TIMEOUT} s")
        if any(
            "authorization" in (name.lower() for name, _ in asked.headers) and not asked.path.startswith("/v1/")
            for asked in server.requests
        ):
            case.found("key-sent-elsewhere", [asked.path for asked in server.requests])
        with case.guarded("retry"):
            texts.append(repr(caller.retry()) if caller.results and caller.results[-1].status == "failed" else "")
    texts += [command(root, *words)[1] for words in (("show", "k"), ("runs",))]
    if any("MemoryError" in text for text in texts):
        case.found("memory", f"{make.__name__}: MemoryError")
    held = [("a result, an error or output", text.encode("utf-8", "replace")) for text in texts]
    check_disclosure(case, {"key-in-output": KEY}, held)
    check_disclosure(case, {"key-in-log": KEY}, [("the log", logged.text())])
    check_disclosure(case, {"key-in-journal": KEY}, recorded(root / ".reyn"))
    check_state_size(case, root / ".reyn")


class _Logged(logging.Handler):
    """Everything that any logger says."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self._lines: list[str] = []
        logging.getLogger().addHandler(self)
        logging.getLogger().setLevel(logging.DEBUG)

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._lines) < 2000:
            self._lines.append(self.format(record)[:2000])

    def text(self) -> bytes:
        return "\n".join(self._lines).encode("utf-8", "replace")


def _without_rests() -> None:
    """Waits before retries take no time."""
    from reyn.kernel.world import llm_call_recorder

    async def rest(seconds: float) -> None:
        return None

    vars(llm_call_recorder)["_sleep"] = rest


# -- behaviours ---------------------------------------------------------------------------------------


def compressed(chance: random.Random) -> Behavior:
    """Bodies of a few kilobytes that expand to hundreds of megabytes, as an answer or as an error."""
    megabytes, layers = chance.choice([(1, 1), (60, 1), (60, 2), (900, 2), (900, 2), (900, 3)])
    body = _expanding(megabytes)
    for _ in range(layers - 1):
        body = gzip.compress(body)
    code = chance.choice([200, 400, 429, 500, 302])
    kind = chance.choice(["application/json", "text/event-stream", "text/html"])
    return _whole(code, kind, body, {"content-encoding": ", ".join(["gzip"] * layers)})


@functools.cache
def _expanding(megabytes: int) -> bytes:
    """Megabytes of one letter, compressed without having been in memory."""
    press = zlib.compressobj(9, wbits=31)
    first = press.compress(b'{"error": {"message": "') + press.flush(zlib.Z_FULL_FLUSH)
    one = press.compress(b"a" * (1 << 20)) + press.flush(zlib.Z_FULL_FLUSH)
    # A block after a full flush can be repeated. The checksum at the end is wrong; by then everything is expanded.
    return first + one * megabytes


def wrong_encoding(chance: random.Random) -> Behavior:
    """A body that is not encoded as it says."""
    encoding = chance.choice(
        ["gzip", "br", "zstd", "deflate", "gzip, " * 40 + "gzip", "x" * 1000, "identity, gzip", ""]
    )
    return _whole(
        chance.choice([200, 400]),
        "application/json",
        chance.choice([b"{}", b"\x1f\x8b" * 50]),
        {"content-encoding": encoding},
    )


def endless(chance: random.Random) -> Behavior:
    """Bodies without an end: streams, errors, one line, headers of a chunk."""
    kind = chance.choice(["stream", "line", "error", "json", "comments", "empty"])

    async def answer(asked: Request, line: Connection) -> None:
        code = 500 if kind == "error" else 200
        content = "application/json" if kind in ("json", "error") else "text/event-stream"
        await line.head(code, {"content-type": content, "transfer-encoding": "chunked"})
        piece = {
            "stream": event(chunk("x" * 500)) * 100,
            "comments": b": x\n" * 10_000,
            "empty": event(chunk("")) * 100,
        }.get(kind, _CHUNK)
        end = time.monotonic() + 4
        while time.monotonic() < end:
            await line.piece(piece)
        line.hang_up()
        raise ConnectionResetError

    return answer


def slow(chance: random.Random) -> Behavior:
    """Silence, drips of bytes, of events, of headers."""
    match chance.randrange(4):
        case 0:
            return silence
        case 1:
            return drip(b"data: " + b"x" * 1000, 0.05)
        case 2:

            async def events(asked: Request, line: Connection) -> None:
                import asyncio

                await line.begin_stream()
                end = time.monotonic() + 60
                while time.monotonic() < end:
                    await line.piece(event(chunk("y")))
                    await asyncio.sleep(0.2)

            return events

    async def headers(asked: Request, line: Connection) -> None:
        import asyncio

        await line.send(b"HTTP/1.1 200 OK\r\n")
        end = time.monotonic() + 60
        while time.monotonic() < end:
            await line.send(b"x-a: b\r\n")
            await asyncio.sleep(0.2)

    return headers


def garbage(chance: random.Random) -> Behavior:
    """Streams and bodies that are no chat completions."""
    pieces = [
        b"data: {}\n\n",
        b"data: [DONE]\n\n",
        b"data: " + b"[" * 100_000 + b"\n\n",
        b'data: {"choices": 7}\n\n',
        b'data: {"choices": [{"delta": {"content": {"a": 1}}}]}\n\n',
        b'data: {"choices": [{"index": 18446744073709551616, "delta": {"content": "x"}}]}\n\n',
        b'data: {"usage": {"prompt_tokens": -5, "completion_tokens": 1e300}}\n\n',
        b'data: {"usage": {"prompt_tokens": 99999999999999999999999, "completion_tokens": true}}\n\n',
        b'data: {"usage": {"prompt_tokens": "7", "completion_tokens": [1]}}\n\n',
        event(chunk("\ud800")),
        event(chunk("x\x00\u2028")),
        event(chunk(finish="stop")),
        event(chunk(finish="length")),
        event({"error": {"message": "no", "code": 2**70}}),
        event({"error": [[]]}),
        event({"error": None, "choices": [None]}),
        b"\xff\xfe\n\n",
        b"event: x\nid: \x00\nretry: -1\n\n",
        b"\r\r\r\n\n",
        b"data: 1e999\n\n",
        b"data: NaN\n\n",
        b"data: " + b"9" * 5000 + b"\n\n",
    ]
    return stream(*(chance.choice(pieces) for _ in range(chance.randint(1, 8))), then=chance.choice(["end", "hang up"]))


def usage(chance: random.Random) -> Behavior:
    """A good answer with counts that cannot be."""
    numbers = [-1, 2**63, 2**80, 1.5, "7", True, None, [], 1e300]
    counts: Any = {"prompt_tokens": chance.choice(numbers), "completion_tokens": chance.choice(numbers)}
    if chance.random() < 0.5:
        counts["prompt_tokens_details"] = chance.choice([{"cached_tokens": chance.choice(numbers)}, [], 7])
    return good(finish(), usage=counts)


def redirects(chance: random.Random) -> Behavior:
    """Redirects to itself, elsewhere on loopback, or to something that is no address."""
    where = chance.choice(
        [
            "/elsewhere",
            "http://127.0.0.1:9/v1/chat/completions",
            "//127.0.0.1:9",
            "file:///etc/passwd",
            "\x00",
            "http://[",
            "",
        ]
    )
    code = chance.choice([301, 302, 303, 307, 308, 300, 304])
    return _whole(code, "text/html", b"", {"location": where})


def headers(chance: random.Random) -> Behavior:
    """Headers that are too many, too long or malformed; lengths that are wrong."""
    match chance.randrange(6):
        case 0:
            return _raw(b"HTTP/1.1 200 OK\r\n" + b"x: " + b"y" * 5_000_000 + b"\r\n\r\n")
        case 1:
            return _raw(b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 100_000 + b"\r\n")
        case 2:
            return _raw(
                b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 99999999999999999999\r\n\r\n{}"
            )
        case 3:
            return _raw(b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n{}")
        case 4:
            return _raw(
                chance.choice(
                    [b"HTTP/9.9 999 X\r\n\r\n", b"\x00\x01\x02", b"HTTP/1.1 200\r\n: \r\n\r\n", b"SSH-2.0\r\n"]
                )
            )
    return _raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n" + b"x" * 100)


def echoes(chance: random.Random) -> Behavior:
    """The key, sent back in every place and spelling."""
    spell: Callable[[str], str] = chance.choice(
        [
            str,
            str,
            lambda key: json.dumps(key).replace("/", "\\/")[1:-1],
            lambda key: f"Bearer {key}",
            lambda key: f"x{key}y" * 50,
        ]
    )

    def echo(asked: Request) -> str:
        return spell(asked.key)

    match chance.randrange(6):
        case 0:
            return status(chance.choice([400, 401, 403, 404, 418, 429, 500, 503]), echo, retry_after="1")
        case 1:
            return good(lambda asked: finish(echo(asked)), pieces=chance.choice([1, 3, 40]))
        case 2:

            async def in_stream(asked: Request, line: Connection) -> None:
                await stream(event({"error": {"message": echo(asked), "code": chance.choice([400, 500, "x"])}}))(
                    asked, line
                )

            return in_stream
        case 3:

            async def in_headers(asked: Request, line: Connection) -> None:
                extra = {
                    "location": f"http://127.0.0.1:9/{asked.key}",
                    "retry-after": asked.key,
                    "x-request-id": asked.key,
                }
                await line.whole(chance.choice([302, 400, 500]), f"text/{asked.key}", asked.key.encode(), extra)

            return in_headers
        case 4:

            async def in_body(asked: Request, line: Connection) -> None:
                body = chance.choice(
                    [asked.key, quote(asked.key), base64.b64encode(asked.key.encode()).decode(), "x" * 480 + asked.key]
                )
                await line.whole(chance.choice([200, 400, 500]), "text/plain", body.encode())

            return in_body
    return good(echo, pieces=chance.choice([1, 9]))


def refusals(chance: random.Random) -> Behavior:
    """Statuses and messages that lead the adapter to change how it asks."""
    words = [
        "response_format",
        "schema anyOf root",
        "max_completion_tokens",
        "context length",
        "grammar",
        "x" * 10_000,
        "\x1b]0;x\x07",
    ]
    later = chance.choice(["", "-1", "1e308", "nan", "99999999999", "Mon, 99 Foo", "0"])
    return status(
        chance.choice([100, 204, 400, 401, 404, 408, 413, 422, 429, 500, 599]),
        " ".join(chance.sample(words, 2)),
        retry_after=later,
    )


def cut_off(chance: random.Random) -> Behavior:
    """A connection that ends at any point."""
    content = event(chunk("{")) + event(chunk(json.dumps(finish())))
    return chance.choice([hang_up, stream(content, then="hang up"), whole("application/json", b"{")])


MIXES: list[tuple[Callable[[random.Random], Behavior], int]] = [
    (compressed, 3),
    (wrong_encoding, 2),
    (endless, 1),
    (slow, 1),
    (garbage, 5),
    (usage, 3),
    (redirects, 2),
    (headers, 2),
    (echoes, 6),
    (refusals, 3),
    (cut_off, 1),
]


def _whole(code: int, kind: str, body: bytes, headers: dict[str, str]) -> Behavior:
    async def answer(_: Request, line: Connection) -> None:
        await line.whole(code, kind, body, headers)

    return answer


def _raw(content: bytes) -> Behavior:
    async def answer(_: Request, line: Connection) -> None:
        await line.send(content)
        line.hang_up()
        raise ConnectionResetError

    return answer
