"""The op `lint`: check a skill and return the findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.errors import ReynError, SkillNotFound
from reyn.ops.budget import OpFailed
from reyn.ops.op import Complete, OpSetup
from reyn.permissions import Denied, NeedsApproval
from reyn.skills.resolve import STDLIB, is_path
from reyn.vocabulary import OpForm, OpSpec
from reyn.vocabulary.schemas import arguments, array, path, result
from reyn.workspace import locate

if TYPE_CHECKING:
    from pathlib import Path

    from reyn.ops.op import Call, Env, Result
    from reyn.permissions import Verdict

_MAX_ISSUES = 200

_FORM = OpForm(
    op=None,
    summary="Check a skill's folder and return the findings.",
    arguments=arguments("lint", None, {"skill_path": path()}),
    effect="pure",
    result=result(
        "lint",
        None,
        {
            "skill_path": {"type": "string"},
            "passed": {"type": "boolean"},
            "error_count": {"type": "integer"},
            "warning_count": {"type": "integer"},
            "issues": array({"type": "string"}, _MAX_ISSUES),
        },
    ),
    example={"kind": "lint", "skill_path": "reyn/local/summarise"},
)


class LintOp:
    """Lints a skill by name, or in a folder that the run may read."""

    spec = OpSpec("lint", _FORM.summary, "pure", forms=(_FORM,))

    def __init__(self, setup: OpSetup | None = None) -> None:
        self._setup = setup

    def set_up(self, setup: OpSetup) -> LintOp:
        return LintOp(setup)

    def plan(self, call: Call, env: Env) -> Complete | Denied:
        name = call.args["skill_path"]
        if self._setup is None:
            raise OpFailed("no project is open")
        try:
            folder, verdict = self._find(name, env)
        except SkillNotFound as error:
            return Complete("default: lint skills", result=_not_found(call, name, error.message))
        if isinstance(verdict, Denied):
            return verdict
        approval = verdict.rule if isinstance(verdict, NeedsApproval) else None
        return Complete("default: lint skills", result=self._result(call, name, folder), approval=approval)

    def _find(self, name: str, env: Env) -> tuple[Path, Verdict | None]:
        """Return the folder of a skill, and whether the run may read it; skills with a name may be linted."""
        assert self._setup is not None
        if not is_path(name) and not name.startswith("workspace:"):
            folder = self._setup.library.find(name)
            if folder.is_relative_to(STDLIB):
                return folder, None
            name = f"reyn/{folder.parent.name}/{folder.name}"
        location = locate(name.removesuffix("/skill.md"), env.roots)
        verdict = env.gate.read(location)
        root = env.roots.workspace if location.zone == "workspace" else env.roots.project
        if location.zone not in ("project", "workspace"):
            return root, Denied("default: lint skills of the project", f"`{name}` is not in the project")
        folder = root.joinpath(*location.parts)
        if not isinstance(verdict, Denied) and not (folder / "skill.md").is_file():
            raise SkillNotFound(f"no skill at `{name}`: `skill.md` not found")
        return folder, verdict

    def _result(self, call: Call, name: str, folder: Path) -> Result:
        assert self._setup is not None
        try:
            findings = self._setup.lint(folder)
        except ReynError as error:
            return call.error(error.message, skill_path=name)
        errors = sum(finding.severity == "error" for finding in findings)
        return call.ok(
            skill_path=name,
            passed=not errors,
            error_count=errors,
            warning_count=len(findings) - errors,
            issues=[str(finding) for finding in findings[:_MAX_ISSUES]],
        )


def _not_found(call: Call, name: str, message: str) -> Result:
    return call.error(message, skill_path=name, passed=False, error_count=1, warning_count=0, issues=[message])
