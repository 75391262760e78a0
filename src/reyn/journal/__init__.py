"""The journal: events, their hash chain, the content they refer to, and the port behind which they are stored.

It knows event kinds and the lifecycle of a run. What happens next is decided in `reyn.kernel`.
"""

from reyn.journal.canonical import Blob, canonical, check_json, digest, ordered
from reyn.journal.event import GENESIS, Event, link
from reyn.journal.lifecycle import ENDED
from reyn.journal.memory import MemoryJournal
from reyn.journal.port import Answer, Approval, Batch, Cancel, Journal, Message, RaiseLimit
from reyn.journal.projections import RunRow
from reyn.journal.registry import Body, Status, decode, encode

__all__ = [
    "ENDED",
    "GENESIS",
    "Answer",
    "Approval",
    "Batch",
    "Blob",
    "Body",
    "Cancel",
    "Event",
    "Journal",
    "MemoryJournal",
    "Message",
    "RaiseLimit",
    "RunRow",
    "Status",
    "canonical",
    "check_json",
    "decode",
    "digest",
    "encode",
    "link",
    "ordered",
]
