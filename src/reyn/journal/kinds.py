"""Every kind of event, with its data. `docs/events.md` is made from this module.

Texts, artifacts and schemas are not here but in blobs; a `ContentName` names one.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from reyn.journal.registry import CONTENT, Body, event

Hash = Annotated[str, msgspec.Meta(min_length=64, max_length=64)]
"""A SHA-256 in hexadecimal."""
ContentName = Annotated[str, msgspec.Meta(min_length=64, max_length=64, extra={CONTENT: True})]
"""The hash of content that is kept as a blob."""
Count = Annotated[int, msgspec.Meta(ge=0)]


class ArtifactRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An artifact by its type and the hash of the canonical JSON `{"data": …, "type": …}`."""

    type: str
    hash: ContentName


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A piece of a message: a blob, or text too short and too fleeting to be one."""

    blob: ContentName | None = None
    text: str = ""


class FrameMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the model was shown under one role: its parts, one after the other."""

    role: Literal["system", "user", "assistant"]
    parts: tuple[Part, ...]


class Usage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Tokens as the model counted them."""

    input_tokens: Count = 0
    output_tokens: Count = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens)


# -- the run ------------------------------------------------------------------------------------------


@event("run_started", v=1, origin="start", enters="running")
class RunStarted(Body, frozen=True):
    """The run exists. Everything that can change what it does is named here."""

    run_id: str
    skill: str
    skill_hash: ContentName
    input: ArtifactRef
    model: str
    settings: ContentName
    rules: int


@event("run_resumed", v=1, origin="outside", enters="running")
class RunResumed(Body, frozen=True):
    """A new driver took over. Fences an older one; names the intent that has no outcome yet, and the model if it is
    another one than before."""

    driver: str
    open_intent: str | None = None
    retry: bool = False
    model: str | None = None


@event("run_failed", v=1, origin="derived", enters="failed")
class RunFailed(Body, frozen=True):
    """The run stopped on an error; `resume --retry` tries again."""

    code: str
    reason: str


@event("run_cancelled", v=1, origin="outside", enters="cancelled")
class RunCancelled(Body, frozen=True):
    """Somebody cancelled the run. `message` is the place of the request in the inbox."""

    reason: str
    message: int


@event("limit_reached", v=1, origin="derived", enters="limited")
class LimitReached(Body, frozen=True):
    """A cap stopped the run; raised, the run goes on."""

    limit: str
    value: int
    phase: str
    reason: str


@event("limit_raised", v=1, origin="outside")
class LimitRaised(Body, frozen=True):
    """Somebody raised a cap. `value` null is no cap at all."""

    limit: str
    value: int | None
    message: int


@event("skill_completed", v=1, origin="derived", enters="finished")
class SkillCompleted(Body, frozen=True):
    """The model finished and its artifact fits the final output."""

    artifact: ArtifactRef


@event("skill_aborted", v=1, origin="derived", enters="aborted")
class SkillAborted(Body, frozen=True):
    """The model gave up, with its reason."""

    phase: str
    reason: str


# -- one visit of a phase -----------------------------------------------------------------------------


@event("phase_started", v=1, origin="derived")
class PhaseStarted(Body, frozen=True):
    """A visit begins. `visit` counts the visits of this phase."""

    phase: str
    visit: int
    input: ArtifactRef


@event("frame_built", v=1, origin="derived")
class FrameBuilt(Body, frozen=True):
    """What the model will be shown: joined in order, the parts are the exact text of each message."""

    messages: tuple[FrameMessage, ...]


@event("llm_requested", v=1, origin="derived")
class LlmRequested(Body, frozen=True):
    """The intent to ask the model. `request` is the hash of frame and contract."""

    call: str
    model: str
    contract: ContentName
    request: Hash


@event("llm_responded", v=1, origin="outcome")
class LlmResponded(Body, frozen=True):
    """The model's answer, whole, as a blob."""

    call: str
    text: ContentName
    usage: Usage | None = None


@event("llm_failed", v=1, origin="outcome")
class LlmFailed(Body, frozen=True):
    """The model gave no answer."""

    call: str
    code: str
    message: str


@event("answer_unwrapped", v=1, origin="derived")
class AnswerUnwrapped(Body, frozen=True):
    """A code fence or prose around the JSON object was left aside: so many characters."""

    call: str
    dropped: int


@event("validation_error", v=1, origin="derived")
class ValidationError(Body, frozen=True):
    """An answer was rejected: by which class of rule, at which JSON path, why."""

    call: str
    class_: str = msgspec.field(name="class")
    path: str
    message: str
    text: ContentName


@event("control_decided", v=1, origin="derived")
class ControlDecided(Body, frozen=True):
    """An answer was accepted; this is its control block."""

    call: str
    type: Literal["transition", "finish", "abort"]
    decision: Literal["continue", "finish", "abort"]
    next_phase: str | None
    confidence: float
    reason: str


@event("artifact_stored", v=1, origin="derived")
class ArtifactStored(Body, frozen=True):
    """The artifact of the decision, valid for where it goes, is kept."""

    artifact: ArtifactRef
    bytes: int


@event("phase_completed", v=1, origin="derived")
class PhaseCompleted(Body, frozen=True):
    """A visit ended with a decision: the next phase, or none."""

    phase: str
    visit: int
    type: Literal["transition", "finish", "abort"]
    next_phase: str | None = None


@event("phase_failed", v=1, origin="derived")
class PhaseFailed(Body, frozen=True):
    """A visit ended without an acceptable answer."""

    phase: str
    visit: int
    attempts: int
    reason: str
