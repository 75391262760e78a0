"""Effects: everything a visit may ask of the outside world.

A visit awaits effects and nothing else, so it can always be executed again from its record. Effects are not frozen
dataclasses, which cost several times as much to create: an effect lives as long as its visit awaits it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

import msgspec

from reyn.journal import Blob, Body, canonical, digest, kinds

if TYPE_CHECKING:
    from reyn.config.models import Effort
    from reyn.config.values import CounterName
    from reyn.context import NormalizedMessageList
    from reyn.context.budget import FittedText
    from reyn.context.messages import NormalizedMessage
    from reyn.context.tokens import TokenCounter
    from reyn.journal.canonical import ReadBlob
    from reyn.kernel.core.conversations import Transcript
    from reyn.models import Candidate, ToolDefinition, Turn
    from reyn.vocabulary import OpSpec

R = TypeVar("R")
MAX_TOGETHER = 20
"""The number of ops whose intents share a commit: ops that only read, and ops that are performed at the same time."""
APPROVED = " (approved)"
"""Ends the rule of an op that a person approved."""


class TurnInterrupted(Exception):
    """Raised in a visit where it awaits an effect: the user aborted the turn."""


class Effect(Generic[R]):
    """Awaiting an effect hands it to the driver, which returns its recorded result or performs it."""

    outcomes: ClassVar[tuple[type[Body], ...]] = ()
    """The events that record its outcome."""
    failures: ClassVar[tuple[type[Body], ...]] = ()
    """The events that record that there is no outcome yet: the run stops, and the effect can be performed again."""
    needs_intent: bool = True
    """Whether its intent is committed first. The world decides which intents of reads share a commit."""
    is_unsafe: bool = False
    """Whether performing it twice could do harm."""
    continues_child: bool = False
    """Whether performing it continues a child that was started before, or children of the code that it executes."""
    may_follow_reply: ClassVar[bool] = False
    """Whether its outcome can follow from the reply of a person, so that a replay checks it."""
    key: str
    """Unique in the run and known before the effect; the outcome has the same key."""

    def __await__(self) -> Generator[Effect[Any], Any, R]:
        result: R = yield self
        return result

    def result(self, outcome: Body, content: ReadBlob) -> R:
        """Return the result for a recorded outcome, the same whether it was just performed or recalled."""
        result: R = outcome  # type: ignore[assignment]  # `cast` would be a call
        return result

    def mismatch(self, outcome: Body) -> str:
        """Return why a recorded outcome cannot be one of this effect; empty if it can."""
        return ""

    def ends_with(self, call: str | None) -> bool:
        """Return whether an outcome of this call is one of the effect."""
        return call == self.key

    def beside(self, call: str) -> Effect[Any] | None:
        """Return the effect with this key that is performed at the same time, and whose outcome may come first."""
        return None


class AnswerSpec(Protocol):
    """What the model may answer.

    Attributes:
        phase: The phase that asks.
        task: Its role and instructions.
        form: The form of the answer.
        candidates: The exits that the model may choose.
        ops: The ops that the model may request.
        effort: How much the phase wants the model to think; `None` leaves it to the model's settings.
        schema: The JSON Schema of every allowed answer, as it is recorded.
        tools: The native tools, as they are recorded.
    """

    phase: str
    task: str
    form: kinds.AnswerForm
    candidates: tuple[Candidate, ...]
    ops: tuple[OpSpec, ...]
    effort: Effort | None
    schema: Blob
    tools: Blob | None

    @property
    def answer_schema(self) -> dict[str, Any]: ...

    @property
    def tool_definitions(self) -> tuple[ToolDefinition, ...]: ...


class ModelReply(msgspec.Struct, frozen=True):
    """A model's answer: its text, the hash of the text, whether it was truncated, and the probability of its choice.
    `thoughts` is the hash of its thoughts.

    In the form `tools`, the text is the JSON of content and tool calls (`reyn.models.protocol`). `failure` is set
    instead of a text if an `AttemptModel` failed.
    """

    text: str
    hash: str
    is_truncated: bool = False
    probability: float | None = None
    failure: kinds.LlmFailed | None = None
    thoughts: str | None = None


@dataclass
class CallModel(Effect[ModelReply]):
    """Ask the model. Messages consist of parts, which are joined when the call is made."""

    key: str
    model: str
    messages: tuple[kinds.FrameMessage, ...]
    spec: AnswerSpec
    results: tuple[str, ...] = ()
    input: str = ""
    """Hash of the input artifact."""
    transcript: NormalizedMessageList | None = None
    """Messages that come after the system message."""
    turn: Callable[[], Turn] | None = None
    """Returns the turn as values, if the model may request ops or the phase is a conversation."""
    needs_images: bool = False
    """Whether only a model that reads images can answer."""
    request_hash: str = ""
    """Hash of the recorded request."""

    outcomes: ClassVar[tuple[type[Body], ...]] = (kinds.LlmResponded,)
    failures: ClassVar[tuple[type[Body], ...]] = (kinds.LlmFailed, kinds.BudgetRefused, kinds.AllowanceReached)

    def result(self, outcome: Body, content: ReadBlob) -> ModelReply:
        assert isinstance(outcome, kinds.LlmResponded)
        text = content(outcome.text).decode()
        return ModelReply(text, outcome.text, outcome.cut, outcome.choice_probability, thoughts=outcome.thoughts)


class AttemptModel(CallModel):
    """Ask the model for what the visit can do without: a failed call does not stop the run."""

    outcomes = (kinds.LlmResponded, kinds.LlmFailed)
    failures = (kinds.BudgetRefused, kinds.AllowanceReached)

    def result(self, outcome: Body, content: ReadBlob) -> ModelReply:
        if isinstance(outcome, kinds.LlmFailed):
            return ModelReply("", "", failure=outcome)
        return super().result(outcome, content)


@dataclass
class FitTokens(Effect[kinds.TokensCounted]):
    """Count a text with an exact counter, and truncate it. `work` does both with the counter, in any thread."""

    key: str
    counter: CounterName
    model: str
    """The model whose prompt it is."""
    work: Callable[[TokenCounter], FittedText] = field(compare=False)

    outcomes = (kinds.TokensCounted,)
    failures = (kinds.LlmFailed,)


HOOKS = ".hooks"
"""Follows the id of a model call in that of its hooks."""


@dataclass
class CallHooks(Effect[kinds.ContextMutated]):
    """Call the hooks of the program before a model call.

    `visit` is that of the transcript which they patch, 0 for a conversation; `None` if each turn has a fresh frame.
    `blobs` is content of the messages that is stored with the frame, after the hooks. `correction` follows the messages
    in this turn alone. `needs_images` is whether images came with the turn.
    """

    key: str
    phase: str
    messages: NormalizedMessageList
    visit: int | None = None
    conversation: Transcript | None = None
    results: tuple[str, ...] = ()
    blobs: tuple[Blob, ...] = ()
    correction: tuple[NormalizedMessage, ...] = ()
    needs_images: bool = False

    outcomes = (kinds.ContextMutated,)
    failures = (kinds.LlmFailed,)
    needs_intent = False


@dataclass
class PlanOp(Effect[kinds.OpStarted | kinds.PermissionDenied | kinds.ApprovalRequired]):
    """Check permissions and plan an op. `approved` is the digest of the action that a person approved.

    With `always`, the person approved the same op and rule for good, which holds if the action is still the same.
    """

    key: str
    args: dict[str, Any]
    approved: str = ""
    always: bool = False

    outcomes = (kinds.OpStarted, kinds.PermissionDenied, kinds.ApprovalRequired)
    needs_intent = False

    def mismatch(self, outcome: Body) -> str:
        """The recorded arguments must be those that the model or the step gave."""
        if isinstance(outcome, kinds.OpStarted) and outcome.op_kind != self.args["kind"]:
            return f"an op of kind `{outcome.op_kind}` is recorded for one of kind `{self.args['kind']}`"
        if isinstance(outcome, kinds.OpStarted) and outcome.op != (self.args.get("op") or ""):
            return f"the form `{outcome.op}` is recorded for op `{self.key}`"
        recorded = outcome.args if isinstance(outcome, kinds.OpStarted | kinds.ApprovalRequired) else None
        if recorded is not None and recorded != digest(canonical(self.args)):
            return f"the recorded arguments of op `{self.key}` are not those that it was given"
        if isinstance(outcome, kinds.ApprovalRequired) and outcome.digest == self.approved:
            return f"op `{self.key}` needs an approval that it has"
        if isinstance(outcome, kinds.OpStarted):
            return self._unapproved(outcome)
        return ""

    def _unapproved(self, started: kinds.OpStarted) -> str:
        """Return why an op cannot have been performed by the approvals before it; empty if it can."""
        approval = started.approval
        if (approval is not None) != started.rule.endswith(APPROVED):
            return f"the rule of op `{self.key}` and its approval do not agree"
        if approval is None:  # the rule that asked may not hold any more
            return ""
        if self.approved and (approval.standing or approval.digest != self.approved):
            return f"op `{self.key}` started as another action than the one that was approved"
        if not self.approved and not approval.standing:
            return f"op `{self.key}` started as approved, and no approval of it is recorded"
        return ""


@dataclass
class Permit(Effect[kinds.PermissionDenied | kinds.ApprovalRequired | None]):
    """Ask the gate about a step or a node that does what an op with these arguments does.

    Nothing is recorded if it is permitted: what the visit does next shows it. `approved` and `always` are those of
    `PlanOp`.
    """

    key: str
    args: dict[str, Any]
    approved: str = ""
    always: bool = False

    outcomes = (kinds.PermissionDenied, kinds.ApprovalRequired)
    needs_intent = False

    def mismatch(self, outcome: Body) -> str:
        """The recorded action must be that of the step."""
        if isinstance(outcome, kinds.ApprovalRequired) and outcome.args != digest(canonical(self.args)):
            return f"the recorded arguments of `{self.key}` are not those that it was given"
        if isinstance(outcome, kinds.ApprovalRequired) and outcome.digest == self.approved:
            return f"`{self.key}` needs an approval that it has"
        return ""


@dataclass
class CheckOutput(Effect[kinds.OutputChecked]):
    """Have the program that started the run check the final output, which fits its schema."""

    key: str
    data: Any

    outcomes = (kinds.OutputChecked,)
    needs_intent = False


class Expired:
    """Returned instead of a reply: the question expired."""


EXPIRED = Expired()


class UnknownOutcome:
    """Returned instead of an outcome: an unsafe intent that a driver left, or a child that a fork cannot continue."""


UNKNOWN_OUTCOME = UnknownOutcome()


@dataclass
class PerformOp(Effect[kinds.OpCompleted | kinds.PermissionDenied | UnknownOutcome]):
    """Execute a planned op.

    `answer` is the result of the op's request. `resolution` is the operator's decision on an unsafe intent whose
    outcome is unknown: `again`, `done` or `failed`.
    """

    key: str
    args: dict[str, Any]
    started: kinds.OpStarted
    answer: Any = None
    is_unsafe: bool = False
    resolution: str = ""
    needs_intent: bool = True
    ahead: tuple[PerformOp, ...] = field(default=(), compare=False)
    """Ops that the visit will await next. They are performed meanwhile; their outcomes are recorded as they arrive."""

    outcomes = (kinds.OpCompleted, kinds.PermissionDenied)
    may_follow_reply = True

    @property
    def continues_child(self) -> bool:  # type: ignore[override]  # the base class declares a variable
        """Whether no person has decided about the functions that its code called before."""
        return not self.resolution

    def beside(self, call: str) -> PerformOp | None:
        return next((one for one in self.ahead if one.key == call), None)


@dataclass
class Restore(Effect[kinds.WorkspaceRestored]):
    """Restore files to their content before the changes, newest change first."""

    key: str
    changes: tuple[kinds.Change, ...]

    outcomes = (kinds.WorkspaceRestored,)


@dataclass
class Ask(Effect[Any]):
    """Wait for the reply to a question, and return its JSON value. A `wait_opened` with the same id precedes it.

    `is_deferred` means that a person has just postponed the question: the run stops and waits instead of asking again.
    `is_message` means that a conversation waits for its next message: a queued one ends the wait, without a value.
    """

    key: str
    is_deferred: bool = False
    is_message: bool = False


@dataclass
class Pause(Effect[None]):
    """Continue only while the run is running: after an event that stopped it, when it is resumed.

    `stop` is the limit that stops it first. A node that handles the error `limit` receives `NodeFailed` instead.
    """

    key: str = ""
    stop: kinds.LimitReached | None = None


@dataclass
class ReadOverviews(Effect[kinds.OverviewsRead]):
    """Read what ops can act on. `query` is what the user said."""

    key: str
    op_kinds: tuple[str, ...]
    query: str = field(default="", compare=False)

    outcomes = (kinds.OverviewsRead,)
    needs_intent = False


def decode_answer(answer: kinds.WaitAnswered, content: ReadBlob) -> Any:
    return msgspec.json.decode(content(answer.value))
