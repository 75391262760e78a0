"""A field of the state of a run, as skill.md declares it."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from reyn.documents import TrustClasses, trust_classes

STATE_ROOT = "state"
"""The name under which steps and expressions read the state."""
MAX_STATE_ITEMS = 1_000
"""The maximum `max` of a field with `append`."""


class StateField(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A field of the state: exactly one of `latest`, `append` and `sum`.

    Attributes:
        latest: The artifact type whose last artifact is the value.
        append: The artifact type whose last `max` artifacts are the value.
        sum: The path of a number in artifacts of a type, such as `receipt.data.amount`: the value is the sum.
        max: How many artifacts `append` keeps.
    """

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="latest append sum max")

    latest: str = ""
    append: str = ""
    sum: str = ""
    max: Annotated[int, msgspec.Meta(ge=1, le=MAX_STATE_ITEMS)] | None = None

    @property
    def type(self) -> str:
        """The artifact type that the field follows."""
        return self.latest or self.append or self.sum.partition(".")[0]

    @property
    def number_path(self) -> tuple[str, ...]:
        """The path of the number of `sum` in an artifact."""
        return tuple(self.sum.split(".")[1:])


def state_name(path: str) -> str:
    """Return the name of the field of the state that a path leads into; empty for a path into the artifact."""
    words = path.split(".")
    return words[1] if len(words) > 1 and words[0] == STATE_ROOT else ""
