"""New runs from recorded ones: forks continue a run from an event, reruns repeat it from its input.

`reyn.runs.fork` has the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import ForkImpossible
from reyn.journal import Blob, Body, Journal, RunRow, canonical, check_json, decode, digest, kinds
from reyn.journal.registry import chain_events
from reyn.kernel.versions import SUPPORTED_RULES
from reyn.kernel.visit.compiled_skill import CompiledSkill
from reyn.kernel.world.loading import check_ops, load_draft, load_run, pin_ops, pin_settings
from reyn.kernel.world.run_scope import call_name, current_scope
from reyn.kernel.world.unsafe_ops import counted_messages, describe_unsafe, open_children, unsafe_ops
from reyn.runs.fork import (
    ForkChanges,
    ForkPlace,
    ForkState,
    OpenVisit,
    append_fork_event,
    find_fork_point,
    find_visits,
    fork_event,
    fork_input,
    own_answer,
    restored_after,
    with_instructions,
)
from reyn.runs.preview import fault_of_draft
from reyn.runs.reader import read_run
from reyn.runs.resume import check_in_file
from reyn.skills import Skill, check_pinned
from reyn.skills.inputs import check_supported, to_artifact

if TYPE_CHECKING:
    from reyn.journal.results import RunResult
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.world.services import Observers, Services
    from reyn.runs.reader import ReadEvent
    from reyn.runtime.executor import RunExecutor
    from reyn.vocabulary import Vocabulary

    _Blobs = tuple[Blob, ...]


_MAX_PATHS = 5
"""The restored files that a warning names."""


async def fork(
    executor: RunExecutor,
    row: RunRow,
    observers: Observers,
    *,
    at: int | None,
    changes: ForkChanges,
    run_id: str | None,
) -> RunResult:
    """Start a run that continues from an event of a recorded run; `OSRuntime.fork` documents the arguments."""
    changes.check()
    services, name = executor.services, executor.new_id(run_id)
    journal = services.journal
    if changes.instructions and changes.skill is None and at is None:
        at = _before_visits(services, row.run_id, changes)
    point, repeats = _fork_point(services, row, at, changes.place)
    if _is_imported(point, journal):
        changes = changes._replace(model=changes.model or services.config.model)
    changes = changes._replace(input=services.scrubber.scrub_value(changes.input))
    forked, blobs, current = _forked(services, name, row.run_id, point, changes)
    forked = msgspec.structs.replace(forked, repeats=repeats)
    check_ops(name, current, services.ops)
    opened = services.roster.ready(changes.model, point.state.models.name)
    if forked.model is not None:
        form, limit = services.roster.answer_form(opened), services.roster.prompt_limit(opened)
        forked = msgspec.structs.replace(forked, model=opened, answer_form=form, prompt_limit=limit)
    more: tuple[Body, ...] = ()
    if changes.answer is not None:
        _check_unicode(changes.answer)
        compiled = services.compile_skill(point.state.started)
        outcome, text = own_answer(name, point, compiled, changes.answer, services.roster.scrub)
        forked, blobs, more = msgspec.structs.replace(forked, answer=text.hash), (*blobs, text), (outcome,)
        _check_answer(services, row.run_id, point, (forked, outcome), blobs)

    async def start() -> RunResult:
        executor.runs.files.recreate_workspace(name, row.run_id, point.event.seq, point.event.ts)
        event = append_fork_event(journal, name, point.event, forked, blobs, services.clock.now(), more)
        world = executor.world(opened, observers)
        world.notify_listener(event)
        world.warnings += _warnings(journal, row.run_id, point, repeats)
        return await executor.execute(load_run(journal, name).tape, world)

    return await executor.claim_and_execute(name, start, observers)


def _warnings(journal: Journal, run: str, point: ForkState, repeats: str) -> list[str]:
    """Return what a fork may repeat, and which changes that its visit has made are no longer there."""
    where, found = f"the fork continues from event {point.event.seq} of `{run}`", []
    if repeats:
        found.append(f"{where}, and may repeat later ops. {repeats}")
    if point.state.visit.is_open and (paths := restored_after(journal.read(run), point.event.seq)):
        names = ", ".join(f"`{path}`" for path in paths[:_MAX_PATHS])
        more = f" and {len(paths) - _MAX_PATHS} more" if len(paths) > _MAX_PATHS else ""
        found.append(f"{where}, after which this run restored files: {names}{more} are as before its visit")
    return found


def _check_unicode(answer: dict[str, Any] | str) -> None:
    try:
        check_json(answer)
    except ValueError as error:
        raise ForkImpossible(f"the answer is not JSON: {error}", hint="Fix the answer.") from error


def _check_answer(
    services: Services, origin: str, point: ForkState, first: tuple[kinds.RunForked, kinds.LlmResponded], blobs: _Blobs
) -> None:
    """Raise `ForkImpossible` if a fork would reject the answer of the user as it would reject that of a model."""
    if fault := _fault(services, origin, point, first, blobs, answered=first[1].call):
        seq = point.event.seq
        raise ForkImpossible(
            f"the answer does not fit model call {first[1].call} of run `{origin}`: {fault}",
            hint=f"Fix the answer. The prompt at event {seq} of that run shows its form.",
        )


def _fault(
    services: Services, origin: str, point: ForkState, first: tuple[Body, ...], blobs: _Blobs, *, answered: str = ""
) -> str:
    """Return why a fork with these first events fails in the visit that it continues, before it does anything."""
    event, journal = point.event, services.journal
    [forked, *_] = first
    assert isinstance(forked, kinds.RunForked)
    own = chain_events(forked.run_id, first, event.seq, event.hash, event.ts)
    return fault_of_draft(journal, load_draft(journal, origin, own, blobs), services.compile_skill, answered=answered)


def _before_visits(services: Services, run: str, changes: ForkChanges) -> int | None:
    """Return the event before the last visits of the phases whose instructions change."""
    started = next(read_run(services.journal.read(run))).after.started
    skill = services.compile_skill(started, services.journal.blob).skill
    with_instructions(skill, changes.instructions)  # they exist
    return find_visits(run, services.journal.read(run), changes.instructions, skill)


def _fork_point(services: Services, row: RunRow, at: int | None, place: ForkPlace) -> tuple[ForkState, str]:
    """Return the event that a fork continues from, and the unsafe ops after it, which the fork may execute again.

    If there are some in the visit in which a run was interrupted or cancelled, the fork continues this visit. It always
    continues the visit of a fan-out, whose branches that have ended are not executed again.
    """
    journal, run = services.journal, row.run_id
    accepts = _accepts_branches(services, run) if place == "any" else lambda _: False
    point = _latest_point(services, run, at, place, accepts)
    # A visit under other rules cannot be executed again. Nothing that an imported run intended is performed, not
    # even its open request to a model.
    if point.state.started.rules not in SUPPORTED_RULES or _is_imported(point, journal):
        if place == "request":
            raise ForkImpossible(
                f"run `{run}` is of another machine or another version, so that no open model call of it is continued",
                hint="Fork it between two visits, without an answer.",
            )
        place = "between_visits"
        point = find_fork_point(run, journal.read(run), at, place=place)
    repeats = _unsafe_after(point, run, journal)
    if repeats and at is None and place == "any" and row.status not in ("finished", "aborted"):
        point = _latest_point(services, run, None, place, OpenVisit(journal.read(run)))
        repeats = _unsafe_after(point, run, journal)
    return point, repeats


def _latest_point(
    services: Services, run: str, at: int | None, place: ForkPlace, accepts: Callable[[ReadEvent], bool]
) -> ForkState:
    """Return the last event from which a fork does not fail as the run did, before it does anything.

    A visit that has failed still cancels its branches and restores files; a fork from there could only fail.
    """
    journal = services.journal
    while True:
        point = find_fork_point(run, journal.read(run), at, place=place, accepts=accepts)
        is_request = point.event.kind == kinds.LlmRequested.kind
        if is_request or not point.state.visit.is_open or point.state.started.rules not in SUPPORTED_RULES:
            return point
        forked, blobs, _ = _forked(services, "draft", run, point, ForkChanges())
        if not _fault(services, run, point, (forked,), blobs):
            return point
        at = point.event.seq - 1


def _accepts_branches(services: Services, run: str) -> Callable[[ReadEvent], bool]:
    """Return whether a fork can continue from an event of a visit that runs branches."""
    started = next(read_run(services.journal.read(run))).after.started
    skill = services.compile_skill(started, services.journal.blob).skill
    if not any(skill.fan_out(node) for node in skill.nodes):
        return lambda _: False
    is_place = OpenVisit(services.journal.read(run))
    return lambda read: skill.fan_out(read.after.phase) is not None and is_place(read)


def _unsafe_after(point: ForkState, run: str, journal: Journal) -> str:
    """Name the unsafe ops after an event that no question of a fork is about."""
    asked = point.state.visit.children
    later = (
        event
        for event in journal.read(run, point.event.seq)
        if event.kind != kinds.ChildEnded.kind or event.data["call"] not in asked
    )
    return describe_unsafe(unsafe_ops(journal, later, counted_messages(point.state)))


def copy_conversation(executor: RunExecutor, row: RunRow, run_id: str | None) -> str:
    """Copy a conversation with everything that was completed; nothing is executed. Return the id of the copy.

    A turn that has not ended is aborted in the copy: a tool call without a result is cancelled, or its outcome unknown.
    If the run went on to another phase, the copy does not: it takes the next message of the conversation. An op that is
    repeated after a crash gets the copy that it made before.

    Raises:
        ForkImpossible: No turn has begun yet, or the conversation takes one message only.
        RunIdTaken: There is a run with the id.
    """
    services, journal, sender = executor.services, executor.services.journal, _sender(row.run_id, run_id)
    if sender:
        run_id = run_id or f"copy-{digest(sender.encode())[:20]}"
        if _sender_of(journal, run_id) == sender:
            return run_id
    name = executor.new_id(run_id)
    services.check_owner()
    point, phase = _copy_point(services, row)
    forked, blobs, _ = _forked(services, name, row.run_id, point, ForkChanges())
    if phase != point.state.phase:
        forked = msgspec.structs.replace(forked, phase=phase)
    executor.runs.files.recreate_workspace(name, row.run_id, point.event.seq, point.event.ts)
    changes: list[Body] = [*_memory_changes(point.state, executor.runs.state(row.run_id), phase)]
    if point.state.is_turn_open:
        reason, children = "the conversation was copied before the reply", open_children(journal, point.state)
        changes.append(kinds.TurnAborted(reason, point.state.messages_taken, children=children))
    forked = msgspec.structs.replace(forked, sender=sender)
    append_fork_event(journal, name, point.event, forked, blobs, services.clock.now(), changes)
    return name


def _sender(run: str, copy: str | None) -> str:
    """Return the call that makes a copy of a conversation, if the code of an op does."""
    scope = current_scope()
    if scope is None:
        return ""
    return f"{scope.tape.run_id}.{scope.next_key(call_name(digest(run.encode()), digest((copy or '').encode())))}"


def _sender_of(journal: Journal, run_id: str) -> str:
    """Return the call that made a run as a copy of a conversation; empty if none did."""
    row = journal.find(run_id)
    if row is None or not row.fork_of:
        return ""
    body = decode(next(journal.read(run_id, row.fork_seq)))
    return body.sender if isinstance(body, kinds.RunForked) else ""


def _copy_point(services: Services, row: RunRow) -> tuple[ForkState, str]:
    """Return the last event of a conversation from which a copy takes messages, and the phase that takes them."""
    point, phase = None, ""
    for read in read_run(services.journal.read(row.run_id)):
        state, skill = read.after, services.compile_skill(read.after.started).skill
        last = state.path[-1] if state.path else ""
        # A visit under other rules cannot be executed again, not even to its abort.
        has_turn = row.rules in SUPPORTED_RULES and (state.is_turn_open or state.aborted is not None)
        for name in (last, state.phase):
            if (has_turn or not state.visit.is_open) and state.holds_conversation(name) and skill.holds_open(name):
                point, phase = ForkState(read.event, state), name
                break
    if point is None:
        raise ForkImpossible(
            f"conversation `{row.run_id}` has no turn yet, or takes no more messages", hint="Wait for its first reply."
        )
    return point, phase


def _memory_changes(then: RunState, now: RunState, phase: str) -> list[kinds.MemoryChanged]:
    """Return how the memory of a conversation has changed since the end of a turn."""
    taken = then.messages_taken
    before, after = ({one.text: one.id for one in state.memory(phase).entries} for state in (then, now))
    return [
        *(kinds.MemoryChanged(phase, "forget", before[text], taken) for text in before if text not in after),
        *(kinds.MemoryChanged(phase, "remember", text, taken) for text in after if text not in before),
    ]


def _forked(
    services: Services,
    name: str,
    origin: str,
    point: ForkState,
    changes: ForkChanges,
) -> tuple[kinds.RunForked, tuple[Blob, ...], Skill]:
    """Return the first event of a fork, its content, and its skill, after validating a new input or a new skill.

    A fork of an imported run has the settings and op specifications of this project.
    """
    loaded = services.load(changes.skill) if changes.skill is not None else None
    recorded = services.compile_skill(point.state.started)
    is_imported = _is_imported(point, services.journal)
    settings = services.run_settings() if is_imported else recorded.settings
    current = CompiledSkill(loaded or recorded.skill, settings, services.ops.vocabulary)
    if is_imported:
        _check_imported(current.skill, services.ops.vocabulary)
    is_new = loaded is not None or is_imported
    artifact = fork_input(point, current, changes.input, services.journal.blob, is_new_skill=is_new)
    is_new = is_new or point.state.started.ops is None
    specs = pin_ops(current.skill, services.ops.vocabulary) if is_new else None
    pinned = Blob.of(canonical(settings)) if is_imported else None
    if changes.instructions:
        loaded = with_instructions(current.skill, changes.instructions)
    forked, blobs = fork_event(name, origin, point, changes, artifact, loaded, specs, pinned)
    if point.state.visit.is_open and not is_imported:
        forked = msgspec.structs.replace(forked, children=open_children(services.journal, point.state))
    return forked, blobs, current.skill


def _is_imported(point: ForkState, journal: Journal) -> bool:
    """Whether the event that a fork continues from was imported; a fork of an imported run inherits such events."""
    row = journal.find(point.event.run_id)
    return row is not None and bool(row.imported)


async def rerun(
    executor: RunExecutor, row: RunRow, observers: Observers, *, model: str | None, upgrade: bool, run_id: str | None
) -> RunResult:
    """Start a run with the input of a recorded run; `OSRuntime.rerun` documents the arguments."""
    services, name = executor.services, executor.new_id(run_id)
    started = executor.runs.state(row.run_id).started
    recorded = services.compile_skill(started)
    is_imported = bool(row.imported) or started.imported
    source = None if is_imported else started.source
    if upgrade:
        check_in_file(recorded.skill)
    skill = services.load(source or started.skill) if upgrade else recorded.skill
    settings = services.run_settings() if is_imported else recorded.settings
    artifact = _recorded(started.input.hash, services.journal)
    if is_imported:
        _check_imported(skill, services.ops.vocabulary)
    if upgrade or is_imported:
        to_artifact(msgspec.json.decode(artifact.content), skill, strict=settings.strict)
    check_ops(name, skill, services.ops)
    default = services.config.model if is_imported else None
    opened = services.roster.ready(model or default, "" if is_imported else started.model)

    async def start() -> RunResult:
        run = executor.prepare(
            *(name, skill, artifact, pin_settings(settings), opened),
            rerun_of=started.run_id,
            source=source,
            imported=is_imported,
            rollback=started.rollback,
            requests=_recorded(started.requests, services.journal) if started.requests else None,
            credentials=None if is_imported else started.credentials,  # of an archive, `*` would stand for its names
            summaries=_recorded(started.summaries, services.journal) if started.summaries else None,
            history=started.history if skill.holds_conversation(skill.entry) else (),
            images=started.images,
        )
        return await executor.start(run, observers)

    return await executor.claim_and_execute(name, start, observers)


def _recorded(name: str, journal: Journal) -> Blob:
    return Blob(name, journal.blob(name))


def _check_imported(skill: Skill, vocabulary: Vocabulary) -> None:
    """Check the copy of a skill from an archive. The import does not check copies under older rules."""
    check_pinned(skill)
    check_supported(skill, vocabulary)
