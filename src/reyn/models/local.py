"""A model in this process: a GGUF file, llama.cpp, no key, no network. Needs the extra `local`.

Its decoder is held to the contract by a grammar. It is loaded once a process, whoever asks for it; calls take turns.
What it has read is kept between calls, so a phase's stable prefix is read once: on a small machine that is the
difference between two seconds and thirty.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reyn.errors import AnswerCut, ModelBroken, ModelMissing, PromptTooLong
from reyn.journal.kinds import Usage
from reyn.models.decoding import decoding_schema
from reyn.models.protocol import ModelReply
from reyn.models.weights import DEFAULT, KNOWN, weights_path

if TYPE_CHECKING:
    from reyn.config import ModelSettings
    from reyn.models.protocol import Mode, ModelRequest

_LOADED: dict[tuple[str, int, int], _Engine] = {}
_LOADING = threading.Lock()


class LocalModel:
    """`local` is the model that `reyn models pull` fetches; `local:FILE.gguf` any other."""

    takes_time = True

    def __init__(self, name: str, path: Path, settings: ModelSettings) -> None:
        self.name = name
        self.path = path
        self._settings = settings

    @classmethod
    def found(cls, name: str, words: str, settings: ModelSettings, root: Path) -> LocalModel:
        """The model of a name or a file; an error that says what to do if it is not here."""
        known = KNOWN.get(words or DEFAULT)
        path = weights_path(known) if known else root / Path(words).expanduser()
        if path.is_file():
            return cls(name, path, settings)
        if known:
            pull = f"`reyn models pull {known.name}` fetches it."
            raise ModelMissing(f"the model `{known.name}` is not on this machine", hint=pull)
        raise ModelMissing(f"no model file `{words}`", hint="Give the path of a GGUF file.")

    async def complete(self, request: ModelRequest) -> ModelReply:
        """Generate in a thread: the event loop goes on, and a cancelled call stops at its next token."""
        given_up = threading.Event()
        try:
            return await asyncio.to_thread(self._generate, request, given_up)
        except asyncio.CancelledError:
            given_up.set()
            raise

    def _generate(self, request: ModelRequest, given_up: threading.Event) -> ModelReply:
        engine = _engine(self.path, self._settings)
        mode: Mode = "free" if self._settings.mode == "free" else "grammar"
        asked: dict[str, Any] = {
            "messages": [{"role": message.role, "content": message.text} for message in request.messages],
            "max_tokens": self._settings.max_tokens,
            "temperature": self._settings.temperature,
            "cache_prompt": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if mode == "grammar":
            schema = {"name": "answer", "schema": decoding_schema(request.contract, is_unmarked=True)}
            asked["response_format"] = {"type": "json_schema", "json_schema": schema}
        return engine.generate(asked, given_up, mode)

    def describe(self) -> dict[str, Any]:
        """What `reyn models` tells."""
        return {"path": str(self.path), "bytes": self.path.stat().st_size, "modes": ["grammar", "free"]}


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
        params.cpuparams.n_threads = threads
        params.cpuparams_batch.n_threads = threads
        params.api_keys = [secrets.token_urlsafe(32)]
        params.hostnames = ["127.0.0.1"]
        params.warmup = False
        params.verbosity = 0
        try:
            self._server = xllamacpp.Server(params)
        except Exception as error:
            raise ModelMissing(f"`{path.name}` cannot be loaded: {error}", hint="Is it a whole GGUF file?") from error
        self._turn = threading.Lock()

    def generate(self, asked: dict[str, Any], given_up: threading.Event, mode: Mode) -> ModelReply:
        heard = _Heard(given_up)
        with self._turn:
            if given_up.is_set():
                raise AnswerCut("the call was given up")
            try:
                self._server.handle_chat_completions(asked, heard)
            except Exception as error:
                raise ModelBroken(f"the embedded model broke: {error}") from error
        return heard.reply(mode)


class _Heard:
    """Gathers what arrives, chunk by chunk; says stop when the call is given up."""

    def __init__(self, given_up: threading.Event) -> None:
        self._given_up = given_up
        self._parts: list[str] = []
        self._usage: Usage | None = None
        self._error: dict[str, Any] | None = None
        self._is_over = False

    def __call__(self, chunk: Any) -> bool:
        if isinstance(chunk, dict):
            self._take(chunk)
        return self._given_up.is_set()

    def _take(self, chunk: dict[str, Any]) -> None:
        if "error" in chunk or ("code" in chunk and "message" in chunk):
            self._error = chunk.get("error", chunk)
        for choice in chunk.get("choices", ()):
            self._parts.append(choice.get("delta", {}).get("content") or "")
            self._is_over = self._is_over or choice.get("finish_reason") is not None
        usage = chunk.get("usage")
        if usage:
            self._usage = Usage(usage.get("prompt_tokens", 0), usage.get("completion_tokens", 0))

    def reply(self, mode: Mode) -> ModelReply:
        if self._error is not None:
            message = str(self._error.get("message", self._error))
            if "context" in message or self._error.get("type") == "exceed_context_size_error":
                raise PromptTooLong(f"the embedded model cannot read so much: {message}")
            raise ModelBroken(f"the embedded model says: {message}")
        if not self._is_over:
            raise AnswerCut("the embedded model broke off")
        return ModelReply("".join(self._parts), self._usage, mode)


def _engine(path: Path, settings: ModelSettings) -> _Engine:
    threads = settings.threads or max(1, (os.cpu_count() or 2) - 1)
    key = (str(path.resolve()), threads, settings.context_tokens)
    with _LOADING:
        if key not in _LOADED:
            _LOADED[key] = _Engine(path, threads, settings.context_tokens)
        return _LOADED[key]
