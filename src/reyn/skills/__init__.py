"""What did the author write?

A folder of Markdown and YAML becomes a frozen `Skill`, with every error at its place; a `Skill` becomes the copy that a
run pins. Knows nothing of models, journals' contents or how a run proceeds.
"""

from reyn.skills.graph import may_finish, successors
from reyn.skills.loader import Reading, load_skill, read_skill
from reyn.skills.performed import op_kinds_of
from reyn.skills.pin import Pin, pin, unpin
from reyn.skills.resolve import Library
from reyn.skills.values import USER_MESSAGE, ArtifactType, Phase, Skill

__all__ = [
    "USER_MESSAGE",
    "ArtifactType",
    "Library",
    "Phase",
    "Pin",
    "Reading",
    "Skill",
    "load_skill",
    "may_finish",
    "op_kinds_of",
    "pin",
    "read_skill",
    "successors",
    "unpin",
]
