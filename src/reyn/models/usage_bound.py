"""The most tokens that a model call can use, for the reservation of a budget.

No byte-level tokenizer produces more tokens than a text has bytes. A bound that counts bytes holds for every model and
needs no tokenizer; it is about four times the usage of an English prompt, until the call is settled.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.journal.kinds import Usage
from reyn.models.protocol import BoundsUsage

if TYPE_CHECKING:
    from collections.abc import Iterable

    from reyn.models.protocol import Message, Model, ModelRequest

_REQUEST_TOKENS = 64
"""Tokens that a chat template adds to a request."""
_MESSAGE_TOKENS = 16
"""Tokens that a chat template adds to a message: its role and its delimiters."""
_IMAGE_TOKENS = 50_000
"""More than any provider counts for an image of the largest size that it accepts."""
_SCHEMA_FACTOR = 2
"""An adapter may expand the references of a schema, or describe tools in words."""
_CACHED_SCHEMAS = 256
_sizes: dict[int, tuple[Any, int]] = {}
"""The sizes of recent schemas, with the schemas themselves, so that no id is used twice."""


def usage_bound(model: Model, request: ModelRequest, window: int | None) -> Usage:
    """Return the most input and output tokens that a call can use.

    Args:
        model: The model.
        request: The call.
        window: The context window of the model, if it is known: no prompt is longer.
    """
    if _bounds_usage(type(model)):
        assert isinstance(model, BoundsUsage)
        return model.usage_bound(request)
    tokens = prompt_bound(request.messages) + _schema_size(request.contract)
    if request.tools:
        tokens += sum(_schema_size(tool.parameters) + len(tool.description.encode()) for tool in request.tools)
    return Usage(tokens if window is None else min(tokens, window), request.max_tokens)


@cache
def _bounds_usage(model: type[Model]) -> bool:
    """Return whether models of a class bound their usage; asking a protocol takes longer than the bound itself."""
    return issubclass(model, BoundsUsage)


def prompt_bound(messages: Iterable[Message]) -> int:
    """Return the most tokens that messages can have."""
    tokens = _REQUEST_TOKENS
    for message in messages:
        text = message.text
        tokens += _MESSAGE_TOKENS + (len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass")))
        if message.images:
            tokens += _IMAGE_TOKENS * len(message.images)
        for call in message.tool_calls:
            tokens += _MESSAGE_TOKENS + len(call.name.encode()) + len(call.arguments.encode("utf-8", "surrogatepass"))
    return tokens


def _schema_size(schema: Any) -> int:
    known = _sizes.get(id(schema))
    if known is None or known[0] is not schema:
        while len(_sizes) >= _CACHED_SCHEMAS:
            _sizes.pop(next(iter(_sizes)), None)
        known = _sizes[id(schema)] = (schema, _SCHEMA_FACTOR * len(msgspec.json.encode(schema)))
    return known[1]
