"""Values that several events share. Long texts, artifacts and schemas are blobs; a `ContentName` is the hash of one."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from reyn.journal.registry import CONTENT, TEXT

Hash = Annotated[str, msgspec.Meta(min_length=64, max_length=64)]
"""A SHA-256 in hexadecimal."""
ContentName = Annotated[str, msgspec.Meta(min_length=64, max_length=64, extra={CONTENT: True})]
"""The hash of content that is stored as a blob."""
DerivedText = Annotated[str, msgspec.Meta(extra={TEXT: True})]
"""A text that Reyn writes. Its wording may change between versions without changing what happens."""
Count = Annotated[int, msgspec.Meta(ge=0)]
OpStatus = Literal["ok", "error", "denied", "skipped", "timeout"]


class ArtifactRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An artifact by its type and the hash of the canonical JSON `{"data": …, "type": …}`."""

    type: str
    hash: ContentName


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A piece of a message: a blob; text too short and too fleeting to be one; or the visit's first so many op results,
    one a line, with the digest of their names."""

    blob: ContentName | None = None
    text: str = ""
    results: Count = 0
    digest: Hash | None = None


class FrameMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the model was shown under one role: its parts, one after the other."""

    role: Literal["system", "user", "assistant"]
    parts: tuple[Part, ...]


class Usage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens as the model counted them; `cached_tokens` are those of the input that it had read before."""

    input_tokens: Count = 0
    output_tokens: Count = 0
    cached_tokens: Count = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
        )

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens


class Change(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A file before and after an op: the hashes of its contents, null where there is none. `mode` holds the permission
    bits it had; `made` the folders that did not exist."""

    path: str
    before: ContentName | None = None
    after: ContentName | None = None
    mode: int | None = None
    made: tuple[str, ...] = ()


class Wait(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An open question of a run. `run` names the sub-run that asks, if it is not the run itself."""

    id: str
    reason: str
    message: DerivedText
    response_schema: dict[str, Any]
    expires_at: int | None = None
    run: str | None = None
    suggestions: tuple[str, ...] = ()


class AskRequest(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="ask", tag_field="request"
):
    """An op asks the kernel to put a question to a person."""

    message: str
    response_schema: dict[str, Any]
    suggestions: tuple[str, ...] = ()


class RunRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="run", tag_field="request"):
    """An op asks the kernel to run a skill. `input` is the JSON of its input."""

    skill: str
    input: ContentName


class ParentRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a sub-run was asked for: in which run, by which call, how deep, after how many answers of a model."""

    run: str
    call: str
    depth: int
    answered: Count = 0
    path: str = ""
    """The calls that lead to the sub-run, from the root run."""


class ForkPoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The event of another run that a fork goes on from."""

    run: str
    seq: int
    hash: Hash
