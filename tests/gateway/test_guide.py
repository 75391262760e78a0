"""The transcript of the guide to the API: each command is sent, and its response compared with the page."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import httpx2
import pytest

from tests.docs.test_docs import ROOT, blocks, matches
from tests.gateway.support import served_on_socket

pytestmark = pytest.mark.sockets
PAGE = ROOT / "docs/guides/use-the-http-api.md"
SERVER = "http://127.0.0.1:8300"


def curl(command: str, url: str, token: str) -> str:
    """Send the request of a `curl` command; return the body of the response."""
    words = shlex.split(command.replace("$TOKEN", token))
    assert words.pop(0) == "curl"
    headers, body, address = {}, None, ""
    while words:
        match words.pop(0):
            case "-s" | "-sN":
                pass
            case "-H":
                name, _, value = words.pop(0).partition(": ")
                headers[name] = value
            case "-d":
                body = words.pop(0)
            case word:
                address = word.replace(SERVER, url)
    if body is None:
        return httpx2.get(address, headers=headers, timeout=120).text
    return httpx2.post(address, headers=headers | {"Content-Type": "application/json"}, content=body, timeout=120).text


def test_the_transcript_of_the_guide_is_what_the_server_answers(tmp_path: Path):
    found = blocks(PAGE)
    for block in found:
        if block.title:
            target = tmp_path / block.title
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text, encoding="utf-8")
    sent = 0
    with served_on_socket(tmp_path, "scripted:answers.jsonl") as (url, token):
        for block in found:
            if block.language != "text" or block.title:
                continue
            for session in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
                command, _, expected = session.partition("\n")
                shown = curl(command, url, token).replace("\r\n", "\n")
                wanted = expected.strip()
                assert matches(shown, wanted if wanted.endswith(("}", "]", "…")) else f"{wanted}…"), (command, shown)
                sent += 1
    assert sent > 12
