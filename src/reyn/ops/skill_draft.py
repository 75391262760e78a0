"""The op `skill_draft`: render the plan of a skill into files, in the workspace of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.errors import SkillPlanInvalid
from reyn.ops.op import Complete
from reyn.ops.skill_folder import DRAFT, outside_error, plan_draft
from reyn.ops.skill_lint import numbered
from reyn.skills.drafts import MAX_FILES, parse_plan, render
from reyn.vocabulary import OpForm, OpSpec
from reyn.vocabulary.schemas import arguments, array, result

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.ops.op import Call, Env
    from reyn.permissions import Denied
    from reyn.workspace import Change

DRAFT_FIELDS = {
    "name": {"type": "string"},
    "skill_path": {"type": "string"},
    "files": array({"type": "string"}, MAX_FILES),
}

_FORM = OpForm(
    op=None,
    summary="Render the plan of a skill into files below `workspace:draft/`.",
    arguments=arguments("skill_draft", None, {"plan": {"type": "object"}}),
    effect="reconcilable",
    result=result("skill_draft", None, DRAFT_FIELDS),
    example={
        "kind": "skill_draft",
        "plan": {
            "name": "shorten",
            "description": "Shorten a text.",
            "artifacts": [{"name": "short_text", "fields": [{"name": "text"}]}],
            "phases": [
                {
                    "name": "shorten",
                    "instructions": "Shorten the text to one sentence.",
                    "inputs": ["user_message"],
                    "next": [{"to": "end"}],
                }
            ],
            "final_output": "short_text",
        },
    },
)


class SkillDraftOp:
    """Writes the files of a plan. A plan with errors writes none; the result lists all of them."""

    spec = OpSpec("skill_draft", _FORM.summary, "reconcilable", forms=(_FORM,))

    def plan(self, call: Call, env: Env) -> Complete | Denied:
        try:
            plan = parse_plan(call.args["plan"])
            files = render(plan)
        except SkillPlanInvalid as error:
            return Complete("default: draft skills", result=call.error(numbered("the plan has errors", error.problems)))
        return plan_draft(call, env, plan.name, {path: text.encode() for path, text in files.items()})

    def changes_error(
        self,
        call: Call,
        changes: tuple[Change, ...],
        content: Callable[[str], bytes],
        resolve: Callable[[str], str],
    ) -> str:
        """Return why recorded changes are not those of a draft. A later version may render a plan differently."""
        return outside_error(changes, lambda path: path.startswith(f"{DRAFT}/"))
