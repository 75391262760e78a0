"""The copy of a skill that a run records, named by its content. It keeps the order in which the author wrote."""

from __future__ import annotations

import msgspec

from reyn.errors import RunBlocked
from reyn.journal import Blob, ordered
from reyn.skills.values import Skill

Pin = Blob
"""A pinned skill is a blob: nothing of the machine or the checkout is in it."""


def pin(skill: Skill) -> Pin:
    return Blob.of(ordered(skill))


def unpin(content: bytes) -> Skill:
    try:
        return msgspec.json.decode(content, type=Skill)
    except msgspec.MsgspecError as error:
        raise RunBlocked(f"the run's copy of its skill cannot be read: {error}") from error
