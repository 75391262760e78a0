"""The key `environments`: Python environments with packages, for the scripts and python steps of skills."""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from reyn.documents.trust_classes import TrustClasses, trust_classes

ENVIRONMENT_PATTERN = r"^[a-z][a-z0-9_-]{0,39}\Z"
EnvironmentName = Annotated[
    str, msgspec.Meta(pattern=ENVIRONMENT_PATTERN, description="lower-case letters, digits, `_` and `-`")
]


class EnvironmentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An environment that is made from a requirements file of the project, or one that exists."""

    TRUST: ClassVar[TrustClasses] = trust_classes(code="requirements path")

    requirements: str = ""
    path: str = ""

    def __post_init__(self) -> None:
        if bool(self.requirements) == bool(self.path):
            raise ValueError("an environment has either `requirements` or `path`")
