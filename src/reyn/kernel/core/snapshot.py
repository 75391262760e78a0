"""A snapshot of a run: `RunState` and its parts. Immutable values, no I/O.

Everything here is bounded in size, so that the cost of a visit does not grow with the run. `run_state` decides what
each event changes.
"""

from __future__ import annotations

from typing import Literal

import msgspec
from msgspec.structs import replace

from reyn.config.values import PromptLimit
from reyn.context.messages import Memory
from reyn.context.tokens import NEUTRAL
from reyn.journal import digest, kinds
from reyn.journal.summary import RunSummary
from reyn.kernel.core.conversations import SEED, AgentThread, ReceivedMessage, Transcript, begun
from reyn.kernel.core.history import NO_HANDOFFS, Handoffs, History, StateValues, with_latest

POSTPROCESSOR = ""
"""Stands for the postprocessor among the names of phases."""
MAX_SUB_RUNS = 10
"""The number of sub-runs of a visit whose summaries are part of its handoff."""
MAX_TRUNCATED = 200
"""The number of truncated contents that prompts refer to; ops read all of them from the journal."""
MIN_CALIBRATED = 100
"""The tokens of a prompt that is long enough to compare its count with the reported usage."""
_OP_DIGITS, _OP_MASK = 32, (1 << 128) - 1
"""The digits of a hash that count, and the largest sum of them."""
_FACTORS = (250, 8000)
"""The smallest and the largest factor, whatever a provider reports."""


# -- visits -------------------------------------------------------------------------------------------


class VisitState(msgspec.Struct, frozen=True, gc=False):
    """The visit in progress, or the start of the next one."""

    is_open: bool = False
    input: kinds.ArtifactRef | None = None
    rollback: kinds.RollbackRef | None = None
    """Why the phase is entered again."""
    attempt: int = 0
    """How often the visit has failed and is repeated, as `retry` of the node says."""
    latest: dict[str, str] = {}
    """The latest artifacts when the visit started."""
    ops: int = 0
    """The sum of the hashes of the arguments and results of the visit's ops, and of the values that its rules or
    conditions read. It does not depend on their order."""
    is_answered: bool = False
    """Whether a user replied to a question in the visit."""
    handoffs: Handoffs = NO_HANDOFFS
    """The handoffs when the visit started."""
    values: StateValues = {}
    """The lists and sums of the skill's state when the visit started."""
    prompt: tuple[str, int] | None = None
    """The model and the uncalibrated tokens of the last prompt, if it was counted."""
    sub_runs: tuple[kinds.ChildEnded, ...] = ()
    """The sub-runs of the visit that ended, at most `MAX_SUB_RUNS`."""
    earlier_sub_runs: int = 0
    """The number of those before them."""
    has_message: bool = False
    """Whether the visit has added to the transcript of a conversation, first the user's message."""
    is_continued: bool = False
    """Whether the visit continues a turn of a conversation that had no usable answer: its message is recorded."""
    children: dict[str, str] = {}
    """The children of the visit that have not ended, by call."""
    acted: dict[str, str] = {}
    """The unsafe ops that children of the visit have completed or begun, by call."""

    # -- rules ----------------------------------------------------------------------------------------

    def with_op(self, content: str) -> VisitState:
        """Add the arguments or the result of an op, by hash. Those of ops performed together arrive in any order."""
        return replace(self, ops=(self.ops + int(digest(content.encode())[:_OP_DIGITS], 16)) & _OP_MASK)

    def with_child(self, started: kinds.ChildStarted) -> VisitState:
        """Add a child that the visit awaits."""
        return replace(self, children={**self.children, started.call: started.run})

    def without_child(self, ended: kinds.ChildEnded) -> VisitState:
        """Return the visit after the end of a child, with what that has done."""
        sub_runs, acted, earlier = self.sub_runs, self.acted, self.earlier_sub_runs
        if ended.type == "skill":
            earlier += len(sub_runs) == MAX_SUB_RUNS
            sub_runs = (*sub_runs, ended)[-MAX_SUB_RUNS:]
        if ended.acted:
            before = f"{acted[ended.call]} " if ended.call in acted else ""
            acted = {**acted, ended.call: f"{before}{ended.acted}"}
        children = {call: run for call, run in self.children.items() if call != ended.call}
        return replace(self, sub_runs=sub_runs, earlier_sub_runs=earlier, children=children, acted=acted)


# -- the run ------------------------------------------------------------------------------------------


class Ending(msgspec.Struct, frozen=True, gc=False):
    """The ending of the run after its last visit. The orchestrator derives the closing event from it."""

    kind: Literal["finish", "abort", "failure", "unanswered", "no_progress", "post_failure"]
    reason: str = ""
    code: str = ""
    error_name: str = ""


class Output(msgspec.Struct, frozen=True, gc=False):
    """The latest artifact, and the output of the postprocessor."""

    artifact: kinds.ArtifactRef | None = None
    result: kinds.ArtifactRef | None = None
    post_attempts: int = 0
    reason: str = ""
    """The reason of the last decision."""


class Models(msgspec.Struct, frozen=True, gc=False):
    """The model of the run, and the answers so far."""

    name: str = ""
    form: kinds.AnswerForm = "full"
    """The form in which it is asked to answer."""
    answers: int = 0
    """Answers so far, those of sub-runs included."""
    prompt_limit: PromptLimit = PromptLimit()
    """How many tokens a prompt for the run's own model may have."""
    calibration: dict[str, int] = {}
    """The factor, per mille, between counted and reported tokens of prompts, by model."""

    # -- rules ----------------------------------------------------------------------------------------

    def calibrated(self, model: str, counted: int, reported: int) -> Models:
        """Compare the tokens of a prompt with those that the provider reported.

        The factor rises at once, because a prompt that is too long is refused, and falls slowly.
        """
        if counted < MIN_CALIBRATED or reported <= 0:
            return self
        least, most = _FACTORS
        factor = min(max(-(-reported * NEUTRAL // counted), least), most)
        before = self.calibration.get(model, factor)
        factor = max(factor, (3 * before + factor) // 4)
        return replace(self, calibration={**self.calibration, model: factor})


class Recovery(msgspec.Struct, frozen=True, gc=False):
    """The intents without an outcome, in their order. There are several where effects are performed together."""

    open_intents: tuple[str, ...] = ()
    unknown_outcomes: tuple[str, ...] = ()
    """Intents that an earlier driver left open: whether they took effect is unknown."""
    children: dict[str, str] = {}
    """Children that the origin of a fork left open, by call: the fork cannot continue them, and has to start its own.
    Each with the unsafe ops that it has completed or begun."""

    def interrupted(self, children: dict[str, str]) -> Recovery:
        """Return the intents after another run took over: the outcomes of all that are open are unknown."""
        known = self.unknown_outcomes
        unknown = (*known, *(call for call in self.open_intents if call not in known))
        return Recovery(self.open_intents, unknown, children)

    def without(self, call: str) -> Recovery:
        """Return the other intents, after the outcome of one."""
        return Recovery(
            tuple(one for one in self.open_intents if one != call),
            tuple(one for one in self.unknown_outcomes if one != call),
            {one: acted for one, acted in self.children.items() if one != call} if self.children else self.children,
        )


class PersonInput(msgspec.Struct, frozen=True, gc=False):
    """The last message or reply of a person: its time, and the tokens and answers that the run had used by then.

    For a message of another agent, only the tokens and answers are those at its arrival.
    """

    at: int = 0
    usage: kinds.Usage = kinds.Usage()
    answers: int = 0


class RunState(RunSummary, frozen=True, kw_only=True):
    """An immutable snapshot of a run: its summary, and what its next step depends on."""

    started: kinds.RunStarted
    started_at: int = 0
    """The time of the first event."""
    wording: int = 0
    """The wording version of the events that follow."""
    visit: VisitState = VisitState()
    history: History = History()
    ending: Ending | None = None
    output: Output = Output()
    models: Models = Models()
    recovery: Recovery = Recovery()
    environment: kinds.EnvironmentRef | None = None
    """The last environment with packages that code ran in."""
    last_answer: kinds.WaitAnswered | None = None
    """The last reply to a question."""
    expired: str | None = None
    """The last question that expired."""
    truncated: dict[str, tuple[str, str]] = {}  # noqa: RUF012 - msgspec copies it
    """Hashes of truncated contents and their phases, by the name under which ops can read the whole."""
    conversations: dict[str, Transcript] = {}  # noqa: RUF012 - msgspec copies it
    """The transcripts of conversations, and of the visit in progress with native tool calls, by key."""
    sharing: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it
    """The keys of the transcripts that phases share, by phase. The key of any other transcript is its phase."""
    threads: dict[str, AgentThread] = {}  # noqa: RUF012 - msgspec copies it
    """The conversations with other agents, by agent."""
    received: ReceivedMessage | None = None
    """The last message that another agent sent to this conversation."""
    person: PersonInput = PersonInput()
    visits_at_message: dict[str, int] = {}  # noqa: RUF012 - msgspec copies it
    """The number of visits by phase when a conversation took its last message."""
    turn_depth: int = 0
    """How many reports of background runs led to one another, up to the turn in progress."""
    depths: dict[str, int] = {}  # noqa: RUF012 - msgspec copies it
    """The depth of the turn that started each background run."""
    aborted: kinds.TurnAborted | None = None
    """The request to abort the turn in progress, until its visit has ended."""
    turn_end: kinds.PhaseAborted | None = None
    """The end of the last turn of a conversation that has ended, if it was aborted or unanswered."""

    def visits_of(self, phase: str) -> int:
        return self.history.visits.get(phase, 0)

    def transcript(self, phase: str, visit: int = 0) -> Transcript:
        """Return the transcript of a conversation, or of a visit; an empty one if there is none yet."""
        return begun(self.conversations, self.sharing.get(phase, phase), visit)

    def transcript_key(self, phase: str) -> str:
        """Return the key of the transcript of a phase."""
        return self.sharing.get(phase, phase)

    @property
    def current_transcript(self) -> Transcript | None:
        """The transcript of the phase that the run is in, if it has one."""
        return self.conversations.get(self.transcript_key(self.phase))

    def memory(self, phase: str) -> Memory:
        """Return the memory of a conversation."""
        selfref = self.transcript(phase).selfref
        return selfref.marker if selfref is not None else Memory()

    def holds_conversation(self, phase: str) -> bool:
        """Return whether a phase is a conversation that has begun."""
        key = self.sharing.get(phase, phase)
        return key in self.conversations and key != SEED and self.conversations[key].visit == 0

    @property
    def is_conversation(self) -> bool:
        """Whether a phase of the run is a conversation."""
        return bool(self.conversations) and any(one.visit == 0 for one in self.conversations.values())

    @property
    def is_turn_open(self) -> bool:
        """Whether a turn of a conversation is in progress: its message is part of the transcript."""
        return self.visit.is_open and self.visit.has_message and self.aborted is None

    @property
    def total_answers(self) -> int:
        """Model answers so far, those of the runs above it included."""
        if self.received is not None:
            return self.models.answers + self.received.answered_before
        return self.models.answers + (self.started.parent.answered if self.started.parent else 0)

    @property
    def workspace(self) -> str:
        """The run whose workspace this one uses."""
        return self.started.workspace or self.started.run_id

    @property
    def has_handoffs(self) -> bool:
        """Whether a phase of the run may have received a handoff: one is recorded, or was before a rollback."""
        if self.started.summaries is not None:
            return True
        before = any(visit.handoffs.count for visit in self.history.trail)
        return before or bool(self.history.handoffs.count or self.visit.handoffs.count)

    # -- rules ----------------------------------------------------------------------------------------

    def with_truncated(self, name: str, content: str) -> RunState:
        """Add truncated content that ops can read under a name."""
        return replace(self, truncated=with_latest(self.truncated, name, (content, self.phase), MAX_TRUNCATED))

    def truncated_in(self, phase: str) -> list[str]:
        """Return the names of the contents that frames of a phase truncated."""
        return [name for name, (_, shown_in) in self.truncated.items() if shown_in == phase]
