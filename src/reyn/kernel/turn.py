"""The public names of `reyn.kernel.visit.turn`."""

from reyn.kernel.visit.turn import (
    LlmPhaseResult,
    ToolBatchResult,
    TurnContext,
    execute_single_llm_phase,
    schedule_tool_batch,
)

__all__ = ["LlmPhaseResult", "ToolBatchResult", "TurnContext", "execute_single_llm_phase", "schedule_tool_batch"]
