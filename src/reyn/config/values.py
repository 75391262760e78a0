"""The settings as frozen values. The field names are the keys of `reyn.yaml`; the docs page is made from them.

Only settings that something reads are here: a key without a reader is a promise nobody keeps.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

Positive = Annotated[int, msgspec.Meta(gt=0)]
NotNegative = Annotated[int, msgspec.Meta(ge=0)]


class Sizes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Caps on a model's answer, checked before anything else is."""

    answer_bytes: Positive = 1_000_000
    answer_depth: Positive = 64


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All that a project's operator can set."""

    model: str = ""
    """The model to use: `scripted:FILE`, `recorded:RUN`, or a name from `models`."""
    models: dict[str, str] = {}
    """Names for models: `light`, `standard`, `strong`, or your own, each with the model it stands for."""
    max_phase_visits: Positive | None = 25
    """How often one phase may be visited in a run; `null` is no cap."""
    max_phase_retries: NotNegative = 2
    """How often a rejected answer is asked for again within one visit."""
    output_language: str | None = None
    """The language of natural-language output; `null` leaves it to the model."""
    strict: bool = False
    """Whether required fields are enforced at every depth of an artifact, not only at the top."""
    sizes: Sizes = Sizes()
    """Caps on a model's answer: `answer_bytes`, `answer_depth`."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The caps that stop a run without ending it; each can be raised by its name."""

    max_phase_visits: int | None = 25


class RunSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The part of the configuration that can change what a run does. Pinned when the run starts."""

    limits: Limits = Limits()
    max_phase_retries: int = 2
    output_language: str | None = None
    strict: bool = False
    sizes: Sizes = Sizes()

    @classmethod
    def of(cls, config: Config) -> RunSettings:
        return cls(
            limits=Limits(max_phase_visits=config.max_phase_visits),
            max_phase_retries=config.max_phase_retries,
            output_language=config.output_language,
            strict=config.strict,
            sizes=config.sizes,
        )
