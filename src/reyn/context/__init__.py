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
from reyn.context.compile import (
    CompiledContext,
    CompiledTurnContext,
    CompileSource,
    ContextState,
    DataFromAgentConfig,
    InvocationSpec,
    PromptContract,
    compile_context,
    compile_invocation_turn,
    compile_source,
)
from reyn.context.frame import ContextFrame, Execution, Repetition, Rollback, StableFrame, stable_frame
from reyn.context.handoff import (
    HandoffContext,
    PhaseHandoff,
    assemble_handoff_context,
    build_handoff_context,
    build_phase_context,
)
from reyn.context.manifest import PhaseContext, PhaseManifest, choose_context, default_manifests, resolve_manifest
from reyn.context.mutation import (
    AssistantMessage,
    AssistantTruncated,
    ContextMutation,
    ContextReplace,
    ContextSummary,
    ExperienceForget,
    ExperienceRemember,
    MultimodalToolResult,
    ToolCancelled,
    ToolResult,
    UserMessage,
    apply_mutations,
)
from reyn.context.prompt import closing_text, static_text
from reyn.context.render import TurnFrame, correction, message_text, next_digest, truncate, turn_message
from reyn.context.selfref import DataFromSelfRef
from reyn.context.tokens import TokenCounter, estimate_tokens, truncate_to_token_budget
from reyn.context.transcript import Experience, NormalizedMessage, NormalizedMessageList, SelfRefMarker, normalize

__all__ = [
    "Assembly",
    "AssistantMessage",
    "AssistantTruncated",
    "CompileSource",
    "CompiledContext",
    "CompiledTurnContext",
    "ContextBudgetResult",
    "ContextFrame",
    "ContextMutation",
    "ContextReplace",
    "ContextState",
    "ContextSummary",
    "DataFromAgentConfig",
    "DataFromSelfRef",
    "Execution",
    "Experience",
    "ExperienceForget",
    "ExperienceRemember",
    "FrameSection",
    "HandoffContext",
    "InvocationSpec",
    "MultimodalToolResult",
    "NormalizedMessage",
    "NormalizedMessageList",
    "PhaseContext",
    "PhaseHandoff",
    "PhaseManifest",
    "PromptContract",
    "Repetition",
    "Rollback",
    "Section",
    "SectionCost",
    "SelfRefMarker",
    "StableFrame",
    "TokenCounter",
    "ToolCancelled",
    "ToolResult",
    "TurnFrame",
    "UserMessage",
    "apply_context_budget",
    "apply_mutations",
    "assemble_handoff_context",
    "assemble_sections",
    "build_handoff_context",
    "build_phase_context",
    "choose_context",
    "closing_text",
    "compile_context",
    "compile_invocation_turn",
    "compile_source",
    "correction",
    "default_manifests",
    "estimate_tokens",
    "message_text",
    "next_digest",
    "normalize",
    "resolve_manifest",
    "stable_frame",
    "static_text",
    "truncate",
    "truncate_to_token_budget",
    "turn_message",
]
