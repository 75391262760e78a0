"""What happens in one visit of a phase, or of the postprocessor."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from reyn.journal.kinds.shapes import (
    ArtifactRef,
    ContentName,
    Count,
    DerivedText,
    FrameMessage,
    Hash,
    OpStatus,
    Usage,
)
from reyn.journal.registry import CONTENT, TEXT, Body, event

_Rendered = msgspec.Meta(extra={TEXT: True})
DerivedContent = Annotated[str, msgspec.Meta(min_length=64, max_length=64, extra={CONTENT: True, TEXT: True})]
"""The hash of content that holds derived text."""


@event("phase_started", v=1, origin="derived")
class PhaseStarted(Body, frozen=True):
    """A visit begins. `visit` counts the visits of this phase."""

    phase: str
    visit: int
    input: ArtifactRef


@event("step_started", v=1, origin="derived")
class StepStarted(Body, frozen=True):
    """A step of the preprocessor or the postprocessor begins."""

    call: str
    step: str


@event("step_completed", v=1, origin="derived")
class StepCompleted(Body, frozen=True):
    """A step ended. `result` is what it bound; a step that failed says why, and what `on_error` made of it."""

    call: str
    step: str
    status: Literal["ok", "failed", "skipped", "empty"]
    into: str | None = None
    result: DerivedContent | None = None
    reason: DerivedText = ""


@event("content_cut", v=1, origin="derived")
class ContentCut(Body, frozen=True):
    """Something too large for the frame is shown in part. The whole is readable as `workspace:.kept/NAME`."""

    name: str
    content: ContentName
    shown: DerivedContent
    bytes: Count


@event("frame_built", v=1, origin="derived")
class FrameBuilt(Body, frozen=True):
    """What the model will be shown: joined in order, the parts are the exact text of each message."""

    messages: Annotated[tuple[FrameMessage, ...], _Rendered]


@event("llm_requested", v=1, origin="derived")
class LlmRequested(Body, frozen=True):
    """The intent to ask the model. `request` is the hash of frame and contract."""

    call: str
    model: str
    contract: ContentName
    request: Annotated[Hash, _Rendered]


@event("llm_responded", v=1, origin="outcome")
class LlmResponded(Body, frozen=True):
    """The model's answer, whole, as a blob."""

    call: str
    text: ContentName
    usage: Usage | None = None
    mode: Literal["grammar", "json_schema", "json_object", "free"] | None = None
    """How the model was held to the contract, where it says so."""
    cut: bool = False
    """Whether it ended at the limit of its length."""


@event("model_retried", v=1, origin="outside")
class ModelRetried(Body, frozen=True):
    """The model gave no answer for a reason that may pass; it is asked again after some milliseconds. `instead` says if
    it is held to the contract in another way from now on."""

    call: str
    model: str
    attempt: int
    code: str
    message: str
    wait_ms: Count
    instead: str = ""


@event("model_switched", v=1, origin="outside")
class ModelSwitched(Body, frozen=True):
    """A model could not be had; from now on the next one of its list is asked in its place."""

    call: str
    model: str
    to: str
    code: str
    message: str


@event("llm_failed", v=1, origin="outcome")
class LlmFailed(Body, frozen=True):
    """The model gave no answer. `hint` is what to do, where that is more than the code says."""

    call: str
    code: str
    message: str
    hint: str = ""


@event("answer_unwrapped", v=1, origin="derived")
class AnswerUnwrapped(Body, frozen=True):
    """Thoughts, a code fence or prose around the JSON object were left aside: so many characters."""

    call: str
    dropped: int


@event("validation_error", v=1, origin="derived")
class ValidationError(Body, frozen=True):
    """An answer was rejected: by which class of rule, at which JSON path, why."""

    call: str
    class_: str = msgspec.field(name="class")
    path: str
    message: DerivedText
    text: ContentName


@event("decision_deferred", v=1, origin="derived")
class DecisionDeferred(Body, frozen=True):
    """A decision was not committed: one of its ops did not succeed, or asked somebody. The model is asked again."""

    call: str
    op: str
    status: OpStatus


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
    """An artifact, valid for where it goes, is kept."""

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
    """A visit ended without a decision. What it wrote was restored before."""

    phase: str
    visit: int
    attempts: int
    reason: DerivedText
    code: str = "RYN202"


@event("phase_rolled_back", v=1, origin="derived")
class PhaseRolledBack(Body, frozen=True):
    """After a failed visit, the phase before it is entered again with its old input; its artifact is rejected."""

    phase: str
    to: str
    input: ArtifactRef
    rejected: ArtifactRef
    reason: DerivedText


@event("postprocessor_started", v=1, origin="derived")
class PostprocessorStarted(Body, frozen=True):
    """The finish artifact goes through the skill's postprocessor."""

    attempt: int
    input: ArtifactRef


@event("postprocessor_completed", v=1, origin="derived")
class PostprocessorCompleted(Body, frozen=True):
    """What the caller gets fits the postprocessor's output."""

    artifact: ArtifactRef


@event("postprocessor_failed", v=1, origin="derived")
class PostprocessorFailed(Body, frozen=True):
    """A step of the postprocessor failed, or its result does not fit."""

    code: str
    reason: DerivedText
