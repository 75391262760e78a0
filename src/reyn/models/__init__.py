"""Language models: the model protocol, adapters, names and fallback lists, structured output.

Adapters are imported on first use.
"""

from reyn.config.budgets import PriceSettings
from reyn.models.catalog import ModelSetup
from reyn.models.protocol import (
    Candidate,
    ClosableModel,
    Delta,
    Image,
    Message,
    Model,
    ModelAnswer,
    ModelRequest,
    OutputMode,
    PerformedOp,
    Role,
    TokenizingModel,
    ToolCall,
    ToolDefinition,
    Turn,
)
from reyn.models.thoughts import Thoughts

__all__ = [
    "Candidate",
    "ClosableModel",
    "Delta",
    "Image",
    "Message",
    "Model",
    "ModelAnswer",
    "ModelRequest",
    "ModelSetup",
    "OutputMode",
    "PerformedOp",
    "PriceSettings",
    "Role",
    "Thoughts",
    "TokenizingModel",
    "ToolCall",
    "ToolDefinition",
    "Turn",
]
