"""What happened?

Events, the chain that binds them, the content they refer to, and the seam behind which they are kept. Knows kinds of
events and their shapes; knows nothing of phases' meaning, models or skills.
"""

from reyn.journal.canonical import Blob, canonical, check_json, digest
from reyn.journal.event import GENESIS, Event, link
from reyn.journal.memory import MemoryJournal
from reyn.journal.port import Answer, Batch, Cancel, Journal, Message, RaiseLimit
from reyn.journal.projections import RunRow
from reyn.journal.registry import Body, Status, decode, encode

__all__ = [
    "GENESIS",
    "Answer",
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
]
