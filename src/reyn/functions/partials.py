"""The values of a call while its answer arrives: `async for partial in function.stream(…)`.

A `PartialReader` follows the events and the pieces of one run. A value is decoded again only after the answer has grown
by a small share of its length, so that the work for an answer stays proportional to its length.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from reyn.contract.partial import PartialData
from reyn.functions.signatures import VALUE
from reyn.functions.types import to_json
from reyn.journal import Event, decode, kinds
from reyn.streams import ItemStream

if TYPE_CHECKING:
    from reyn.functions.function_calls import CallResult
    from reyn.functions.signatures import ReturnValue
    from reyn.kernel.world.services import Listener
    from reyn.kernel.world.watchers import OnDelta
    from reyn.models import Delta

R = TypeVar("R")
_SHARE = 256
"""A value is decoded again when the answer has grown by its length divided by this."""
_TRIES = 8
"""How many open containers of an answer are left out, one after the other, to find a value of the type."""
_FREE_TEXT = {"type", "description", "title", "minLength", "maxLength", "examples", "default"}
"""The keywords of a text whose beginning is one, too, unlike that of a date or of a word from a list."""


@dataclass(frozen=True)
class Partial(Generic[R]):
    """A value as far as it has arrived. Each one is the whole value so far, so the latest replaces those before it.

    Attributes:
        value: The value, of the function's return type. `None` while what has arrived is no value of this type, such as
            an object without a required field.
        data: The same as JSON, with everything that has arrived. Its last text may be incomplete.
        restarted: Why the values before this one are void: Reyn rejected the answer, or asked the model again. Empty if
            they are not.
        result: The validated value with the run id, usage and warnings. Only the last one has it.
    """

    value: R | None
    data: Any = None
    restarted: str = ""
    result: CallResult[R] | None = None


class PartialStream(ItemStream[Partial[R]]):
    """The partial values of a call, then its result. Leaving the loop early cancels the call; its run can continue."""


class PartialReader(Generic[R]):
    """Follows a run of a function.

    Args:
        returns: The return type.
        on_change: Called when there may be something new.
    """

    def __init__(self, returns: ReturnValue, on_change: Callable[[], object]) -> None:
        self._returns, self._on_change = returns, on_change
        self._is_text = returns.is_wrapped and returns.type.schema.get("type") == "string"
        self._run_id = ""
        self._is_plain = False
        self._data, self._text = PartialData(), list[str]()
        self._length = self._read = 0
        self._has_shown = False
        self._restarted = ""

    def on_event(self, event: Event) -> None:
        """Note what an event of the run means for the answer in progress."""
        self._run_id = self._run_id or event.run_id
        if event.run_id != self._run_id:
            return
        match event.kind:
            case kinds.FrameBuilt.kind:
                body: Any = decode(event)
                self._begin("the model was asked again")
                self._is_plain = self._is_text and body.form == "tools"
            case kinds.ValidationError.kind:
                body = decode(event)
                self._begin(f"{body.path}: {body.message}")
            case kinds.ModelRetried.kind | kinds.ModelSwitched.kind:
                body = decode(event)
                self._begin(body.message)

    def on_delta(self, delta: Delta) -> None:
        """Read a piece of an answer."""
        if delta.run_id != self._run_id:
            return
        self._length += len(delta.text)
        if self._is_plain:
            self._text.append(delta.text)
        else:
            self._data.feed(delta.text)
        if self._length - self._read >= max(1, self._length // _SHARE):
            self._on_change()

    def take(self) -> Partial[R] | None:
        """Return the value so far; `None` if there is nothing new, or no part of the result yet."""
        if self._length == self._read:
            return None
        self._read = self._length
        if self._is_plain:
            text = "".join(self._text)
            if text.lstrip().startswith("{"):
                return None  # perhaps a decision as JSON
            return self._shown(self._returns.type.decode(text), text)
        completions = list(islice(self._data.completions(), _TRIES))
        if not completions or (self._returns.is_wrapped and VALUE not in completions[0].value):
            return None
        whole = completions[0].value[VALUE] if self._returns.is_wrapped else completions[0].value
        for value, open_text in completions:
            if open_text is not None and not is_free_text(self._returns.schema, open_text):
                continue
            try:
                return self._shown(self._returns.decode(value), whole)
            except Exception:  # noqa: BLE001, S112 - validators are the user's code; the value is not complete
                continue
        return self._shown(None, whole)

    def last(self, result: CallResult[R]) -> Partial[R]:
        """Return the validated value."""
        data = None
        with suppress(TypeError):  # a class of the user that only reads JSON
            data = to_json(result.value)
        return Partial(result.value, data, self._restarted, result)

    def _shown(self, value: R | None, data: Any) -> Partial[R]:
        restarted, self._restarted, self._has_shown = self._restarted, "", True
        return Partial(value, data, restarted)

    def _begin(self, reason: str) -> None:
        """Begin an answer; values of the one before are void."""
        self._data, self._text, self._length, self._read = PartialData(), [], 0, 0
        if self._has_shown:
            self._restarted, self._has_shown = reason, False


def is_free_text(schema: Any, path: Iterable[str | int]) -> bool:
    """Return whether a text may end anywhere: one without a format, a pattern or a list of values."""
    return any(_is_free(part) for part in _parts_at(schema, schema, list(path)))


def _is_free(schema: Any) -> bool:
    if not isinstance(schema, dict):
        return schema is True
    kind = schema.get("type")
    is_text = kind == "string" or (isinstance(kind, list) and "string" in kind)
    return (is_text or kind is None) and schema.keys() <= _FREE_TEXT


def _parts_at(root: Any, schema: Any, path: list[str | int]) -> list[Any]:
    """Return the schemas of the value at a path: several if there are alternatives."""
    if isinstance(schema, dict) and "$ref" in schema:
        schema = root.get("$defs", {}).get(schema["$ref"].removeprefix("#/$defs/"), True)
    if not isinstance(schema, dict):
        return [schema]
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            return [found for part in schema[word] for found in _parts_at(root, part, path)]
    if not path:
        return [schema]
    step, *rest = path
    if isinstance(step, int):
        first = schema.get("prefixItems", [])
        inner = first[step] if step < len(first) else schema.get("items", True)
    else:
        properties = schema.get("properties", {})
        inner = properties[step] if step in properties else schema.get("additionalProperties", True)
    return _parts_at(root, inner, rest)


async def partials(
    reader_of: Callable[[Callable[[], object]], PartialReader[R]],
    call: Callable[[Listener, OnDelta], Awaitable[CallResult[R]]],
) -> AsyncGenerator[Partial[R]]:
    """Execute a call; yield its partial values, then its result.

    Args:
        reader_of: Returns the reader of the run, with the function to call when there is something new.
        call: Executes the call.
    """
    wake = asyncio.Event()
    reader = reader_of(wake.set)
    task = asyncio.ensure_future(call(reader.on_event, reader.on_delta))
    task.add_done_callback(lambda _: wake.set())
    try:
        while not task.done():
            await wake.wait()
            wake.clear()
            if not task.done() and (partial := reader.take()) is not None:
                yield partial
        yield reader.last(task.result())
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def in_turn(first: Callable[[Any], object], then: Callable[[Any], object] | None) -> Callable[[Any], None]:
    """Return a callback that calls two: the second one is the user's, if there is one."""

    def call(value: Any) -> None:
        first(value)
        if then is not None:
            then(value)

    return call
