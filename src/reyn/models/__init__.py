"""Language models: the model protocol, adapters, names and fallback lists, structured output.

Adapters are imported on first use.
"""

from reyn.models.plugins import ModelSetup
from reyn.models.protocol import (
    Candidate,
    ChoicePrompt,
    ClosableModel,
    Delta,
    Image,
    Message,
    Model,
    ModelAnswer,
    ModelRequest,
    OpChoice,
    OutputMode,
    Role,
    TokenizingModel,
    ToolCall,
    ToolDefinition,
)

__all__ = [
    "Candidate",
    "ChoicePrompt",
    "ClosableModel",
    "Delta",
    "Image",
    "Message",
    "Model",
    "ModelAnswer",
    "ModelRequest",
    "ModelSetup",
    "OpChoice",
    "OutputMode",
    "Role",
    "TokenizingModel",
    "ToolCall",
    "ToolDefinition",
]
