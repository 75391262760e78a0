"""New runs from recorded ones: forks continue a run from an event, reruns repeat it from its input.

`reyn.runs.fork` has the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from reyn.errors import ForkImpossible
from reyn.journal import Blob, Body, Journal, RunRow, canonical, kinds
from reyn.kernel.versions import SUPPORTED_RULES
from reyn.kernel.visit.compiled_skill import CompiledSkill
from reyn.kernel.world.loading import check_ops, load_run, pin_ops, pin_settings
from reyn.kernel.world.unsafe_ops import describe_unsafe, unsafe_ops
from reyn.runs.fork import ForkState, OpenVisit, append_fork_event, find_fork_point, fork_event, fork_input
from reyn.runtime.executor import RunExecutor, check_in_file
from reyn.skills import Skill, check_pinned
from reyn.skills.inputs import check_supported, to_artifact

if TYPE_CHECKING:
    from reyn.journal.results import RunResult
    from reyn.kernel.core.snapshot import RunState
    from reyn.kernel.world.services import Observers, Services
    from reyn.runs.reader import ReadEvent
    from reyn.vocabulary import Vocabulary


async def fork(
    executor: RunExecutor,
    row: RunRow,
    observers: Observers,
    *,
    at: int | None,
    model: str | None,
    input: Any,
    skill: str | None,
    run_id: str | None,
) -> RunResult:
    """Start a run that continues from an event of another one; `OSRuntime.fork` documents the arguments."""
    services, name = executor.services, executor.new_id(run_id)
    journal = services.journal
    changes = input is not None or skill is not None
    point, repeated = _fork_point(executor, row, at, between_visits=changes)
    if _is_imported(point, journal):
        model = model or services.config.model
    value = services.scrubber.scrub_value(input)
    forked, blobs, current = _forked(services, name, row.run_id, point, model, value, skill)
    check_ops(name, current, services.ops)
    opened = services.roster.ready(model, point.state.models.name)
    if forked.model is not None:
        form, limit = services.roster.answer_form(opened), services.roster.prompt_limit(opened)
        forked = msgspec.structs.replace(forked, model=opened, answer_form=form, prompt_limit=limit)

    async def start() -> RunResult:
        executor.runs.files.recreate_workspace(name, row.run_id, point.event.seq, point.event.ts)
        event = append_fork_event(journal, name, point.event, forked, blobs, services.clock.now())
        world = executor.world(opened, observers)
        world.notify_listener(event)
        if repeated:
            where = f"the fork continues from event {point.event.seq} of `{row.run_id}`, and may repeat later ops"
            world.warnings.append(f"{where}. {repeated}")
        return await executor.execute(load_run(journal, name).tape, world)

    return await executor.claim_and_execute(name, start, observers)


def _fork_point(executor: RunExecutor, row: RunRow, at: int | None, *, between_visits: bool) -> tuple[ForkState, str]:
    """Return the event that a fork continues from, and the unsafe ops after it, which the fork may execute again.

    If there are some in the visit in which a run was interrupted or cancelled, the fork continues this visit.
    """
    services, run = executor.services, row.run_id
    journal, vocabulary = services.journal, services.ops.vocabulary
    point = find_fork_point(run, journal.read(run), at, between_visits=between_visits)
    # A visit under other rules cannot be executed again. Nothing that an imported run intended is performed, not
    # even its open request to a model.
    if point.state.started.rules not in SUPPORTED_RULES or _is_imported(point, journal):
        between_visits = True
        point = find_fork_point(run, journal.read(run), at, between_visits=True)
    repeated = list(unsafe_ops(journal, run, vocabulary, point.event.seq))
    if repeated and at is None and not between_visits and row.status not in ("finished", "aborted"):
        point = find_fork_point(run, journal.read(run), None, between_visits=False, accepts=OpenVisit(row.seq))
        repeated = list(unsafe_ops(journal, run, vocabulary, point.event.seq))
    return point, describe_unsafe(repeated)


def copy_conversation(executor: RunExecutor, row: RunRow, run_id: str | None) -> str:
    """Copy a conversation with everything that was completed; nothing is executed. Return the id of the copy.

    A turn that has not ended is aborted in the copy: a tool call without a result is cancelled, or its outcome unknown.

    Raises:
        ForkImpossible: No turn has begun yet.
        RunIdTaken: There is a run with the id.
    """
    services, name = executor.services, executor.new_id(run_id)
    journal = services.journal
    services.check_owner()

    def accepts(read: ReadEvent) -> bool:
        state = read.after
        holds_open = services.compile_skill(state.started).skill.holds_open
        if state.phase not in state.conversations or not holds_open(state.phase):
            return False
        # A visit under other rules cannot be executed again, not even to its abort.
        has_turn = row.rules in SUPPORTED_RULES and (state.is_turn_open or state.aborted is not None)
        return has_turn or not state.visit.is_open

    point = find_fork_point(row.run_id, journal.read(row.run_id), None, between_visits=True, accepts=accepts)
    if not point.state.path:
        raise ForkImpossible(f"conversation `{row.run_id}` has no turn yet", hint="Wait for its first reply.")
    forked, blobs, _ = _forked(services, name, row.run_id, point, None, None, None)
    executor.runs.files.recreate_workspace(name, row.run_id, point.event.seq, point.event.ts)
    changes: list[Body] = [*_memory_changes(point.state, executor.runs.state(row.run_id))]
    if point.state.is_turn_open:
        changes.append(kinds.TurnAborted("the conversation was copied before the reply", point.state.messages_taken))
    append_fork_event(journal, name, point.event, forked, blobs, services.clock.now(), changes)
    return name


def _memory_changes(then: RunState, now: RunState) -> list[kinds.MemoryChanged]:
    """Return how the memory of a conversation has changed since the end of a turn."""
    phase, taken = then.phase, then.messages_taken
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
    model: str | None,
    input: Any,
    skill: str | None,
) -> tuple[kinds.RunForked, tuple[Blob, ...], Skill]:
    """Return the first event of a fork, its content, and its skill, after validating a new input or a new skill.

    A fork of an imported run has the settings and op specifications of this project.
    """
    loaded = services.load(skill) if skill is not None else None
    recorded = services.compile_skill(point.state.started)
    is_imported = _is_imported(point, services.journal)
    settings = services.run_settings() if is_imported else recorded.settings
    current = CompiledSkill(loaded or recorded.skill, settings, services.ops.vocabulary)
    if is_imported:
        _check_imported(current.skill, services.ops.vocabulary)
    is_new = loaded is not None or is_imported
    artifact = fork_input(point, current, input, services.journal.blob, is_new_skill=is_new)
    is_new = is_new or point.state.started.ops is None
    specs = pin_ops(current.skill, services.ops.vocabulary) if is_new else None
    pinned = Blob.of(canonical(settings)) if is_imported else None
    return *fork_event(name, origin, point, model, artifact, loaded, specs, pinned), current.skill


def _is_imported(point: ForkState, journal: Journal) -> bool:
    """Whether the event that a fork continues from was imported; a fork of an imported run inherits such events."""
    row = journal.find(point.event.run_id)
    return row is not None and bool(row.imported)


async def rerun(
    executor: RunExecutor, row: RunRow, observers: Observers, *, model: str | None, upgrade: bool, run_id: str | None
) -> RunResult:
    """Start a run with the input of another one; `OSRuntime.rerun` documents the arguments."""
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
