"""Language models: the model protocol, adapters, names and fallback lists, structured output.

Adapters are imported on first use.
"""

from reyn.models.catalog import ModelSetup
from reyn.models.protocol import (
    Candidate,
    ChatTurn,
    ClosableModel,
    Delta,
    Image,
    Message,
    Model,
    ModelAnswer,
    ModelRequest,
    OfferedTarget,
    OutputMode,
    Role,
    TokenizingModel,
    ToolCall,
    ToolDefinition,
)

__all__ = [
    "Candidate",
    "ChatTurn",
    "ClosableModel",
    "Delta",
    "Image",
    "Message",
    "Model",
    "ModelAnswer",
    "ModelRequest",
    "ModelSetup",
    "OfferedTarget",
    "OutputMode",
    "Role",
    "TokenizingModel",
    "ToolCall",
    "ToolDefinition",
]
