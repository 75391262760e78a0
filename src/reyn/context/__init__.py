"""The context frame: everything that the model sees in one turn, and its text.

The kernel decides what goes into a frame; `reyn.contract` decides which answers are valid.
"""

from reyn.context.budget import (
    Assembly,
    ContextBudgetResult,
    FrameSection,
    Section,
    SectionCost,
    apply_context_budget,
    assemble_sections,
)
from reyn.context.choice_prompt import choice_examples
from reyn.context.frame import ContextFrame, Execution, Repetition, Rollback, StableFrame, stable_frame
from reyn.context.handoff import (
    HandoffContext,
    PhaseHandoff,
    assemble_handoff_context,
    build_handoff_context,
    build_phase_context,
)
from reyn.context.manifest import PhaseContext, PhaseManifest, choose_context, default_manifests, resolve_manifest
from reyn.context.prompt import closing_text, static_text
from reyn.context.render import TurnFrame, correction, message_text, next_digest, truncate, turn_message
from reyn.context.tokens import TokenCounter, estimate_tokens, truncate_to_token_budget

__all__ = [
    "Assembly",
    "ContextBudgetResult",
    "ContextFrame",
    "Execution",
    "FrameSection",
    "HandoffContext",
    "PhaseContext",
    "PhaseHandoff",
    "PhaseManifest",
    "Repetition",
    "Rollback",
    "Section",
    "SectionCost",
    "StableFrame",
    "TokenCounter",
    "TurnFrame",
    "apply_context_budget",
    "assemble_handoff_context",
    "assemble_sections",
    "build_handoff_context",
    "build_phase_context",
    "choice_examples",
    "choose_context",
    "closing_text",
    "correction",
    "default_manifests",
    "estimate_tokens",
    "message_text",
    "next_digest",
    "resolve_manifest",
    "stable_frame",
    "static_text",
    "truncate",
    "truncate_to_token_budget",
    "turn_message",
]
