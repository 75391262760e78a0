"""The op `skill_graph`: draw the graph of a skill as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.errors import ReynError
from reyn.ops.op import Complete
from reyn.ops.skill_folder import find_skill
from reyn.permissions import Denied
from reyn.skills.drawing import to_text
from reyn.vocabulary import OpForm, OpSpec
from reyn.vocabulary.schemas import arguments, path, result

if TYPE_CHECKING:
    from reyn.ops.op import Call, Env, OpSetup

_RULE = "default: draw skills"
_FORM = OpForm(
    op=None,
    summary="Draw the graph of a skill: phases, transitions and ends.",
    arguments=arguments("skill_graph", None, {"skill_path": path()}),
    effect="pure",
    result=result("skill_graph", None, {"skill_path": {"type": "string"}, "graph": {"type": "string"}}),
    example={"kind": "skill_graph", "skill_path": "reyn/local/summarise"},
)


class SkillGraphOp:
    """Draws a skill by name, or in a folder that the run may read."""

    spec = OpSpec("skill_graph", _FORM.summary, "pure", forms=(_FORM,))

    def __init__(self, setup: OpSetup | None = None) -> None:
        self._setup = setup

    def set_up(self, setup: OpSetup) -> SkillGraphOp:
        return SkillGraphOp(setup)

    def plan(self, call: Call, env: Env) -> Complete | Denied:
        name = call.args["skill_path"]
        try:
            found = find_skill(name, env, self._setup)
            if isinstance(found.verdict, Denied):
                return found.verdict
            assert self._setup is not None
            graph = to_text(self._setup.load(str(found.folder)))
        except ReynError as error:
            return Complete(_RULE, result=call.error(f"{error.code}: {error.message}", skill_path=name))
        return Complete(_RULE, result=call.ok(skill_path=name, graph=graph), approval=found.approval)
