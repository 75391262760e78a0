"""Fork a run: find the event to continue from, choose the input, write the first event of the new run.

A run can continue between two visits, or from an open request to its model; a copy of a conversation keeps its open
turn, too. The kernel executes the new run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from reyn.documents.checking import nearest_hint
from reyn.errors import ForkImpossible
from reyn.journal import Blob, Event, Journal, canonical, decode, kinds
from reyn.journal.registry import Body, chain_events
from reyn.kernel import versions
from reyn.models.answers import to_reply
from reyn.models.protocol import encode_reply
from reyn.runs.reader import ReadEvent, read_run
from reyn.skills import Skill, pin
from reyn.skills.inputs import to_artifact
from reyn.workspace.paths import WORKSPACE

if TYPE_CHECKING:
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.visit.compiled_skill import CompiledSkill


ForkPlace = Literal["any", "between_visits", "request"]
"""Where a run can continue: between two visits or at an open request, or at one of the two only."""


class ForkChanges(NamedTuple):
    """What a fork does differently from the event on; `OSRuntime.fork` documents the fields."""

    model: str | None = None
    input: Any = None
    skill: str | None = None
    instructions: Mapping[str, str] = {}
    answer: dict[str, Any] | str | None = None

    @property
    def place(self) -> ForkPlace:
        """Where a fork with these changes can continue."""
        if self.answer is not None:
            return "request"
        changes_visit = self.input is not None or self.skill is not None or self.instructions
        return "between_visits" if changes_visit else "any"

    def check(self) -> None:
        """Raise `ForkImpossible` if the changes exclude each other."""
        if self.answer is not None and (self.input is not None or self.skill is not None or self.instructions):
            raise ForkImpossible(
                "an answer belongs to a recorded prompt, which an input, a skill or instructions would change",
                hint="Pass the answer alone, or with a model for the calls after it.",
            )


class ForkState(NamedTuple):
    """The event that a fork continues from, and the state of the run after it."""

    event: Event
    state: RunState


def find_fork_point(
    run_id: str,
    events: Iterable[Event],
    at: int | None,
    *,
    place: ForkPlace,
    accepts: Callable[[ReadEvent], bool] = lambda _: False,
) -> ForkState:
    """Return the last event at or before `at` from which a run can continue.

    Args:
        run_id: The run to fork.
        events: Its events.
        at: The sequence number of an event; by default the last one.
        place: Where the run continues.
        accepts: Returns whether to accept an event that is neither between two visits nor a request.

    Raises:
        ForkImpossible: The run has no event `at`, or cannot continue from there or before.
    """
    point, last = None, 0
    for read in read_run(events):
        last, state = read.event.seq, read.after
        if at is not None and last > at:
            break
        is_request = isinstance(read.body, kinds.LlmRequested) and place != "between_visits"
        if place == "request":  # of a phase, not of an op or a summary
            is_request = is_request and read.turn is not None and read.turn.request is read.body
        is_between_visits = not state.visit.is_open and state.ending is None and state.status == "running"
        is_between_visits = is_between_visits and place != "request"
        if is_request or is_between_visits or accepts(read):
            point = ForkState(read.event, state)
    if at is not None and at > last:
        raise ForkImpossible(f"run `{run_id}` has no event {at}", hint=f"Choose an event from 1 to {last}.")
    if point is None:
        until = f"event {at}" if at is not None else "its last event"
        if place == "request":
            raise ForkImpossible(
                f"run `{run_id}` has no model call at or before {until}, whose answer could be another"
            )
        raise ForkImpossible(f"run `{run_id}` cannot be continued from {until} or any event before it")
    return point


def find_visits(run_id: str, events: Iterable[Event], phases: Iterable[str], skill: Skill) -> int:
    """Return the last event after which a run visits all of these phases: a fork with other instructions begins there.

    A phase that is a branch is visited by the nodes that run it.

    Raises:
        ForkImpossible: The run does not visit one of them.
    """
    before: dict[str, int] = {}
    for read in read_run(events):
        state = read.after
        if not state.visit.is_open and state.ending is None and state.status == "running":
            before[state.phase or skill.entry] = read.event.seq
    found = []
    for phase in phases:
        nodes = [node for node, one in skill.nodes.items() if any(branch.do == phase for branch in one.branches)]
        visits = [before[node] for node in (phase, *nodes) if node in before]
        if not visits:
            raise ForkImpossible(
                f"run `{run_id}` does not visit phase `{phase}`, so that its instructions would have no effect",
                hint="Name the event to continue from, if the fork may visit it.",
            )
        found.append(max(visits))
    return min(found)


_REPLIES = (kinds.WaitAnswered, kinds.WaitExpired)


class OpenVisit:
    """Accepts the events of a visit from which a fork can continue as the run itself would: the visit is executed again
    with its recorded outcomes. A person decides about an unsafe op without one, and about a child that has acted.

    Such an event comes before an effect: the next event is the outcome of one, or came from outside as itself may. The
    result of a child is used where the child ended, and a step that failed would fail again. A fork cannot wait for
    the reply to a question of its origin, nor does it get a reply that the visit has not used.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        """Find the places before effects in a run."""
        self._places: set[int] = set()
        self._unused: set[int] = set()
        """Events at which a question has a reply that the visit has not used."""
        seq, requests, has_failed, is_unused = 0, set[str](), False, False
        for event in events:
            body = decode(event)
            is_unused = isinstance(body, _REPLIES) or (is_unused and body.origin == "outside")
            if is_unused:
                self._unused.add(event.seq)
            if isinstance(body, kinds.OpStarted) and body.request is not None:
                requests.add(body.call)
            uses_child = isinstance(body, kinds.OpCompleted) and body.call in requests
            if body.origin != "derived" and not uses_child and not has_failed:
                self._places.add(seq)
            if isinstance(body, kinds.StepCompleted):  # sub-runs beside the step are cancelled after it
                has_failed = has_failed or body.status == "failed"
            elif isinstance(body, kinds.PhaseStarted | kinds.PostprocessorStarted):
                has_failed = False
            seq = event.seq
        if not has_failed:
            self._places.add(seq)

    def __call__(self, read: ReadEvent) -> bool:
        """Return whether to accept an event."""
        state = read.after
        seq = read.event.seq
        is_before_effect = (read.body.origin == "outside" or seq in self._places) and seq not in self._unused
        is_stopped = state.status not in ("running", "cancelled") or state.aborted is not None
        return is_before_effect and state.visit.is_open and not is_stopped


def restored_after(events: Iterable[Event], seq: int) -> list[str]:
    """Return the files outside the workspace that a run changed up to an event, and restored after it."""
    changed: set[str] = set()
    restored: set[str] = set()
    for event in events:
        if event.seq <= seq and event.kind in (kinds.WorkspaceUpdated.kind, kinds.ChildEnded.kind):
            body = decode(event)
            assert isinstance(body, kinds.WorkspaceUpdated | kinds.ChildEnded)
            changes = (body.change,) if isinstance(body, kinds.WorkspaceUpdated) else body.changes
            changed.update(change.path for change in changes)
        elif event.seq > seq and event.kind == kinds.WorkspaceRestored.kind:
            restored.update(event.data.get("restored", ()))
    return sorted(path for path in changed & restored if not path.startswith(WORKSPACE))


def fork_input(
    point: ForkState, skill: CompiledSkill, value: Any, content: Callable[[str], bytes], *, is_new_skill: bool
) -> dict[str, Any] | None:
    """Return the artifact that replaces the input of a fork's next phase; `None` if the input does not change.

    Args:
        point: The event that the fork continues from.
        skill: The skill of the fork.
        value: The new input; `None` to use the recorded one.
        content: Returns content by its hash.
        is_new_skill: Whether the skill differs from that of the origin, so that the recorded input is validated.

    Raises:
        ForkImpossible: The skill does not have the next phase.
        InputInvalid: The phase does not accept the input.
    """
    phase = point.state.phase or skill.skill.entry
    if not skill.has_node(phase):
        raise ForkImpossible(f"skill `{skill.skill.name}` has no phase `{phase}`, which is next in the run")
    if value is not None:
        return to_artifact(value, skill.skill, strict=skill.settings.strict, node=phase)
    definition = skill.skill.phases.get(phase)
    follows_itself = bool(point.state.path) and point.state.path[-1] == phase
    if definition is not None and definition.conversation is not None and follows_itself:
        return None  # its input is its own reply, and the next message is the user's
    if is_new_skill:
        assert point.state.visit.input is not None
        recorded = msgspec.json.decode(content(point.state.visit.input.hash))
        to_artifact(recorded, skill.skill, strict=skill.settings.strict, node=phase)
    return None


def with_instructions(skill: Skill, instructions: Mapping[str, str]) -> Skill:
    """Return a skill whose phases have other instructions.

    Raises:
        ForkImpossible: The skill has no such phase, or the instructions are empty.
    """
    phases = dict(skill.phases)
    for name, text in instructions.items():
        if name not in phases:
            raise ForkImpossible(
                f"skill `{skill.name}` has no phase `{name}`",
                hint=nearest_hint(name, phases) or f"Its phases are {', '.join(sorted(phases))}.",
            )
        if skill.node_kind(name) != "phase":
            raise ForkImpossible(f"node `{name}` calls no model, so that its instructions would have no effect")
        if not text.strip():
            raise ForkImpossible(f"the instructions of phase `{name}` are empty")
        phases[name] = msgspec.structs.replace(phases[name], instructions=text)
    return msgspec.structs.replace(skill, phases=phases)


def fork_event(
    run_id: str,
    origin: str,
    point: ForkState,
    changes: ForkChanges,
    artifact: dict[str, Any] | None,
    skill: Skill | None,
    specs: Blob | None,
    settings: Blob | None = None,
) -> tuple[kinds.RunForked, tuple[Blob, ...]]:
    """Return the first event of a fork, and the content that it refers to.

    Args:
        run_id: The id of the fork.
        origin: The run that it continues.
        point: The event that it continues from.
        changes: What is different from there on.
        artifact: The new input of the next phase, if it changes.
        skill: The skill to continue with, if it changes.
        specs: The op specifications to continue with, if they change.
        settings: The project's own settings; only for a fork of an imported run.
    """
    content = Blob.of(canonical(artifact)) if artifact is not None else None
    copy = pin(skill) if skill is not None else None
    started = point.state.started
    forked = kinds.RunForked(
        run_id,
        kinds.ForkPoint(origin, point.event.seq, point.event.hash),
        changes.model,
        kinds.ArtifactRef(artifact["type"], content.hash) if artifact is not None and content is not None else None,
        skill.name if skill is not None else None,
        copy.hash if copy is not None else None,
        None if started.rules == versions.RULES else versions.RULES,
        None if point.state.wording == versions.WORDING else versions.WORDING,
        specs.hash if specs is not None else None,
        settings.hash if settings is not None else None,
        imported=settings is not None,
        instructions=tuple(sorted(changes.instructions)),
    )
    return forked, tuple(blob for blob in (content, copy, specs, settings) if blob is not None)


def own_answer(
    run_id: str, point: ForkState, skill: CompiledSkill, answer: dict[str, Any] | str, scrub: Callable[[str], str]
) -> tuple[kinds.LlmResponded, Blob]:
    """Return the outcome of the open model call with an answer of the user, and the content of the answer.

    It has cost nothing.
    """
    request = decode(point.event)
    assert isinstance(request, kinds.LlmRequested)
    form = skill.phase(point.state.phase or "", point.state).form(point.state)
    reply = to_reply(answer, None, form, run_id, request.call)
    text = Blob.of(encode_reply(reply, form, scrub))
    return kinds.LlmResponded(request.call, text.hash, kinds.Usage()), text


def append_fork_event(
    journal: Journal,
    run_id: str,
    after: Event,
    forked: kinds.RunForked,
    blobs: tuple[Blob, ...],
    now: int,
    more: Sequence[Body] = (),
) -> Event:
    """Store the first events of a fork, chained to the event that it continues from; return the first one."""
    events = chain_events(run_id, [forked, *more], after.seq, after.hash, max(now, after.ts))
    journal.append(run_id, after.seq, events, blobs)
    return events[0]
