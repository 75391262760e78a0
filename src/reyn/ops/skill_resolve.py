"""The op `skill_resolve`: find the folder of a skill by its name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from reyn.errors import SkillNotFound
from reyn.ops.op import Complete, OpSetup
from reyn.permissions import Denied
from reyn.skills.resolve import STDLIB, is_path
from reyn.vocabulary import OpForm, OpSpec
from reyn.vocabulary.schemas import arguments, result, text

if TYPE_CHECKING:
    from reyn.ops.op import Call, Env, Result
    from reyn.skills import Library

_FORM = OpForm(
    op=None,
    summary="Find the folder of a skill by its name.",
    arguments=arguments("skill_resolve", None, {"name": text(200, min_length=1)}),
    effect="pure",
    result=result(
        "skill_resolve",
        None,
        {
            "name": {"type": "string"},
            "resolved": {"type": "boolean"},
            "source": {"enum": ["local", "project", "stdlib", None]},
            "skill_dir": {"type": ["string", "null"]},
            "skill_md_path": {"type": ["string", "null"]},
        },
    ),
    example={"kind": "skill_resolve", "name": "summarise"},
)


class SkillResolveOp:
    """Looks a name up in the project, then in the standard library. An unknown name is a result, not an error."""

    spec = OpSpec("skill_resolve", _FORM.summary, "pure", forms=(_FORM,))

    def __init__(self, library: Library | None = None) -> None:
        self._library = library

    def set_up(self, setup: OpSetup) -> SkillResolveOp:
        return SkillResolveOp(setup.library)

    def plan(self, call: Call, env: Env) -> Complete | Denied:
        name = call.args["name"]
        if is_path(name):
            return Denied("default: no skills by path", f"`{name}` is a path; use the name of a skill")
        return Complete("default: find skills by name", result=self._result(call, name, env))

    def _result(self, call: Call, name: str, env: Env) -> Result:
        try:
            if self._library is None:
                raise SkillNotFound("no project is open")
            folder = self._library.find(name)
        except SkillNotFound as error:
            return call.ok(
                name=name, resolved=False, source=None, skill_dir=None, skill_md_path=None, note=error.message
            )
        is_standard = folder.is_relative_to(STDLIB)
        place = str(folder) if is_standard else os.path.relpath(folder, env.roots.project)
        source = "stdlib" if is_standard else folder.parent.name
        return call.ok(name=name, resolved=True, source=source, skill_dir=place, skill_md_path=f"{place}/skill.md")
