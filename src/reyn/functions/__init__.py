"""Python functions as skills: `@llm_function` makes a function that a model executes, `@tool` one that a model calls.

Both run on the kernel, so that every call is journaled, resumable and replayable. Types become JSON Schemas; values
come back typed.
"""

from reyn.functions.ambient import use_runtime
from reyn.functions.function import AsyncLLMFunction, CallResult, LLMFunction, llm_function
from reyn.functions.tools import Tool, ToolCallInfo, current_call, tool
from reyn.models.protocol import Image

__all__ = [
    "AsyncLLMFunction",
    "CallResult",
    "Image",
    "LLMFunction",
    "Tool",
    "ToolCallInfo",
    "current_call",
    "llm_function",
    "tool",
    "use_runtime",
]
