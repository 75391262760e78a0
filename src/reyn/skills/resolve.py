"""Resolve skill names to folders, and locate the shared folders of a project."""

from __future__ import annotations

import copy
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from reyn.documents import DocumentError, nearest_hint, parse_front_matter, read_error, read_text
from reyn.errors import Finding, SkillNotFound, codes
from reyn.folders import DEFINITIONS, FOLDER, OpenFolder, names_in, open_inside
from reyn.skills.names import find_path, is_valid_name, nfc

if TYPE_CHECKING:
    from reyn.skills.values import Skill
    from reyn.vocabulary import Vocabulary

    MayRead = Callable[[Path], None]
    """Raises an error if a file of a skill may not be read."""

_MAX_LOADED = 64
"""Skills that are kept, so that they are parsed once."""
SHELVES = ("local", "project")
"""Folders below `reyn/` in which names are looked up, in this order; then the standard library."""

_PLACES = tuple(("reyn", shelf) for shelf in SHELVES)

STANDARD = "stdlib"
"""The shelf of the standard library."""
STDLIB = Path(__file__).parent.parent / "stdlib"


class ReadFiles:
    """The files and folders that a skill and its sub-skills were read from, to find out whether they have changed."""

    def __init__(self, may_read: MayRead | None = None) -> None:
        self._may_read = may_read
        self._texts: dict[tuple[Path, Path], str | None] = {}
        self._entries: dict[tuple[Path, str], list[str]] = {}
        self._folders = _Folders()
        self._is_open = True
        self.skills: dict[str, Path] = {}
        """The folders of the sub-skills, by name."""

    def add(self, folder: Path, *subfolders: str) -> None:
        """Add what a folder and its subfolders contain now."""
        for name in ("", *subfolders):
            self._entries[folder, name] = self.names(folder, name)

    def names(self, folder: Path, name: str) -> list[str]:
        """Return the names in a subfolder; none if it does not exist or a link leads out of the folder."""
        try:
            return self._folders.names(folder, name)
        finally:
            if not self._is_open:
                self._folders.close()

    def read(self, path: Path, label: str, inside: Path) -> str:
        """Read a file. One that cannot be read may be readable the next time."""
        if self._may_read is not None:
            self._may_read(path)
        self._texts[path, inside] = None
        try:
            text = self._texts[path, inside] = self._folders.read(path, label, inside)
        finally:
            if not self._is_open:
                self._folders.close()
        return text

    def __enter__(self) -> None:
        """Keep folders open while a skill is read."""

    def __exit__(self, *_: object) -> None:
        """Close the folders. What is read later opens its folder again, and closes it."""
        self._is_open = False
        self._folders.close()

    def ask(self, may_read: MayRead) -> None:
        """Ask whether every file that was read may be read."""
        for path, _ in self._texts:
            may_read(path)

    def keep(self) -> ReadFiles:
        """Return these files to be kept: who reads the skill next is asked about anew."""
        self._may_read = None
        return self

    def are_current(self, find: Callable[[str], Path]) -> bool:
        """Return whether reading the skill again would give the same. `find` returns the folder of a skill."""
        now = _Folders()
        try:
            return (
                all(now.read(path, path.name, inside) == text for (path, inside), text in self._texts.items())
                and all(now.names(*place) == entries for place, entries in self._entries.items())
                and all(find(name) == folder for name, folder in self.skills.items())
            )
        except (DocumentError, SkillNotFound):
            return False
        finally:
            now.close()


class _Folders:
    """The folders of skills and the shared folder, each opened once until they are closed."""

    def __init__(self) -> None:
        self._opened: dict[Path, OpenFolder] = {}

    def close(self) -> None:
        for folder in self._opened.values():
            folder.close()
        self._opened.clear()

    def names(self, folder: Path, name: str) -> list[str]:
        try:
            return names_in(self._open(folder), name)
        except OSError:
            return []

    def read(self, path: Path, label: str, inside: Path) -> str:
        try:
            folder = self._open(inside)
        except OSError as error:
            message = f"cannot open `{inside.name}`: {read_error(error)}"
            raise DocumentError(Finding(label, 1, 1, codes.UNREADABLE, message)) from error
        return read_text(path, label, inside=folder)

    def _open(self, folder: Path) -> OpenFolder:
        if folder not in self._opened:
            self._opened[folder] = open_folder(folder)
        return self._opened[folder]


def open_folder(folder: Path) -> OpenFolder:
    """Open the folder of a skill, or the shared folder. One that a project names is opened beneath the project.

    Raises:
        OSError: There is none, or a link leads out of the project.
    """
    parts = folder.parts
    is_shared = parts[-2:] == (DEFINITIONS, "shared")
    depth = 3 if is_on_shelf(folder) else 2 if is_shared else 0
    below = DEFINITIONS if is_shared else ""
    handle = open_inside(folder.parents[depth - 1], folder, below=below) if depth else os.open(folder, FOLDER)
    if handle is None:
        raise OSError(errno.EXDEV, f"a link leads out of {f'`{below}/`' if below else 'the project'}")
    return OpenFolder(os.fspath(folder), handle)


class Library:
    """The skills that a project can name, and its shared folders."""

    def __init__(self, root: Path, written: tuple[str, ...] = ("output/",)) -> None:
        """Name the project, and the path patterns that runs may write: a link of a shelf does not lead there."""
        self._root = root
        real = os.path.realpath(root).rstrip("/")
        places = (".reyn/", *(pattern.partition("*")[0].removeprefix("./") for pattern in written))
        self._written = tuple(f"{real}/{place}" for place in places)
        self.shared = (root / "reyn" / "shared", STDLIB)
        self._shelves = (*((root, f"reyn/{shelf}") for shelf in SHELVES), (STDLIB, "skills"))
        self._loaded: dict[Path, tuple[Skill, Vocabulary, ReadFiles]] = {}
        self.may_read: MayRead | None = None

    def asking(self, may_read: MayRead | None) -> Library:
        """Return this library such that every file is asked about before a skill is read from it."""
        if may_read is None:
            return self
        library = copy.copy(self)
        library.may_read = may_read
        return library

    def unchanged(self, folder: Path, vocabulary: Vocabulary) -> Skill | None:
        """Return the skill in a folder that was loaded with a vocabulary, if its files have not changed since."""
        known = self._loaded.get(folder)
        if known is None or known[1] is not vocabulary or not known[2].are_current(self.find):
            return None
        if self.may_read is not None:
            known[2].ask(self.may_read)
        return known[0]

    def keep(self, folder: Path, skill: Skill, vocabulary: Vocabulary, files: ReadFiles) -> None:
        """Keep a skill that was loaded from these files."""
        self._loaded.pop(folder, None)
        self._loaded[folder] = (skill, vocabulary, files.keep())
        while len(self._loaded) > _MAX_LOADED:
            self._loaded.pop(next(iter(self._loaded)), None)

    @classmethod
    def around(cls, folder: Path) -> Library:
        """Return the library of the project that contains a skill's folder."""
        path = folder.resolve()
        in_project = len(path.parents) > 2 and path.parents[1].name == "reyn" and path.parent.name in SHELVES
        return cls(path.parents[2] if in_project else path.parent)

    def find(self, name: str) -> Path:
        """Return the folder of a skill.

        Args:
            name: The skill's name, or a path to its folder or its skill.md.

        Raises:
            SkillNotFound: there is no such skill.
        """
        if is_path(name) and _on_shelf(name) is None:
            with suppress(OSError, RuntimeError, ValueError):  # too long, a symlink loop, an unknown home
                folder = (self._root / Path(name).expanduser()).resolve()
                folder = folder.parent if folder.name == "skill.md" else folder
                if (folder / "skill.md").is_file():
                    return folder
            raise SkillNotFound(f"no skill at `{name}`: `skill.md` not found")
        return self.find_named(name)

    def find_named(self, name: str) -> Path:
        """Return the folder of a skill that a file of the project names: by its name, or as `reyn/project/NAME`.

        Another path could lead anywhere, or to a skill that a model has written.

        Raises:
            SkillNotFound: there is no such skill, or it is given by another path.
        """
        if len(name) > 255:
            raise SkillNotFound(f"skill name of {len(name)} characters is too long")
        name = name.removesuffix("/skill.md")
        shelves, place = self._shelves, _on_shelf(name)
        if is_path(name):
            if place is None:
                fix = f"name a skill in {' or '.join(f'`reyn/{shelf}/`' for shelf in SHELVES)}"
                last = name.rstrip("/").rpartition("/")[2]
                hint = f"Write `{last}`." if any(known == last for known, _, _ in self) else None
                raise SkillNotFound(f"`{name}` is a path; {fix}", hint=hint)
            shelves, name = ((self._root, f"reyn/{place[0]}"),), place[1]
        for root, shelf in shelves:
            found = find_path(root, f"{shelf}/{name}")
            if found is not None and os.path.isfile(f"{found}/skill.md"):  # noqa: PTH113 - a `Path` costs more
                if reason := self._refused(str(found), str(root)):
                    place_text = f"`{shelf}/{name}`"
                    hint = f"Copy the folder, or use its path: `{found.resolve()}`."
                    raise SkillNotFound(f"{place_text} is a link that points {reason}; it is not read", hint=hint)
                return found
        folders = ", ".join(f"`reyn/{shelf}/{name}/`" for shelf in SHELVES)
        guess = nearest_hint(nfc(name), [known for known, _, _ in self])
        raise SkillNotFound(
            f"no skill `{name}` in {folders} or the standard library",
            hint=guess or None,
        )

    def name_of(self, path: str) -> str:
        """Return the name of the skill that a path below the project's skills leads to; another text as it is.

        `reyn/project/NAME`, `NAME/skill.md` and `reyn/project/NAME/skill.md` are paths of the skill that `NAME` names.
        """
        name = path.removesuffix("/skill.md")
        place = _on_shelf(name)
        last = place[1] if place is not None else name
        if last == path or is_path(last):
            return path
        try:
            return last if self.find_named(last) == self.find_named(name) else path
        except SkillNotFound:
            return path if place is not None else last

    def _refused(self, found: str, root: str) -> str:
        """Say where the link of a shelf leads, if its skill is not used; empty if it is used, or there is no link."""
        real, real_root = os.path.realpath(found), os.path.realpath(root)
        if not _is_below(real, real_root):
            return "outside the project"
        is_link = real[len(real_root) :] != found[len(root) :]
        is_written = is_link and _is_written(real, real_root, self._written)
        return "to files that runs write" if is_written else ""

    def __iter__(self) -> Iterator[tuple[str, str, Path]]:
        """Yield every skill that can be found by name: name, shelf, folder."""
        for name, shelf, folder in self.folders():
            yield name, shelf, Path(folder)

    @property
    def shelves(self) -> list[str]:
        """The folders of the project that have skills."""
        return [f"{self._root}/reyn/{shelf}" for shelf in SHELVES]

    def folders(self) -> Iterator[tuple[str, str, str]]:
        """Yield the same as texts, which cost less than paths: every turn of a conversation lists the skills."""
        seen: set[str] = set()
        root = os.path.realpath(self._root)
        for shelf, place in zip(SHELVES, self.shelves, strict=True):
            for name, folder in _skills_in(place, root, self._written):
                if name not in seen:
                    seen.add(name)
                    yield name, shelf, folder
        for name, folder in _standard_skills():
            if name not in seen:
                yield name, STANDARD, folder


def _skills_in(shelf: str, root: str, written: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield name and folder of each skill in a folder. Links that lead out of the root, or to files that runs write,
    are left out."""
    real = os.path.realpath(shelf)
    if not _is_below(real, root) or (os.path.islink(shelf) and _is_written(real, root, written)):  # noqa: PTH114 - costs
        return
    try:
        with os.scandir(shelf) as entries:
            children = sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return
    for child in children:
        if child.is_symlink():
            target = os.path.realpath(child.path)
            if not _is_below(target, root) or _is_written(target, root, written):
                continue
        if os.path.isfile(f"{child.path}/skill.md"):  # noqa: PTH113 - a `Path` costs more than the call
            yield nfc(child.name), child.path


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root.rstrip('/')}/")


def _is_written(path: str, root: str, written: tuple[str, ...]) -> bool:
    """Return whether runs may write a folder that a link leads to, or a part of it.

    What they may write above `reyn/` does not cover it.
    """
    folder, definitions = f"{path}/", f"{root}/{DEFINITIONS}/"
    places = (place for place in written if place.startswith(definitions) or not folder.startswith(definitions))
    return any(folder.startswith(place) or place.startswith(folder) for place in places)


@cache
def _standard_skills() -> tuple[tuple[str, str], ...]:
    """Return the skills of the standard library, which do not change while the process runs."""
    folder = str(STDLIB / "skills")
    return tuple(_skills_in(folder, os.path.realpath(folder)))


def _on_shelf(path: str) -> tuple[str, str] | None:
    """Return the shelf and the name in `reyn/project/NAME`; `None` for every other path."""
    match path.split("/"):
        case ["reyn", shelf, name] if shelf in SHELVES and is_valid_name(name):
            return shelf, name
    return None


def description_of(folder: Path) -> str:
    """Return the description in the front matter of a skill: one broken skill must not break a list."""
    try:
        value = parse_front_matter(read_text(folder / "skill.md", "skill.md", inside=folder), "skill.md").value
    except DocumentError:
        return "(invalid; lint lists its errors)"
    return str(value.get("description", "")).strip() if isinstance(value, dict) else ""


def is_on_shelf(folder: Path) -> bool:
    """Return whether a folder is one in which a skill is found by name."""
    return folder.parts[-3:-1] in _PLACES


def is_path(name: str) -> bool:
    """Return whether a skill is given by path instead of by name."""
    return "/" in name or name in (".", "..")
