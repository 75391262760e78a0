"""RYN3xx: permissions and approvals. RYN4xx: runs and their storage. RYN6xx: limits."""

from __future__ import annotations

from typing import Self

from reyn.errors.base import ReynError


class AccessError(ReynError, error_name="denied"):
    """Something is not permitted."""


class ApprovalExpired(AccessError, code="RYN301", exit_code=1, error_name="timeout"):
    """A phase with `requires_approval` decided, but no user approved it within `limits.approval_seconds`."""

    hint = "Retry the run to visit the phase again. `limits.approval_seconds` sets how long an approval stays open."


class ApprovalUnknown(AccessError, code="RYN302", exit_code=2):
    """No standing approval has this id."""

    hint = "Use the id of a standing approval."


class ApprovalUnnamed(AccessError, code="RYN303", exit_code=2):
    """A reply that would authorise an effect does not name the question: what it approves could be something else."""

    hint = "Read what is to be approved, then reply with the id of the question."


class SandboxUnavailable(AccessError, code="RYN330"):
    """No sandbox on this machine can isolate the code of an op or a python step. Nothing was executed."""

    hint = "Install bubblewrap, or use a kernel with Landlock 6 (Linux 6.12)."


class SandboxStartFailed(SandboxUnavailable, code="RYN331"):
    """A sandbox works on this machine, but could not start a process: too few processes, open files or memory."""

    hint = "Free the resource that the message names, or raise its limit; then retry the run."


class RulesTooBroad(SandboxUnavailable, code="RYN332"):
    """Rules that deny or ask cover paths among more files than Reyn compares. Nothing was executed."""

    hint = "Name folders in the rules for files, instead of `**` or many patterns, or copy a file with several names."


class EnvironmentUnavailable(SandboxUnavailable, code="RYN333"):
    """The environment with the packages of a skill is not declared, not made, or incomplete. Nothing was executed."""

    hint = "Declare the environment under `environments` in reyn.yaml, and make it."


class EnvironmentChanged(EnvironmentUnavailable, code="RYN334"):
    """The packages of an environment are not those that were installed, or that the run used before."""

    hint = "Make the environment again from its requirements."


class JournalError(ReynError):
    """A run or its storage does not allow the operation."""


class RunNotFound(JournalError, code="RYN401", exit_code=2):
    """No run has this id or prefix, several have the prefix, or the run has no such event."""

    hint = "Use the id of a run of this project, or a prefix that only one run has."


class RunBusy(JournalError, code="RYN402"):
    """Another process is executing the run, or another call in this process.

    Attributes:
        run_id: The run, if it is known.
    """

    hint = "Wait for the other process, or stop it and resume the run."

    def __init__(self, message: str, *, run_id: str = "", hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.run_id = run_id

    @classmethod
    def in_this_process(cls, run_id: str) -> Self:
        """Return the error of a call while another one in this process executes the run."""
        message = f"run `{run_id}` is being executed by another call in this process"
        return cls(message, run_id=run_id, hint="Await that call. `run` with this run id waits for its result, too.")


class AppendConflict(JournalError, code="RYN403"):
    """Another process appended to the run first; this one stops, so that the run has a single history."""

    hint = "Nothing is lost: the other process recorded its events. Check the status of the run before you resume it."


class ClaimLost(JournalError, code="RYN440"):
    """This process lost its claim on a run, because it was paused or disconnected, and another may execute the run.

    It performs no further effect, and its events are refused.
    """

    hint = "Nothing is lost: another process continues the run from its last event. Look at the status of the run."


class RunPoisoned(JournalError, code="RYN441"):
    """The processes that executed a submitted run died one after the other, so workers do not take it any more."""

    hint = "Look at the logs of the workers for what ends them. To try again, resume the run with a retry."


class QueueInvalid(JournalError, code="RYN442", exit_code=2):
    """A queue or a label has an invalid name, or a priority is out of range."""

    hint = (
        "Use a name of letters, digits, `-` and `_` that begins with a letter, and a priority from -1000 to 1000. "
        "Labels may contain `.`, too, and begin with a digit."
    )


class EngineUnavailable(JournalError, code="RYN444"):
    """The engine that wakes workers is not reached, not installed, or cannot be used with this journal."""

    hint = "Check that the engine is up and that its address in `engine` is right. Wakes stay in the journal."


class CopyRefused(JournalError, code="RYN445"):
    """A journal cannot be copied: the target has something else, or a process executes a run."""

    hint = (
        "Copy to an empty journal, such as a new schema, while no worker and no other process executes runs. "
        "After an interruption, the same command continues the copy."
    )


class ChainBroken(JournalError, code="RYN404"):
    """An event does not match its recorded hash, or an event is missing."""

    hint = "The journal was modified or is damaged; restore it from a backup."


class ReplayMismatch(JournalError, code="RYN405"):
    """Re-executing the recorded inputs derives an event that differs from the recorded one."""

    hint = "The journal was modified, or the rules changed without a new rules version."

    def __init__(self, message: str, *, seq: int, kind: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.seq = seq
        self.kind = kind


class BlobMissing(JournalError, code="RYN406"):
    """Content that an event refers to is missing, or does not match its hash."""

    hint = "The journal is damaged; restore it from a backup."


class EventInvalid(JournalError, code="RYN407"):
    """An event or message has an unknown kind or invalid data."""

    hint = (
        "An invalid event is not stored. If it is in the journal, the journal is damaged or was written by a newer "
        "version."
    )


class StoreUnavailable(JournalError, code="RYN408"):
    """The journal's database cannot be opened, read or written."""

    hint = (
        "Check that the disk has free space, that the state directory is writable and that no other program locks the "
        "database; then resume. Recorded events are not lost."
    )
    foreign_hint = "Inspect its runs. If they are yours, trust the project; if not, delete the file."
    """The hint for a journal that another user created."""


class StateFolderUnsafe(StoreUnavailable, code="RYN425"):
    """The state folder, or a file in it, is a link, belongs to another user, or came with a clone of the project."""

    hint = "Move the folder or the file away. Reyn creates a new state folder with the next run."


class RunIdTaken(JournalError, code="RYN409", exit_code=2):
    """The run id is in use by a run of a different skill, with a different input, or from a different project."""

    hint = "Use a new run id, or the skill and the input of the existing run."


class RunNotResumable(JournalError, code="RYN410", exit_code=2):
    """The run cannot be resumed in its current status with these options."""

    hint = "Use the operation that continues a run of this status."


class ConversationInvalid(JournalError, code="RYN426", exit_code=2):
    """The run or the phase is no conversation, or none with an agent, or the conversation has no such message."""

    hint = "Use the id of a conversation with an agent, and the number of one of its messages."


class StreamTaken(JournalError, code="RYN443", exit_code=2):
    """A stream, or the items of a conversation, have a reader already. A second one would receive only a part."""

    hint = "Read it in one place and hand the items on. A run can be followed any number of times by `rt.runs.watch`."


class ChainTooDeep(JournalError, code="RYN437", exit_code=2):
    """Agents asked one another up to the limit, so a message was not sent. The result of the op says why."""

    hint = "Raise `agents.max_depth` in reyn.yaml, or leave `agents` out of one of the agents' files."


class RunBlocked(JournalError, code="RYN411", exit_code=7):
    """This version of Reyn cannot execute the run: it does not support the rules version, or cannot read the skill."""

    hint = "The run stays readable. Fork it, or execute it with a version that supports it."


class StoreDamaged(JournalError, code="RYN412"):
    """The journal's file is not a database, or its pages are damaged."""

    hint = "Nothing was written. Restore the file from a backup; keep the damaged file."


class RunIdInvalid(JournalError, code="RYN413", exit_code=2):
    """The text is not a valid run id."""

    hint = "Use at most 100 letters, digits, `.`, `_` and `-`, starting with a letter or digit."


class QuestionUnknown(JournalError, code="RYN414", exit_code=2):
    """The run has no open question with this id."""

    hint = "Use the id of a question that is open."
    waiting_hint = "List the runs that wait for a reply."


class ReplyInvalid(JournalError, code="RYN415", exit_code=2):
    """The reply does not match the schema of the question."""

    hint = "Pass a value that matches the schema of the question: JSON, or plain text if the question takes text."


class UpgradeIncompatible(JournalError, code="RYN416", exit_code=2):
    """The run cannot switch to the current version of its skill, because its current phase has changed."""

    hint = "Resume with the run's own copy of the skill, or fork the run with the new version."


class ForkImpossible(JournalError, code="RYN417", exit_code=2):
    """The run cannot be forked at this event: there is no such event, or no earlier event to fork from."""

    hint = "Choose an event at which a visit ends or the model is called."


class ArchiveInvalid(JournalError, code="RYN418", exit_code=2):
    """An archive of exported runs cannot be read, is damaged or has a newer format; nothing was imported."""

    hint = "Verify the runs where they were exported, and export them again."


class OpMissing(JournalError, code="RYN419", exit_code=7):
    """A run uses an op kind that is not installed. It can still be shown, verified and exported."""

    hint = (
        "Install the package that provides the op, list the tool under `tools`, or pass it to the runtime; then resume."
    )
    function_hint = (
        "The tools are those of the Python function `{}`. Continue the run with `resume` of the function, or import "
        "its module before you resume, or pass the tools to the runtime: `OSRuntime.open(…, ops=[…])`."
    )
    """The hint for a run of a decorated function."""


class RunInUse(JournalError, code="RYN420", exit_code=2):
    """A run cannot be deleted, because other runs need it: a fork that continues from it, its parent or a sub-run."""

    hint = "Delete the dependent runs as well, or keep all of them."


class RunImported(JournalError, code="RYN421", exit_code=2):
    """The run was imported from an archive. It cannot be resumed, answered, cancelled or undone in this project."""

    hint = "Fork or rerun it with the settings of this project."


class ArchiveTooLarge(JournalError, code="RYN422", exit_code=2):
    """An archive exceeds a limit of the import: total size, length of a line, runs or events. Nothing was imported."""

    hint = "If you trust the archive and have enough memory, raise the limit."


class HistoryInvalid(JournalError, code="RYN423"):
    """The events of a run are in an order that no run produces, so its state cannot be derived."""

    hint = "The journal was modified or is damaged; restore it from a backup."


class HeadMismatch(JournalError, code="RYN424"):
    """No event of the run has the expected hash: its history was replaced or truncated."""

    hint = "Compare with a backup of the journal from the time when the hash was noted."


class IndexFault(JournalError):
    """A search index cannot be used as requested. Its documents stay as they are."""


class IndexMissing(IndexFault, code="RYN450", exit_code=2):
    """The journal of the project has no search index of this name."""

    hint = "Write the index first; its name is the same for every worker and every skill of the project."


class IndexOutdated(IndexFault, code="RYN451"):
    """The vectors of an index were made with another embedder than the project has now, so they cannot be compared."""

    hint = "Write the index again: what has changed is embedded anew. Or set `retrieval.embedder` to the one before."


class IndexDamaged(IndexFault, code="RYN452"):
    """The stored passages or vectors of a document cannot be read."""

    hint = "Write the index again, or drop it first. Runs and their results are not affected."


class DocumentUnreadable(IndexFault, code="RYN453"):
    """A document has no text that can be indexed: it is empty, binary, too large, or cannot be converted."""

    hint = "Convert it to Markdown, text or HTML, or split it; `sizes.file_bytes` limits the size of one file."


class IndexRefused(IndexFault, AccessError, code="RYN454", exit_code=2):
    """An index has no valid name, or the rules do not allow what is to be indexed to be read."""

    hint = "Name an index in lower-case letters, digits, `-` and `_`, and folders that `files.read` covers."


class LimitError(ReynError, exit_code=3, error_name="limit"):
    """A limit stopped the run, or cannot be changed as requested."""


class LimitUnknown(LimitError, code="RYN601", exit_code=2):
    """The limit to raise does not exist, or the new value is not larger than the current one."""

    hint = "Name the limit that stopped the run, and a larger value."


class AllowanceExceeded(LimitError, code="RYN602"):
    """The code of an op calls more functions than one message of a person, or the start of a run, may lead to."""

    hint = "Set `limits.sub_runs`, in a conversation `limits.message_runs`; there, a message begins a new count."


class BudgetExceeded(LimitError, JournalError, code="RYN522"):
    """A reservation exceeds the cap of a budget, so the journal does not store it. The run stops before the call.

    Attributes:
        account: The account.
        limit: The limit to raise.
        cap: Its value.
        used: What was charged to the account.
        reserved: What other calls in progress have reserved.
        needed: What the call could use.
    """

    hint = "Raise the limit, or wait until the next day if it is a budget of the day."

    def __init__(self, account: str, limit: str, cap: int, used: int, reserved: int, needed: int) -> None:
        super().__init__(
            f"account `{account}`: {used} + {reserved} reserved + {needed} exceed `{limit}`, which is {cap}"
        )
        self.account = account
        self.limit = limit
        self.cap = cap
        self.used = used
        self.reserved = reserved
        self.needed = needed
