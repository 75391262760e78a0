"""The skill language: parse, resolve and check skills, and pin the copy that a run records.

A skill is a folder of Markdown and YAML; `load_skill` returns it as a frozen `Skill`. Executing skills is up to
`reyn.kernel`, rules of style to `reyn.lint`.
"""

from reyn.skills import graph_svg as graph_svg  # registers what a notebook shows of a skill
from reyn.skills.graph import LoadResult, may_finish, successors
from reyn.skills.loader import load_skill, read_shared, read_skill
from reyn.skills.pin import check_pinned, pin, unpin
from reyn.skills.resolve import Library
from reyn.skills.values import USER_MESSAGE, ArtifactType, Phase, Skill

__all__ = [
    "USER_MESSAGE",
    "ArtifactType",
    "Library",
    "LoadResult",
    "Phase",
    "Skill",
    "check_pinned",
    "load_skill",
    "may_finish",
    "pin",
    "read_shared",
    "read_skill",
    "successors",
    "unpin",
]
