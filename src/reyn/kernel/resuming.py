"""What moves a stopped run on: the rules of `resume`, as checks of values before anything is said to the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.config import Limits
from reyn.errors import LimitUnknown, RunNotResumable
from reyn.kernel.run_orchestrator import limit_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from reyn.config import RunSettings
    from reyn.kernel.run_state import RunState

ENDED = ("finished", "aborted", "cancelled")
"""States that nothing moves on from."""


def check_resume(run_id: str, state: RunState, *, retry: bool, raised: Mapping[str, int | None]) -> None:
    """An error that names the way, where the run needs another one than was asked for."""
    if state.status == "failed" and not retry:
        raise RunNotResumable(
            f"run `{run_id}` failed: {state.reason}", hint=f"`reyn resume {run_id} --retry` tries again."
        )
    if state.status == "limited" and not raised:
        raise RunNotResumable(
            f"run `{run_id}` stopped at a limit: {state.reason}",
            hint=f"`reyn resume {run_id} --raise max_phase_visits=N` goes on with a larger cap.",
        )


def check_raise(state: RunState, settings: RunSettings, raised: Mapping[str, int | None]) -> None:
    """A cap that is raised exists and becomes larger; `None` takes it away."""
    unknown = raised.keys() - {field.name for field in msgspec.structs.fields(Limits)}
    if unknown:
        raise LimitUnknown(f"no limit is called {', '.join(f'`{name}`' for name in sorted(unknown))}")
    for name, value in raised.items():
        cap = limit_of(state, settings, name)
        if cap is None or (value is not None and value <= cap):
            raise LimitUnknown(f"`{name}` is {'not set' if cap is None else cap}; {value} does not raise it")
