"""Who decides?

Messages in, one text out. The seam is `Model.complete`; adapters are imported only when named.
"""

from reyn.models.protocol import Delta, Message, Mode, Model, ModelReply, ModelRequest

__all__ = ["Delta", "Message", "Mode", "Model", "ModelReply", "ModelRequest"]
