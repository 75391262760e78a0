"""Reyn: an operating system for LLM work. The model decides; the OS controls.

These names are the public API. Each is imported on first use, so that `import reyn` is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn._version import __version__

if TYPE_CHECKING:
    from reyn.api import ChatRuntime as OSRuntime
    from reyn.api import ChatRuntime as Runtime
    from reyn.api import SyncChatRuntime as SyncRuntime
    from reyn.errors import ReynError
    from reyn.functions import llm_chat, llm_function, tool
    from reyn.journal import Event
    from reyn.journal.kinds import Question, Usage
    from reyn.kernel.runtime_types import LATER, People
    from reyn.models import Model, ModelAnswer, ModelRequest
    from reyn.runtime import RunResult

__all__ = [
    "LATER",
    "Event",
    "Model",
    "ModelAnswer",
    "ModelRequest",
    "OSRuntime",
    "People",
    "Question",
    "ReynError",
    "RunResult",
    "Runtime",
    "SyncRuntime",
    "Usage",
    "__version__",
    "llm_chat",
    "llm_function",
    "tool",
]

_LOCATIONS = {
    "LATER": ("reyn.kernel.runtime_types", "LATER"),
    "People": ("reyn.kernel.runtime_types", "People"),
    "Usage": ("reyn.journal.kinds", "Usage"),
    "Question": ("reyn.journal.kinds", "Question"),
    "Event": ("reyn.journal", "Event"),
    "Model": ("reyn.models", "Model"),
    "ModelAnswer": ("reyn.models", "ModelAnswer"),
    "ModelRequest": ("reyn.models", "ModelRequest"),
    "OSRuntime": ("reyn.api", "ChatRuntime"),
    "ReynError": ("reyn.errors", "ReynError"),
    "RunResult": ("reyn.runtime", "RunResult"),
    "Runtime": ("reyn.api", "ChatRuntime"),
    "SyncRuntime": ("reyn.api", "SyncChatRuntime"),
    "llm_chat": ("reyn.functions", "llm_chat"),
    "llm_function": ("reyn.functions", "llm_function"),
    "tool": ("reyn.functions", "tool"),
}


def __getattr__(name: str) -> Any:
    if name not in _LOCATIONS:
        raise AttributeError(f"module 'reyn' has no attribute {name!r}")
    from importlib import import_module

    module, attribute = _LOCATIONS[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return __all__
