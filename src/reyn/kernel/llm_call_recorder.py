"""The public names of `reyn.kernel.world.llm_call_recorder`."""

from reyn.kernel.world.llm_call_recorder import LlmCallRecorder

__all__ = ["LlmCallRecorder"]
