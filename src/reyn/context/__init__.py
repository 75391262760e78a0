"""The context frame: everything that the model sees in one turn, and its text.

The kernel decides what goes into a frame; `reyn.contract` decides which answers are valid.
"""

from reyn.context.frame import ContextFrame, Execution, Repetition, Rollback, StableFrame, stable_frame
from reyn.context.prompt import closing_text, static_text
from reyn.context.render import TurnFrame, correction, message_text, next_digest, truncate, turn_message

__all__ = [
    "ContextFrame",
    "Execution",
    "Repetition",
    "Rollback",
    "StableFrame",
    "TurnFrame",
    "closing_text",
    "correction",
    "message_text",
    "next_digest",
    "stable_frame",
    "static_text",
    "truncate",
    "turn_message",
]
