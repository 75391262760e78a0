"""The context frame: everything that the model sees in one turn, and its text.

The kernel decides what goes into a frame; `reyn.contract` decides which answers are valid.
"""

from reyn.context.budget import ContextBudgetResult, apply_context_budget, assemble_sections
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
)
from reyn.context.handoff import (
    PhaseHandoff,
    PhaseManifest,
    build_handoff_context,
    build_phase_context,
    default_manifests,
    resolve_manifest,
)
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
from reyn.context.prompt import static_text
from reyn.context.render import turn_message
from reyn.context.selfref import DataFromSelfRef
from reyn.context.tokens import estimate_tokens, truncate_to_token_budget
from reyn.context.transcript import NormalizedMessageList

__all__ = [
    "AssistantMessage",
    "AssistantTruncated",
    "CompileSource",
    "CompiledContext",
    "CompiledTurnContext",
    "ContextBudgetResult",
    "ContextMutation",
    "ContextReplace",
    "ContextState",
    "ContextSummary",
    "DataFromAgentConfig",
    "DataFromSelfRef",
    "ExperienceForget",
    "ExperienceRemember",
    "InvocationSpec",
    "MultimodalToolResult",
    "NormalizedMessageList",
    "PhaseHandoff",
    "PhaseManifest",
    "PromptContract",
    "ToolCancelled",
    "ToolResult",
    "UserMessage",
    "apply_context_budget",
    "apply_mutations",
    "assemble_sections",
    "build_handoff_context",
    "build_phase_context",
    "compile_context",
    "compile_invocation_turn",
    "default_manifests",
    "estimate_tokens",
    "resolve_manifest",
    "static_text",
    "truncate_to_token_budget",
    "turn_message",
]
