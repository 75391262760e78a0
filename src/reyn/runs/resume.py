"""The rules of `resume`: whether a stopped run can continue, with which options, with which version of its skill.

The checks write nothing. Their errors carry the action that does continue the run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import msgspec

from reyn.config import Limits, RunSettings
from reyn.config.budgets import DAY_LIMITS, MESSAGE_LIMITS
from reyn.documents import nearest_hint
from reyn.errors import LimitUnknown, NextAction, RunNotResumable, UpgradeIncompatible
from reyn.journal import ENDED, AbortTurn, Cancel, Journal, Say, decode, kinds
from reyn.journal.summary import limit_of
from reyn.kernel.world.loading import load_state
from reyn.runs.next_action import answer_action, retry_action

if TYPE_CHECKING:
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.visit.compiled_skill import CompiledSkill
    from reyn.skills import Skill


def has_ended(state: RunState, *, retry: bool, raised: Mapping[str, int | None]) -> bool:
    """Return whether a run has ended. Raise an error if the flags would continue it, or name an unknown limit."""
    if state.status not in ENDED:
        return False
    _check_known(raised)
    if retry or raised:
        raise RunNotResumable(
            f"run `{state.run_id}` is {state.status} and cannot be continued",
            hint="Fork it: a new run continues from one of its events.",
            action=NextAction("fork", state.run_id),
        )
    return True


def check_resume(
    journal: Journal,
    state: RunState,
    settings: RunSettings,
    *,
    retry: bool,
    raised: Mapping[str, int | None],
    is_attended: bool,
) -> None:
    """Check that a run which has not ended continues with these flags.

    Args:
        journal: The journal of the run.
        state: The fold of all its events.
        settings: Its own settings.
        retry: Whether a failure is retried.
        raised: New values of limits; `None` removes a limit.
        is_attended: Whether a user can be asked, so that an open question need not have a reply yet.

    Raises:
        RunNotResumable: The run needs other flags, or a reply, or its parent no longer needs it.
        LimitUnknown: A limit does not exist, or the value does not raise it.
    """
    check_raise(state, settings, raised)
    messages = journal.drain(state.run_id, state.messages_taken)
    if not any(isinstance(message.payload, Cancel) for message in messages):
        _check_flags(journal, state, retry=retry, raised=raised, is_attended=is_attended)
    _check_needed(journal, state)


def _check_flags(
    journal: Journal, state: RunState, *, retry: bool, raised: Mapping[str, int | None], is_attended: bool
) -> None:
    run_id = state.run_id
    is_timer = state.wait is not None and state.wait.is_timer  # the run goes on by itself when the time has come
    if state.status == "waiting" and not (is_timer or is_attended or raised or _is_answered(journal, state)):
        assert state.wait is not None
        raise RunNotResumable(
            f"run `{run_id}` waits for a reply: {state.reason}",
            hint="Reply to the question first.",
            action=answer_action(run_id, state.wait),
        )
    if state.status == "failed" and not retry:
        raise RunNotResumable(
            f"run `{run_id}` failed: {state.reason}",
            hint="Fix the cause, then retry.",
            action=retry_action(journal, run_id),
        )
    if state.status == "limited" and not raised and not _continues_without_raise(journal, state):
        raise RunNotResumable(
            f"run `{run_id}` stopped at a limit: {state.reason}",
            hint="Raise the limit.",
            action=NextAction("resume", run_id, limit=state.stop.limit[0] if state.stop.limit else ""),
        )


def _is_answered(journal: Journal, state: RunState) -> bool:
    """Return whether the question that a run waits for has a reply by now, or is no longer open."""
    wait = state.wait
    if wait is None:
        return True
    if wait.run is None:
        return bool(journal.drain(state.run_id, state.messages_taken))
    sub_run = journal.find(wait.run)
    return sub_run is None or not sub_run.wait or bool(journal.drain(sub_run.run_id, sub_run.messages_taken))


def _continues_without_raise(journal: Journal, state: RunState) -> bool:
    """Whether a run stopped at the limit of a sub-run that is not limited any more, or at the budget of a day.

    A turn of a conversation can be aborted at any limit. One that stopped at a limit on what one message may lead to
    continues with the next message.
    """
    name = state.stop.limit[0] if state.stop.limit is not None else ""
    if name in DAY_LIMITS:
        return True
    waiting = [one.payload for one in journal.drain(state.run_id, state.messages_taken)]
    if state.is_turn_open and any(isinstance(one, AbortTurn) for one in waiting):
        return True
    if name in MESSAGE_LIMITS:
        return any(isinstance(one, Say) and one.ask is None for one in waiting)
    if state.stop.sub_run is None:
        return False
    sub_run = journal.find(state.stop.sub_run)
    return sub_run is None or sub_run.status != "limited"


def _check_needed(journal: Journal, state: RunState) -> None:
    """Refuse a sub-run whose parent has continued without it: its result would contradict the parent's history."""
    parent = state.started.parent
    if parent is None or parent.background:  # a conversation does not wait for a background run
        return
    if state.run_id in load_state(journal, parent.run).visit.children.values():  # it is awaited
        return
    for event in journal.read(parent.run):
        body = decode(event)
        if isinstance(body, kinds.ChildEnded) and body.type == "skill" and body.run == state.run_id:
            raise RunNotResumable(
                f"run `{parent.run}` has continued without its sub-run `{state.run_id}`",
                hint="Fork the sub-run to continue it as a run of its own.",
                action=NextAction("fork", state.run_id),
            )


def check_raise(state: RunState, settings: RunSettings, raised: Mapping[str, int | None]) -> None:
    """Check that each limit exists and that its new value is larger; `None` removes a limit."""
    _check_known(raised)
    for name, value in raised.items():
        cap = limit_of(state, settings, name)
        if cap is None and state.stop.limit is not None and state.stop.limit[0] == name:
            cap = state.stop.limit[1]  # a phase's own cap, or a sub-run's
        if cap is None or (value is not None and value <= cap):
            raise LimitUnknown(f"`{name}` is {'not set' if cap is None else cap}; {value} does not raise it")


def _check_known(raised: Mapping[str, int | None]) -> None:
    limits = Limits.__struct_fields__
    for name in raised:
        if name not in limits:
            hint = f"{nearest_hint(name, limits)} The limits are {', '.join(f'`{limit}`' for limit in limits)}.".strip()
            raise LimitUnknown(f"unknown limit `{name}`", hint=hint)


def check_fit(state: RunState, old: CompiledSkill, new: CompiledSkill, content: Callable[[str], bytes]) -> None:
    """Check that a run can continue with the current version of its skill.

    The phase of an open visit, or the postprocessor in progress, must be unchanged. The next phase must exist and
    accept the recorded input.
    """
    phase = state.phase or new.skill.entry
    if not new.has_node(phase):
        raise UpgradeIncompatible(f"the current skill has no phase `{phase}`, which is next in the run")
    if state.visit.is_open and state.ending is not None:
        if old.skill.postprocessor != new.skill.postprocessor:
            raise UpgradeIncompatible("the postprocessor, which is being executed, has changed since the run started")
    elif state.visit.is_open and not _same_phase(state, old, new, phase):
        raise UpgradeIncompatible(f"phase `{phase}`, which is being visited, has changed since the run started")
    enters_phase = state.ending is None or state.ending.kind == "failure"
    if not state.visit.is_open and enters_phase:
        assert state.visit.input is not None
        artifact = msgspec.json.decode(content(state.visit.input.hash))
        accepted = {member.name: member.schema for member in new.skill.inputs_of(phase)}
        if artifact["type"] not in accepted:
            raise UpgradeIncompatible(f"phase `{phase}` no longer accepts type `{artifact['type']}`")
        error = new.validator(accepted[artifact["type"]]).first_error(artifact["data"])
        if error is not None:
            raise UpgradeIncompatible(
                f"phase `{phase}` no longer accepts its input: {error.path('data')} {error.message}"
            )


def _same_phase(state: RunState, old: CompiledSkill, new: CompiledSkill, phase: str) -> bool:
    """Return whether a phase has the same steps, prompt and contract in both versions of the skill."""
    if phase not in old.skill.phases or phase not in new.skill.phases:
        return phase not in old.skill.phases and phase not in new.skill.phases
    if old.skill.phases[phase] != new.skill.phases[phase]:
        return False
    if old.skill.filled_fields(phase) != new.skill.filled_fields(phase):
        return False
    form = old.phase(phase, state).form(state)
    for acting in (True, False):
        before = old.phase(phase, state).turn_spec(form, acting=acting, is_truncated=False)
        now = new.phase(phase, state).turn_spec(form, acting=acting, is_truncated=False)
        if (before.stable.hash, before.schema.hash) != (now.stable.hash, now.schema.hash):
            return False
    return True


def check_in_file(skill: Skill) -> None:
    """Refuse to look for the current version of a skill that a Python function defines: a file may have its name."""
    if skill.function:
        raise UpgradeIncompatible(
            f"`{skill.name}` is the Python function `{skill.function}`; its current version is not in a file of skills",
            hint="Call the function again, or continue the run with its own copy.",
        )
