"""Tools to test skills, models and journals.

Answers for a `ScriptedModel` (`finish`, `goto`, `act`, `reply`, `give_up`), in-memory implementations of the ports, a
deterministic clock and ids, conformance suites for journals, models and dispatchers, and a harness that kills a run at
every port call (`reyn.testing.crash`). The suites run under pytest but do not import it.
"""

from reyn.journal import MemoryJournal
from reyn.models.scripted import ScriptedModel
from reyn.testing.answers import act, finish, give_up, goto, reply
from reyn.testing.dispatcher_conformance import DispatcherConformance
from reyn.testing.fixtures import CountingIds, SteppingClock
from reyn.testing.journal_conformance import JournalConformance
from reyn.testing.model_conformance import ModelConformance

__all__ = [
    "CountingIds",
    "DispatcherConformance",
    "JournalConformance",
    "MemoryJournal",
    "ModelConformance",
    "ScriptedModel",
    "SteppingClock",
    "act",
    "finish",
    "give_up",
    "goto",
    "reply",
]
