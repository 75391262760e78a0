"""The key `workers`: limits and priorities of submitted runs, and the labels of workers."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from reyn.documents.trust_classes import TrustClasses, trust_classes
from reyn.documents.unicode_forms import to_normal_form

MAX_PRIORITY = 1_000
Priority = Annotated[int, msgspec.Meta(ge=-MAX_PRIORITY, le=MAX_PRIORITY)]
Slots = Annotated[int, msgspec.Meta(ge=1, le=1_000)]
LABEL_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z"
Label = Annotated[str, msgspec.Meta(pattern=LABEL_PATTERN, description="a label, such as `project` or `gpu`")]


class QueueSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limit and the priority of the runs of a queue."""

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="concurrency priority")

    concurrency: Slots | None = None
    priority: Priority | None = None


class SkillWorkSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limit and the priority of the submitted runs of a skill, and the labels that their workers need."""

    TRUST: ClassVar[TrustClasses] = trust_classes(plain="concurrency priority labels")

    concurrency: Slots | None = None
    priority: Priority | None = None
    labels: tuple[Label, ...] = ()


class WorkersSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The limits of submitted runs, and the labels of the workers of this machine."""

    TRUST: ClassVar[TrustClasses] = trust_classes(section="queue skill", plain="labels")

    queue: dict[str, QueueSettings] = {}
    skill: dict[str, SkillWorkSettings] = {}
    labels: tuple[Label, ...] = ()

    def of_skill(self, name: str) -> SkillWorkSettings:
        """Return the settings of a skill, whose name has Unicode normalization form C."""
        found = {to_normal_form("NFC", key): one for key, one in self.skill.items()}
        return found.get(name, SkillWorkSettings())

    def priority(self, queue: str, skill: str) -> int:
        """Return the priority of a run that was submitted without one."""
        own, queued = self.of_skill(skill).priority, self.queue.get(queue, QueueSettings()).priority
        return own if own is not None else queued or 0
