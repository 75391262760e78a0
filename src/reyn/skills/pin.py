"""Serialize the copy of a skill that a run records.

The copy is content-addressed. It keeps the author's order of phases and holds no path of the machine.
"""

from __future__ import annotations

import msgspec

from reyn.errors import RunBlocked
from reyn.journal import Blob, ordered
from reyn.skills.values import Skill

Pin = Blob
"""A pinned skill: a blob whose hash identifies the skill."""


def pin(skill: Skill) -> Pin:
    """Serialize a skill."""
    return Blob.of(ordered(skill))


def unpin(content: bytes) -> Skill:
    """Deserialize a pinned skill.

    Raises:
        RunBlocked: the content is not a skill that this version can read.
    """
    try:
        return msgspec.json.decode(content, type=Skill)
    except msgspec.MsgspecError as error:
        raise RunBlocked(f"the run's copy of its skill cannot be read: {error}") from error
