"""Embed texts for search indexes: with a model of the project, or with static vectors of words, without a key.

The static vectors and their tokenizer are data of the package `wordllama`; its own loader is not imported, because it
asks the network. A text is the mean of the vectors of its tokens.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from importlib.metadata import PackageNotFoundError, distribution
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from reyn.errors import AdapterInvalid, ModelBroken, ModelError, ModelNotInstalled
from reyn.models.protocol import EmbeddingModel

if TYPE_CHECKING:
    from reyn.models.protocol import Embeddings
    from reyn.models.roster import Roster

STATIC = "static"
_PACKAGE = "wordllama"
_WEIGHTS = "wordllama/weights/l2_supercat_256.safetensors"
_TOKENIZER = "wordllama/tokenizers/l2_supercat_tokenizer_config.json"
_EXTRA = "pip install 'reyn[retrieval]'"
_BATCH = 64
"""The texts of one request to a model."""
_MAX_TOKENS = 100_000_000
"""A server that reports more for one request reports nothing plausible."""
_MAX_PAUSE = 20.0
_sleep = asyncio.sleep


class Embedded(NamedTuple):
    """Vectors of length one as rows of a NumPy array of float32, and the tokens that were read."""

    vectors: Any
    tokens: int


class Embedder(Protocol):
    """Makes vectors that can be compared with others of the same name."""

    @property
    def name(self) -> str: ...

    async def embed(self, texts: Sequence[str]) -> Embedded:
        """Return a vector for each text. Raises `ModelError`."""
        ...


def import_numpy() -> Any:
    """Return NumPy.

    Raises:
        ModelNotInstalled: The extra is missing.
    """
    try:
        import numpy
    except ImportError as error:
        raise ModelNotInstalled("vectors of passages need the extra `retrieval`", hint=_EXTRA) from error
    return numpy


def of_length_one(vectors: Any) -> Any:
    """Return rows of length one; those that are zero stay.

    Raises:
        ValueError: They are no rows of finite numbers, all of one length. A server or a run may have sent anything.
    """
    numpy = import_numpy()
    try:
        table = numpy.array(vectors, numpy.float64)
    except (TypeError, OverflowError) as error:
        raise ValueError(str(error)) from error
    if table.ndim != 2 or not numpy.isfinite(table).all():
        raise ValueError("they are no rows of finite numbers")
    largest = numpy.abs(table).max(axis=1, keepdims=True, initial=0)
    largest[largest == 0] = 1
    table /= largest  # the square of a large number would be too large
    lengths = numpy.linalg.norm(table, axis=1, keepdims=True)
    lengths[lengths == 0] = 1
    return (table / lengths).astype(numpy.float32)


class StaticEmbedder:
    """The mean of static vectors. The data is loaded with the first text, once per process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @cached_property
    def name(self) -> str:
        return f"{STATIC}:{_PACKAGE}-{_package().version}"

    async def embed(self, texts: Sequence[str]) -> Embedded:
        return await asyncio.to_thread(self._embed, texts)

    def _embed(self, texts: Sequence[str]) -> Embedded:
        numpy = import_numpy()
        with self._lock:
            table, tokenizer = self._data
        vectors, tokens = numpy.zeros((len(texts), table.shape[1]), numpy.float32), 0
        encodable = [text.encode(errors="replace").decode() for text in texts]
        for start in range(0, len(texts), _BATCH):
            for number, encoding in enumerate(
                tokenizer.encode_batch(encodable[start : start + _BATCH], add_special_tokens=False), start
            ):
                tokens += len(encoding.ids)
                if encoding.ids:
                    vectors[number] = table[encoding.ids].mean(axis=0, dtype=numpy.float32)
        return Embedded(of_length_one(vectors), tokens)

    @cached_property
    def _data(self) -> tuple[Any, Any]:
        package = _package()
        try:
            from safetensors.numpy import load_file
            from tokenizers import Tokenizer
        except ImportError as error:
            raise ModelNotInstalled("static vectors need the extra `retrieval`", hint=_EXTRA) from error
        try:
            [table] = load_file(str(package.locate_file(_WEIGHTS))).values()
            tokenizer = Tokenizer.from_file(str(package.locate_file(_TOKENIZER)))
            tokenizer.no_padding()
            tokenizer.no_truncation()
        except Exception as error:
            message = f"the data of `{_PACKAGE}` cannot be read: {type(error).__name__}: {str(error)[:200]}"
            raise ModelBroken(message, hint=f"Install it again: {_EXTRA}") from error
        return table, tokenizer


def _package() -> Any:
    try:
        return distribution(_PACKAGE)
    except PackageNotFoundError as error:
        raise ModelNotInstalled("static vectors need the extra `retrieval`", hint=_EXTRA) from error


class ModelEmbedder:
    """A model of the project. Requests are retried as those for answers are, within the limits of its endpoint."""

    def __init__(self, roster: Roster, setting: str) -> None:
        key, settings = roster.resolve(setting)
        self._roster, self._key, self._settings = roster, key, settings
        self.name = f"{settings.model} at {settings.base_url}" if settings.base_url else settings.model

    async def embed(self, texts: Sequence[str]) -> Embedded:
        numpy = import_numpy()
        model = self._roster.open(self._key)
        if not isinstance(model, EmbeddingModel):
            hint = "Set `retrieval.embedder` to `static`, to `openai:NAME` or to `local:FILE.gguf`."
            raise AdapterInvalid(f"model `{self._key}` does not embed texts", hint=hint)
        vectors: list[list[float]] = []
        tokens = 0
        for batch in _batches(texts):
            found = await self._ask(model, batch)
            vectors += found.vectors
            is_plausible = type(found.tokens) is int and 0 <= found.tokens <= _MAX_TOKENS
            tokens += found.tokens if is_plausible else 0
        try:
            table = of_length_one(vectors) if vectors else numpy.zeros((0, 0), numpy.float32)
        except ValueError as error:
            raise ModelBroken(f"model `{self._key}` sent vectors that cannot be compared") from error
        if len(table) != len(texts):
            raise ModelBroken(f"model `{self._key}` sent {len(table)} vectors for {len(texts)} texts")
        return Embedded(table, tokens)

    async def _ask(self, model: EmbeddingModel, texts: Sequence[str]) -> Embeddings:
        endpoint = self._roster.endpoint(self._settings)
        for attempt in range(self._settings.retries + 1):
            try:
                if endpoint is None:
                    return await model.embed(texts)
                async with endpoint.slot(_no_report):
                    return await model.embed(texts)
            except ModelError as error:
                if not error.is_transient or attempt == self._settings.retries:
                    raise
                await _sleep(min(getattr(error, "retry_after", None) or 0.5 * 2**attempt, _MAX_PAUSE))
        raise AssertionError("the last attempt returns or raises")


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    return (texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH))


async def _no_report(_wait: object) -> None:
    """Let a call wait for its turn."""


class Embedders:
    """The embedder that `retrieval.embedder` names, opened on first use."""

    def __init__(self, setting: str, roster: Callable[[], Roster]) -> None:
        self._setting = setting
        self._roster = roster

    @cached_property
    def current(self) -> Embedder | None:
        """The embedder; `None` if indexes are searched by words alone.

        Raises:
            ReynError: It is unknown, needs trust, or is not installed.
        """
        if self._setting == "none":
            return None
        if self._setting == STATIC:
            embedder = _STATIC
            _ = embedder.name  # the package may be missing
            return embedder
        return ModelEmbedder(self._roster().named, self._setting)


_STATIC = StaticEmbedder()
