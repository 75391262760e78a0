"""A skill's name becomes the folder it lives in."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from reyn.documents import nearest
from reyn.errors import SkillNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

SHELVES = ("local", "project")
"""Where names are looked up, first match wins: `reyn/local/`, then `reyn/project/`."""


def find_skill(root: Path, name: str) -> Path:
    """The folder of a skill of the project at `root`; a path works wherever a name does."""
    if is_path(name):
        with suppress(OSError, RuntimeError):  # a name too long, a loop of links, a home that nobody has
            folder = (root / Path(name).expanduser()).resolve()
            if (folder / "skill.md").is_file():
                return folder
        raise SkillNotFound(f"no skill at `{name}`: it has no `skill.md`")
    if len(name) > 255:
        raise SkillNotFound("the name of the skill is longer than any folder's")
    for shelf in SHELVES:
        folder = root / "reyn" / shelf / name
        if (folder / "skill.md").is_file():
            return folder
    places = ", ".join(f"`reyn/{shelf}/{name}/`" for shelf in SHELVES)
    guess = nearest(name, known_skills(root))
    raise SkillNotFound(f"no skill `{name}` in {places}", hint=f"{guess} {SkillNotFound.hint}".strip())


def is_path(name: str) -> bool:
    """Whether a skill is meant by its place, not by its name."""
    return "/" in name or name in (".", "..")


def known_skills(root: Path) -> Iterator[str]:
    """The names that would be found."""
    for shelf in SHELVES:
        folder = root / "reyn" / shelf
        if folder.is_dir():
            yield from sorted(child.name for child in folder.iterdir() if (child / "skill.md").is_file())
