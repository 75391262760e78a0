"""Compile a phase for execution: output contracts, static prompt texts, schemas. Turns are compiled on first use."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from reyn.config.values import CounterName, HandoffSettings, PromptLimit
from reyn.context.frame import stable_frame
from reyn.context.handoff import PhaseContext, choose_context
from reyn.context.tokens import ESTIMATING, NEUTRAL
from reyn.contract import (
    Candidate,
    Contract,
    Duty,
    candidates_of,
    duties_of,
    limit_forms,
    limit_targets,
    offered_ops,
    with_truncated_reads,
    without_fields,
)
from reyn.journal import Blob, kinds
from reyn.journal.summary import limit_of
from reyn.kernel.core.limits import visits_left
from reyn.kernel.visit.model_call import Targets, TurnSpec
from reyn.kernel.visit.run_context import RunContext
from reyn.skills import Skill, may_finish, successors
from reyn.skills.allowed_ops import FillSource, parse_source
from reyn.skills.decisions import CompiledCondition, CompiledRule, compile_conditions, compile_rules
from reyn.skills.step_expressions import StepList, checks_of_node

if TYPE_CHECKING:
    from reyn.config import RunSettings
    from reyn.jsonschema import Schema
    from reyn.kernel.core.snapshot import RunState
    from reyn.skills.step_types import AnyStep
    from reyn.skills.values import Phase
    from reyn.vocabulary import OpSpec, Vocabulary


_UNKNOWN = PromptLimit()
_LATER = 2
"""A rank of a phase that earlier phases can hand something to."""
_MAX_TURN_SPECS = 32
"""The number of turn specifications that a phase keeps: the skills that a conversation can run may change."""
MEMORY_SHARE = 2
"""The memory of a conversation takes at most this fraction of the size of its transcript."""
UNCALIBRATED = 1250
"""The factor of an estimate against the window of a model, before the model has reported a usage. Prose has about one
token in four bytes, code and other scripts often one in three."""


class CompiledPhase(RunContext):
    """One node of the graph: a phase, or a skill used as a node."""

    def __init__(
        self,
        skill: Skill,
        settings: RunSettings,
        vocabulary: Vocabulary,
        name: str,
        max_phase_visits: int | None,
        used_up: frozenset[str] = frozenset(),
        forbidden: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__(skill, settings, vocabulary)
        self.name = name
        self.kind = skill.node_kind(name)
        self.max_retries = settings.max_phase_retries
        self._max_phase_visits = max_phase_visits
        self.used_up = used_up
        """Successors that are not candidates because their visits are used up."""
        self._forbidden = forbidden
        self._without: dict[frozenset[str], CompiledPhase] = {}
        self._turn_specs: dict[tuple[bool, bool, str, str | None, tuple[Duty, ...]], TurnSpec] = {}
        self._contexts: dict[int, PhaseContext] = {}

    def recompiled(self, state: RunState) -> CompiledPhase:
        """Return the phase after a limit was raised in the middle of its visit."""
        limits = self.visit_limits(self.name, state)
        return CompiledPhase(self.skill, self.settings, self.vocabulary, self.name, *limits, self._forbidden)

    def without(self, forbidden: frozenset[str]) -> CompiledPhase:
        """Return the phase without the candidates that conditions forbid."""
        if forbidden not in self._without:
            settings = (self.settings, self.vocabulary, self.name, self._max_phase_visits, self.used_up)
            self._without[forbidden] = CompiledPhase(self.skill, *settings, forbidden)
        return self._without[forbidden]

    @property
    def step_lists(self) -> list[StepList]:
        lists = [checks_of_node(self.skill, self.name)] if self.checks else []
        if self.kind != "skill":  # a skill has no file of a phase
            lists.append(StepList(self.definition.inputs, self.definition.preprocessor))
        return lists

    @cached_property
    def rules(self) -> tuple[CompiledRule, ...]:
        """The rules of a node without a model."""
        return compile_rules(self.skill, self.name)

    @cached_property
    def conditions(self) -> tuple[CompiledCondition, ...]:
        """The conditions on the edges of the phase."""
        return compile_conditions(self.skill, self.name) if self.name in self.skill.conditions else ()

    def remaining_visits(self, state: RunState, left: dict[str, int]) -> dict[str, int]:
        """Return how often each candidate that was visited before can still be visited.

        Args:
            state: The state of the run.
            left: `visits_left` when the visit started, which only a raised limit changes.
        """
        if state.raised:
            left = visits_left(state, self.skill, limit_of(state, self.settings, "max_phase_visits"), self.name)
        visits, closed = state.history.visits, self._forbidden
        return {name: count for name, count in left.items() if count > 0 and visits.get(name) and name not in closed}

    @cached_property
    def definition(self) -> Phase:
        return self.skill.phases[self.name]

    @property
    def conversation(self) -> str | None:
        return self.name if self.definition.conversation is not None else None

    @cached_property
    def transcript(self) -> str:
        """The name of the transcript that the phase shares with others; empty if it shares none."""
        phase = self.skill.phases.get(self.name)
        return phase.conversation.transcript if phase is not None and phase.conversation is not None else ""

    def transcript_tokens(self, state: RunState) -> int:
        """Return the maximum size of a transcript: the setting of the phase, capped by the model's prompt limit."""
        settings, limit = self.definition.conversation, self.estimated_tokens(state)
        assert settings is not None
        # The rest is for the instructions, the choices and what the conversation remembers.
        return settings.max_tokens if limit is None else min(settings.max_tokens, limit * 3 // 4)

    def memory_tokens(self, state: RunState) -> int:
        return self.transcript_tokens(state) // MEMORY_SHARE if self.conversation is not None else 0

    def context(self, ordinal: int) -> PhaseContext:
        """Return the manifest of the phase for its rank in the run."""
        if ordinal not in self._contexts:
            levels = (self.definition.context, self.skill.context, self.settings.context)
            self._contexts[ordinal] = choose_context(ordinal, *levels)
        return self._contexts[ordinal]

    @cached_property
    def receives_handoffs(self) -> bool:
        """Whether the phase receives handoffs of earlier phases; which fields it receives depends on its rank."""
        return self.context(_LATER).manifest is not None

    @cached_property
    def listing_ops(self) -> tuple[str, ...]:
        """The ops of the phase that list what they can act on. Outside conversations, `allowed_skills` asks for it."""
        is_open, names_skills = self.conversation is not None, self.definition.allowed_skills is not None
        listing = (spec for spec in self.ops if spec.has_overview)
        return tuple(spec.kind for spec in listing if is_open or (names_skills and spec.skill_field))

    @cached_property
    def candidates(self) -> tuple[Candidate, ...]:
        closed = self.used_up | self._forbidden
        found = (one for one in candidates_of(self.skill, self.name) if one.next_phase not in closed)
        return tuple(without_fields(one, self.sources) for one in found)

    @cached_property
    def output_schemas(self) -> dict[tuple[str, str], Schema]:
        """The whole schemas of the artifacts that the phase can produce, by candidate: next phase and type."""
        found = candidates_of(self.skill, self.name)
        return {(one.next_phase, one.schema_name): one.artifact_schema for one in found}

    @cached_property
    def checks(self) -> tuple[AnyStep, ...]:
        """The steps on the artifact that a visit proposes."""
        return self.skill.nodes[self.name].check if self.name in self.skill.nodes else ()

    @cached_property
    def duties(self) -> tuple[Duty, ...]:
        """The work that a visit must do."""
        return duties_of(self.definition.must, self.vocabulary, self.ops)

    @cached_property
    def sources(self) -> dict[str, FillSource]:
        """The fields of the artifact that ops fill, each with its source. Lint has checked them."""
        found = self.skill.filled_fields(self.name).items()
        parsed = {field: parse_source(text, self.vocabulary) for field, text in found}
        return {field: source for field, source in parsed.items() if source is not None}

    @cached_property
    def has_work(self) -> bool:
        """Whether a visit must do something, or has ops that fill its artifact."""
        return bool(self.definition.must or self.sources)

    @cached_property
    def takes_input(self) -> bool:
        """Whether a visit can begin with its input as it is: without a preprocessor, and without other artifacts."""
        return not (self.definition.preprocessor or self.definition.reads)

    @cached_property
    def instructions_hash(self) -> str:
        """The hash of the instructions."""
        return Blob.of(self.definition.instructions.encode()).hash

    @cached_property
    def accepts_several(self) -> bool:
        """Whether the input of the phase is a union of types."""
        return len(self.definition.inputs) > 1

    @cached_property
    def checks_limits(self) -> bool:
        """Whether a limit can stop a visit: the phase has ops or work, or a cap on tokens or time is set."""
        caps = (self.settings.limits.tokens, self.settings.limits.run_seconds, self.settings.limits.phase_seconds)
        return bool(self.ops) or self.has_work or any(cap is not None for cap in caps)

    @cached_property
    def ops(self) -> tuple[OpSpec, ...]:
        return offered_ops(self.vocabulary, self.definition.allowed_ops) if self.definition.max_act_turns else ()

    @cached_property
    def model(self) -> str:
        """The model that the operator configured for the phase's class; empty for the run's own model."""
        return self.settings.classes.get(self.definition.model_class or "", "")

    def form(self, state: RunState) -> kinds.AnswerForm:
        """Return the form in which the phase's model is asked to answer."""
        return self.settings.answer_forms.get(self.model, "full") if self.model else state.models.form

    @cached_property
    def _own_prompt_tokens(self) -> int | None:
        """The prompt limit of the phase, its skill or the project."""
        levels = (self.definition.context, self.skill.context)
        own = [
            level.max_prompt_tokens
            for level in levels
            if isinstance(level, HandoffSettings) and level.max_prompt_tokens
        ]
        return own[0] if own else self.settings.limits.max_prompt_tokens

    @cached_property
    def may_limit_prompt(self) -> bool:
        """Whether the number of tokens of the phase's prompt may be limited by more than the model of the run."""
        return bool(self.model) or self._own_prompt_tokens is not None

    def limits_prompt(self, state: RunState) -> bool:
        """Return whether the number of tokens of the phase's prompt is limited."""
        if not state.raised and self._own_prompt_tokens is None:
            return self._model_limit(state).tokens is not None
        return self.prompt_limit(state).tokens is not None

    def prompt_limit(self, state: RunState) -> PromptLimit:
        """Return the maximum number of tokens of the phase's prompt, and the counter.

        A raised limit takes precedence over the model's window.
        """
        model = self._model_limit(state)
        if self.is_limited_by_window(state):
            return model
        tokens = state.raised.get("max_prompt_tokens", self._own_prompt_tokens)
        return msgspec.structs.replace(model, tokens=tokens)

    def is_limited_by_window(self, state: RunState) -> bool:
        """Return whether the prompt limit is the window of the model, and not a lower one of the configuration."""
        if "max_prompt_tokens" in state.raised:
            return False
        own, window = self._own_prompt_tokens, self._model_limit(state).tokens
        return own is None or (window is not None and window <= own)

    def counter_factor(self, state: RunState) -> int:
        """Return the factor, per mille, by which the counts of prompts are multiplied. It never lowers an exact count.

        A limit of the configuration holds under the counter in use; the window of a model holds under its tokenizer, so
        that an estimate leaves a margin until the model has reported a usage.
        """
        counter = self.prompt_limit(state).counter
        calibrated = state.models.calibration.get(self.model or state.models.name)
        if calibrated is None:
            return UNCALIBRATED if counter in ESTIMATING and self.is_limited_by_window(state) else NEUTRAL
        if counter == "model":
            return NEUTRAL
        return calibrated if counter in ESTIMATING else max(NEUTRAL, calibrated)

    def estimated_tokens(self, state: RunState) -> int | None:
        """Return the tokens of the longest prompt by an estimate that is not calibrated; `None` without a limit."""
        tokens = self.prompt_limit(state).tokens
        return None if tokens is None else tokens * NEUTRAL // max(NEUTRAL, self.counter_factor(state))

    def _model_limit(self, state: RunState) -> PromptLimit:
        return self.settings.prompt_limits.get(self.model, _UNKNOWN) if self.model else state.models.prompt_limit

    def handoff_counter(self, state: RunState) -> CounterName:
        """Return how the tokens of handoffs are counted: `chars`, unless the project wants exact counts."""
        return self.prompt_limit(state).counter if self.settings.counter == "exact" else "chars"

    def turn_spec(
        self,
        form: kinds.AnswerForm,
        *,
        acting: bool,
        is_truncated: bool,
        targets: Targets | None = None,
        left: tuple[Duty, ...] = (),
    ) -> TurnSpec:
        """Return the prompt and contract of a turn.

        Args:
            form: The form of the answer.
            acting: Whether the phase's ops are on offer.
            is_truncated: Whether the frame shows truncated content, so that ops to read the rest are on offer.
            targets: What calls of ops can name; `None` if that is not limited.
            left: The work that the visit must still do: nothing else is on offer, and no candidate.
        """
        key = (acting, is_truncated, form, targets.hash if targets is not None and acting else None, left)
        spec = self._turn_specs.get(key)
        if spec is None:
            ops = self.ops if acting else ()
            if left:
                ops = limit_forms(ops, left)
            if targets is not None and acting:
                ops = limit_targets(ops, targets.read())
            if is_truncated:
                ops = with_truncated_reads(self.vocabulary, ops)
            contract = Contract(
                self.candidates,
                ops,
                strict=self.settings.strict,
                sizes=self.settings.sizes,
                form=form,
                asks_handoff=self.context(1).asks_handoff,
                allows_abort=not self.stays_open,
                left=left,
            )
            frame = stable_frame(
                self.skill,
                self.name,
                contract.candidates,
                ops,
                max_phase_visits=self._max_phase_visits,
                output_language=self.settings.output_language,
            )
            spec = TurnSpec(frame, contract, ops, self.definition)
            if len(self._turn_specs) >= _MAX_TURN_SPECS:
                self._turn_specs.pop(next(iter(self._turn_specs)))
            self._turn_specs[key] = spec
        return spec

    @cached_property
    def follows_itself(self) -> bool:
        """Whether the phase can be visited again right after itself."""
        return self.name in successors(self.skill, self.name)

    @cached_property
    def is_endless(self) -> bool:
        """Whether the phase is a conversation that only follows itself, so that an abort ends the turn, not the run."""
        only_itself = successors(self.skill, self.name) == (self.name,)
        return self.definition.conversation is not None and only_itself and not may_finish(self.skill, self.name)

    @cached_property
    def stays_open(self) -> bool:
        """Whether the model cannot end the conversation."""
        conversation = self.definition.conversation
        return conversation is not None and conversation.stays_open and self.follows_itself
