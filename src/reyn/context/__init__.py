"""What does the model see?

A phase, its input and the run so far become a frame; a frame becomes messages, stable parts first.
"""

from reyn.context.frame import ContextFrame, Execution, StableFrame, stable_frame
from reyn.context.render import correction, join, messages_of, stable_text, volatile_parts

__all__ = [
    "ContextFrame",
    "Execution",
    "StableFrame",
    "correction",
    "join",
    "messages_of",
    "stable_frame",
    "stable_text",
    "volatile_parts",
]
