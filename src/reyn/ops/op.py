"""The interface between the kernel and an op.

`plan` has no side effects. It returns the intended changes, which the kernel records, with the old contents of files,
before `perform` executes the op. After a crash, `perform` may be called again. An op that needs the kernel (to ask a
person or run another skill) returns a request in its plan; `perform` then receives the answer.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, runtime_checkable

import msgspec

from reyn.config import Config, PythonSettings, SandboxSettings
from reyn.errors import BlobMissing, Finding, IndexFault, ModelError, RulesTooBroad
from reyn.journal import Blob
from reyn.journal.kinds import AskRequest, MemoryRequest, MessageRequest, RunRequest, TaskState
from reyn.ops.budget import OpBudget, OpFailed, OpRefused
from reyn.permissions import Denied, Gate, NeedsApproval, Verdict
from reyn.vocabulary import OpSpec, is_error_name
from reyn.workspace import Change, FileError, Location, PathInvalid, RecordedFiles, Roots

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.retrieval import Indexes
    from reyn.sandbox import StopSignal
    from reyn.skills import Library, Skill
    from reyn.skills.cases import TrialReport
    from reyn.skills.resolve import MayRead
    from reyn.workspace.observation import Observed

Result = dict[str, Any]
"""The result envelope: `kind`, `op` if the kind has several forms, `status`, and the fields of the form."""


class Call(msgspec.Struct, frozen=True):
    """One op to execute. Its arguments match the specification of the op.

    Attributes:
        key: An idempotency key: unique among all runs, and the same when the op is executed again after a crash.
        args: The arguments, with the op's `kind` and, if the kind has several forms, `op`.
    """

    key: str
    args: dict[str, Any]

    @property
    def kind(self) -> str:
        """The op kind, for example `file`."""
        return str(self.args["kind"])

    @property
    def op(self) -> str | None:
        """The form, for example `read`; `None` for a kind with a single form."""
        return self.args.get("op")

    def relative(self, run_id: str) -> str:
        """Return the id of a sub-run without that of this run.

        A result that named this run would change the next prompt in every run, so that no recorded answer would fit.
        """
        return run_id.removeprefix(f"{self.key.partition('/')[0]}.")

    def ok(self, **fields: Any) -> Result:
        """Return a result with status `ok`."""
        return self._result("ok", fields)

    def error(self, message: str, **fields: Any) -> Result:
        """Return a result with status `error`. The model sees the message.

        `error_name` among the fields is the name by which `nodes` of skill.md handles the error.
        """
        return self._result("error", {"error": message, **fields})

    def timeout(self, message: str, **fields: Any) -> Result:
        """Return a result with status `timeout` and the fields found so far."""
        return self._result("timeout", {**fields, "error": message})

    def denied(self, verdict: Denied | NeedsApproval) -> Result:
        """Return the result for a denial."""
        return self._result("denied", {"error": verdict.reason, "rule": verdict.rule})

    def _result(self, status: str, fields: dict[str, Any]) -> Result:
        op = self.args.get("op")
        if op is None:
            return {"kind": self.args["kind"], "status": status, **fields}
        return {"kind": self.args["kind"], "op": op, "status": status, **fields}

    def failed(self, error: BaseException) -> Result:
        """Return the error result for an exception, without the path of an `OSError`."""
        match error:
            case OpRefused():
                return self._result("denied", {"error": str(error), **error.fields})
            case OpFailed():
                envelope = self.error(str(error))
                return envelope | error.fields | envelope
            case FileError() | PathInvalid():
                return self.error(str(error))
            case OSError():
                number = error.errno if isinstance(error.errno, int) and 0 < error.errno < 1_000 else errno.EIO
                return self.error(os.strerror(number))
            case RulesTooBroad():
                return self.error(f"{error.code}: {error.message}")
            case IndexFault() | ModelError():
                message = f"{error.code}: {error.message}"
                return self.error(f"{message}. {error.hint}" if error.hint else message)
            case MemoryError() | RecursionError():
                return self.error("the op needs more memory than is available")
        message = str(error)[:_MAX_ERROR_CHARS].encode("utf-8", "backslashreplace").decode()
        name = getattr(error, "error_name", "")
        fields = {"error_name": name} if is_error_name(name) else {}
        return self.error(f"the op failed: {type(error).__name__}: {message}", **fields)


_MAX_ERROR_CHARS = 500


class Attachments:
    """What an op records beside its result: content such as images, which the result names by its hash, and files.

    `observed` is set by an op that finds out which files it changed while it was performed, `environment` by one whose
    code can import the packages of an environment.
    """

    def __init__(self) -> None:
        self.blobs: dict[str, Blob] = {}
        self.observed: Observed | None = None
        self.environment: Any = None

    def add(self, content: bytes) -> str:
        """Record content with the result of the op; return its hash."""
        blob = Blob.of(content)
        self.blobs[blob.hash] = blob
        return blob.hash


NO_SECRETS = "default: no secret in an op"
"""The rule that denies an op whose arguments, files or result hold a known secret."""


class HoldsSecret(OpRefused, FileError):
    """A file that an op looks at holds a known secret: of a search, the file is skipped; any other op is denied."""

    def __init__(self, handle: str) -> None:
        super().__init__(f"the file holds the value of `{handle}`; nothing of it was recorded", NO_SECRETS)


def no_secrets(_content: bytes) -> str:
    """Find no known secret: there are none here."""
    return ""


def no_credentials(name: str) -> str:
    """Refuse a credential: nothing is required here."""
    raise OpFailed(f"the skill does not require the credential `{name}`; add it to `required_credentials` in skill.md")


def no_environment() -> None:
    """Return the environment of a skill that names none."""


def _no_content(name: str) -> bytes:
    raise BlobMissing(f"`{name}`: no run has recorded content yet")


class Env(msgspec.Struct, frozen=True):
    """The environment of an op: the parts of the run and the project that the op may use.

    Attributes:
        roots: The folders of the project and the run.
        gate: The run's permissions.
        content: Returns recorded content by its hash.
        recorded: What the run has recorded, as the files below `workspace:.full/`.
        file_bytes: The maximum size of a file to read or write.
        budget: The bytes and the search time that the ops of the visit have left.
        modules: The sources of the modules of the skill's python steps, by path.
        sandbox: The limits of programs and python steps.
        python: The sandbox and the default time of python steps.
        credential: Returns the value of a secret by its name. The skill of the run and the skills of its parents must
            list the secret in `required_credentials`.
        attachments: Content to record beside the result.
        skills: Patterns of the names of the skills that the phase may run; `None` allows all.
        secret_in: Returns the handle of a known secret that content holds; empty if there is none.
        environment: Returns the `PackageEnvironment` that the skill names, as it is now; `None` if it names none.
    """

    roots: Roots
    gate: Gate
    content: Callable[[str], bytes]
    recorded: RecordedFiles
    file_bytes: int
    budget: OpBudget = msgspec.field(default_factory=OpBudget)
    modules: Mapping[str, str] = {}
    sandbox: SandboxSettings = SandboxSettings()
    credential: Callable[[str], str] = no_credentials
    python: PythonSettings = PythonSettings()
    attachments: Attachments = msgspec.field(default_factory=Attachments)
    skills: tuple[str, ...] | None = None
    secret_in: Callable[[bytes], str] = no_secrets
    environment: Callable[[], Any] = no_environment

    @classmethod
    def without_run(cls, gate: Gate, file_bytes: int, skills: tuple[str, ...] | None = None) -> Self:
        """Return an environment in which no run has recorded anything."""
        return cls(gate.roots, gate, _no_content, RecordedFiles(), file_bytes, skills=skills)

    def may_run(self, skill: str) -> bool:
        """Return whether the phase may run a skill."""
        return self.skills is None or any(fnmatchcase(skill, pattern) for pattern in self.skills)


class Plan(msgspec.Struct, frozen=True):
    """The result of `Op.plan`: the intended changes of an op, before it has any effect.

    The fields determine what Reyn does next:

    - `changes`: Reyn applies the changes and returns `result`, without calling `perform`.
    - `request`: Reyn fulfils the request, sets `answer`, and calls `perform`.
    - `result` only: the op is complete.
    - none of these: Reyn calls `perform`.

    Attributes:
        rule: The permission rule that allows the op; empty if the op failed before permissions were checked.
        changes: The files to change.
        result: The result, if it is known before the op is performed.
        blobs: Content that `changes` and `request` refer to; empty in a plan that was read from the journal.
        request: Work for the kernel: a question to a person, a run of a skill, a change of the memory, or a message
            to another agent.
        answer: The outcome of the request: the person's reply, a `RunOutcome`, a `MemoryOutcome` or a
            `MessageOutcome`.
        approval: The `ask` rule for which a person must approve the op; `None` if no approval is needed.
        approved: The `ask` rules for which a person has approved the op.
        reads: A digest of the content that the op reads, if it needs approval. The approval is void if it changes.
        about: What a person sees before the diff of the changes, if the op needs approval.
        locations: The files that the gate decided about, each as it was resolved: those of `changes`, in order, or
            the file that the op reads. Empty in a plan that was read from the journal; the gate then decides again.
    """

    rule: str = ""
    changes: tuple[Change, ...] = ()
    result: Result | None = None
    blobs: tuple[Blob, ...] = ()
    request: AskRequest | RunRequest | MemoryRequest | MessageRequest | None = None
    answer: Any = None
    approval: str | None = None
    approved: str = ""
    reads: str = ""
    about: str = ""
    locations: tuple[Location, ...] = ()


class RunOutcome(msgspec.Struct, frozen=True):
    """The outcome of a `RunRequest`.

    Attributes:
        run_id: The sub-run.
        artifact: Its final artifact; `None` if the sub-run failed.
        error: Why it failed; empty otherwise.
        error_name: The name of the error, if it has one.
        phases: The phases that were visited last, each with its artifact and the name of that as a recorded file.
        is_recorded: Whether the sub-run was executed, so that its files can be read.
    """

    run_id: str
    artifact: dict[str, Any] | None
    error: str = ""
    error_name: str = ""
    phases: tuple[tuple[str, dict[str, Any], str], ...] = ()
    is_recorded: bool = False


class MemoryOutcome(msgspec.Struct, frozen=True):
    """The outcome of a `MemoryRequest`: the id of the entry that was added or removed, or the error."""

    id: str = ""
    error: str = ""


class MessageOutcome(msgspec.Struct, frozen=True):
    """The outcome of a `MessageRequest`.

    Attributes:
        run_id: The conversation of the other agent; empty if there is none.
        state: The state of the message: `completed`, or why there is no reply, as the A2A protocol names it.
        reply: The reply.
        error: Why there is no reply; empty if there is one.
        timed_out: Whether the reply took too long.
    """

    run_id: str
    state: TaskState
    reply: str = ""
    error: str = ""
    timed_out: bool = False


@runtime_checkable
class Op(Protocol):
    """One kind of op. An exception in `plan` or `perform` becomes an error result; it never ends the run."""

    @property
    def spec(self) -> OpSpec: ...

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        """Return the plan of a call, or refuse the call. Must not have side effects."""
        ...

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        """Execute the op and return its result envelope."""
        ...


class PlannedOp:
    """Base of a built-in op that is complete when it is planned: it only looks something up, or changes files."""

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        raise AssertionError(f"the plan of `{call.kind}` has no result")


@dataclass(frozen=True)
class OpSetup:
    """The project's settings and services that a runtime passes to its ops.

    Attributes:
        config: The configuration of the project.
        secret: Takes a handle and the URL of a server, and returns the value of the secret if it may be sent there.
        library: Finds skills by name.
        lint: Returns the findings about the skill in a folder. This and the next two ask about each file that is read.
        load: Loads a skill by its name or path.
        try_cases: Runs the cases of the skill in a folder with scripted answers, without effects outside, until it is
            stopped.
        indexes: The search indexes.
    """

    config: Config
    secret: Callable[[str, str], str]
    library: Library
    lint: Callable[[Path, MayRead], list[Finding]]
    load: Callable[[str, MayRead | None], Skill]
    try_cases: Callable[[Path, MayRead | None, StopSignal | None], TrialReport]
    indexes: Indexes


class ProjectOp:
    """Base of a built-in op that needs the configuration of a project, or its skills."""

    def __init__(self, setup: OpSetup | None = None) -> None:
        self._setup = setup

    def set_up(self, setup: OpSetup) -> Self:
        return type(self)(setup)

    @property
    def project(self) -> OpSetup:
        """The settings and services of the project."""
        if self._setup is None:
            raise OpFailed("no project is open")
        return self._setup


@runtime_checkable
class Targeted(Protocol):
    """An op with a target, such as a program, a host or a tool, that permission rules can name."""

    def target(self, call: Call) -> str:
        """Return the target that permission rules are matched with."""
        ...


@runtime_checkable
class Versioned(Protocol):
    """An op whose target has a content of its own, such as a skill or an agent, that an approval must not outlive."""

    def version(self, call: Call, env: Env) -> str:
        """Return the digest of the target as it is now; empty if there is none."""
        ...


@runtime_checkable
class Preparable(Protocol):
    """A built-in op whose plan needs a result that may take long. It is computed in a thread, before `plan`."""

    def preparation(self, call: Call, env: Env) -> Callable[[StopSignal], object] | None:
        """Return the work for the thread, until it is stopped; `None` if there is none. `plan` finds its result in a
        cache."""
        ...


class RecordedChanges(NamedTuple):
    """The changes that an op recorded, for a replay.

    Attributes:
        changes: The changes.
        content: Returns recorded content by its hash.
        resolve: Follows the symbolic links of a path in the project.
    """

    changes: tuple[Change, ...]
    content: Callable[[str], bytes]
    resolve: Callable[[str], str]

    def outside(self, is_inside: Callable[[str], bool]) -> str:
        """Return which change is not in the folder that an op writes to; empty if all are."""
        return next((f"it does not change `{one.path}`" for one in self.changes if not is_inside(one.path)), "")


@runtime_checkable
class DerivableChanges(Protocol):
    """An op whose changes of files follow from its arguments and the files before, so that a replay can check them."""

    def changes_error(self, call: Call, recorded: RecordedChanges) -> str:
        """Return why recorded changes do not follow from the recorded arguments of a call; empty if they do."""
        ...


@runtime_checkable
class DerivableResult(Protocol):
    """An op whose result follows from the reply of a person, so that a replay can check it."""

    def result_of(self, call: Call, answer: Any) -> Result:
        """Return the result for a reply."""
        ...


def approval_of(verdict: Verdict | None) -> str | None:
    """Return the rule that wants a person to approve; `None` if none does."""
    return verdict.rule if isinstance(verdict, NeedsApproval) else None
