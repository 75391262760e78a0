"""What skill.md says about the errors of a node: how often a visit is repeated, and where the run goes on."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from reyn.documents import TrustClasses, trust_classes

NODE_ERROR = "node_error"
"""The artifact type of an error that arrives at a handler. It is built in."""
MAX_RETRIES = 100
"""The maximum number of repetitions of a visit."""
MAX_BACKOFF_MS = 24 * 3_600_000
"""The longest wait before a repetition."""
_WAIT = "a time such as `500ms`, `2s`, `5m` or `1h`"
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000}


class Retry(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """`retry` of a node: a visit that fails is repeated.

    Attributes:
        max: The number of repetitions of one visit.
        on: The names of the errors; `*` stands for all but `limit`.
        backoff: The wait before the first repetition, such as `2s`. It doubles with each further one, up to a day.
    """

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="max on backoff")

    max: Annotated[int, msgspec.Meta(ge=1, le=MAX_RETRIES)]
    on: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)] = ("*",)
    backoff: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,6}(ms|s|m|h)$", description=_WAIT)] = "0s"

    def wait_ms(self, attempt: int) -> int:
        """Return the wait before a repetition, which are counted from 1."""
        number = self.backoff.rstrip("msh")
        first = int(number) * _UNITS[self.backoff[len(number) :]]
        return min(MAX_BACKOFF_MS, first << (attempt - 1))
