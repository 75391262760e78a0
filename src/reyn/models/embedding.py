"""The protocol of models that embed texts. `reyn.retrieval` makes search indexes with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec


class Embeddings(msgspec.Struct, frozen=True):
    """The vectors of texts, in their order, and the tokens that were read."""

    vectors: list[list[float]]
    tokens: int = 0


@runtime_checkable
class EmbeddingModel(Protocol):
    """A model that embeds texts."""

    async def embed(self, texts: Sequence[str]) -> Embeddings:
        """Return a vector for each text.

        Raises:
            ModelError: As for `Model.complete`.
        """
        ...
