"""The seam: what every op that touches the world is given, and what it gives back.

Planning only looks and says what would change, so that the intent can be made durable with its before-images;
performing makes it so, and may be done again after a crash.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from reyn.journal import Blob
from reyn.permissions import Denied, Gate
from reyn.workspace import Change, Roots


class Call(msgspec.Struct, frozen=True):
    """An op that a model asked for, valid against its form. The key is the same if it is performed again."""

    key: str
    args: dict[str, Any]

    @property
    def kind(self) -> str:
        return str(self.args["kind"])

    @property
    def op(self) -> str | None:
        return self.args.get("op")


class Env(msgspec.Struct, frozen=True):
    """What an op may know of the run it is performed in."""

    roots: Roots
    gate: Gate
    content: Callable[[str], bytes]
    """The bytes of a recorded content, by its hash."""
    kept: Mapping[str, str]
    """What `workspace:.kept/<name>` stands for: hashes by name."""
    file_bytes: int
    """The largest file that is read or written."""


class Plan(msgspec.Struct, frozen=True):
    """What performing an op would change, and what it would then say."""

    rule: str
    """By which rule it is allowed; empty if it came to nothing before the gate was asked."""
    changes: tuple[Change, ...] = ()
    result: dict[str, Any] | None = None
    """`None` if it takes the performing to know."""
    blobs: tuple[Blob, ...] = ()
    """The contents that the changes name. A plan that is read back from the journal has none."""


class Op(Protocol):
    def plan(self, call: Call, env: Env) -> Plan | Denied:
        """Look, and change nothing."""
        ...

    def perform(self, call: Call, plan: Plan, env: Env) -> dict[str, Any]:
        """The result envelope, whatever happens."""
        ...
