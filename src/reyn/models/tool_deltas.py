"""Assemble streamed tool calls in time linear in their length.

Servers disagree on details: some repeat id and name in every piece, send no index or the same index for every call, or
send the arguments as an object. A piece belongs to the call of its index, unless it brings another id and a name: one
server gives every piece a new id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.models.protocol import ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.models.streaming import FunctionDelta, ToolCallDelta

_CALL_LENGTH = 32
"""Counted for each piece besides its text, so that endless empty pieces reach the length limit, too."""


class _Call:
    def __init__(self) -> None:
        self.id = ""
        self.name: list[str] = []
        self.arguments: list[str] = []


class ToolCallCollector:
    """Collects the pieces of the tool calls of one answer."""

    def __init__(self) -> None:
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}

    def add(self, deltas: list[ToolCallDelta]) -> int:
        """Add pieces; return their length."""
        length = 0
        for delta in deltas:
            call = self._find(delta)
            call.id = call.id or delta.id or ""
            length += _CALL_LENGTH + (_add(call, delta.function) if delta.function else 0)
        return length

    def _find(self, delta: ToolCallDelta) -> _Call:
        last = self._calls[-1] if self._calls else None
        call = last if delta.index is None else self._by_index.get(delta.index)
        if call is None or _begins_another(delta, call):
            call = _Call()
            self._calls.append(call)
            if delta.index is not None:
                self._by_index[delta.index] = call
        return call

    def tool_calls(self, new_id: Callable[[int], str]) -> tuple[ToolCall, ...]:
        """Return the calls in the order of their first pieces; `new_id` makes an id for one without."""
        return tuple(
            ToolCall(call.id or new_id(number), "".join(call.name), "".join(call.arguments))
            for number, call in enumerate(self._calls, start=1)
        )


def _begins_another(delta: ToolCallDelta, call: _Call) -> bool:
    """Return whether a piece begins another call, although it seems to belong to this one."""
    if delta.function is None or not delta.function.name:
        return False
    return delta.id != call.id if delta.id else delta.index is None


def _add(call: _Call, function: FunctionDelta) -> int:
    name, arguments = function.name or "", function.arguments
    if name and call.name != [name]:  # some servers repeat the whole name
        call.name.append(name)
    text = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode() if arguments else ""
    if text:
        call.arguments.append(text)
    return len(name) + len(text)
