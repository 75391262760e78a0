"""Events of a run as a whole: start, fork, resume, stop, end, undo."""

from __future__ import annotations

from typing import Literal

from reyn.config.values import PromptLimit
from reyn.journal.kinds.shapes import (
    AnswerForm,
    ArtifactRef,
    AskRef,
    Change,
    ContentName,
    Count,
    DerivedText,
    EnvironmentRef,
    ForkPoint,
    HistoryPart,
    ImageRef,
    ParentRef,
    Question,
    RestoreVerdict,
    RollbackRef,
)
from reyn.journal.registry import Body, event


@event("run_started", v=1, origin="start", enters="running")
class RunStarted(Body, frozen=True):
    """A run was created. The event pins everything that determines its behaviour.

    `skill_hash`, `settings` and `ops` are the run's own copies of its skill, its settings and the specifications of its
    ops. `rules` is the version of the derivation rules, `wording` the version of derived texts (prompts, corrections,
    reasons). `source` is the path of the skill, unless it was run by name. `parent` is set in a sub-run; `workspace`
    names the run whose workspace it shares. `requests` are those of the runs above it, which bound its own. `rerun_of`
    names the run that it repeats. `answer_form` is the form in which `model` is asked to answer. `imported` is true if
    the repeated run or the parent stems from an import: standing approvals and grants to named skills do not apply.
    `summaries` are those that other programs left in the project, for phases that receive handoffs before there are
    any. `prompt_limit` is how many tokens a prompt for `model` may have, and how they are counted. `credentials` names
    the secrets that the run above may use, which bound those of a sub-run; `*` is any. `history` has the messages that
    came before in a conversation. `hooks` names the functions of the program that are called before each model call.
    `ask` is set in a conversation that another agent opened: its first message is the run's input. `rollback` is set if
    the result of an earlier sub-run of the same node was rejected: the entry is visited as after a rollback. `images`
    come with the input; a model that reads no images cannot answer. `sender` is the call that sent the first message of
    a conversation, if the code of an op did.
    """

    run_id: str
    skill: str
    skill_hash: ContentName
    input: ArtifactRef
    model: str
    settings: ContentName
    rules: Count
    wording: Count
    parent: ParentRef | None = None
    workspace: str | None = None
    rerun_of: str | None = None
    source: str | None = None
    ops: ContentName | None = None
    requests: ContentName | None = None
    answer_form: AnswerForm = "full"
    imported: bool = False
    summaries: ContentName | None = None
    prompt_limit: PromptLimit | None = None
    credentials: tuple[str, ...] | None = None
    history: tuple[HistoryPart, ...] = ()
    hooks: tuple[str, ...] = ()
    ask: AskRef | None = None
    images: tuple[ImageRef, ...] = ()
    rollback: RollbackRef | None = None
    sender: str = ""


@event("run_forked", v=1, origin="outside", enters="running")
class RunForked(Body, frozen=True):
    """A run was created as a fork: it continues from the event `point` of another run.

    The other fields are set only where the fork differs from its origin: `model`, the `input` of the next phase, the
    skill, or the versions that apply from here. A fork of an imported run has the `settings` of the project that forked
    it, and `imported` is true: standing approvals and grants to named skills do not apply. The copy of a conversation
    whose run went on to another phase has the `phase` of the conversation, which takes its next message. `sender` is
    the call of the op whose code made the copy. `children` are the children of the origin that had not ended at
    `point`, by call: they name the unsafe ops that each has completed or begun. `repeats` names those of the origin
    after `point`. If a user wrote new `instructions`, they are the names of these phases, and the skill has the texts.
    If a user wrote the `answer` to the open model call, `llm_responded` follows with it.
    """

    run_id: str
    point: ForkPoint
    model: str | None = None
    input: ArtifactRef | None = None
    skill: str | None = None
    skill_hash: ContentName | None = None
    rules: Count | None = None
    wording: Count | None = None
    ops: ContentName | None = None
    settings: ContentName | None = None
    imported: bool = False
    answer_form: AnswerForm | None = None
    prompt_limit: PromptLimit | None = None
    phase: str | None = None
    sender: str = ""
    children: dict[str, str] = {}  # noqa: RUF012 - msgspec copies it
    repeats: str = ""
    instructions: tuple[str, ...] = ()
    answer: ContentName | None = None


@event("run_resumed", v=1, origin="outside", enters="running")
class RunResumed(Body, frozen=True):
    """A process took over the run; appends of an earlier process are rejected from here on.

    `driver` identifies the process. `open_intents` are the calls that were started but have no recorded outcome.
    `retry` is true if a failed call is retried. The other fields are set only if they changed: `environment`, if the
    packages of the last environment that code ran in are not the same any more. An open question stays open.
    """

    driver: str
    open_intents: tuple[str, ...] = ()
    retry: bool = False
    model: str | None = None
    skill: str | None = None
    skill_hash: ContentName | None = None
    wording: Count | None = None
    ops: ContentName | None = None
    answer_form: AnswerForm | None = None
    prompt_limit: PromptLimit | None = None
    hooks: tuple[str, ...] | None = None
    environment: EnvironmentRef | None = None


@event("run_failed", v=1, origin="derived", enters="failed")
class RunFailed(Body, frozen=True):
    """The run stopped on an error; `resume --retry` retries it.

    `code` is the code of the error. `hint` is set if there is more specific advice than the hint of the code, and
    `error_name` is the name of the error if it is not that of the code.
    """

    code: str
    reason: DerivedText
    hint: DerivedText = ""
    error_name: str = ""


@event("notification_sent", v=1, origin="outside")
class NotificationSent(Body, frozen=True):
    """The command and the webhook of `notify` were called about an open question or a failure, without an error.

    `subject` is the id of the question, or the sequence number of the failure. `attempts` counts the calls of the
    process that delivered it; `message` is its report in the inbox.
    """

    subject: str
    event: Literal["question", "failed"]
    attempts: Count
    message: Count


@event("run_broken", v=1, origin="outside", enters="failed")
class RunBroken(Body, frozen=True):
    """An internal error or an error of the environment stopped the run; `resume --retry` continues from the journal."""

    code: str
    reason: str


@event("run_submitted", v=1, origin="outside")
class RunSubmitted(Body, frozen=True):
    """The run was handed over to the workers of a queue, which execute it from here on. High priorities come first.

    `labels` are those that a worker needs. A worker that does not have the project's files adds `project`.
    """

    queue: str
    priority: int = 0
    labels: tuple[str, ...] = ()


@event("run_suspended", v=1, origin="outside")
class RunSuspended(Body, frozen=True):
    """The run gave its place at a worker back: it waits for sub-runs that workers execute. The end of each wakes it.

    `runs` are those in progress. It stays `running`; `run_resumed` follows.
    """

    runs: tuple[str, ...]


@event("run_cancelled", v=1, origin="outside", enters="cancelled")
class RunCancelled(Body, frozen=True):
    """The run was cancelled. `message` is the id of the request in the inbox."""

    reason: str
    message: Count


@event("limit_reached", v=1, origin="derived", enters="limited")
class LimitReached(Body, frozen=True):
    """The run reached a limit and stopped; it can be resumed with a higher one.

    `value` is the current value of `limit`.
    """

    limit: str
    value: int
    phase: str
    reason: DerivedText


@event("allowance_reached", v=1, origin="outcome")
class AllowanceReached(Body, frozen=True):
    """A run made no model call, or started no sub-run: one message, or the start of a run, may not lead to more.

    `limit` is the limit to raise and `cap` its value; `count` is what was counted since a person's last message or
    reply, or the start of the root run.
    """

    call: str
    limit: str
    cap: Count
    count: Count


@event("limit_raised", v=1, origin="outside")
class LimitRaised(Body, frozen=True):
    """A limit was raised to `value`; null removes it. `message` is the id of the request in the inbox."""

    limit: str
    value: int | None
    message: Count


@event("wait_opened", v=1, origin="derived", enters="waiting")
class WaitOpened(Body, frozen=True):
    """The run stopped to wait for a reply, which any process can send."""

    wait: Question

    @property
    def reason(self) -> str:
        """The text of the question."""
        return self.wait.message


@event("wait_answered", v=1, origin="outside", enters="running")
class WaitAnswered(Body, frozen=True):
    """The question `wait` has a reply. `value` is the JSON of the reply, `message` its id in the inbox.

    `by` is the user who replied, if known.
    """

    wait: str
    value: ContentName
    message: Count
    by: str = ""


@event("wait_expired", v=1, origin="outside", enters="running")
class WaitExpired(Body, frozen=True):
    """The question timed out; the run continues as if it was declined."""

    wait: str
    reason: str = ""


@event("message_refused", v=1, origin="outside")
class MessageRefused(Body, frozen=True):
    """The run discarded an inbox message that did not apply, such as a reply to a question that is closed.

    `message` is its id, `type` its type, such as `answer`. `text` is what a user or an agent said, to a conversation
    that ended before it took the message.
    """

    message: Count
    type: str
    reason: str
    text: ContentName | None = None


@event("skill_completed", v=1, origin="derived", enters="finished")
class SkillCompleted(Body, frozen=True):
    """The run finished. `artifact` is its result: a valid final output, after the postprocessor."""

    artifact: ArtifactRef


@event("skill_aborted", v=1, origin="derived", enters="aborted")
class SkillAborted(Body, frozen=True):
    """The run was aborted: the model decided so, or a rollback produced the same artifact again."""

    phase: str
    reason: DerivedText


@event("undo_started", v=1, origin="outside")
class UndoStarted(Body, frozen=True):
    """An undo is about to restore the files that the run changed, newest change first."""

    changes: tuple[Change, ...]


@event("undo_completed", v=1, origin="outside")
class UndoCompleted(Body, frozen=True):
    """An undo restored files. `left` lists files that another program changed since; they stay.

    `verdicts` are the decisions of the permission gate, one per file; a file that it denied stays as well.
    """

    restored: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    verdicts: tuple[RestoreVerdict, ...] = ()
