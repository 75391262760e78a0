"""Dispatchers: what wakes the runs that were submitted, on this machine or on others.

The journal stays the truth. A dispatcher only calls `drive(run_id)`, at least once for every wake; a call too many does
nothing. `Outbox` needs nothing but the journal; `open_engine` opens the one that the configuration names.
"""

from reyn.engines.opening import open_engine, start_engine
from reyn.engines.outbox import Outbox
from reyn.engines.port import Dispatcher, Serving

__all__ = ["Dispatcher", "Outbox", "Serving", "open_engine", "start_engine"]
