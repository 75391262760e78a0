"""A model in this process: a GGUF file, llama.cpp, no key, no network. Needs the extra `local`.

Its decoder is held to the contract by a grammar. It is loaded once a process, whoever asks for it; calls take turns.
What it has read is kept between calls, and a phase's stable prefix between processes (`prefixes.py`): on a small
machine that is the difference between two seconds and thirty.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import http.client
import json
import os
import secrets
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import AnswerCut, ModelBroken, ModelMissing, PromptTooLong, SchemaRefused
from reyn.journal.kinds import Usage
from reyn.models.decoding import decoding_schema
from reyn.models.prefixes import Prefixes
from reyn.models.protocol import ModelReply
from reyn.models.weights import DEFAULT, KNOWN, is_gguf, weights_path

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.config import ModelSettings
    from reyn.errors import ModelError
    from reyn.models.protocol import Mode, ModelRequest

_DAMAGED = "Is it a whole GGUF file (`reyn models pull` mends its own), and is there room for its `context_tokens`?"
_LONGER = "Shorten the instructions or the input, or raise the model's `context_tokens` in reyn.yaml."
_CPU_MAX = Path("/sys/fs/cgroup/cpu.max")
_BATCH = 32
"""How many tokens are read before the reading can be given up; larger ones are no faster on a processor."""

_THREAD = ThreadPoolExecutor(1, thread_name_prefix="reyn-local")
"""Calls wait for their turn here and hold nobody else's thread; all of them compete for the same cores."""

_LOADED: dict[tuple[str, int, int], _Engine] = {}
"""Only that thread loads a model, and only it asks one."""


class LocalModel:
    """`local` is the model that `reyn models pull` fetches; `local:FILE.gguf` any other."""

    takes_time = True

    def __init__(self, name: str, path: Path, settings: ModelSettings, *, is_small: bool = False) -> None:
        self.name = name
        self.path = path
        self._settings = settings
        self._is_small = is_small
        self._refused: set[bytes] = set()

    @classmethod
    def found(cls, name: str, words: str, settings: ModelSettings, root: Path) -> LocalModel:
        """The model of a name or a file; an error that says what to do if it is not here."""
        known = KNOWN.get(words or DEFAULT)
        path = weights_path(known) if known else root / Path(words).expanduser()
        way = f"`reyn models pull {known.name}` fetches it." if known else "Give the path of a GGUF file."
        if not path.is_file():
            missing = f"the model `{known.name}` is not on this machine" if known else f"no model file `{words}`"
            raise ModelMissing(missing, hint=way)
        if not is_gguf(path):
            raise ModelMissing(f"`{path.name}` is no GGUF file", hint=way)
        small = {weights_path(weights).resolve() for weights in KNOWN.values()}
        return cls(name, path, settings, is_small=path.resolve() in small)

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Generate in a thread: the event loop goes on, and a call that is given up stops with its next token, or with
        the next few that it reads."""
        given_up = threading.Event()
        on_delta = _in_loop(request.on_delta) if request.on_delta else None
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(_THREAD, self._generate, request, given_up, on_delta)
        except asyncio.CancelledError:
            given_up.set()
            raise

    def _generate(
        self, request: ModelRequest, given_up: threading.Event, on_delta: Callable[[str], None] | None
    ) -> ModelReply:
        engine = _engine(self.path, self._settings)
        contract = hashlib.sha256(msgspec.json.encode(request.contract)).digest()
        mode: Mode = "free" if self._settings.mode == "free" or contract in self._refused else "grammar"
        asked: dict[str, Any] = {
            "messages": [{"role": message.role, "content": message.text} for message in request.messages],
            "max_tokens": self._settings.max_tokens,
            "cache_prompt": True,
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,
        }
        if self._settings.temperature is not None:
            asked["temperature"] = self._settings.temperature
        if mode == "grammar":
            schema = decoding_schema(request.contract, is_small=self._is_small)
            asked["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
        try:
            return engine.generate(asked, given_up, mode, on_delta)
        except SchemaRefused as refused:
            if self._settings.mode == "auto":
                self._refused.add(contract)
                refused.instead = "free"
            raise


class _Engine:
    """One loaded model. llama.cpp serves HTTP on loopback beside it; a key that nobody knows keeps that door shut."""

    def __init__(self, path: Path, threads: int, context: int) -> None:
        try:
            import xllamacpp  # type: ignore[import-untyped]
        except ImportError as error:
            raise ModelMissing("embedded models need the extra `local`", hint="pip install 'reyn[local]'") from error
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx = context
        params.n_parallel = 1
        params.n_batch = params.n_ubatch = _BATCH
        params.cpuparams.n_threads = threads
        params.cpuparams_batch.n_threads = threads
        params.api_keys = [secrets.token_urlsafe(32)]
        params.hostnames = ["127.0.0.1"]
        params.warmup = False
        params.verbosity = 0
        self._prefixes = Prefixes(path, xllamacpp.__version__)
        params.slot_save_path = f"{self._prefixes.folder}/"
        self._headers = {"Authorization": f"Bearer {params.api_keys[0]}", "Content-Type": "application/json"}
        try:
            self._server = xllamacpp.Server(params)
        except Exception as error:
            raise ModelMissing(f"`{path.name}` cannot be loaded: {error}", hint=_DAMAGED) from error
        self._begun = ""

    def generate(
        self, asked: dict[str, Any], given_up: threading.Event, mode: Mode, on_delta: Callable[[str], None] | None
    ) -> ModelReply:
        just_read = self._begin(asked, given_up)
        return self._complete(asked, given_up, on_delta).reply(mode, just_read)

    def _complete(
        self, asked: dict[str, Any], given_up: threading.Event, on_delta: Callable[[str], None] | None = None
    ) -> _Answer:
        if given_up.is_set():
            raise AnswerCut("the call was given up")
        answer = _Answer(given_up, on_delta)
        try:
            self._server.handle_chat_completions(asked, answer)
        except Exception as error:
            raise _fault(f"the embedded model broke: {error}") from error
        return answer

    def _begin(self, asked: dict[str, Any], given_up: threading.Event) -> int:
        """Have the stable message read: still known from the call before, or by an earlier process, or read now. How
        many tokens had to be read."""
        first = asked["messages"][0]
        if first["role"] != "system" or first["content"] == self._begun:
            return 0
        self._begun, text = "", first["content"]
        kept = self._prefixes.find(text)
        if kept is not None and self._slot("restore", kept):
            self._begun = text
            return 0
        alone = {key: value for key, value in asked.items() if key != "response_format"}
        try:
            answer = self._complete(alone | {"messages": [first], "max_tokens": 1}, given_up)
        except ModelBroken:
            return 0  # a template may want more than this message; the call itself will tell
        if answer.is_over and not given_up.is_set():
            self._begun = text
            self._prefixes.keep(text, lambda name: self._slot("save", name))
        return answer.usage.input_tokens - answer.usage.cached_tokens if answer.usage else 0

    def _slot(self, action: str, name: str) -> bool:
        """Only the HTTP door has this; no proxy stands before it."""
        door = http.client.HTTPConnection(self._server.listening_address.removeprefix("http://"), timeout=60)
        try:
            door.request("POST", f"/slots/0?action={action}", json.dumps({"filename": name}), self._headers)
            return door.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            door.close()


class _Answer:
    """Collects the chunks of an answer: progress of reading the prompt, then text. Returns true to stop generating."""

    def __init__(self, given_up: threading.Event, on_delta: Callable[[str], None] | None) -> None:
        self._given_up = given_up
        self._on_delta = on_delta
        self._is_cut = False
        self._parts: list[str] = []
        self.usage: Usage | None = None
        self._error: dict[str, Any] | None = None
        self.is_over = False

    def __call__(self, chunk: Any) -> bool:
        if isinstance(chunk, dict):
            self._take(chunk)
        return self._given_up.is_set()

    def _take(self, chunk: dict[str, Any]) -> None:
        if "error" in chunk or ("code" in chunk and "message" in chunk):
            self._error = chunk.get("error", chunk)
        for choice in chunk.get("choices", ()):
            text = choice.get("delta", {}).get("content") or ""
            self._parts.append(text)
            if text and self._on_delta is not None:
                self._on_delta(text)
            self.is_over = self.is_over or choice.get("finish_reason") is not None
            self._is_cut = self._is_cut or choice.get("finish_reason") == "length"
        usage = chunk.get("usage")
        if usage:
            cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
            self.usage = Usage(usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0), cached)

    def reply(self, mode: Mode, just_read: int) -> ModelReply:
        """What was read for this very call did not come from a cache."""
        if self._error is not None:
            message = str(self._error.get("message", self._error))
            if self._error.get("type") == "exceed_context_size_error":
                raise PromptTooLong(f"the embedded model cannot read so much: {message}", hint=_LONGER)
            raise _fault(f"the embedded model says: {message}")
        if not self.is_over:
            raise AnswerCut("the embedded model broke off")
        usage = self.usage
        if usage is not None:
            usage = Usage(usage.input_tokens, usage.output_tokens, max(0, usage.cached_tokens - just_read))
        return ModelReply("".join(self._parts), usage, mode, self._is_cut)


def _in_loop(on_delta: Callable[[str], None]) -> Callable[[str], None]:
    """Wrap a callback so that the generating thread can call it in the event loop."""
    loop = asyncio.get_running_loop()

    def pass_on(text: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(on_delta, text)

    return pass_on


def _fault(words: str) -> ModelError:
    """What llama.cpp says of a schema that it makes no grammar of is about that, whatever it was asked."""
    if "schema" in words.lower() or "grammar" in words.lower():
        return SchemaRefused(words, hint="Say the artifact in simpler words, or set the model's `mode` to `free`.")
    return ModelBroken(words)


def _cores() -> int:
    """Those that this process may use: of the machine's, and of what its container has."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
    with contextlib.suppress(OSError, ValueError):
        quota, period = _CPU_MAX.read_text().split()
        cores = min(cores, max(1, int(quota) // int(period)))
    return cores


def _engine(path: Path, settings: ModelSettings) -> _Engine:
    threads = settings.threads or max(1, _cores() - 1)
    key = (str(path.resolve()), threads, settings.context_tokens)
    if key not in _LOADED:
        _LOADED[key] = _Engine(path, threads, settings.context_tokens)
    return _LOADED[key]
