"""How does a user test a skill, a model or a journal?

The twins of the ports in memory, a clock and ids that can be told, the suites that every journal and every model must
pass, and the harness that kills a run at every port call. Needs nothing that the core does not; pytest runs the suites
but is not imported.
"""

from reyn.journal import MemoryJournal
from reyn.models.scripted import ScriptedModel
from reyn.testing.journal_conformance import JournalConformance
from reyn.testing.model_conformance import ModelConformance
from reyn.testing.ports import CountingIds, SteppingClock

__all__ = [
    "CountingIds",
    "JournalConformance",
    "MemoryJournal",
    "ModelConformance",
    "ScriptedModel",
    "SteppingClock",
]
