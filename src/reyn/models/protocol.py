"""The seam between Reyn and whoever answers. A model gets all it may know in the request and keeps nothing of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Protocol

import msgspec

from reyn.journal.kinds import Usage


class Message(msgspec.Struct, frozen=True):
    role: Literal["system", "user", "assistant"]
    text: str


class ModelRequest(msgspec.Struct, frozen=True):
    """One question. `contract` is the JSON Schema that the answer must satisfy: an adapter that can constrain its
    output should; the OS checks the answer in any case. `answered` counts the run's recorded answers before it;
    `run_id` and `call` name the question, the same after a crash. `hear`, where it is given, may be called with every
    piece of the answer as it comes: somebody looks on, and nothing depends on it."""

    messages: tuple[Message, ...]
    contract: dict[str, Any]
    run_id: str
    call: str
    request_hash: str
    answered: int = 0
    hear: Callable[[str], None] | None = None


Mode = Literal["grammar", "json_schema", "json_object", "free"]
"""How an answer was held to its contract while it was made."""


class ModelReply(msgspec.Struct, frozen=True):
    text: str
    usage: Usage | None = None
    """Tokens as the model counted them; `None` where it does not count."""
    mode: Mode | None = None
    is_cut: bool = False
    """Whether it ended because it reached the limit of its length."""


class Delta(msgspec.Struct, frozen=True):
    """A piece of an answer as it comes, for whoever looks on. Nothing is recorded of it; it may be lost."""

    run_id: str
    call: str
    text: str


class Model(Protocol):
    """Raise a `ModelError` when there is no answer; the run then stops, explained and resumable. One with `takes_time =
    False` answers at once: nobody looks meanwhile whether the run is cancelled."""

    @property
    def name(self) -> str:
        """How the journal calls it; for adapters from the catalogue, the name that opens it again."""
        ...

    async def complete(self, request: ModelRequest) -> ModelReply: ...
