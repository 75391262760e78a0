"""Embed texts with llama.cpp in this process: a GGUF model of embeddings, or the mean of a language model's states."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reyn.errors import ModelNotInstalled, PromptTooLong, ResponseIncomplete
from reyn.models.protocol import Embeddings

if TYPE_CHECKING:
    from pathlib import Path

_MAX_TOKENS = 2_048
"""The tokens of a text: they are read in one batch."""
_MEAN = 1
_LOADED: dict[tuple[str, int], EmbeddingEngine] = {}
"""Loaded models by path and threads. Only the thread of the local models accesses it."""


class EmbeddingEngine:
    """A loaded model that embeds."""

    def __init__(self, path: Path, threads: int) -> None:
        try:
            import xllamacpp  # type: ignore[import-untyped]  # it has no type hints
        except ImportError as error:
            message, hint = "`local` models need the extra `local`", "pip install 'reyn[local]'"
            raise ModelNotInstalled(message, hint=hint) from error
        params = xllamacpp.CommonParams()
        params.model.path = str(path)
        params.n_ctx = params.n_batch = params.n_ubatch = _MAX_TOKENS
        params.n_parallel = 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.embedding = True
        params.api_keys = [secrets.token_urlsafe(32)]  # of the HTTP server on loopback, which nothing here uses
        params.hostnames = ["127.0.0.1"]
        params.pooling_type = xllamacpp.llama_pooling_type(_MEAN)
        params.warmup = False
        params.verbosity = 0
        try:
            self._server = xllamacpp.Server(params)
        except Exception as error:
            hint = "Check that the file is complete, and a model for embeddings."
            raise ModelNotInstalled(f"cannot load `{path.name}`: {error}", hint=hint) from error

    def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return the vectors of texts."""
        answer: Any = self._server.handle_embeddings({"input": list(texts)})
        if not isinstance(answer, dict) or "data" not in answer:
            error = answer.get("error", {}) if isinstance(answer, dict) else {}
            message = str(error.get("message", "no vectors"))[:300] if isinstance(error, dict) else "no vectors"
            kind = PromptTooLong if "too large" in message or "context size" in message else ResponseIncomplete
            raise kind(f"the local model did not embed a text: {message}")
        found = sorted(answer["data"], key=lambda one: one["index"])
        return Embeddings([one["embedding"] for one in found], int(answer.get("usage", {}).get("prompt_tokens", 0)))


def embed(path: Path, threads: int, texts: Sequence[str]) -> Embeddings:
    """Embed texts with the engine of a model file, which is loaded once per process."""
    key = (str(path.resolve()), threads)
    if key not in _LOADED:
        _LOADED[key] = EmbeddingEngine(path, threads)
    return _LOADED[key].embed(texts)
