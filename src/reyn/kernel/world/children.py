"""Run the children of a run: start them, continue them after a crash, and bring back how they end.

A sub-skill, a branch of an iteration, a background skill, a function that the code of an op calls and a message to
another agent are children; `ChildSpec` has their differences. The id of a child derives from its parent and the call,
so starting it twice starts it once. Its intent is durable in the parent before it starts.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
from msgspec.structs import replace

from reyn.errors import (
    AnswersRejected,
    OpMissing,
    ReynError,
    RunBlocked,
    RunBusy,
    RunIdTaken,
    RunNotFound,
    StepFailed,
    SubRunFailed,
)
from reyn.journal import ENDED, Blob, RaiseLimit, Say, canonical, decode, digest, kinds
from reyn.kernel.core.limits import limits_to_raise, sub_run_settings
from reyn.kernel.core.snapshot import Models
from reyn.kernel.visit.compiled_phase import credentials_of
from reyn.kernel.visit.handoffs import summarize
from reyn.kernel.world.environments import requests_above
from reyn.kernel.world.loading import (
    Copies,
    Resumption,
    RunSpec,
    check_ops,
    first_event,
    load_run,
    new_tape,
    pin_ops,
    pin_run,
    pin_settings,
)
from reyn.skills.inputs import check_supported, to_artifact
from reyn.workspace.restore import unreverted_changes

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from reyn.config import RunSettings
    from reyn.journal import Event, RunRow
    from reyn.kernel.core.effects import EventWithBlobs, ExecuteSubRun, PlanSubRun
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.core.tape import Tape
    from reyn.kernel.runtime_types import People
    from reyn.kernel.world.run_scope import RunScope
    from reyn.kernel.world.services import History, OutputCheck, Services
    from reyn.skills import Skill

    ExecuteChild = Callable[[Tape, Resumption | None, Tape, "ChildSpec"], Awaitable[RunState]]
    """Executes a child of the run of the second tape."""

_MAX_PHASES = 50
"""Visits of a sub-run whose artifacts its parent records."""
MAX_DEPTH = 8
"""The maximum nesting of sub-runs."""

STOPPED = (*ENDED, "failed", "limited")
"""The statuses that no reply to a question changes."""
_FINAL_FAILURES = (AnswersRejected.code, StepFailed.code, SubRunFailed.code)
"""Failures that are the result of the sub-run. Any other failure (an unavailable model) stops the parent as well."""


class ChildSpec(NamedTuple):
    """How one child runs; its intent says what runs.

    Attributes:
        settings: Its settings. Its limits are a share of what the parent has left.
        model: The model to call.
        rights: `caller` bounds its permissions and secrets by those of its parent; `own` leaves those of its skill.
        people: Who replies to its questions; by default the people of the project.
        check: Validates its final output in addition to the schema.
        history: The messages before its input, and their content.
        ask: The message of an agent that it answers: its input, or the next message of the conversation.
        text: The text of that message.
        blobs: The content of its copies, if its intent is not an event of the parent.
        waits: Whether its parent awaits its end. Otherwise a stopped child stays as it is until a user continues it.
    """

    settings: RunSettings
    model: Models
    rights: Literal["caller", "own"] = "caller"
    people: People | None = None
    check: OutputCheck | None = None
    history: History = ((), ())
    ask: kinds.AskRef | None = None
    text: str = ""
    blobs: tuple[Blob, ...] = ()
    waits: bool = True

    def is_settled(self, state: RunState) -> bool:
        """Return whether there is nothing left to execute: it ended, or it stopped and that is its result."""
        if not self.waits:
            return state.status in STOPPED
        if self.ask is None:
            return state.status in ENDED or _is_final(state)
        if state.received is None or state.received.ask.key != self.ask.key:
            return state.status in ENDED
        if state.status == "waiting":
            is_message = state.wait is None or state.wait.is_message
            return is_message and state.received.state in ("completed", "canceled")
        return state.status in STOPPED


class ChildEnd(NamedTuple):
    """A child that ended or stopped: its state, the hash of its last event, and where to read its content.

    `active` is the time in which it was executed now, in microseconds.
    """

    state: RunState
    head: str
    content: Callable[[str], bytes]
    active: int = 0


class Children:
    """The children of one run."""

    def __init__(self, services: Services, execute: ExecuteChild) -> None:
        self.services = services
        self.journal = services.journal
        self._execute = execute

    # -- any child --------------------------------------------------------------------------------------

    async def drive(self, intent: kinds.SubRunStarted, spec: ChildSpec, parent: Tape) -> ChildEnd:
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
            return ChildEnd(loaded.state, row.hash, self.journal.blob)
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
        return ChildEnd(state, tape.hash, tape.content, max(0, state.active - before))

    def _begin(self, intent: kinds.SubRunStarted, spec: ChildSpec, parent: Tape) -> Tape:
        """Return the tape of a new child."""
        above, state = parent.started, parent.state
        assert intent.skill_hash is not None
        assert intent.input is not None
        path = f"{above.parent.path}/{intent.call}" if above.parent else intent.call
        requests = credentials = None
        if spec.rights == "caller":
            skill = self.services.compile_skill(above, parent.content).skill
            requests = Blob.of(canonical([skill.permissions, *requests_above(above, parent.content)]))
            credentials = credentials_of(skill, above.credentials)
        started = RunSpec(
            intent.run,
            Copies(intent.skill, intent.skill_hash, intent.input, intent.ops, spec.blobs),
            pin_settings(spec.settings),
            spec.model,
            self.services.hook_names,
            kinds.ParentRef(
                parent.run_id, intent.call, depth_below(above), state.total_answers, path, intent.background
            ),
            workspace=state.workspace if intent.shares_workspace else None,
            imported=above.imported,
            requests=requests,
            credentials=credentials,
            history=spec.history,
            ask=spec.ask,
        )
        return new_tape(parent.content, started, now=self.services.clock.now())

    def _check_own(self, intent: kinds.SubRunStarted, spec: ChildSpec, parent: Tape, row: RunRow) -> None:
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
                if (found.skill_hash, found.input, found.workspace) == (intent.skill_hash, intent.input, workspace):
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

    # -- sub-skills -------------------------------------------------------------------------------------

    def plan(self, effect: PlanSubRun, tape: Tape) -> EventWithBlobs:
        """Resolve the skill and validate the input. An error becomes the result of the sub-run."""
        run = f"{tape.run_id}.{effect.key}"
        try:
            skill, artifact = self._resolve(effect, tape)
        except ReynError as error:
            problem = f"{error.code}: {error.message}"
            return kinds.SubRunStarted(effect.key, effect.skill, run, problem=problem, background=effect.background), ()
        # A skill that is part of the run's own skill has the run's op specifications.
        specs = None if effect.pinned else pin_ops(skill, self.services.ops.vocabulary)
        copies = pin_run(skill, Blob.of(canonical(artifact)), specs)
        return kinds.SubRunStarted(
            effect.key,
            skill.name,
            run,
            copies.skill_hash,
            copies.input,
            effect.shares_workspace,
            "",
            copies.ops or tape.started.ops,
            effect.background,
        ), copies.blobs

    def _resolve(self, effect: PlanSubRun, tape: Tape) -> tuple[Skill, dict[str, Any]]:
        state = tape.state
        check_depth(tape.started)
        skill = effect.pinned or self.services.load(effect.skill)
        if skill.is_conversation and state.phase in state.conversations:
            raise SubRunFailed(f"`{skill.name}` is a conversation; one conversation cannot run another")
        check_supported(skill, self.services.ops.vocabulary)
        value = effect.input
        if isinstance(value, kinds.ArtifactRef):
            value = msgspec.json.decode(tape.content(value.hash))
        strict = self.services.settings_of(tape.started, tape.content).strict
        return skill, to_artifact(value, skill, strict=strict)

    async def execute(self, effect: ExecuteSubRun, tape: Tape, tokens: int | None = None) -> EventWithBlobs:
        """Execute a sub-run until it ends or stops; continue it if it was started before.

        Args:
            effect: The effect.
            tape: The tape of the parent.
            tokens: The most that it may use; `None` allows all that its parent has left.
        """
        intent = effect.started
        if intent.problem:
            return _failed(intent, intent.problem), ()
        try:
            with self.journal.claim(intent.run):
                spec = ChildSpec(self.settings_left(tape, tokens), tape.state.models)
                end = await self.drive(intent, spec, tape)
        except RunIdTaken as error:
            return _failed(intent, f"{error.code}: {error.message}"), ()
        except (RunBusy, RunBlocked, OpMissing) as error:
            hint = error.own_hint
            return kinds.SubRunStopped(intent.call, intent.run, "failed", error.message, error.code, hint=hint), ()
        state, blobs = end.state, tuple[Blob, ...]()
        body = replace(_outcome(intent, state), active=end.active)
        if isinstance(body, kinds.SubRunCompleted):
            events = list(self.journal.read(intent.run))
            changes = tuple(unreverted_changes(events, with_sub_runs=True))
            if state.workspace == intent.run:  # files of a workspace of its own are not shared
                changes = tuple(change for change in changes if not change.path.startswith("workspace:"))
            body = replace(body, changes=changes, head=end.head, phases=_phase_artifacts(events))
        if isinstance(body, kinds.SubRunCompleted) and body.artifact is not None:
            blobs = (Blob(body.artifact.hash, end.content(body.artifact.hash)),)
        return body, blobs

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

    # -- functions that the code of an op calls ---------------------------------------------------------

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
        check_depth(tape.started)
        copies = pin_run(skill, Blob.of(canonical(artifact)), pin_ops(skill, self.services.ops.vocabulary))
        earlier = "".join(part.content for part in spec.history[0])
        name = digest(f"{copies.input.hash}{earlier}".encode()) if earlier else copies.input.hash
        key = scope.next_key(copies.skill_hash, name)
        run = f"{tape.run_id}.{key}"
        intent = kinds.SubRunStarted(key, skill.name, run, copies.skill_hash, copies.input, ops=copies.ops)
        with self.journal.claim(run):
            state = (await self.drive(intent, spec._replace(blobs=copies.blobs), tape)).state
        scope.check_open()
        usage, answers = state.models.usage, state.models.answers
        ended = kinds.NestedRunEnded(scope.call, run, skill.name, str(state.status), usage, answers, charge_of(state))
        tape.record(ended, self.services.clock.now())
        return state


def depth_below(started: kinds.RunStarted) -> int:
    """Return the nesting depth of the runs that a run starts."""
    return (started.parent.depth if started.parent else 0) + 1


def check_depth(started: kinds.RunStarted) -> None:
    """Raise `SubRunFailed` if a run is nested too deep to start another one."""
    if depth_below(started) > MAX_DEPTH:
        raise SubRunFailed(f"sub-runs are nested deeper than {MAX_DEPTH} levels")


def _outcome(intent: kinds.SubRunStarted, state: RunState) -> kinds.SubRunCompleted | kinds.SubRunStopped:
    call, run, stop = intent.call, intent.run, state.stop
    match state.status:
        case "finished":
            usage, answers = state.models.usage, state.models.answers
            return kinds.SubRunCompleted(
                call,
                run,
                "",
                state.final_artifact,
                usage,
                answers,
                summary=summarize(state.output.reason),
                handoff=next(reversed(state.history.handoffs.values()), None),
                charge=charge_of(state),
            )
        case "failed" if not _is_final(state):
            return kinds.SubRunStopped(call, run, "failed", state.reason, stop.code, hint=stop.hint)
        case "limited":
            limit, value = stop.limit or ("", 0)
            return kinds.SubRunStopped(call, run, "limited", state.reason, "", limit, value)
        case "waiting":
            return kinds.SubRunStopped(call, run, "waiting", state.reason, wait=state.wait)
    return _failed(intent, f"the sub-run `{run}` is {state.status}: {state.reason}", state)


def _phase_artifacts(events: Iterable[Event]) -> tuple[kinds.PhaseArtifact, ...]:
    """Return the artifacts of the latest visits, in order."""
    found: deque[kinds.PhaseArtifact] = deque(maxlen=_MAX_PHASES)
    stored: kinds.ArtifactRef | None = None
    for event in events:
        if event.kind == kinds.ArtifactStored.kind:
            body = decode(event)
            stored = body.artifact if isinstance(body, kinds.ArtifactStored) else None
        elif event.kind == kinds.PhaseCompleted.kind and stored is not None:
            body = decode(event)
            if isinstance(body, kinds.PhaseCompleted):
                found.append(kinds.PhaseArtifact(body.phase, stored))
            stored = None
    return tuple(found)


def _is_final(state: RunState) -> bool:
    """Return whether a failure is the result of the sub-run, so that its parent continues with it."""
    return state.status == "failed" and state.stop.code in _FINAL_FAILURES


def _failed(intent: kinds.SubRunStarted, error: str, state: RunState | None = None) -> kinds.SubRunCompleted:
    models = state.models if state else Models()
    charge = charge_of(state) if state else None
    return kinds.SubRunCompleted(intent.call, intent.run, error, None, models.usage, models.answers, charge=charge)


def charge_of(state: RunState) -> kinds.Charge | None:
    """Return what a run was charged; `None` if it made no call that was counted."""
    return state.charge if state.charge.calls else None
