"""Find the folder of a skill that an op names, and plan changes of the folder in which drafts of skills are written.

A draft is `workspace:draft/<name>/`. There is one in a run: a draft of another name replaces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec.structs import replace

from reyn.errors import SkillNotFound
from reyn.ops.budget import OpFailed, OpRefused
from reyn.ops.file.reading import look_at
from reyn.ops.op import Call, Env, OpSetup, Plan, approval_of
from reyn.permissions import Denied, Gate, NeedsApproval, Verdict, refusal
from reyn.permissions.gate import DEFAULT_RULE
from reyn.skills.cases import CASES
from reyn.skills.files import MAX_BYTES, MAX_FILES, is_hidden
from reyn.skills.names import is_valid_name
from reyn.skills.resolve import STDLIB, is_path
from reyn.workspace import FileChange, Guard, Location, entries_of, locate, walk
from reyn.workspace.paths import WORKSPACE

if TYPE_CHECKING:
    from pathlib import Path


DRAFT = "workspace:draft"
"""The folder that contains the draft of a run."""


class SkillReader:
    """Finds the skill that an op names, and asks the gate about every file that is read for it.

    A skill may use parts that are shared, and other skills: if a file of the project is outside of the zones, that
    refuses none of them; the operator's rules do.
    """

    def __init__(self, env: Env, approved: str | None = None) -> None:
        """Ask the gate of a run.

        Args:
            env: What the op may use.
            approved: The `ask` rules for which a person has approved the op; `None` while it is planned.
        """
        self._env = env
        self._approved = approved
        self._asked: dict[str, None] = {}

    @property
    def approval(self) -> str | None:
        """The `ask` rules of what was read."""
        return " and ".join(self._asked) or None

    def find(self, name: str, setup: OpSetup) -> Path:
        """Return the folder of a skill by its name, or by its path if the run may read it.

        Raises:
            SkillNotFound: There is no such skill.
            OpRefused: The run may not read it.
        """
        if not is_path(name) and not name.startswith("workspace:"):
            folder = setup.library.find(name)
            if folder.is_relative_to(STDLIB):
                return folder
            name = f"reyn/{folder.parent.name}/{folder.name}"
        location = self.folder(name.removesuffix("/skill.md"))
        self.check(location.below("skill.md"))
        folder = folder_at(location, self._env)
        if not (folder / "skill.md").is_file():
            raise SkillNotFound(f"no skill at `{name}`: `skill.md` not found")
        return folder

    def folder(self, path: str) -> Location:
        """Return a folder of the project or the workspace that the run may read."""
        location = locate(path, self._env.roots)
        self._decide(self._env.gate.read(location))
        if location.zone not in ("project", "workspace"):
            raise OpRefused(f"`{path}` is not in the project; copy it", "default: skills of the project")
        return location

    def __call__(self, path: Path) -> None:
        """Ask about a file of a skill.

        Raises:
            OpRefused: The run may not read it.
        """
        if path.is_relative_to(STDLIB):
            return
        roots, gate = self._env.roots, self._env.gate
        if path.is_relative_to(roots.workspace):
            self.check(locate(f"{WORKSPACE}{path.relative_to(roots.workspace)}", roots))
        elif roots.origin is not None and not path.is_relative_to(roots.project):
            self.check(locate(str(path), roots.origin), replace(gate, roots=roots.origin))
        else:
            self.check(locate(str(path), roots))

    def check(self, location: Location, gate: Gate | None = None) -> None:
        """Ask about a file of a skill at its location."""
        verdict = (gate or self._env.gate).read(location)
        is_default = isinstance(verdict, Denied) and verdict.rule.startswith(DEFAULT_RULE)
        if not is_default or location.zone not in ("project", "workspace"):
            self._decide(verdict)

    def _decide(self, verdict: Verdict) -> None:
        if isinstance(verdict, NeedsApproval) and self._approved is None:
            self._asked[verdict.rule] = None
        elif refused := refusal(verdict, approved=self._approved or ""):
            raise OpRefused(refused.reason, refused.rule)


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
    """Return the files below a folder, by path. Hidden files, bytecode and symbolic links are left out."""
    files: dict[str, bytes] = {}
    depth = len(location.parts)
    size = 0
    guard = Guard(env.roots)
    for place in walk(location, lambda one: entries_of(one, guard), lambda one: not is_hidden(one.parts[-1])):
        if is_hidden(place.parts[-1]):
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
