"""Measure the CPU of a call through the `openai` adapter, and of the same call with the SDK alone.

The result includes building the request, HTTP, reading the stream and the reply. The server runs on loopback in another
process and answers immediately.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from reyn.config import ModelSettings
from reyn.contract import Candidate, Contract
from reyn.models import Message, ModelRequest
from reyn.models.openai import OpenAIModel
from reyn.secrets import MemoryStore, Secrets

ROUNDS = 5
NOTE = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
ANSWER = {
    "control": {
        "type": "finish",
        "decision": "finish",
        "next_phase": None,
        "confidence": 0.9,
        "reason": {"summary": "All of it is there, and nothing else was asked for."},
    },
    "artifact": {"type": "note", "data": {"text": "a sentence of some length, as a model writes it. " * 8}},
}


def serve(pieces: int) -> None:
    """Run the fake server until standard input is closed."""
    from tests.models.fake_server import FakeServer, good

    with FakeServer(good(json.dumps(ANSWER), pieces=pieces)) as server:
        print(server.url, flush=True)
        sys.stdin.read()


@contextmanager
def server(pieces: int) -> Iterator[str]:
    command = [sys.executable, "-m", "bench.adapter", str(pieces)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.communicate()


def request() -> ModelRequest:
    contract = Contract((Candidate("end", "finish", "note", NOTE, "The note."),)).schema
    messages = (Message("system", "Instructions of the phase. " * 80), Message("user", "Input of the phase. " * 20))
    return ModelRequest(messages, contract, run_id="bench", call="1.1", request_hash="0" * 64)


async def measure_call(pieces: int, calls: int) -> tuple[float, float]:
    """Return the CPU seconds of a call through the adapter and with the SDK alone: medians of interleaved rounds."""
    import openai

    model_request = request()
    with server(pieces) as url:
        secrets = Secrets([MemoryStore({"KEY": "sk-bench"})])
        settings = ModelSettings("openai:m", base_url=url, key="secret://KEY")
        model = OpenAIModel("far", "m", settings, lambda: secrets)
        client = openai.AsyncOpenAI(api_key="sk-bench", base_url=url, max_retries=0)
        ours, theirs = [], []
        for _ in range(ROUNDS + 1):
            ours.append(await _cpu(lambda: model.complete(model_request), calls))
            theirs.append(await _cpu(lambda: _call_sdk(client, model_request), calls))
        await model.aclose()
        await client.close()
    return statistics.median(ours[1:]), statistics.median(theirs[1:])


async def _call_sdk(client: Any, request: ModelRequest) -> str:
    stream = await client.chat.completions.create(
        model="m",
        messages=[{"role": message.role, "content": message.text} for message in request.messages],
        response_format={"type": "json_schema", "json_schema": {"name": "answer", "schema": request.contract}},
        stream=True,
    )
    parts = [choice.delta.content or "" async for chunk in stream for choice in chunk.choices]
    return "".join(parts)


async def _cpu(call: Callable[[], Awaitable[Any]], calls: int) -> float:
    started = time.process_time()
    for _ in range(calls):
        await call()
    return (time.process_time() - started) / calls


if __name__ == "__main__":
    serve(int(sys.argv[1]))
