"""Python functions as skills: `@llm_function` makes a function that a model executes, `@tool` one that a model calls.

Both run on the kernel, so that every call is journaled, resumable and replayable. Types become JSON Schemas; values
come back typed.
"""

from reyn.functions.ambient import use_runtime
from reyn.functions.chat import LLMChat, llm_chat
from reyn.functions.chat_calls import AbortSignal, ChatReply, ChatStream
from reyn.functions.function import AsyncLLMFunction, LLMFunction, llm_function
from reyn.functions.function_calls import CallResult
from reyn.functions.images import load_image
from reyn.functions.interface import ChatChunk, OpenAICompatible
from reyn.functions.partials import Partial, PartialStream
from reyn.functions.tools import Tool, ToolCallInfo, current_call, tool
from reyn.kernel.world.hooks import Hook, HookTurn
from reyn.models.messages import Image, Message

__all__ = [
    "AbortSignal",
    "AsyncLLMFunction",
    "CallResult",
    "ChatChunk",
    "ChatReply",
    "ChatStream",
    "Hook",
    "HookTurn",
    "Image",
    "LLMChat",
    "LLMFunction",
    "Message",
    "OpenAICompatible",
    "Partial",
    "PartialStream",
    "Tool",
    "ToolCallInfo",
    "current_call",
    "llm_chat",
    "llm_function",
    "load_image",
    "tool",
    "use_runtime",
]
