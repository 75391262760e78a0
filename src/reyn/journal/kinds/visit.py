"""Events of one visit of a phase, and of the postprocessor."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from reyn.journal.kinds.shapes import (
    AnswerForm,
    ArtifactRef,
    ContentName,
    Count,
    DerivedContent,
    DerivedText,
    DoneOp,
    FittedSection,
    FrameMessage,
    Hash,
    OpStatus,
    PromptBudget,
    SectionTokens,
    StateChange,
    TranscriptRef,
    Usage,
)
from reyn.journal.registry import TEXT, Body, event

_Rendered = msgspec.Meta(extra={TEXT: True})


@event("phase_started", v=1, origin="derived")
class PhaseStarted(Body, frozen=True):
    """A visit of a phase started. `visit` is the number of visits of this phase so far, including this one.

    `transcript` is set if the phase is a conversation that shares its transcript with others which name it.
    """

    phase: str
    visit: Count
    input: ArtifactRef
    transcript: str = ""


@event("step_started", v=1, origin="derived")
class StepStarted(Body, frozen=True):
    """A preprocessor or postprocessor step started. `step` is its kind."""

    call: str
    step: str


@event("step_completed", v=1, origin="derived")
class StepCompleted(Body, frozen=True):
    """A step ended.

    `result` is the value that the step stored at the path `into` of the artifact. After a failure, `status` is the
    effect of `on_error` (`failed`, `skipped` or `empty`) and `reason` the error. `result_of` is the call of an earlier
    attempt whose result the step took over, so that nothing was done twice.
    """

    call: str
    step: str
    status: Literal["ok", "failed", "skipped", "empty"]
    into: str | None = None
    result: DerivedContent | None = None
    reason: DerivedText = ""
    result_of: str = ""


TO_END = "end"
"""Stands for the end of the run where an event names the next node."""


@event("content_truncated", v=1, origin="derived")
class ContentTruncated(Body, frozen=True):
    """Content was too large for the prompt and was truncated.

    `part` is the truncated text, `content` the whole content, `bytes` its size. The model can read all of it at
    `workspace:.full/<name>`.
    """

    name: str
    content: ContentName
    part: DerivedContent
    bytes: Count


@event("context_budget_applied", v=1, origin="derived")
class ContextBudgetApplied(Body, frozen=True):
    """The handoffs of earlier phases were assembled for a phase whose `context` asks for them.

    `ordinal` is the rank of the phase by first visit. `text` is the result. `original_tokens` and `truncated_tokens`
    are its tokens before and after truncation to `budget_tokens`; 0 is unlimited. `sections` are the tokens of each
    part, as `counter` counts them. `warnings_truncated` is true if even the warnings about missing handoffs exceeded
    the budget.
    """

    phase: str
    visit: int
    ordinal: Count
    text: DerivedContent
    original_tokens: Annotated[int, _Rendered]
    budget_tokens: int
    truncated_tokens: Annotated[int, _Rendered]
    was_truncated: Annotated[bool, _Rendered]
    sections: Annotated[tuple[SectionTokens, ...], _Rendered] = ()
    warnings_truncated: Annotated[bool, _Rendered] = False
    counter: str = "chars"


@event("tokens_counted", v=1, origin="outcome")
class TokensCounted(Body, frozen=True):
    """A text was counted with an exact counter, and truncated if it exceeded its budget.

    `call` identifies the text, `counter` the counter. `original_tokens` and `tokens` are those of the text before and
    after truncation. `sections` are its sections, and `text` is the result if it is not assembled from them. A replay
    takes the numbers from here and needs no tokenizer.
    """

    call: str
    counter: str
    original_tokens: Count
    tokens: Count
    sections: tuple[FittedSection, ...] = ()
    text: ContentName | None = None


@event("context_log_failed", v=1, origin="outside")
class ContextLogFailed(Body, frozen=True):
    """A line of the context budget log `path` could not be written. The run continues; its events have the data."""

    path: str
    reason: str


@event("frame_built", v=1, origin="derived")
class FrameBuilt(Body, frozen=True):
    """The messages for the next model call were built. The parts of a message, concatenated, are its exact text.

    `form` is the form in which the model is asked to answer. `budget` is the token budget of the messages; null if they
    have none, or are so short that they need not be counted. With a `transcript`, the messages that
    `transcript_extended` events added come after the system message.
    """

    messages: Annotated[tuple[FrameMessage, ...], _Rendered]
    form: AnswerForm = "full"
    budget: Annotated[PromptBudget | None, _Rendered] = None
    transcript: Annotated[TranscriptRef | None, _Rendered] = None


@event("llm_requested", v=1, origin="derived")
class LlmRequested(Body, frozen=True):
    """The model is about to be called.

    `call` identifies the call, also after a crash. `contract` is the JSON Schema of the answer, `tools` the list of
    native tools on offer, `request` the hash of messages, contract and tools.
    """

    call: str
    model: str
    contract: DerivedContent
    request: Annotated[Hash, _Rendered]
    tools: DerivedContent | None = None


@event("llm_responded", v=1, origin="outcome")
class LlmResponded(Body, frozen=True):
    """The model answered.

    `text` is the whole answer; in the form `tools`, the JSON of its `content` and `tool_calls`. `mode` is the output
    mode that the model used, if it reports one. `cut` is true if the answer ended at a length limit.
    `choice_probability` is the probability of the choice among those on offer, if the engine measured it; it is the
    confidence of an answer in the short form. `usage` covers all prompts that the adapter sent. `thoughts` are what the
    model thought before the answer, as the provider gave it; nothing reads them as part of the answer.
    """

    call: str
    text: ContentName
    usage: Usage | None = None
    mode: Literal["grammar", "json_schema", "json_object", "free"] | None = None
    cut: bool = False
    choice_probability: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    thoughts: ContentName | None = None


@event("model_retried", v=1, origin="outside")
class ModelRetried(Body, frozen=True):
    """A model call failed and will be retried after `wait_ms` milliseconds.

    `attempt` counts the attempts of this call; `code` and `message` are the error. `instead` is set if the retry uses
    another output mode.
    """

    call: str
    model: str
    attempt: Count
    code: str
    message: str
    wait_ms: Count
    instead: str = ""


@event("model_queued", v=1, origin="outside")
class ModelQueued(Body, frozen=True):
    """A model call waits for its endpoint, because a limit that all runs share is reached.

    `reason` is the limit, or `probe`: another call tests whether the endpoint works again. `ahead` counts the calls
    that are admitted first.
    """

    call: str
    model: str
    endpoint: str
    reason: Literal["concurrency", "requests_per_minute", "tokens_per_minute", "probe"]
    ahead: Count


@event("model_switched", v=1, origin="outside")
class ModelSwitched(Body, frozen=True):
    """A model failed permanently; `to`, the next model in its `fallback` list, replaces it for the rest of the run."""

    call: str
    model: str
    to: str
    code: str
    message: str


@event("llm_failed", v=1, origin="outcome")
class LlmFailed(Body, frozen=True):
    """The model call failed, after all retries and fallbacks.

    `hint` is set if there is more specific advice than the hint of the code.
    """

    call: str
    code: str
    message: str
    hint: str = ""


@event("answer_unwrapped", v=1, origin="derived")
class AnswerUnwrapped(Body, frozen=True):
    """Text around the JSON object of an answer (reasoning, a code fence, prose) was dropped: `dropped` characters."""

    call: str
    dropped: Count


@event("validation_error", v=1, origin="derived")
class ValidationError(Body, frozen=True):
    """An answer, or one of its native tool calls, violated the contract and was rejected.

    `class` is the class of the violated rule, `path` the JSON path in the answer, `text` the whole answer. If other
    calls of the answer are valid, `call` identifies the invalid one and `result` is the result that the model sees.
    """

    call: str
    class_: str = msgspec.field(name="class")
    path: str
    message: DerivedText
    text: ContentName
    result: DerivedContent | None = None


@event("output_checked", v=1, origin="outcome")
class OutputChecked(Body, frozen=True):
    """The program that started the run checked the final output, which fits its schema.

    If `error` is not empty, it describes the fault at `path`, and the answer is rejected. `checked` is false if no
    check was available, because another program resumed the run.
    """

    call: str
    error: str = ""
    path: str = ""
    checked: bool = True


@event("decision_deferred", v=1, origin="derived")
class DecisionDeferred(Body, frozen=True):
    """A decision was not committed: its op `op` did not succeed, or asked a person. The model is called again."""

    call: str
    op: str
    status: OpStatus


@event("control_decided", v=1, origin="derived")
class ControlDecided(Body, frozen=True):
    """An answer was accepted. The fields are those of its `control` object."""

    call: str
    type: Literal["transition", "finish", "abort"]
    decision: Literal["continue", "finish", "abort"]
    next_phase: str | None
    confidence: float
    reason: str


@event("artifact_stored", v=1, origin="derived")
class ArtifactStored(Body, frozen=True):
    """An artifact was validated against the schema of its destination and stored. `bytes` is its size.

    `state` is what it changes in the state of the run, if the skill declares lists or sums of its type.
    """

    artifact: ArtifactRef
    bytes: Count
    state: StateChange | None = None


@event("handoff_recorded", v=1, origin="derived")
class HandoffRecorded(Body, frozen=True):
    """A phase left a handoff for later phases: `handoff`, as JSON. `ordinal` is its rank by first visit."""

    phase: str
    visit: int
    ordinal: Count
    handoff: DerivedContent


@event("phase_completed", v=1, origin="derived")
class PhaseCompleted(Body, frozen=True):
    """A visit ended with a decision. `next_phase` is null at a finish or abort.

    If the skill can roll back to this visit or the node handles its abort, `done` is as in `phase_failed`, and `steps`
    is what its steps would not do again. If the node handles an abort, the files that the visit changed were restored.
    """

    phase: str
    visit: Count
    type: Literal["transition", "finish", "abort"]
    next_phase: str | None = None
    done: tuple[DoneOp, ...] = ()
    steps: ContentName | None = None


@event("phase_failed", v=1, origin="derived")
class PhaseFailed(Body, frozen=True):
    """A visit ended without a decision, after its file changes were restored.

    `attempts` is the number of model calls, `code` the code of the error. `done` has the unsafe ops of the model that
    succeeded or may have taken effect. `steps` lists the unsafe ops and sub-runs that steps completed; the next attempt
    takes over their results. `error_name` is the name of the error if it is not that of the code: an op, a step or a
    sub-run named it.
    """

    phase: str
    visit: Count
    attempts: Count
    reason: DerivedText
    code: str = "RYN202"
    done: tuple[DoneOp, ...] = ()
    steps: ContentName | None = None
    error_name: str = ""


@event("phase_rolled_back", v=1, origin="derived")
class PhaseRolledBack(Body, frozen=True):
    """After a failed visit of `phase`, the run returns to the previous phase `to`.

    `input` is the earlier input of that phase; `rejected` is the artifact that it produced then.
    """

    phase: str
    to: str
    input: ArtifactRef
    rejected: ArtifactRef
    reason: DerivedText


@event("postprocessor_started", v=1, origin="derived")
class PostprocessorStarted(Body, frozen=True):
    """The postprocessor started on the artifact of the finish decision. `attempt` counts the attempts."""

    attempt: Count
    input: ArtifactRef


@event("postprocessor_completed", v=1, origin="derived")
class PostprocessorCompleted(Body, frozen=True):
    """The postprocessor succeeded. `artifact` is valid against its `output_schema`."""

    artifact: ArtifactRef


@event("postprocessor_failed", v=1, origin="derived")
class PostprocessorFailed(Body, frozen=True):
    """The postprocessor failed: a step failed, or the result does not match its `output_schema`.

    `steps` is as in `phase_failed`.
    """

    code: str
    reason: DerivedText
    steps: ContentName | None = None
