"""What does the model see?

A phase, its input and the run so far become a frame; a frame becomes messages, stable parts first.
"""

from reyn.context.frame import ContextFrame, Execution, Rollback, StableFrame, stable_frame
from reyn.context.render import (
    Volatile,
    correction,
    join,
    next_digest,
    stable_text,
    truncate,
    volatile_message,
)

__all__ = [
    "ContextFrame",
    "Execution",
    "Rollback",
    "StableFrame",
    "Volatile",
    "correction",
    "join",
    "next_digest",
    "stable_frame",
    "stable_text",
    "truncate",
    "volatile_message",
]
