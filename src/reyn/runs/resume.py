"""What moves a stopped run on: the rules of `resume`, as checks of values before anything is said to the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from reyn.config import Limits
from reyn.errors import LimitUnknown, RunNotResumable, UpgradeUnfit
from reyn.kernel.limits import limit_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from reyn.config import RunSettings
    from reyn.kernel.briefs import Briefs
    from reyn.kernel.run_state import RunState


def check_resume(
    run_id: str, state: RunState, *, retry: bool, raised: Mapping[str, int | None], is_heard: bool = True
) -> None:
    """An error that names the way, where the run needs another one than was asked for."""
    if state.status == "waiting" and not is_heard:
        assert state.wait is not None
        raise RunNotResumable(
            f"run `{run_id}` waits for an answer: {state.reason}",
            hint=f"`reyn answer {run_id} {state.wait.id} VALUE` answers it.",
        )
    if state.status == "failed" and not retry:
        raise RunNotResumable(
            f"run `{run_id}` failed: {state.reason}", hint=f"`reyn resume {run_id} --retry` tries again."
        )
    if state.status == "limited" and not raised and not (state.stop.sub_run and is_heard):
        raise RunNotResumable(
            f"run `{run_id}` stopped at a limit: {state.reason}",
            hint=f"`reyn resume {run_id} --raise {state.stop.limit[0] if state.stop.limit else 'LIMIT'}=N` goes on.",
        )


def check_raise(state: RunState, settings: RunSettings, raised: Mapping[str, int | None]) -> None:
    """A cap that is raised exists and becomes larger; `None` takes it away."""
    unknown = raised.keys() - {field.name for field in msgspec.structs.fields(Limits)}
    if unknown:
        raise LimitUnknown(f"no limit is called {', '.join(f'`{name}`' for name in sorted(unknown))}")
    for name, value in raised.items():
        cap = limit_of(state, settings, name)
        if cap is None and state.stop.limit is not None and state.stop.limit[0] == name:
            cap = state.stop.limit[1]  # a phase's own cap, or a sub-run's
        if cap is None or (value is not None and value <= cap):
            raise LimitUnknown(f"`{name}` is {'not set' if cap is None else cap}; {value} does not raise it")


def check_fit(state: RunState, old: Briefs, new: Briefs, content: Callable[[str], bytes]) -> None:
    """Whether a run can go on with its skill as it is today: what is recorded must follow from it, too.

    A visit in flight keeps its question, so its phase must be the same; what comes next must exist and take the input.
    """
    phase = state.phase or new.skill.entry
    if not new.fits(phase):
        raise UpgradeUnfit(f"the skill has no phase `{phase}` any more")
    if state.visit.is_open and not _same_phase(state, old, new, phase):
        raise UpgradeUnfit(f"phase `{phase}`, which is in flight, is another one in the skill as it is today")
    if not state.visit.is_open and state.ending is None:
        assert state.visit.input is not None
        artifact = msgspec.json.decode(content(state.visit.input.hash))
        taken = {member.name: member.schema for member in new.skill.inputs_of(phase)}
        if artifact["type"] not in taken:
            raise UpgradeUnfit(f"phase `{phase}` does not take a `{artifact['type']}` any more")
        wrong = new.validator(taken[artifact["type"]]).first_error(artifact["data"])
        if wrong is not None:
            raise UpgradeUnfit(
                f"the input of phase `{phase}` does not fit any more: {wrong.path('data')} {wrong.message}"
            )


def _same_phase(state: RunState, old: Briefs, new: Briefs, phase: str) -> bool:
    """The same question, the same answers, the same steps before it."""
    if phase not in old.skill.phases or phase not in new.skill.phases:
        return phase not in old.skill.phases and phase not in new.skill.phases
    if old.skill.phases[phase] != new.skill.phases[phase]:
        return False
    for acting in (True, False):
        before = old.of(phase, state).offer(acting=acting, is_truncated=False)
        now = new.of(phase, state).offer(acting=acting, is_truncated=False)
        if (before.stable.hash, before.schema.hash) != (now.stable.hash, now.schema.hash):
            return False
    return True
