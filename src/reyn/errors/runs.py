"""Errors of runs and their storage (RYN4xx)."""

from __future__ import annotations

from reyn.errors.base import ReynError


class JournalError(ReynError):
    """A run or its storage does not allow the operation."""


class RunNotFound(JournalError):
    """No run has this id or prefix, several have the prefix, or the run has no such event."""

    code = "RYN401"
    hint = "Use the id of a run of this project, or a prefix that only one run has."
    exit_code = 2


class RunBusy(JournalError):
    """Another process is executing the run."""

    code = "RYN402"
    hint = "Wait for the other process, or stop it and resume the run."


class AppendConflict(JournalError):
    """Another process appended to the run first; this one stops, so that the run has a single history."""

    code = "RYN403"
    hint = "Nothing is lost: the other process recorded its events. Check the status of the run before you resume it."


class ChainBroken(JournalError):
    """An event does not match its recorded hash, or an event is missing."""

    code = "RYN404"
    hint = "The journal was modified or is damaged; restore it from a backup."


class ReplayMismatch(JournalError):
    """Re-executing the recorded inputs derives an event that differs from the recorded one."""

    code = "RYN405"
    hint = "The journal was modified, or the rules changed without a new rules version."

    def __init__(self, message: str, *, seq: int, kind: str, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.seq = seq
        self.kind = kind


class BlobMissing(JournalError):
    """Content that an event refers to is missing, or does not match its hash."""

    code = "RYN406"
    hint = "The journal is damaged; restore it from a backup."


class EventInvalid(JournalError):
    """An event or message has an unknown kind or invalid data."""

    code = "RYN407"
    hint = (
        "An invalid event is not stored. If it is in the journal, the journal is damaged or was written by a newer "
        "version."
    )


class StoreUnavailable(JournalError):
    """The journal's database cannot be opened, read or written."""

    code = "RYN408"
    hint = (
        "Check that the disk has free space, that the state directory is writable and that no other program locks the "
        "database; then resume. Recorded events are not lost."
    )
    foreign_hint = "Inspect its runs. If they are yours, trust the project; if not, delete the file."
    """The hint for a journal that another user created."""


class RunIdTaken(JournalError):
    """The run id is in use by a run of a different skill, with a different input, or from a different project."""

    code = "RYN409"
    hint = "Use a new run id, or the skill and the input of the existing run."
    exit_code = 2


class RunNotResumable(JournalError):
    """The run cannot be resumed in its current status with these options."""

    code = "RYN410"
    hint = "Use the operation that continues a run of this status."
    exit_code = 2


class ConversationInvalid(JournalError):
    """The run is not a conversation with an agent, or the conversation has no such message."""

    code = "RYN426"
    hint = "List the conversations and their messages."
    exit_code = 2


class RunBlocked(JournalError):
    """This version of Reyn cannot execute the run: it does not support the rules version, or cannot read the skill."""

    code = "RYN411"
    hint = "The run stays readable. Fork it, or execute it with a version that supports it."
    exit_code = 7


class StoreDamaged(JournalError):
    """The journal's file is not a database, or its pages are damaged."""

    code = "RYN412"
    hint = "Nothing was written. Restore the file from a backup; keep the damaged file."


class RunIdInvalid(JournalError):
    """The text is not a valid run id."""

    code = "RYN413"
    hint = "Use at most 100 letters, digits, `.`, `_` and `-`, starting with a letter or digit."
    exit_code = 2


class QuestionUnknown(JournalError):
    """The run has no open question with this id."""

    code = "RYN414"
    hint = "Use the id of a question that is open."
    exit_code = 2


class ReplyInvalid(JournalError):
    """The reply does not match the schema of the question."""

    code = "RYN415"
    hint = "Pass a value that matches the schema of the question: JSON, or plain text if the question takes text."
    exit_code = 2


class UpgradeIncompatible(JournalError):
    """The run cannot switch to the current version of its skill, because its current phase has changed."""

    code = "RYN416"
    hint = "Resume with the run's own copy of the skill, or fork the run with the new version."
    exit_code = 2


class ForkImpossible(JournalError):
    """The run cannot be forked at this event: there is no such event, or no earlier event to fork from."""

    code = "RYN417"
    hint = "Choose an event at which a visit ends or the model is called."
    exit_code = 2


class ArchiveInvalid(JournalError):
    """An archive of exported runs cannot be read, is damaged or has a newer format; nothing was imported."""

    code = "RYN418"
    hint = "Verify the runs where they were exported, and export them again."
    exit_code = 2


class OpMissing(JournalError):
    """A run uses an op kind that is not installed. It can still be shown, verified and exported."""

    code = "RYN419"
    hint = (
        "Install the package that provides the op, list the tool under `tools`, or pass it to the runtime; then resume."
    )
    exit_code = 7


class RunInUse(JournalError):
    """A run cannot be deleted, because other runs need it: a fork that continues from it, its parent or a sub-run."""

    code = "RYN420"
    hint = "Delete the dependent runs as well, or keep all of them."
    exit_code = 2


class RunImported(JournalError):
    """The run was imported from an archive. It cannot be resumed, answered, cancelled or undone in this project."""

    code = "RYN421"
    hint = "Fork or rerun it with the settings of this project."
    exit_code = 2


class ArchiveTooLarge(JournalError):
    """An archive exceeds a limit of the import: total size, length of a line, runs or events. Nothing was imported."""

    code = "RYN422"
    hint = "If you trust the archive and have enough memory, raise the limit."
    exit_code = 2


class HistoryInvalid(JournalError):
    """The events of a run are in an order that no run produces, so its state cannot be derived."""

    code = "RYN423"
    hint = "The journal was modified or is damaged; restore it from a backup."


class HeadMismatch(JournalError):
    """No event of the run has the expected hash: its history was replaced or truncated."""

    code = "RYN424"
    hint = "Compare with a backup of the journal from the time when the hash was noted."
