"""Find the folder of a skill that an op names, and plan changes of the folder in which drafts of skills are written.

A draft is `workspace:draft/<name>/`. There is one in a run: a draft of another name replaces it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from reyn.errors import SkillNotFound
from reyn.ops.budget import OpFailed
from reyn.ops.file.reading import look_at
from reyn.ops.op import Call, Env, OpSetup, Plan, approval_of
from reyn.permissions import Denied, Verdict
from reyn.skills.cases import CASES
from reyn.skills.files import MAX_BYTES, MAX_FILES
from reyn.skills.names import is_valid_name
from reyn.skills.resolve import STDLIB, is_path
from reyn.workspace import FileChange, Guard, Location, entries_of, locate, walk

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


DRAFT = "workspace:draft"
"""The folder that contains the draft of a run."""


class Found(NamedTuple):
    """The folder of a skill, and whether the run may read it; `None` if everyone may."""

    folder: Path
    verdict: Verdict | None

    @property
    def approval(self) -> str | None:
        return approval_of(self.verdict)


def find_skill(name: str, env: Env, setup: OpSetup) -> Found:
    """Return the folder of a skill by its name, or by its path if the run may read it.

    Raises:
        SkillNotFound: There is no such skill.
    """
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


class SkillDraft(NamedTuple):
    """The draft of a run."""

    name: str
    location: Location
    files: dict[str, bytes]


def plan_draft(call: Call, env: Env, name: str, files: Mapping[str, bytes], /, **fields: Any) -> Plan | Denied:
    """Plan an op that makes these files the draft of the run, and returns `fields` as its result.

    Args:
        call: The call of the op.
        env: What the op may use.
        name: The name of the skill.
        files: The files by path, relative to the skill's folder.
        **fields: Further fields of the result.
    """
    _check_name(name)
    if len(files) > MAX_FILES or sum(map(len, files.values())) > MAX_BYTES:
        raise OpFailed(f"a skill has at most {MAX_FILES} files and {MAX_BYTES:,} bytes")
    base = _base(env)
    changes = plan_files(base, {f"{name}/{path}": content for path, content in files.items()}, env)
    if isinstance(changes, Denied):
        return changes
    path = base.below(name).display_path
    return replace(changes, result=call.ok(name=name, skill_path=path, files=sorted(files), **fields))


def read_draft(env: Env) -> SkillDraft:
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
    return SkillDraft(name, base.below(name), files)


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
    guard = Guard(env.roots)
    for place in walk(location, lambda one: entries_of(one, guard), lambda one: not one.parts[-1].startswith(".")):
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


def plan_files(base: Location, files: Mapping[str, bytes], env: Env) -> Plan | Denied:
    """Plan changes after which a folder has these files, and no others. The result is left to the caller.

    `skill.md` is written after what it refers to, so that no other process finds half of a new skill.
    """
    rule = ""
    denied: Denied | None = None
    asked: list[str] = []
    changes: list[FileChange] = []
    gone = sorted(read_tree(base, env).keys() - files.keys())
    for path in (*gone, *sorted(files, key=_rank)):
        location = base.below(*path.split("/"))
        verdict = env.gate.write(location)
        if isinstance(verdict, Denied):
            denied = denied or verdict
            continue
        rule = rule or verdict.rule
        before, made = look_at(location, env)
        if (change := FileChange.of(location, before, files.get(path), made)) is None:
            continue
        changes.append(change)
        if (approval := approval_of(verdict)) and approval not in asked:
            asked.append(approval)
    if denied is not None:
        return denied
    blobs = {blob.hash: blob for change in changes for blob in change.blobs}
    return Plan(
        rule,
        tuple(one.change for one in changes),
        blobs=tuple(blobs.values()),
        result={},
        approval=" and ".join(asked) or None,
    )


def _rank(path: str) -> tuple[int, str]:
    """Order the files of a skill: what the skill consists of, `skill.md`, then its cases, which are not part of it."""
    parts = path.split("/")
    return (2 if CASES in parts[:-1] else 1 if parts[-1] == "skill.md" else 0), path


def _check_name(name: str) -> None:
    if not is_valid_name(name):
        raise OpFailed(
            f"{name[:80]!r} is not the name of a skill; begin with a letter, then use letters, digits, `_` and `-`"
        )
