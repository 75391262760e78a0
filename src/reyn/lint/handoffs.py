"""Rules on `context`: selected handoff fields have a producer, and a phase's instructions fit into its prompt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from reyn.config.values import HandoffSettings
from reyn.context import estimate_tokens
from reyn.context.handoff import choose_context
from reyn.contract import candidates_of
from reyn.errors import Finding, codes
from reyn.skills import LoadResult, Skill, successors
from reyn.skills.graph import is_known, predecessors
from reyn.skills.step_types import RunOp, RunSkill
from reyn.skills.values import Phase, is_skill_node, skill_of

if TYPE_CHECKING:
    from reyn.documents import Document
    from reyn.jsonschema import Schema
    from reyn.vocabulary import Vocabulary

_ALWAYS = ("goal", "decisions_made", "narrative")
"""Fields that Reyn derives from every completed phase."""


def unproduced_handoff_fields(loaded: LoadResult, vocabulary: Vocabulary) -> Iterator[Finding]:
    """Warn about handoff fields that a phase selects and no earlier phase can produce."""
    skill = loaded.partial
    if skill is None:
        return
    yield from _findings(loaded.document(), skill.context, skill, skill.graph, vocabulary)
    for name, phase in skill.phases.items():
        if isinstance(phase.context, HandoffSettings) and phase.context.handoff_fields:
            before = predecessors(skill, name)
            yield from _findings(loaded.document(name), phase.context, skill, before, vocabulary)


def oversized_instructions(loaded: LoadResult, _: Vocabulary) -> Iterator[Finding]:
    """Warn about instructions that alone exceed the `max_prompt_tokens` of their phase: it could never run."""
    skill = loaded.partial
    for name, phase in skill.phases.items() if skill is not None else ():
        assert skill is not None
        for owner, context in ((name, phase.context), (None, skill.context)):
            limit = context.max_prompt_tokens if isinstance(context, HandoffSettings) else None
            if limit is None:
                continue
            tokens = estimate_tokens(phase.instructions)
            if tokens > limit:
                message = (
                    f"the instructions of phase `{name}` take about {tokens} tokens; `max_prompt_tokens` is {limit}"
                )
                fix = "raise `max_prompt_tokens`, or shorten the instructions"
                yield loaded.document(owner).finding(
                    codes.OVERSIZED_INSTRUCTIONS, message, "context", "max_prompt_tokens", fix=fix, severity="warning"
                )
            break


def _findings(
    document: Document, context: object, skill: Skill, nodes: Iterable[str], vocabulary: Vocabulary
) -> Iterator[Finding]:
    if not isinstance(context, HandoffSettings):
        return
    for index, field in enumerate(context.handoff_fields or ()):
        path = ("context", "handoff_fields", index)
        if field == "narrative" and not choose_context(0, context, skill.context)[0].effective_narrative_cap:  # type: ignore[union-attr]  # settings always have a manifest
            message, fix = "`narrative` is omitted: `narrative_cap` is 0", "set `narrative_cap`"
            yield document.finding(codes.NARRATIVE_OMITTED, message, *path, fix=fix, severity="warning")
        elif not any(_produces(skill, node, field, vocabulary) for node in nodes):
            message = f"no earlier phase can produce `{field}`"
            fix = f"add `{field}` to an artifact, or set `ask_handoff: true` in an earlier phase"
            yield document.finding(codes.UNPRODUCED_HANDOFF_FIELD, message, *path, fix=fix, severity="warning")


def _produces(skill: Skill, node: str, field: str, vocabulary: Vocabulary) -> bool:
    """Return whether the handoff of a node can have a field."""
    if field in _ALWAYS or not all(is_known(skill, one) for one in (node, *successors(skill, node))):
        return True
    if is_skill_node(node):
        inner = skill.sub_skill(skill_of(node))
        return any(_produces(inner, one, field, vocabulary) for one in inner.graph)
    phase = skill.phases[node]
    if choose_context(0, phase.context, skill.context).asks_handoff:
        return True
    if field == "verdicts" and (phase.requires_approval or _has_gate(phase, vocabulary)):
        return True
    if field == "artifacts_produced" and _may_write(phase, vocabulary):
        return True
    schemas = [candidate.artifact_schema for candidate in candidates_of(skill, node)]
    if field == "epic_id":
        schemas += [artifact.schema for artifact in phase.inputs]
    return any(_may_have(schema, field) for schema in schemas)


def _has_gate(phase: Phase, vocabulary: Vocabulary) -> bool:
    """Return whether an op of a phase or of its steps may leave a verdict."""
    steps = {str(step.op.get("kind")) for step in phase.preprocessor if isinstance(step, RunOp)}
    return any(kind in vocabulary.gates for kind in (*phase.allowed_ops, *steps))


def _may_write(phase: Phase, vocabulary: Vocabulary) -> bool:
    if any(isinstance(step, RunOp | RunSkill) for step in phase.preprocessor):
        return True
    specs = [vocabulary.op(kind) for kind in phase.allowed_ops] if phase.max_act_turns else []
    return any(form.effect != "pure" for spec in specs if spec for form in spec.forms)


_COMBINATORS = {"$ref", "allOf", "anyOf", "oneOf", "if", "patternProperties"}


def _may_have(schema: Schema, name: str) -> bool:
    """Return whether data of a schema can have a property that its author thought of. An open schema can."""
    if isinstance(schema, bool):
        return schema
    return name in schema.get("properties", {}) or "properties" not in schema or not _COMBINATORS.isdisjoint(schema)
