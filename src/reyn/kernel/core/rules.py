"""What each event changes in the state of a run. `run_state` applies these rules; the lifecycle has its own."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from reyn.config.values import PromptLimit
from reyn.context.tokens import NEUTRAL
from reyn.errors import ContractError, HistoryInvalid
from reyn.journal import kinds
from reyn.journal.canonical import canonical
from reyn.kernel.core.conversations import AgentThread, ReceivedMessage, changed, seed_of, sharing_after
from reyn.kernel.core.history import CompletedVisit
from reyn.kernel.core.snapshot import POSTPROCESSOR, Ending, Output, PersonInput, Recovery, RunState

_SETTLED = Recovery()
_WITH_CLOCK = "python"
"""The kind of op whose arguments have the time, so that they always differ; its result shows whether a visit does."""


def on_run_started(state: RunState, body: kinds.RunStarted) -> RunState:
    return replace(
        state,
        started=body,
        started_at=state.last_input,
        wording=body.wording,
        visit=replace(state.visit, input=body.input, rollback=body.rollback),
        history=state.history.with_artifact(body.input),
        models=replace(
            state.models, name=body.model, form=body.answer_form, prompt_limit=body.prompt_limit or PromptLimit()
        ),
        conversations=seed_of(body),
        # The start of a sub-run is no input of a person: what one message leads to is counted over all runs below.
        person=PersonInput(state.last_input) if body.parent is None else PersonInput(),
        received=ReceivedMessage(body.ask, "working", body.ask.answered) if body.ask is not None else None,
    )


def on_run_forked(state: RunState, body: kinds.RunForked) -> RunState:
    """Continue from the origin under a new id and with a new workspace; after its end, with the next message.

    Answers of the origin do not count: they must not decide a question of the fork. Nothing that an imported run
    configured or intended counts either: its settings, raised limits, open intents and the path of its skill.
    """
    origin = state.started
    is_imported = body.settings is not None
    started = replace(
        origin,
        run_id=body.run_id,
        skill=body.skill or origin.skill,
        skill_hash=body.skill_hash or origin.skill_hash,
        input=body.input if body.input and not state.history.total_steps else origin.input,
        images=() if body.input and not state.history.total_steps else origin.images,
        rules=body.rules or origin.rules,
        ops=body.ops or origin.ops,
        settings=body.settings or origin.settings,
        source=None if is_imported else origin.source,
        imported=body.imported or origin.imported,
        parent=None,
        ask=None,
        workspace=None,
    )
    if body.phase is not None and (state.visit.is_open or state.path[-1:] != (body.phase,)):
        raise HistoryInvalid(f"`{body.kind}` goes back to phase `{body.phase}`, which was not the last one")
    if state.ending is not None and not state.visit.is_open:  # it is open in the postprocessor
        state = _after_end(state, state.ending)
    history = state.history
    if body.input is not None:
        history = history.with_artifact(body.input)
    if body.skill_hash or body.model or body.input:
        history = history.without_decisions()
    return replace(
        state,
        started=started,
        wording=body.wording or state.wording,
        visit=replace(state.visit, input=body.input or state.visit.input),
        history=replace(history, trail=()) if body.skill_hash else history,
        models=replace(
            state.models,
            name=body.model or state.models.name,
            form=body.answer_form or state.models.form,
            prompt_limit=body.prompt_limit or state.models.prompt_limit,
            answers=state.total_answers,
        ),
        recovery=_SETTLED if is_imported else state.recovery.interrupted(body.children),
        threads={} if is_imported else state.threads,
        received=None,
        last_answer=None,
        expired=None,
    )


def _after_end(state: RunState, ending: Ending) -> RunState:
    """Return the state in which the conversation that ended a run takes its next message."""
    visit, output = replace(state.visit, rollback=None, is_continued=False), state.output
    history = state.history.without_ops(state.phase) if ending.kind == "unanswered" else state.history
    state = replace(state, ending=None, output=Output(output.artifact, reason=output.reason), history=history)
    if ending.kind not in ("finish", "post_failure") or output.artifact is None or visit.input is None:
        return replace(state, visit=visit)
    reply = CompletedVisit(state.phase, visit.input, output.artifact, visit.latest, visit.handoffs, visit.values)
    history = state.history.with_decision(reply, state.phase, visit.ops, is_answered=True)
    return replace(state, visit=replace(visit, input=output.artifact), history=history)


def on_run_resumed(state: RunState, body: kinds.RunResumed) -> RunState:
    """Visit the phase of a failed visit again; continue everything else where it was."""
    ending, started, visit = state.ending, state.started, state.visit
    if state.status == "failed" and ending is not None and ending.kind in ("failure", "unanswered", "post_failure"):
        visit = replace(visit, is_continued=ending.kind == "unanswered", attempt=0)
        ending = Ending("finish") if ending.kind == "post_failure" else None
    if body.skill_hash is not None:
        skill = body.skill or started.skill
        started = replace(started, skill=skill, skill_hash=body.skill_hash, ops=body.ops or started.ops)
    if body.hooks is not None:
        started = replace(started, hooks=body.hooks)
    history = replace(state.history, trail=()) if body.skill_hash else state.history
    if body.skill_hash or body.model:
        history = history.without_decisions()
    models = state.models
    if body.model or body.retry:
        form = body.answer_form or models.form
        limit = body.prompt_limit or models.prompt_limit
        models = replace(models, name=body.model or models.name, form=form, prompt_limit=limit)
    return replace(
        state,
        started=started,
        wording=body.wording or state.wording,
        history=history,
        ending=ending,
        visit=visit,
        models=models,
        # An aborted turn has no open intents any more, and still has to say what may have taken effect.
        recovery=state.recovery if state.aborted else replace(state.recovery, unknown_outcomes=body.open_intents),
    )


def on_wait_answered(state: RunState, body: kinds.WaitAnswered) -> RunState:
    return replace(
        state,
        visit=replace(state.visit, is_answered=True),
        last_answer=body,
        person=PersonInput(state.last_input, state.usage, state.models.answers),
        # The question was about the first unknown outcome, if there is one.
        recovery=replace(state.recovery, unknown_outcomes=state.recovery.unknown_outcomes[1:]),
    )


def on_wait_expired(state: RunState, body: kinds.WaitExpired) -> RunState:
    return replace(state, expired=body.wait)


def on_phase_started(state: RunState, body: kinds.PhaseStarted) -> RunState:
    history = state.history
    if body.transcript or state.sharing:
        state = replace(state, sharing=sharing_after(state.sharing, body))
    return replace(
        state,
        visit=replace(
            state.visit,
            is_open=True,
            input=body.input,
            latest=history.latest,
            ops=0,
            is_answered=False,
            handoffs=history.handoffs,
            values=history.values,
            sub_runs=(),
            earlier_sub_runs=0,
            has_message=False,
            children={},
            acted={},
        ),
        history=history.with_visit(body.phase),
    )


def on_content_truncated(state: RunState, body: kinds.ContentTruncated) -> RunState:
    return state.with_truncated(body.name, body.content)


def on_frame_built(state: RunState, body: kinds.FrameBuilt) -> RunState:
    budget = body.budget
    if budget is None:
        return state if state.visit.prompt is None else replace(state, visit=replace(state.visit, prompt=None))
    for one in budget.truncated:
        state = state.with_truncated(one.name, one.content)
    counted = budget.tokens * NEUTRAL // max(1, budget.factor)
    return replace(state, visit=replace(state.visit, prompt=("", counted)))


def on_llm_requested(state: RunState, body: kinds.LlmRequested) -> RunState:
    if state.visit.prompt is not None:
        state = replace(state, visit=replace(state.visit, prompt=(body.model, state.visit.prompt[1])))
    return on_intent(state, body)


def on_llm_responded(state: RunState, body: kinds.LlmResponded) -> RunState:
    models, prompt = state.models, state.visit.prompt
    # An engine that measures its choice counts prompts exactly, and may have sent several for this answer.
    if prompt is not None and body.usage is not None and body.choice_probability is None:
        models = models.calibrated(*prompt, body.usage.input_tokens)
    return replace(state, models=replace(models, answers=models.answers + 1), recovery=_SETTLED)


def on_artifact_stored(state: RunState, body: kinds.ArtifactStored) -> RunState:
    output, history = replace(state.output, artifact=body.artifact), state.history.with_artifact(body.artifact)
    if body.state is not None:
        history = history.with_state(body.artifact, body.state)
    return replace(state, output=output, history=history)


def on_control_decided(state: RunState, body: kinds.ControlDecided) -> RunState:
    """An abort ends the run once its visit is closed; other decisions take effect with `phase_completed`."""
    ending = Ending("abort", body.reason) if body.type == "abort" else state.ending
    return replace(state, output=replace(state.output, reason=body.reason), ending=ending)


def on_handoff_recorded(state: RunState, body: kinds.HandoffRecorded) -> RunState:
    return replace(
        state, history=replace(state.history, handoffs=state.history.handoffs.added(body.phase, body.handoff))
    )


def on_phase_completed(state: RunState, body: kinds.PhaseCompleted) -> RunState:
    if body.type == "abort":
        history = state.history.with_done(body.phase, body.done, body.steps)
        return replace(state, visit=replace(state.visit, is_open=False), history=history)
    artifact, rollback = state.output.artifact, state.visit.rollback
    if artifact is None:
        raise HistoryInvalid(f"`{body.kind}` of phase `{body.phase}` comes without an artifact")
    if rollback is state.started.rollback:  # the parent compares the result of the whole sub-run
        rollback = None
    if rollback is not None and artifact.hash == rollback.rejected.hash:
        reason = f"no progress: after a rollback, phase `{body.phase}` produced the same artifact again"
        return replace(state, visit=replace(state.visit, is_open=False), ending=Ending("no_progress", reason))
    if state.received is not None:
        state = replace(state, received=state.received.completed(artifact))
    if state.turn_end is not None:
        state = replace(state, turn_end=None)
    if body.type == "finish":
        return replace(state, visit=replace(state.visit, is_open=False, rollback=None), ending=Ending("finish"))
    visit = state.visit
    assert visit.input is not None  # since `run_started`
    history, done = state.history, body.done
    if history.done or history.steps:
        history, done = history.without_done(body.phase), (*history.done.get(body.phase, ()), *done)
    before = (visit.latest, visit.handoffs, visit.values)
    completed = CompletedVisit(body.phase, visit.input, artifact, *before, done, body.steps)
    return replace(
        state,
        visit=replace(state.visit, is_open=False, input=artifact, rollback=None, is_continued=False, attempt=0),
        history=history.with_decision(completed, body.next_phase, state.visit.ops, is_answered=state.visit.is_answered),
    )


def on_turn_aborted(state: RunState, body: kinds.TurnAborted) -> RunState:
    """Interrupt the visit. Ops without an outcome are not resolved: their results say what may have taken effect."""
    unknown = state.recovery.open_intents or state.recovery.unknown_outcomes
    return replace(state, aborted=body, recovery=Recovery(unknown_outcomes=unknown))


def on_phase_aborted(state: RunState, body: kinds.PhaseAborted) -> RunState:
    """End the run, or visit the phase again: its next message is another turn, not a repetition after a rollback."""
    ending = Ending("unanswered" if body.code else "abort", body.reason, body.code) if body.ends else None
    back = state.visit.rollback if body.ends else None
    visit = replace(state.visit, is_open=False, is_continued=False, rollback=back)
    received = state.received.aborted(body) if state.received is not None else None
    state = replace(state, history=state.history.with_done(body.phase, body.done, body.steps))
    return replace(state, visit=visit, ending=ending, aborted=None, recovery=_SETTLED, received=received, turn_end=body)


def on_phase_failed(state: RunState, body: kinds.PhaseFailed) -> RunState:
    ending = Ending("failure", body.reason, body.code, body.error_name)
    visit, history = replace(state.visit, is_open=False), state.history.with_done(body.phase, body.done, body.steps)
    return replace(state, visit=visit, history=history, ending=ending, aborted=None, recovery=_SETTLED)


def on_visit_retried(state: RunState, body: kinds.VisitRetried) -> RunState:
    """Visit the phase again, with the same input."""
    return replace(state, visit=replace(state.visit, attempt=body.attempt), ending=None)


def on_error_handled(state: RunState, body: kinds.ErrorHandled) -> RunState:
    """Go on at the handler. What the failed visits did stays known to later visits of their phase."""
    ending = Ending("finish") if body.to == kinds.TO_END else None
    visit = replace(state.visit, input=body.artifact, rollback=None, is_continued=False, attempt=0)
    return replace(state, visit=visit, ending=ending, history=state.history.with_other_work(state.phase))


def on_phase_rolled_back(state: RunState, body: kinds.PhaseRolledBack) -> RunState:
    """Return to the previous visit, with the artifacts and handoffs that it could read. Conversations stay."""
    return replace(
        state,
        visit=replace(state.visit, input=body.input, rollback=kinds.RollbackRef(body.rejected, body.reason), attempt=0),
        history=state.history.rolled_back(),
        ending=None,
    )


def on_postprocessor_started(state: RunState, body: kinds.PostprocessorStarted) -> RunState:
    if state.output.artifact is None:
        raise HistoryInvalid(f"`{body.kind}` comes without an artifact")
    return replace(
        state,
        visit=replace(state.visit, is_open=True, has_message=False),
        output=replace(state.output, post_attempts=body.attempt),
    )


def on_postprocessor_completed(state: RunState, body: kinds.PostprocessorCompleted) -> RunState:
    return replace(
        state,
        visit=replace(state.visit, is_open=False),
        output=replace(state.output, result=body.artifact),
    )


def on_postprocessor_failed(state: RunState, body: kinds.PostprocessorFailed) -> RunState:
    if state.output.artifact is None:
        raise HistoryInvalid(f"`{body.kind}` comes without an artifact")
    ending = Ending("post_failure", body.reason, body.code)
    history = state.history.with_done(POSTPROCESSOR, (), body.steps)
    return replace(state, visit=replace(state.visit, is_open=False), history=history, ending=ending)


def on_transcript_change(state: RunState, body: Any) -> RunState:
    try:
        conversations = changed(state.conversations, state.sharing.get(body.phase, body.phase), body)
    except ContractError as error:
        raise HistoryInvalid(f"`{body.kind}` of phase `{body.phase}`: {error.message}") from error
    visit = state.visit
    if isinstance(body, kinds.TranscriptExtended) and not (body.visit or visit.has_message):
        visit = replace(visit, has_message=True)
    return replace(state, conversations=conversations, visit=visit)


def on_context_mutated(state: RunState, body: kinds.ContextMutated) -> RunState:
    """Apply the mutations of hooks to a transcript that grows; a fresh frame is patched by its own turn."""
    return state if body.visit is None or not body.mutations else on_transcript_change(state, body)


def on_message_queued(state: RunState, body: kinds.MessageQueued) -> RunState:
    """Count the answers of a background run since the last report towards the limits of this run."""
    models, received = state.models, state.received
    if body.run:
        last = state.inbox.background.get(body.run)
        answers = max(0, body.answers - (last.answers if last is not None else 0))
        models = replace(models, answers=models.answers + answers)
    if body.ask is not None:
        received = ReceivedMessage(body.ask, "submitted", body.ask.answered - models.answers)
    is_of_person = not body.run and body.ask is None
    person = state.person
    if is_of_person:
        person = PersonInput(state.last_input, state.usage, models.answers)
    elif body.ask is not None:  # the run that asks counts what was used before
        person = PersonInput(person.at, state.usage, models.answers)
    return replace(state, models=models, received=received, person=person)


def on_message_taken(state: RunState, body: kinds.MessageTaken) -> RunState:
    oldest = state.inbox.queued[0] if state.inbox.queued else None
    if oldest is None or (oldest.message, oldest.text) != (body.message, body.text):
        raise HistoryInvalid(f"`{body.kind}` of phase `{body.phase}`: no such message is queued")
    received = state.received.taken(oldest.ask) if state.received is not None else None
    visit = replace(state.visit, is_answered=True)
    depth = state.depths.get(body.run, 0) + 1 if body.run else 0
    return replace(state, visit=visit, received=received, turn_depth=depth, visits_at_message=state.history.visits)


def on_child_started(state: RunState, body: kinds.ChildStarted) -> RunState:
    if body.type == "background":
        acted = {**state.visit.acted, body.call: f"the background run `{body.run}` was started"}
        depths = {**state.depths, body.run: state.turn_depth}
        return replace(state, depths=depths, visit=replace(state.visit, acted=acted))
    recovery = state.recovery.without(body.call) if state.recovery.children else state.recovery
    intents = replace(recovery, open_intents=(*recovery.open_intents, body.call))
    return replace(state, recovery=intents, visit=state.visit.with_child(body))


def on_intent(state: RunState, body: Any) -> RunState:
    recovery = state.recovery
    return replace(state, recovery=replace(recovery, open_intents=(*recovery.open_intents, body.call)))


def on_op_started(state: RunState, body: kinds.OpStarted) -> RunState:
    """An op with a request has no effect of its own: the kernel performs the request and records its intents."""
    if body.op_kind != _WITH_CLOCK:
        state = replace(state, visit=state.visit.with_op(body.args))
    return state if body.request is not None else on_intent(state, body)


def on_values_read(state: RunState, body: kinds.RuleMatched | kinds.ConditionsChecked) -> RunState:
    """Count the values that expressions have read as part of the visit: with other values, a decision counts as new."""
    return replace(state, visit=state.visit.with_op(canonical(body.read).decode())) if body.read else state


def on_op_completed(state: RunState, body: kinds.OpCompleted) -> RunState:
    is_last = state.recovery.open_intents in ((), (body.call,))  # nearly always
    recovery = _SETTLED if is_last else state.recovery.without(body.call)
    state = replace(state, visit=state.visit.with_op(body.result), recovery=recovery)
    return state if body.environment is None else replace(state, environment=body.environment)


def on_outcome(state: RunState, body: Any) -> RunState:
    return replace(state, recovery=state.recovery.without(body.call))


def on_child_ended(state: RunState, body: kinds.ChildEnded) -> RunState:
    """Count the answers of a child."""
    state = replace(state, models=replace(state.models, answers=state.models.answers + body.answers))
    visit, recovery, threads = state.visit.without_child(body), state.recovery, state.threads
    # The op that called a function is still being performed. A background run that has this event did not start.
    if body.type not in ("function", "background"):
        recovery = recovery.without(body.call)
    if body.type == "agent" and body.seq:  # the conversation, for the next message
        threads = {**threads, body.skill: threads.get(body.skill, AgentThread(body.run)).after(body)}
    return replace(state, visit=visit, recovery=recovery, threads=threads)
