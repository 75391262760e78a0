"""The journal: event kinds, canonical bytes, the hash chain, blobs, and storage behind one port.

The journal validates and stores events and derives a run's lifecycle from them. `reyn.kernel` decides the next step of
a run.
"""

from reyn.journal.canonical import Blob, canonical, check_json, digest, ordered
from reyn.journal.lifecycle import ENDED, RunRow
from reyn.journal.memory import MemoryJournal
from reyn.journal.messages import (
    AbortTurn,
    Answer,
    AttachedImage,
    Cancel,
    ChangeMemory,
    InboxMessage,
    NotificationDelivered,
    RaiseLimit,
    Rename,
    ReportRun,
    Say,
)
from reyn.journal.port import Batch, Deletion, Journal
from reyn.journal.registry import GENESIS, Body, Event, Status, decode, encode, link
from reyn.journal.results import APPROVAL_DIGITS, Approval
from reyn.journal.spending import Balance, SpendRow
from reyn.journal.wakes import Wake

__all__ = [
    "APPROVAL_DIGITS",
    "ENDED",
    "GENESIS",
    "AbortTurn",
    "Answer",
    "Approval",
    "AttachedImage",
    "Balance",
    "Batch",
    "Blob",
    "Body",
    "Cancel",
    "ChangeMemory",
    "Deletion",
    "Event",
    "InboxMessage",
    "Journal",
    "MemoryJournal",
    "NotificationDelivered",
    "RaiseLimit",
    "Rename",
    "ReportRun",
    "RunRow",
    "Say",
    "SpendRow",
    "Status",
    "Wake",
    "canonical",
    "check_json",
    "decode",
    "digest",
    "encode",
    "link",
    "ordered",
]
