"""The op `lint`: check a skill and return the findings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.errors import ReynError, SkillNotFound
from reyn.ops.op import Complete, OpSetup
from reyn.ops.skill_folder import find_skill
from reyn.permissions import Denied
from reyn.vocabulary import OpForm, OpSpec
from reyn.vocabulary.schemas import arguments, array, path, result

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from reyn.ops.op import Call, Env, Result

_MAX_ISSUES = 200
_MAX_LISTED = 20
ON_FAIL = {"enum": ["continue", "abort"], "default": "continue"}

_FORM = OpForm(
    op=None,
    summary="Check a skill's folder and return the findings.",
    arguments=arguments("lint", None, {"skill_path": path()}, {"on_fail": ON_FAIL}),
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
    """Lints a skill by name, or in a folder that the run may read.

    With `on_fail: continue`, errors of the skill are a result like any other. With `abort` they are an error of the op:
    a decision that carries it does not take effect, and a step fails.
    """

    spec = OpSpec("lint", _FORM.summary, "pure", forms=(_FORM,))

    def __init__(self, setup: OpSetup | None = None) -> None:
        self._setup = setup

    def set_up(self, setup: OpSetup) -> LintOp:
        return LintOp(setup)

    def plan(self, call: Call, env: Env) -> Complete | Denied:
        name = call.args["skill_path"]
        try:
            found = find_skill(name, env, self._setup)
        except SkillNotFound as error:
            return Complete("default: lint skills", result=_not_found(call, name, error.message))
        if isinstance(found.verdict, Denied):
            return found.verdict
        return Complete("default: lint skills", result=self._result(call, name, found.folder), approval=found.approval)

    def _result(self, call: Call, name: str, folder: Path) -> Result:
        assert self._setup is not None
        try:
            findings = self._setup.lint(folder)
        except ReynError as error:
            return call.error(error.message, skill_path=name)
        errors = [finding for finding in findings if finding.severity == "error"]
        fields = {
            "skill_path": name,
            "passed": not errors,
            "error_count": len(errors),
            "warning_count": len(findings) - len(errors),
            "issues": [str(finding) for finding in findings[:_MAX_ISSUES]],
        }
        if errors and call.args.get("on_fail") == "abort":
            return call.error(numbered("the skill has errors", map(str, errors)), **fields)
        return call.ok(**fields)


def numbered(heading: str, problems: Iterable[str]) -> str:
    """Return problems as one text that stays readable when its lines are joined."""
    lines = [f"{number}) {' '.join(text.split())}" for number, text in enumerate(problems, start=1)]
    more = [f"and {len(lines) - _MAX_LISTED} more"] if len(lines) > _MAX_LISTED else []
    return "\n".join([f"{heading}:", *lines[:_MAX_LISTED], *more])


def _not_found(call: Call, name: str, message: str) -> Result:
    return call.error(message, skill_path=name, passed=False, error_count=1, warning_count=0, issues=[message])
