"""The op `skill_import`: convert an Agent Skills folder into the draft of a skill, in the workspace of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from reyn.errors import AgentSkillInvalid
from reyn.journal import canonical, digest
from reyn.ops.budget import OpFailed
from reyn.ops.file.writing import look_at
from reyn.ops.op import Complete
from reyn.ops.skill_draft import DRAFT_FIELDS
from reyn.ops.skill_folder import DRAFT, folder_at, outside_error, plan_draft
from reyn.permissions import Denied, NeedsApproval
from reyn.skills.agentskills import SKILL_FILE, parse_agent_skill, read_folder, to_reyn
from reyn.vocabulary import OpForm, OpSpec
from reyn.vocabulary.schemas import arguments, array, path, result, text
from reyn.workspace import locate

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.ops.op import Call, Env
    from reyn.workspace import Change, Location

_MAX_NOTES = 100
_MAX_INSTRUCTIONS = 20_000
_FORM = OpForm(
    op=None,
    summary="Convert an Agent Skills folder (`SKILL.md`) into a skill below `workspace:draft/`.",
    arguments=arguments("skill_import", None, {"path": path()}, {"name": text(64, min_length=1)}),
    effect="reconcilable",
    result=result(
        "skill_import",
        None,
        DRAFT_FIELDS | {"unconverted": array({"type": "string"}, _MAX_NOTES), "instructions": {"type": "string"}},
    ),
    example={"kind": "skill_import", "path": "downloads/pdf-processing"},
)


class SkillImportOp:
    """Converts a folder that the run may read. What cannot be converted is listed in the result."""

    spec = OpSpec("skill_import", _FORM.summary, "reconcilable", forms=(_FORM,), optional_permissions=("file.read",))

    def plan(self, call: Call, env: Env) -> Complete | Denied:
        location = locate(call.args["path"].removesuffix(f"/{SKILL_FILE}"), env.roots)
        verdict = env.gate.read(location)
        if isinstance(verdict, Denied):
            return verdict
        if location.zone not in ("project", "workspace"):
            return Denied("default: import from the project", f"`{call.args['path']}` is not in the project; copy it")
        try:
            files, left_out = read_folder(folder_at(location, env), lambda name: _content(name, location, env))
            skill = parse_agent_skill(files)
            conversion = to_reyn(skill, call.args.get("name", ""))
        except AgentSkillInvalid as error:
            return Complete(verdict.rule, result=call.error(f"{error.code}: {error.message}"))
        notes = [*conversion.unconverted, *left_out][:_MAX_NOTES]
        instructions = skill.body[:_MAX_INSTRUCTIONS]
        plan = plan_draft(call, env, conversion.name, conversion.files, unconverted=notes, instructions=instructions)
        if isinstance(plan, Denied) or not isinstance(verdict, NeedsApproval):
            return plan
        read = digest(canonical({name: digest(content) for name, content in files.items()}))
        return replace(plan, approval=verdict.rule, reads=read)

    def changes_error(
        self,
        call: Call,
        changes: tuple[Change, ...],
        content: Callable[[str], bytes],
        resolve: Callable[[str], str],
    ) -> str:
        """Return why recorded changes are not those of a draft; the folder that was read is not recorded."""
        return outside_error(changes, lambda path: path.startswith(f"{DRAFT}/"))


def _content(name: str, folder: Location, env: Env) -> bytes:
    """Return the content of a file of the folder, if the run may read it."""
    location = folder.below(*name.split("/"))
    verdict = env.gate.read(location)
    if isinstance(verdict, Denied):
        raise OpFailed(f"`{location.display_path}` cannot be read: {verdict.rule}")
    image, _ = look_at(location, env)
    if image is None:
        raise OpFailed(f"`{location.display_path}` disappeared while it was read")
    return image.content
