"""Find the folder of a skill that an op names, and plan changes of the folder in which drafts of skills are written.

A draft is `workspace:draft/<name>/`. There is one in a run: a draft of another name replaces it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from reyn.errors import SkillNotFound
from reyn.journal import Blob
from reyn.ops.budget import OpFailed
from reyn.ops.file.writing import look_at
from reyn.ops.op import Complete
from reyn.permissions import Denied, NeedsApproval
from reyn.skills.cases import CASES
from reyn.skills.drafts import MAX_BYTES, MAX_FILES
from reyn.skills.names import is_valid_name
from reyn.skills.resolve import STDLIB, is_path
from reyn.workspace import Change, Location, locate, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from reyn.ops.op import Call, Env, OpSetup
    from reyn.permissions import Verdict

DRAFT = "workspace:draft"
"""The folder that contains the draft of a run."""


class Found(NamedTuple):
    """The folder of a skill, and whether the run may read it; `None` if everyone may."""

    folder: Path
    verdict: Verdict | None

    @property
    def approval(self) -> str | None:
        return self.verdict.rule if isinstance(self.verdict, NeedsApproval) else None


def find_skill(name: str, env: Env, setup: OpSetup | None) -> Found:
    """Return the folder of a skill by its name, or by its path if the run may read it.

    Raises:
        SkillNotFound: There is no such skill.
    """
    if setup is None:
        raise OpFailed("no project is open")
    if not is_path(name) and not name.startswith("workspace:"):
        folder = setup.library.find(name)
        if folder.is_relative_to(STDLIB):
            return Found(folder, None)
        name = f"reyn/{folder.parent.name}/{folder.name}"
    location = locate(name.removesuffix("/skill.md"), env.roots)
    verdict = env.gate.read(location)
    if location.zone not in ("project", "workspace"):
        reason = f"`{name}` is not in the project"
        return Found(env.roots.project, Denied("default: skills of the project", reason))
    folder = folder_at(location, env)
    if not isinstance(verdict, Denied) and not (folder / "skill.md").is_file():
        raise SkillNotFound(f"no skill at `{name}`: `skill.md` not found")
    return Found(folder, verdict)


def folder_at(location: Location, env: Env) -> Path:
    """Return a location in the project or the workspace as a path."""
    root = env.roots.workspace if location.zone == "workspace" else env.roots.project
    return root.joinpath(*location.parts)


# -- drafts -------------------------------------------------------------------------------------------------


class Draft(NamedTuple):
    """The draft of a run."""

    name: str
    location: Location
    files: dict[str, bytes]


def plan_draft(call: Call, env: Env, name: str, files: Mapping[str, bytes], /, **fields: Any) -> Complete | Denied:
    """Plan an op that makes these files the draft of the run, and returns `fields` as its result.

    Args:
        call: The call of the op.
        env: What the op may use.
        name: The name of the skill.
        files: The files by path, relative to the skill's folder.
        **fields: Further fields of the result.
    """
    _check_name(name)
    _check_size(files)
    base = _base(env)
    changes = Changes(base, env)
    wanted = {f"{name}/{path}": content for path, content in files.items()}
    changes.replace(wanted)
    if isinstance(changes.verdict, Denied):
        return changes.verdict
    path = base.below(name).display_path
    result = call.ok(name=name, skill_path=path, files=sorted(files), **fields)
    return Complete(changes.rule, changes.changes, blobs=changes.blobs, result=result, approval=changes.approval)


def draft_folder(env: Env) -> Path | None:
    """Return the folder of the draft of the run; `None` if there is not one skill."""
    folders = [one.parent for one in folder_at(_base(env), env).glob("*/skill.md") if not one.parent.is_symlink()]
    return folders[0] if len(folders) == 1 else None


def read_draft(env: Env) -> Draft:
    """Return the draft of the run.

    Raises:
        OpFailed: There is none, or it is not one skill.
    """
    base = _base(env)
    found = read_tree(base, env)
    names = sorted({path.partition("/")[0] for path in found})
    if not names:
        raise OpFailed(f"there is no draft of a skill in `{DRAFT}`")
    if len(names) > 1 or f"{names[0]}/skill.md" not in found:
        raise OpFailed(f"`{DRAFT}` must contain one folder with a `skill.md`; it contains {', '.join(names[:5])}")
    name = names[0]
    _check_name(name)
    files = {path.partition("/")[2]: content for path, content in found.items()}
    return Draft(name, base.below(name), files)


def _base(env: Env) -> Location:
    """Return the folder of drafts. A program of the run may have put a link in its place."""
    base = locate(DRAFT, env.roots)
    if (base.zone, base.parts) != ("workspace", ("draft",)):
        raise OpFailed(f"`{DRAFT}` is a link; delete it")
    return base


def read_tree(location: Location, env: Env) -> dict[str, bytes]:
    """Return the files below a folder, by path. Hidden files and symbolic links are left out."""
    files: dict[str, bytes] = {}
    depth = len(location.parts)
    size = 0
    for place in walk(location, env.roots, lambda folder: not folder.parts[-1].startswith(".")):
        if place.parts[-1].startswith("."):
            continue
        image, _ = look_at(place, env)
        if image is None:
            continue
        size += len(image.content)
        if len(files) >= MAX_FILES or size > MAX_BYTES:
            raise OpFailed(f"`{location.display_path}` has more than {MAX_FILES} files or {MAX_BYTES:,} bytes")
        files["/".join(place.parts[depth:])] = image.content
    return files


class Changes:
    """The changes that give a folder other files, and the verdicts of the gate on them."""

    def __init__(self, base: Location, env: Env) -> None:
        self._base = base
        self._env = env
        self._changes: list[Change] = []
        self._blobs: dict[str, Blob] = {}
        self.rule = ""
        self.verdict: Verdict | None = None
        self._approvals: list[str] = []

    @property
    def changes(self) -> tuple[Change, ...]:
        return tuple(self._changes)

    @property
    def blobs(self) -> tuple[Blob, ...]:
        return tuple(self._blobs.values())

    @property
    def approval(self) -> str | None:
        """The rules that want a person to approve the changes."""
        return " and ".join(self._approvals) or None

    def replace(self, files: Mapping[str, bytes]) -> None:
        """Plan the changes: write these files, and delete the others that are there.

        `skill.md` is written after what it refers to, so that no other process finds half of a new skill.
        """
        present = read_tree(self._base, self._env)
        for path in sorted(present.keys() - files.keys()):
            self._change(path, None)
        for path in sorted(files, key=_rank):
            self._change(path, files[path])

    def _change(self, path: str, content: bytes | None) -> None:
        location = self._base.below(*path.split("/"))
        verdict = self._env.gate.write(location)
        if isinstance(verdict, Denied):
            self.verdict = self.verdict or verdict
            return
        self.rule = self.rule or verdict.rule
        image, made = look_at(location, self._env)
        before = None if image is None else Blob.of(image.content)
        after = None if content is None else Blob.of(content)
        if before == after:
            return
        if isinstance(verdict, NeedsApproval) and verdict.rule not in self._approvals:
            self._approvals.append(verdict.rule)
        self._blobs |= {blob.hash: blob for blob in (before, after) if blob is not None}
        hashes = (None if before is None else before.hash, None if after is None else after.hash)
        mode = None if image is None else image.mode
        self._changes.append(Change(location.display_path, *hashes, mode, made if image is None else ()))


def _rank(path: str) -> tuple[int, str]:
    """Order the files of a skill: what the skill consists of, `skill.md`, then its cases, which are not part of it."""
    parts = path.split("/")
    return (2 if CASES in parts[:-1] else 1 if parts[-1] == "skill.md" else 0), path


def _check_name(name: str) -> None:
    if not is_valid_name(name):
        raise OpFailed(
            f"{name[:80]!r} is not the name of a skill; begin with a letter, then use letters, digits, `_` and `-`"
        )


def _check_size(files: Mapping[str, bytes]) -> None:
    if len(files) > MAX_FILES or sum(map(len, files.values())) > MAX_BYTES:
        raise OpFailed(f"a skill has at most {MAX_FILES} files and {MAX_BYTES:,} bytes")


def outside_error(changes: tuple[Change, ...], is_inside: Callable[[str], bool]) -> str:
    """Return which recorded change is not in the folder that an op writes to; empty if all are."""
    return next((f"it does not change `{one.path}`" for one in changes if not is_inside(one.path)), "")
