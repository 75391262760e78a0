"""What the steps of a visit have done that must not be done twice: unsafe ops, and sub-runs with unsafe ops.

A visit that repeats a failed one, or one that was rolled back, takes over the results of those that it would do again
with the same arguments.
"""

from __future__ import annotations

from typing import Any

import msgspec

from reyn.journal import Blob, canonical, digest


class CompletedStep(msgspec.Struct, frozen=True):
    """An op or a sub-run of a step: the digest of its arguments, its call, and the hash of its result."""

    args: str
    call: str
    result: str


_LIST = msgspec.json.Decoder(list[CompletedStep])


class CompletedSteps:
    """The completed steps of a visit, and those of the attempts before it that it has not repeated yet."""

    def __init__(self, earlier: bytes = b"[]") -> None:
        """Begin a visit; `earlier` is the content of the attempts before it."""
        self._earlier = _LIST.decode(earlier)
        self._done: list[CompletedStep] = []
        self.sources: dict[str, str] = {}
        """The calls whose results steps have taken over, by the call of the step."""

    def take(self, args: dict[str, Any], call: str) -> str | None:
        """Return the hash of the result that a step takes over; `None` if it has to do what it does."""
        if not self._earlier:
            return None
        identity = digest(canonical(args))
        found = next((one for one in self._earlier if one.args == identity), None)
        if found is None:
            return None
        self._earlier.remove(found)
        self._done.append(found)
        self.sources[call] = found.call
        return found.result

    def add(self, args: dict[str, Any], call: str, result: str) -> None:
        """Add what a step has done."""
        self._done.append(CompletedStep(digest(canonical(args)), call, result))

    def content(self) -> Blob | None:
        """Return what an attempt after this one takes over; `None` if there is nothing."""
        steps = [*self._done, *self._earlier]
        return Blob.of(canonical(msgspec.to_builtins(steps))) if steps else None
