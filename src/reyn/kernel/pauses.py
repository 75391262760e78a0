"""Where a visit stands still until it may go on: a cap that is reached stops the run; raised, it goes on from here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.kernel.effects import Pause
from reyn.kernel.limits import limit_reached

if TYPE_CHECKING:
    from reyn.config import RunSettings
    from reyn.kernel.tape import Tape


async def within_limits(tape: Tape, settings: RunSettings) -> None:
    while (stop := limit_reached(tape.state, settings)) is not None:
        tape.emit(stop)
        await Pause()
