"""A skill that a run asks for becomes a run of its own: linked both ways, limited by what is left, crash-safe alike.

Its id derives from the run and the call, so that starting it twice is starting it once. Where it stops, the run above
stops for the same reason; when that goes on, so does this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import (
    AnswersRejected,
    ReynError,
    RunBlocked,
    RunBusy,
    RunKeyTaken,
    StepFailed,
    SubRunFailed,
)
from reyn.journal import Blob, RaiseLimit, canonical, kinds
from reyn.kernel.changes import changes_of
from reyn.kernel.inputs import check_supported, to_artifact
from reyn.kernel.limits import nested, raises_for
from reyn.kernel.loading import Resumption, load_run, new_tape
from reyn.kernel.run_state import ENDED, fold
from reyn.skills import pin
from reyn.skills.resolve import is_path

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from reyn.journal import Body, Journal
    from reyn.kernel.briefs import Briefs
    from reyn.kernel.effects import AdmitSkill, RunChild
    from reyn.kernel.ports import Clock, Ids
    from reyn.kernel.run_state import RunState
    from reyn.kernel.tape import Tape
    from reyn.skills import Skill

    Recorded = tuple[Body, tuple[Blob, ...]]
    Drive = Callable[[Tape, Resumption | None], Awaitable[RunState]]

MAX_DEPTH = 8
"""How deep runs may ask for runs."""

_OWN_FAULTS = (AnswersRejected.code, StepFailed.code, SubRunFailed.code)
"""Failures that are the sub-run's own result; any other (a model without an answer) stops the run above, too."""


class SubRuns:
    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        ids: Ids,
        load: Callable[[str], Skill],
        briefs_of: Callable[[kinds.RunStarted], Briefs],
        drive: Drive,
    ) -> None:
        self._journal = journal
        self._clock = clock
        self._ids = ids
        self._load = load
        self._briefs_of = briefs_of
        self._drive = drive

    def admit(self, effect: AdmitSkill, tape: Tape) -> Recorded:
        """Find the skill, check the input; what is wrong with them is the op's result, not the run's end."""
        args = Blob.of(canonical(effect.args)) if effect.args is not None else None
        if args is not None and is_path(effect.skill):
            return _denied(effect, args)
        run = f"{tape.run_id}.{effect.key}"
        blobs = (args,) if args else ()
        try:
            skill, artifact = self._resolve(effect, tape)
        except ReynError as error:
            problem = f"{error.code}: {error.message}"
            name = args.hash if args else None
            return kinds.RunSkillStarted(effect.key, effect.skill, run, name, problem=problem), blobs
        copy, content = pin(skill), Blob.of(canonical(artifact))
        started = kinds.RunSkillStarted(
            effect.key,
            skill.name,
            run,
            args.hash if args else None,
            copy.hash,
            kinds.ArtifactRef(artifact["type"], content.hash),
            effect.shares_workspace,
        )
        return started, (*blobs, copy, content)

    def _resolve(self, effect: AdmitSkill, tape: Tape) -> tuple[Skill, dict[str, Any]]:
        state = tape.state
        assert state.started is not None
        depth = state.started.parent.depth if state.started.parent else 0
        if depth >= MAX_DEPTH:
            raise SubRunFailed(f"runs ask for runs more than {MAX_DEPTH} deep")
        skill = effect.pinned or self._load(effect.skill)
        check_supported(skill)
        given = effect.given
        if isinstance(given, kinds.ArtifactRef):
            given = msgspec.json.decode(tape.content(given.hash))
        strict = self._briefs_of(state.started).settings.strict
        return skill, to_artifact(given, skill, strict=strict)

    async def run(self, effect: RunChild, tape: Tape) -> Recorded:
        """Drive the sub-run until it ends or stops; where it was driven before, go on."""
        started = effect.started
        if started.problem:
            return _ended(started, "error", started.problem)
        before = fold(self._journal.read(started.run)).active
        try:
            with self._journal.claim(started.run):
                state = await self._go_on(started, tape)
        except RunKeyTaken as error:
            return _ended(started, "error", f"{error.code}: {error.message}")
        except (RunBusy, RunBlocked) as error:
            hint = error.own_hint
            return kinds.RunSkillStopped(started.call, started.run, "failed", error.message, error.code, hint=hint), ()
        body, blobs = self._outcome(started, state)
        assert isinstance(body, kinds.RunSkillCompleted | kinds.RunSkillStopped)
        body = msgspec.structs.replace(body, active=max(0, state.active - before))
        if isinstance(body, kinds.RunSkillCompleted):
            body = msgspec.structs.replace(body, changes=self._left_changed(started, state))
        return body, blobs

    def _left_changed(self, started: kinds.RunSkillStarted, state: RunState) -> tuple[kinds.Change, ...]:
        """What the sub-run left changed in files that are not its alone, and its own sub-runs with it."""
        changes = changes_of(self._journal.read(started.run), with_sub_runs=True)
        is_shared = state.workspace != started.run
        return tuple(change for change in changes if is_shared or not change.path.startswith("workspace:"))

    async def _go_on(self, started: kinds.RunSkillStarted, tape: Tape) -> RunState:
        above = tape.state
        assert above.started is not None
        allowed = nested(above, self._briefs_of(above.started).settings)
        if self._journal.find(started.run) is None:
            return await self._drive(self._new(started, tape, allowed), None)
        loaded = load_run(self._journal, started.run)
        parent = loaded.started.parent
        if parent is None or (parent.run, parent.call) != (tape.run_id, started.call):
            raise RunKeyTaken(f"there is another run `{started.run}`, which nobody asked for here")
        if loaded.state.status in ENDED or _is_own_fault(loaded.state):
            return loaded.state
        settings = self._briefs_of(loaded.started).settings
        for name, value in raises_for(above, loaded.state, settings, allowed.limits).items():
            self._journal.post(started.run, RaiseLimit(name, value))
        resumption = Resumption(self._ids.new(), retry=loaded.state.status == "failed")
        return await self._drive(loaded.tape, resumption)

    def _new(self, started: kinds.RunSkillStarted, tape: Tape, allowed: Any) -> Tape:
        above = tape.state.started
        assert above is not None
        assert started.input is not None
        assert started.skill_hash is not None
        parent = kinds.ParentRef(
            tape.run_id,
            started.call,
            (above.parent.depth if above.parent else 0) + 1,
            tape.state.answers + (above.parent.answered if above.parent else 0),
            f"{above.parent.path}/{started.call}" if above.parent else started.call,
        )
        return new_tape(
            self._journal,
            kinds.RunStarted(
                run_id=started.run,
                skill=started.skill,
                skill_hash=started.skill_hash,
                input=started.input,
                model=tape.state.model,
                settings=(pinned := Blob.of(canonical(allowed))).hash,
                rules=above.rules,
                parent=parent,
                workspace=tape.state.workspace if started.shares_workspace else None,
            ),
            (pinned,),
            now=self._clock.now(),
        )

    def _outcome(self, started: kinds.RunSkillStarted, state: RunState) -> Recorded:
        match state.status:
            case "finished":
                artifact = state.result or state.artifact
                assert artifact is not None
                kept = msgspec.json.decode(self._journal.blob(artifact.hash))
                return _ended(started, "ok", kept["data"], state, artifact)
            case "failed" if not _is_own_fault(state):
                code, hint = state.failure_code, state.failure_hint
                return kinds.RunSkillStopped(started.call, started.run, "failed", state.reason, code, hint=hint), ()
            case "limited":
                limit, value = state.reached or ("", 0)
                stopped = kinds.RunSkillStopped(started.call, started.run, "limited", state.reason, "", limit, value)
                return stopped, ()
            case "waiting":
                return kinds.RunSkillStopped(started.call, started.run, "waiting", state.reason, wait=state.wait), ()
        return _ended(started, "error", f"the sub-run `{started.run}` is {state.status}: {state.reason}", state)


def _is_own_fault(state: RunState) -> bool:
    """Whether a sub-run failed for good: its failure is what the run above gets, also if that died before it heard."""
    return state.status == "failed" and state.failure_code in _OWN_FAULTS


def _denied(effect: AdmitSkill, args: Blob) -> Recorded:
    """A model may run skills by their names; a place would be a way to read what it may not."""
    rule = "default: skills by name only"
    reason = f"`{effect.skill}` is a place; a skill is run by the name it has in the project or the standard library"
    result = {"kind": "run_skill", "status": "denied", "error": reason, "rule": rule, "skill": effect.skill}
    content = Blob.of(canonical(result))
    return kinds.PermissionDenied(effect.key, "", rule, reason, content.hash), (content, args)


def _ended(
    started: kinds.RunSkillStarted,
    status: kinds.OpStatus,
    given: Any,
    state: RunState | None = None,
    artifact: kinds.ArtifactRef | None = None,
) -> Recorded:
    """The result of the op: what the sub-run gave, or why it gave nothing."""
    is_ok = status == "ok"
    result = {"kind": "run_skill", "status": status, "skill": started.skill, "success": is_ok}
    result |= {"artifact_type": artifact.type, "final_output": given} if artifact else {"error": given}
    content = Blob.of(canonical(result))
    return kinds.RunSkillCompleted(
        started.call,
        status,
        content.hash,
        len(content.content),
        artifact,
        state.usage if state else kinds.Usage(),
        state.answers if state else 0,
    ), (content,)
