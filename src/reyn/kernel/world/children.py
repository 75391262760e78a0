"""Run the children of a run: start them, continue them after a crash, and bring back how they end.

A sub-skill, a branch of an iteration, a background skill, a function that the code of an op calls and a message to
another agent are children; `ChildSpec` has their differences. The id of a child derives from its parent and the call,
so starting it twice starts it once. Its intent is durable in the parent before it starts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from reyn.errors import OpMissing, ReynError, RunBlocked, RunBusy, RunIdTaken, RunNotFound, SubRunFailed
from reyn.journal import ENDED, Blob, Event, RaiseLimit, RunRow, Say, Wake, canonical, kinds
from reyn.journal.cancellation import cancel_runs
from reyn.journal.family import descendants
from reyn.kernel.core.child_effects import SubRunsAwaited
from reyn.kernel.core.limits import limits_to_raise, sub_run_settings
from reyn.kernel.runtime_types import BackgroundPeople
from reyn.kernel.visit.handoffs import summarize_sub_run
from reyn.kernel.visit.run_context import credentials_of
from reyn.kernel.world.agent_messages import AgentMessages
from reyn.kernel.world.allowance import Allowance
from reyn.kernel.world.child_ends import (
    TASK_STATES,
    active_counted,
    ended_event,
    error_name_in,
    phase_artifacts,
    stopped_event,
)
from reyn.kernel.world.child_spec import ChildEnd, ChildSpec, depth_below
from reyn.kernel.world.environments import requests_above
from reyn.kernel.world.loading import (
    Copies,
    Resumption,
    check_ops,
    first_event,
    load_run,
    load_state,
    new_run,
    new_tape,
    pin_ops,
    pin_run,
    pin_settings,
)
from reyn.kernel.world.run_scope import RunScope, call_name
from reyn.kernel.world.unsafe_ops import with_acted
from reyn.permissions import SkillRequests
from reyn.skills.inputs import check_supported, to_artifact
from reyn.workspace.restore import unreverted_changes

if TYPE_CHECKING:
    from reyn.config import RunSettings
    from reyn.journal.outside import EventWithBlobs
    from reyn.kernel.core.child_effects import CancelChild, ExecuteChild, PlanChild
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.world.services import Services
    from reyn.skills import Skill

    Execute = Callable[[Tape, Resumption | None, Tape, ChildSpec], Awaitable[RunState]]
    """Executes a child of the run of the second tape."""

_OP_ENDED = "the op that called it has ended"


class Children:
    """The children of one run."""

    def __init__(self, services: Services, execute: Execute) -> None:
        self.services = services
        self.journal = services.journal
        self._execute = execute
        self._messages = AgentMessages(services)

    # -- intents ----------------------------------------------------------------------------------------

    def plan(self, effect: PlanChild, tape: Tape) -> EventWithBlobs:
        """Find what a child runs and validate its input. An error becomes the result of the child."""
        try:
            if effect.declined:
                raise SubRunFailed(f"it was not started again, as an operator decided. {effect.declined}")
            return self._messages.plan(effect, tape) if effect.type == "agent" else self._plan_skill(effect, tape)
        except ReynError as error:
            run, reason = f"{tape.run_id}.{effect.key}", f"{error.code}: {error.message}"
            text = effect.input if effect.type == "agent" else None
            rejected = kinds.ChildEnded(effect.key, effect.type, effect.skill, run, "rejected", reason, text=text)
            return replace(rejected, acted=effect.declined), ()

    def _plan_skill(self, effect: PlanChild, tape: Tape) -> EventWithBlobs:
        state, vocabulary = tape.state, self.services.ops.vocabulary
        depth_below(tape.started)
        if effect.type == "background" and not isinstance(self.services.people, BackgroundPeople):
            raise SubRunFailed("only a chat executes skills in the background; run the skill with `run_skill`")
        skill = effect.pinned or self.services.load(effect.skill)
        if skill.opens_conversation and state.current_transcript is not None:
            raise SubRunFailed(f"`{skill.name}` is a conversation; one conversation cannot run another")
        check_supported(skill, vocabulary)
        value = effect.input
        if isinstance(value, kinds.ArtifactRef):
            value = msgspec.json.decode(tape.content(value.hash))
        artifact = to_artifact(value, skill, strict=self.services.settings_of(tape.started, tape.content).strict)
        # A skill that is part of the run's own skill has the run's op specifications.
        specs = None if effect.pinned else pin_ops(skill, vocabulary)
        copies = pin_run(skill, Blob.of(canonical(artifact)), specs)
        return kinds.ChildStarted(
            effect.key,
            effect.type,
            skill.name,
            f"{tape.run_id}.{effect.key}",
            copies.skill_hash,
            copies.input,
            copies.ops or tape.started.ops,
            effect.shares_workspace,
            rollback=effect.rollback,
        ), copies.blobs

    # -- the ways in which an end comes back ------------------------------------------------------------

    def cancel(self, intent: kinds.ChildStarted, reason: str, tape: Tape) -> None:
        """Ask a child to end, and the runs below it, unless it did not begin or belongs to the origin of a fork.

        Raises:
            RunIdTaken: A run with its id exists that is not this one.
        """
        row = self.journal.find(intent.run)
        if row is None or row.status in ENDED or intent.call in tape.state.recovery.children:
            return
        self._check_own(intent, ChildSpec(self.settings_left(tape), tape.state.models), tape, row)
        below = descendants(self.journal, intent.run)
        cancel_runs(self.journal, [row, *below], reason, self.services.clock.now)
        for one in (row, *below):
            self.services.polling.notify(one.run_id)

    async def end(self, effect: CancelChild, tape: Tape) -> EventWithBlobs:
        """Return how a cancelled child ended."""
        intent = effect.started
        acted = tape.state.recovery.children.get(intent.call)
        if acted is None and (row := self.journal.find(intent.run)) is not None:
            return self.settled(intent, tape) if row.queue else await self.execute(effect, tape)
        return replace(ended_event(intent, "canceled", effect.reason), acted=acted or ""), ()

    async def execute(
        self, effect: ExecuteChild | CancelChild, tape: Tape, tokens: int | None = None
    ) -> EventWithBlobs:
        """Execute a child that the run awaits until it ends or stops; continue it if it was started before.

        Args:
            effect: The effect.
            tape: The tape of the parent.
            tokens: The most that it may use; `None` allows all that its parent has left.
        """
        intent = effect.started
        settings = self.settings_left(tape, tokens)
        if intent.type == "agent":
            return await self._messages.deliver(intent, tape, settings, self.drive)
        try:
            with self.journal.claim(intent.run):
                end = await self.drive(intent, ChildSpec(settings, tape.state.models), tape)
        except RunIdTaken as error:
            return ended_event(intent, "failed", f"{error.code}: {error.message}"), ()
        except (RunBusy, RunBlocked, OpMissing) as error:
            hint = error.own_hint
            return kinds.ChildStopped(intent.call, intent.run, "failed", error.message, error.code, hint=hint), ()
        if end.state.is_suspended:  # it was continued here, and waits for sub-runs of its own
            raise SubRunsAwaited((intent.run,))
        stopped = stopped_event(intent, end)
        return (stopped, ()) if stopped is not None else self._completed(intent, end)

    async def submit(self, intent: kinds.ChildStarted, tape: Tape, tokens: int | None) -> None:
        """Submit a child: a worker executes it, and its end wakes the run. `tokens` is as in `execute`."""
        state, run = tape.state, intent.run
        child = self._begin(intent, ChildSpec(self.settings_left(tape, tokens), state.models), tape)
        child.record(kinds.RunSubmitted(state.queue, state.priority, state.labels), self.services.clock.now())
        wakes = (Wake(run, 0, state.queue, state.priority),)

        async def append(run_id: str, seq: int, events: Sequence[Event], blobs: Sequence[Blob]) -> int:
            return await self.services.commits.append(run_id, seq, events, blobs, wakes)

        await child.flush(append)

    def settled(self, intent: kinds.ChildStarted, tape: Tape) -> EventWithBlobs:
        """Return how a submitted child ended or stopped, as `execute` does, without executing it."""
        row = self.journal.find(intent.run)
        assert row is not None
        try:
            self._check_own(intent, ChildSpec(self.settings_left(tape), tape.state.models), tape, row)
        except RunIdTaken as error:
            return ended_event(intent, "failed", f"{error.code}: {error.message}"), ()
        state = load_state(self.journal, intent.run)
        if state.status == "running":  # it was continued just now
            raise SubRunsAwaited((intent.run,))
        active = max(0, state.active - active_counted(intent, tape))
        end = ChildEnd(state, row.seq, row.hash, self.journal.blob, active)
        stopped = stopped_event(intent, end)
        return (stopped, ()) if stopped is not None else self._completed(intent, end)

    def _completed(self, intent: kinds.ChildStarted, end: ChildEnd) -> EventWithBlobs:
        """Return the result of a sub-run, with the changes that it made in files that it shares with its parent."""
        state, artifact = end.state, end.state.final if end.state.status == "finished" else None
        why = f": {state.reason}" if state.reason else ""
        error = "" if artifact else f"the sub-run `{intent.run}` is {state.status}{why}"
        events = list(self.journal.read(intent.run))
        changes = tuple(unreverted_changes(events, with_sub_runs=True))
        if state.workspace == intent.run:  # files of a workspace of its own are not shared
            changes = tuple(change for change in changes if not change.path.startswith("workspace:"))
        body = replace(
            ended_event(intent, TASK_STATES.get(str(state.status), "failed"), error, end),
            artifact=artifact,
            active=end.active,
            changes=changes,
            phases=phase_artifacts(events),
            error_name="" if artifact else error_name_in(state),
        )
        body = with_acted(body, self.journal, events)
        if artifact is None:
            return body, ()
        handoff = next((handoff for _, handoff in reversed(state.history.handoffs.latest)), None)
        body = replace(body, summary=summarize_sub_run(state.output.reason), handoff=handoff)
        return body, (Blob(artifact.hash, end.content(artifact.hash)),)

    async def run_background(self, run: str, tape: Tape) -> RunState:
        """Start a background run, or continue it, until it ends or stops. Its claim is held.

        Args:
            run: The background run.
            tape: The tape of the conversation that started it, which is only read.

        Raises:
            RunNotFound: The conversation did not start it.
            RunIdTaken: A run with its id exists that is not this one.
        """
        intent = tape.state.inbox.intents.get(run)
        if intent is None:
            raise RunNotFound(f"conversation `{tape.run_id}` did not start a run `{run}` in the background")
        spec = ChildSpec(self.settings_left(tape), tape.state.models, waits=False)
        return (await self.drive(intent, spec, tape)).state

    async def call(self, scope: RunScope, skill: Skill, artifact: dict[str, Any], spec: ChildSpec) -> RunState:
        """Execute a function that the code of an op calls, as a sub-run; continue it if it was started before.

        The parent records its usage. If the sub-run stops, its state is returned and the caller raises an error.

        Args:
            scope: The op.
            skill: The skill of the function.
            artifact: Its arguments.
            spec: How it runs.
        """
        tape = scope.tape
        depth_below(tape.started)
        copies = pin_run(skill, Blob.of(canonical(artifact)), pin_ops(skill, self.services.ops.vocabulary))
        key = scope.next_key(call_name(copies.skill_hash, copies.input.hash, spec.history[0], spec.images[0]))
        run = f"{tape.run_id}.{key}"
        intent = kinds.ChildStarted(key, "function", skill.name, run, copies.skill_hash, copies.input, copies.ops)
        counts = self.services.message_counts
        if self.journal.find(run) is None:
            settings = self.services.settings_of(tape.started, tape.content)
            Allowance(tape.state, settings, scope.above(), self.journal, counts).check_call(run)
        counts.starting.add(run)
        scope.calls[key] = intent
        try:
            with self.journal.claim(run):
                end = await self.drive(intent, spec._replace(blobs=copies.blobs), tape)
        finally:
            counts.starting.discard(run)
        scope.check_open()
        del scope.calls[key]
        status = str(end.state.status)
        if status == "waiting":
            scope.waiting.append(intent)
        error = "" if status == "finished" else f"it is {status}: {end.state.reason}"
        ended = ended_event(intent, TASK_STATES.get(status, "failed"), error, end)
        if skill.op_kinds:
            ended = with_acted(ended, self.journal, self.journal.read(run))
        tape.record(replace(ended, call=scope.call), self.services.clock.now())
        return end.state

    def end_calls(self, scope: RunScope) -> str:
        """End the functions that the code of an op has called: those that it did not await, and those that wait.

        Returns:
            The unsafe ops of all functions that it called.
        """
        scope.close()
        for intent in scope.waiting:
            self.cancel(intent, _OP_ENDED, scope.tape)
        for intent in scope.calls.values():
            self.cancel(intent, _OP_ENDED, scope.tape)
            row, state = self.journal.find(intent.run), load_state(self.journal, intent.run)
            end = None if row is None else ChildEnd(state, row.seq, row.hash, self.journal.blob)
            ended = replace(ended_event(intent, "canceled", _OP_ENDED, end), call=scope.call)
            ended = with_acted(ended, self.journal, self.journal.read(intent.run))
            scope.tape.record(ended, self.services.clock.now())
        return scope.tape.state.visit.acted.get(scope.call, "")

    # -- any child --------------------------------------------------------------------------------------

    async def drive(self, intent: kinds.ChildStarted, spec: ChildSpec, parent: Tape) -> ChildEnd:
        """Start a child, or continue it, until it ends or stops. Its claim is held.

        Without an input in its intent, the child exists already.

        Raises:
            RunIdTaken: A run with its id exists that is not this one.
        """
        run = intent.run
        row = self.journal.find(run)
        if row is None:
            tape = self._begin(intent, spec, parent)
            self.services.polling.skip(run)  # no process knows the run yet
            return await self._executed(tape, None, parent, spec)
        self._check_own(intent, spec, parent, row)
        loaded = load_run(self.journal, run)
        if spec.ask is not None:
            self._submit(spec, spec.ask, loaded.state)
        if spec.is_settled(loaded.state):
            return ChildEnd(loaded.state, row.seq, row.hash, self.journal.blob)
        skill = self.services.compile_skill(loaded.started, self.journal.blob)
        check_ops(run, skill.skill, self.services.ops)
        limits = limits_to_raise(
            parent.state, loaded.state, skill.settings, spec.settings.limits, lowers=spec.ask is not None
        )
        for name, value in limits.items():
            self.journal.post(run, RaiseLimit(name, value))
        resumption = Resumption(self.services.ids.new(), retry=loaded.state.status == "failed")
        return await self._executed(loaded.tape, resumption, parent, spec, loaded.state.active)

    async def _executed(
        self, tape: Tape, resumption: Resumption | None, parent: Tape, spec: ChildSpec, before: int = 0
    ) -> ChildEnd:
        state = await self._execute(tape, resumption, parent, spec)
        return ChildEnd(state, tape.seq, tape.hash, tape.content, max(0, state.active - before))

    def _begin(self, intent: kinds.ChildStarted, spec: ChildSpec, parent: Tape) -> Tape:
        """Return the tape of a new child."""
        above, state = parent.started, parent.state
        assert intent.skill_hash is not None
        assert intent.input is not None
        path = f"{above.parent.path}/{intent.call}" if above.parent else intent.call
        requests = credentials = None
        if spec.rights == "caller":
            skill = self.services.compile_skill(above, parent.content).skill
            own = SkillRequests(skill.name, skill.permissions)
            requests = Blob.of(canonical([own, *requests_above(above, parent.content)]))
            credentials = credentials_of(skill, above.credentials)
        is_background = intent.type == "background"
        caller = kinds.ParentRef(
            parent.run_id, intent.call, depth_below(above), state.total_answers, path, is_background
        )
        run = new_run(
            intent.run,
            Copies(intent.skill, intent.skill_hash, intent.input, intent.ops, spec.blobs),
            pin_settings(spec.settings),
            spec.model,
            *(*spec.history[1], *spec.images[1]),
            hooks=self.services.hook_names,
            parent=caller,
            workspace=state.workspace if intent.shares_workspace else None,
            imported=above.imported,
            requests=requests,
            credentials=credentials,
            history=spec.history[0],
            ask=spec.ask,
            images=spec.images[0],
            rollback=intent.rollback,
        )
        return new_tape(parent.content, run, now=self.services.clock.now())

    def _check_own(self, intent: kinds.ChildStarted, spec: ChildSpec, parent: Tape, row: RunRow) -> None:
        """Check that an existing run is this child, and not one that was put in its place.

        Raises:
            RunIdTaken: The run was imported, or has another parent, skill, input or workspace.
        """
        if row.imported:
            raise RunIdTaken(f"run `{intent.run}` exists and was imported from {row.imported}")
        found = first_event(self.journal, intent.run)  # an upgrade changes its skill later
        if found is not None and found.parent is not None and found.parent.run == parent.run_id:
            if intent.input is None and found.ask is not None:  # an earlier message opened the conversation
                return
            workspace = parent.state.workspace if intent.shares_workspace else None
            if (found.parent.call, found.ask) == (intent.call, spec.ask):
                recorded = (found.skill_hash, found.input, found.workspace, found.rollback)
                if recorded == (intent.skill_hash, intent.input, workspace, intent.rollback):
                    return
                raise RunIdTaken(
                    f"run `{intent.run}` exists with another skill, input or workspace than this call started"
                )
        raise RunIdTaken(f"run `{intent.run}` exists and was not started by this call")

    def _submit(self, spec: ChildSpec, ask: kinds.AskRef, state: RunState) -> None:
        """Put a message into the inbox of a conversation, unless an earlier process did."""
        if state.received is not None and state.received.ask.key == ask.key:
            return
        waiting = self.journal.drain(state.run_id, state.messages_taken)
        sent = (one.payload.ask for one in waiting if isinstance(one.payload, Say))
        if all(one is None or one.key != ask.key for one in sent):
            self.journal.post(state.run_id, Say(spec.text, f"agent:{ask.agent}" if ask.agent else "", ask))
            self.services.polling.notify(state.run_id)

    def settings_left(self, tape: Tape, tokens: int | None = None) -> RunSettings:
        """Return the settings of a child; its limits are what the run has left, or less tokens."""
        return sub_run_settings(tape.state, self.services.settings_of(tape.started, tape.content), tokens)
