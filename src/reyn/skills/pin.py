"""A skill becomes the copy a run keeps of it, named by its content; the copy becomes the skill again."""

from __future__ import annotations

import msgspec

from reyn.errors import RunBlocked
from reyn.journal import Blob, canonical
from reyn.skills.values import Skill

Pin = Blob
"""A pinned skill is a blob: nothing of the machine or the checkout is in it."""


def pin(skill: Skill) -> Pin:
    return Blob.of(canonical(skill))


def unpin(content: bytes) -> Skill:
    try:
        return msgspec.json.decode(content, type=Skill)
    except msgspec.MsgspecError as error:
        raise RunBlocked(f"the run's own copy of its skill cannot be read: {error}") from error
