"""Where skills, shared phases and shared artifacts live: a name becomes a folder."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from reyn.documents import nearest
from reyn.errors import SkillNotFound

if TYPE_CHECKING:
    from collections.abc import Iterator

SHELVES = ("local", "project")
"""Where names are looked up, first match wins: `reyn/local/`, then `reyn/project/`; then what is packaged."""

STDLIB = Path(__file__).parent.parent / "stdlib"


class Library:
    """The skills that a project can name, and the folders that they share."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.shared = (root / "reyn" / "shared", STDLIB)

    @classmethod
    def around(cls, folder: Path) -> Library:
        """The library of the project that a skill's folder lies in, as far as its place tells."""
        place = folder.resolve()
        in_project = len(place.parents) > 2 and place.parents[1].name == "reyn" and place.parent.name in SHELVES
        return cls(place.parents[2] if in_project else place.parent)

    def find(self, name: str) -> Path:
        """The folder of a skill; a path works wherever a name does."""
        if is_path(name):
            with suppress(OSError, RuntimeError, ValueError):  # too long, a loop of links, a home that nobody has
                folder = (self._root / Path(name).expanduser()).resolve()
                folder = folder.parent if folder.name == "skill.md" else folder
                if (folder / "skill.md").is_file():
                    return folder
            raise SkillNotFound(f"no skill at `{name}`: it has no `skill.md`")
        if len(name) > 255:
            raise SkillNotFound("the name of the skill is longer than any folder's")
        for folder in self._places(name):
            if (folder / "skill.md").is_file():
                return folder
        places = ", ".join(f"`reyn/{shelf}/{name}/`" for shelf in SHELVES)
        guess = nearest(name, [known for known, _, _ in self])
        raise SkillNotFound(
            f"no skill `{name}` in {places}, nor in the standard library",
            hint=f"{guess} {SkillNotFound.hint}".strip(),
        )

    def __iter__(self) -> Iterator[tuple[str, str, Path]]:
        """Every skill that a name finds: its name, its shelf, its folder."""
        seen: set[str] = set()
        for shelf, folder in (
            *((shelf, self._root / "reyn" / shelf) for shelf in SHELVES),
            ("stdlib", STDLIB / "skills"),
        ):
            for child in sorted(folder.iterdir()) if folder.is_dir() else ():
                if (child / "skill.md").is_file() and child.name not in seen:
                    seen.add(child.name)
                    yield child.name, shelf, child

    def _places(self, name: str) -> list[Path]:
        return [*(self._root / "reyn" / shelf / name for shelf in SHELVES), STDLIB / "skills" / name]


def is_path(name: str) -> bool:
    """Whether a skill is meant by its place, not by its name."""
    return "/" in name or name in (".", "..")
