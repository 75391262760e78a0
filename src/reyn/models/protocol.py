"""The seam between Reyn and whoever answers. A model gets all it may know in the request and keeps nothing of it."""

from __future__ import annotations

from typing import Any, Literal, Protocol

import msgspec

from reyn.journal.kinds import Usage


class Message(msgspec.Struct, frozen=True):
    role: Literal["system", "user", "assistant"]
    text: str


class ModelRequest(msgspec.Struct, frozen=True):
    """One question. `contract` is the JSON Schema that the answer must satisfy: an adapter that can constrain its
    output should; the OS checks the answer in any case. `answered` counts the run's recorded answers before it;
    `run_id` and `call` name the question, the same after a crash."""

    messages: tuple[Message, ...]
    contract: dict[str, Any]
    run_id: str
    call: str
    request_hash: str
    answered: int = 0


Mode = Literal["grammar", "json_schema", "json_object", "free"]
"""How an answer was held to its contract while it was made."""


class ModelReply(msgspec.Struct, frozen=True):
    text: str
    usage: Usage | None = None
    """Tokens as the model counted them; `None` where it does not count."""
    mode: Mode | None = None


class Model(Protocol):
    """Raise a `ModelError` when there is no answer; the run then stops, explained and resumable."""

    @property
    def name(self) -> str:
        """How the journal calls it; for adapters from the catalogue, the name that opens it again."""
        ...

    async def complete(self, request: ModelRequest) -> ModelReply: ...
