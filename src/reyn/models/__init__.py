"""Language models: the model protocol, adapters, names and fallback lists, structured output.

Adapters are imported when a model of theirs is first opened.
"""

from reyn.models.protocol import ClosableModel, DeclaresLatency, Delta, Message, Mode, Model, ModelReply, ModelRequest

__all__ = ["ClosableModel", "DeclaresLatency", "Delta", "Message", "Mode", "Model", "ModelReply", "ModelRequest"]
