"""The ops that report about a skill: `lint` checks it, `skill_graph` draws it, `skill_try` runs its cases.

`skill_resolve` finds its folder by name. All of them change nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Any

from reyn.errors import Finding, ReynError, SkillNotFound
from reyn.ops.op import Call, Env, Plan, PlannedOp, ProjectOp, Result
from reyn.ops.skill_folder import SkillReader
from reyn.permissions import Denied
from reyn.skills.cases import MAX_CASES, case_files
from reyn.skills.drawing import to_text
from reyn.skills.resolve import STDLIB, is_path
from reyn.vocabulary.schemas import BOOLEAN, INTEGER, STRING, array, path, single_form, text

_MAX_ISSUES = 200
_MAX_LISTED = 20
_ON_FAIL = {"on_fail": {"enum": ["continue", "abort"], "default": "continue"}}


class LintOp(ProjectOp, PlannedOp):
    """Lints a skill by name, or in a folder that the run may read.

    With `on_fail: continue`, errors of the skill are a result like any other. With `abort` they are an error of the op:
    a decision that carries it does not take effect, and a step fails.
    """

    spec = single_form(
        "lint",
        "Check a skill's folder and return the findings.",
        "pure",
        {"skill_path": path()},
        _ON_FAIL,
        results={
            "skill_path": STRING,
            "passed": BOOLEAN,
            "error_count": INTEGER,
            "warning_count": INTEGER,
            "issues": array(STRING, _MAX_ISSUES),
        },
        example={"skill_path": "reyn/local/summarise"},
    )

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        name, rule = call.args["skill_path"], "default: lint skills"
        reader = SkillReader(env)
        try:
            result = self._result(call, name, self.project.lint(reader.find(name, self.project), reader))
        except SkillNotFound as error:
            fields = {"passed": False, "error_count": 1, "warning_count": 0, "issues": [error.message]}
            result = call.error(error.message, skill_path=name, **fields)
        except ReynError as error:
            result = call.error(error.message, skill_path=name)
        return Plan(rule, result=result, approval=reader.approval)

    def _result(self, call: Call, name: str, findings: list[Finding]) -> Result:
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


class SkillGraphOp(ProjectOp, PlannedOp):
    """Draws a skill by name, or in a folder that the run may read."""

    spec = single_form(
        "skill_graph",
        "Draw the graph of a skill: phases, transitions and ends.",
        "pure",
        {"skill_path": path()},
        results={"skill_path": STRING, "graph": STRING},
        example={"skill_path": "reyn/local/summarise"},
    )

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        name, rule = call.args["skill_path"], "default: draw skills"
        reader = SkillReader(env)
        try:
            folder = reader.find(name, self.project)
            result = call.ok(skill_path=name, graph=to_text(self.project.load(str(folder), reader)))
        except ReynError as error:
            result = call.error(f"{error.code}: {error.message}", skill_path=name)
        return Plan(rule, result=result, approval=reader.approval)


class SkillResolveOp(ProjectOp, PlannedOp):
    """Looks a name up in the project, then in the standard library. An unknown name is a result, not an error."""

    spec = single_form(
        "skill_resolve",
        "Find the folder of a skill by its name.",
        "pure",
        {"name": text(200, min_length=1)},
        results={
            "name": STRING,
            "resolved": BOOLEAN,
            "source": {"enum": ["local", "project", "stdlib", None]},
            "skill_dir": {"type": ["string", "null"]},
            "skill_md_path": {"type": ["string", "null"]},
        },
        example={"name": "summarise"},
    )

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        name = call.args["name"]
        if is_path(name):
            return Denied("default: no skills by path", f"`{name}` is a path; use the name of a skill")
        return Plan("default: find skills by name", result=self._result(call, name, env))

    def _result(self, call: Call, name: str, env: Env) -> Result:
        try:
            if self._setup is None:
                raise SkillNotFound("no project is open")
            folder = self._setup.library.find(name)
        except SkillNotFound as error:
            nothing = dict.fromkeys(("source", "skill_dir", "skill_md_path"))
            return call.ok(name=name, resolved=False, **nothing, note=error.message)
        is_standard = folder.is_relative_to(STDLIB)
        place = str(folder) if is_standard else os.path.relpath(folder, env.roots.project)
        source = "stdlib" if is_standard else folder.parent.name
        return call.ok(name=name, resolved=True, source=source, skill_dir=place, skill_md_path=f"{place}/skill.md")


_CASE: dict[str, Any] = {
    "type": "object",
    "properties": {"name": STRING, "passed": BOOLEAN, "problems": {"type": "array", "items": STRING}},
}


class SkillTryOp(ProjectOp):
    """Tries a skill by name, or in a folder that the run may read.

    With `on_fail: abort`, a case that fails is an error of the op, and so is a skill without cases.
    """

    spec = single_form(
        "skill_try",
        "Try a skill: run its cases with their scripted answers and compare the results.",
        "pure",
        {"skill_path": path()},
        _ON_FAIL,
        results={"skill_path": STRING, "passed": BOOLEAN, "summary": STRING, "cases": array(_CASE, MAX_CASES)},
        example={"skill_path": "reyn/local/summarise"},
        takes_time=True,
    )

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        reader = SkillReader(env)
        folder = reader.find(call.args["skill_path"], self.project)
        for file in case_files(folder):
            reader(file)
        with suppress(ReynError):  # a case that fails reports it
            self.project.lint(folder, reader)
        return Plan("default: try skills", approval=reader.approval)

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        from reyn.sandbox import in_thread

        name = call.args["skill_path"]
        try:
            reader = SkillReader(env, plan.approved)
            folder = reader.find(name, self.project)
            report = await in_thread(partial(self.project.try_cases, folder, reader))
        except ReynError as error:
            return call.error(f"{error.code}: {error.message}", skill_path=name)
        fields = {
            "skill_path": name,
            "passed": report.passed,
            "summary": report.summary,
            "cases": [{"name": one.name, "passed": one.passed, "problems": list(one.problems)} for one in report.cases],
        }
        if call.args.get("on_fail") == "abort":
            if not report.cases:
                return call.error("the skill has no cases", **fields)
            if not report.passed:
                return call.error(numbered("cases of the skill fail", report.failures), **fields)
        return call.ok(**fields)
