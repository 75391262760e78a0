"""Language models: the model protocol, adapters, names and fallback lists, structured output.

Adapters are imported on first use.
"""

from reyn.config.budgets import PriceSettings
from reyn.models.catalog import ModelSetup
from reyn.models.messages import Image, Message, Role, ToolCall
from reyn.models.protocol import (
    Candidate,
    ClosableModel,
    Delta,
    Model,
    ModelAnswer,
    ModelFunction,
    ModelRequest,
    OutputMode,
    PerformedOp,
    TokenizingModel,
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
    "ModelFunction",
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
