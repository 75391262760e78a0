"""What does the model see?

A phase, its input and the run so far become a frame; a frame becomes messages, stable parts first.
"""

from reyn.context.frame import ContextFrame, Execution, Rollback, StableFrame, stable_frame
from reyn.context.render import (
    Volatile,
    correction,
    cut,
    join,
    messages_of,
    next_digest,
    stable_text,
    volatile_message,
)

__all__ = [
    "ContextFrame",
    "Execution",
    "Rollback",
    "StableFrame",
    "Volatile",
    "correction",
    "cut",
    "join",
    "messages_of",
    "next_digest",
    "stable_frame",
    "stable_text",
    "volatile_message",
]
