"""The ops that make skills: `skill_draft` renders a plan, `skill_import` converts an Agent Skills folder.

Both write the draft in the workspace of the run. `skill_install` makes it a skill of this machine, in `reyn/local/`. A
person approves that: they see lint, the graph, the results of the cases, and a diff against what is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from reyn.errors import AgentSkillInvalid, ReynError, SkillNotFound, SkillPlanInvalid
from reyn.journal import APPROVAL_DIGITS, canonical, digest
from reyn.ops.budget import OpFailed
from reyn.ops.file.reading import look_at
from reyn.ops.op import Call, Env, Plan, PlannedOp, ProjectOp, RecordedChanges
from reyn.ops.skill_folder import DRAFT, SkillDraft, SkillReader, folder_at, plan_draft, plan_files, read_draft
from reyn.ops.skill_reports import numbered
from reyn.permissions import Denied
from reyn.skills.agentskills import SKILL_FILE, parse_agent_skill, to_reyn
from reyn.skills.drafts import parse_plan, render
from reyn.skills.drawing import to_text
from reyn.skills.files import MAX_FILES, read_folder
from reyn.skills.resolve import STDLIB
from reyn.vocabulary.schemas import BOOLEAN, STRING, array, path, single_form, text
from reyn.workspace import Location, locate

if TYPE_CHECKING:
    from reyn.sandbox import StopSignal

LOCAL = "reyn/local"
_RULE = "default: install drafts"
_MAX_NOTES = 100
_MAX_INSTRUCTIONS = 20_000
_MAX_LISTED = 20
_DRAFT_FIELDS = {"name": STRING, "skill_path": STRING, "files": array(STRING, MAX_FILES)}


class SkillDraftOp(PlannedOp):
    """Writes the files of a plan. A plan with errors writes none; the result lists all of them."""

    spec = single_form(
        "skill_draft",
        "Render the plan of a skill into files below `workspace:draft/`.",
        "reconcilable",
        {"plan": {"type": "object"}},
        results=_DRAFT_FIELDS,
        example={
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
            }
        },
    )

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        try:
            plan = parse_plan(call.args["plan"])
            files = render(plan)
        except SkillPlanInvalid as error:
            return Plan("default: draft skills", result=call.error(numbered("the plan has errors", error.problems)))
        return plan_draft(call, env, plan.name, {path: text.encode() for path, text in files.items()})

    def changes_error(self, call: Call, recorded: RecordedChanges) -> str:
        """Return why recorded changes are not those of a draft. A later version may render a plan differently."""
        return recorded.outside(lambda path: path.startswith(f"{DRAFT}/"))


class SkillImportOp(PlannedOp):
    """Converts a folder that the run may read. What cannot be converted is listed in the result."""

    spec = single_form(
        "skill_import",
        "Convert an Agent Skills folder (`SKILL.md`) into a skill below `workspace:draft/`.",
        "reconcilable",
        {"path": path()},
        {"name": text(64, min_length=1)},
        results=_DRAFT_FIELDS | {"unconverted": array(STRING, _MAX_NOTES), "instructions": STRING},
        example={"path": "downloads/pdf-processing"},
        optional_permissions=("file.read",),
    )

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        reader = SkillReader(env)
        location = reader.folder(call.args["path"].removesuffix(f"/{SKILL_FILE}"))
        try:
            files, left_out = read_folder(folder_at(location, env), lambda name: _content(name, location, env, reader))
            skill = parse_agent_skill(files)
            conversion = to_reyn(skill, call.args.get("name", ""))
        except AgentSkillInvalid as error:
            return Plan("default: import skills", result=call.error(f"{error.code}: {error.message}"))
        notes = [*conversion.unconverted, *left_out][:_MAX_NOTES]
        instructions = skill.body[:_MAX_INSTRUCTIONS]
        plan = plan_draft(call, env, conversion.name, conversion.files, unconverted=notes, instructions=instructions)
        if isinstance(plan, Denied):
            return plan
        approval = _joined(reader.approval, plan.approval)
        return replace(plan, approval=approval, reads=_digest(files)) if approval else plan

    def changes_error(self, call: Call, recorded: RecordedChanges) -> str:
        """Return why recorded changes are not those of a draft; the folder that was read is not recorded."""
        return recorded.outside(lambda path: path.startswith(f"{DRAFT}/"))


def _joined(*rules: str | None) -> str | None:
    """Return the rules that want a person to approve, as one approval names them."""
    return " and ".join(dict.fromkeys(filter(None, rules))) or None


def _content(name: str, folder: Location, env: Env, reader: SkillReader) -> bytes:
    """Return the content of a file of the folder, if the run may read it."""
    location = folder.below(*name.split("/"))
    reader.check(location)
    image, _ = look_at(location, env)
    if image is None:
        raise OpFailed(f"`{location.display_path}` disappeared while it was read")
    return image.content


def _digest(files: dict[str, bytes]) -> str:
    """Identify the content of files."""
    return digest(canonical({name: digest(content) for name, content in files.items()}))


class SkillInstallOp(ProjectOp, PlannedOp):
    """Installs the draft of the run. A draft with errors is not installed."""

    spec = single_form(
        "skill_install",
        "Write the draft in `workspace:draft/` to `reyn/local/`, after a person has approved the diff.",
        "reconcilable",
        {},
        results=_DRAFT_FIELDS | {"replaced": BOOLEAN},
        example={},
        optional_permissions=("skill.write",),
    )

    def preparation(self, call: Call, env: Env) -> Callable[[StopSignal], object] | None:
        """Try the cases of the draft: an approval shows the result, which may take half a minute."""
        folder, reader = folder_at(read_draft(env).location, env), SkillReader(env)
        if any(finding.severity == "error" for finding in self.project.lint(folder, reader)):
            return None
        return partial(self.project.try_cases, folder, reader)

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        draft, reader = read_draft(env), SkillReader(env)
        findings = self.project.lint(folder_at(draft.location, env), reader)
        if errors := [str(finding) for finding in findings if finding.severity == "error"]:
            return Plan(_RULE, result=call.error(numbered("the draft has errors", errors)))
        target = locate(f"{LOCAL}/{draft.name}", env.roots)
        if target.zone != "project" or target.display_path != f"{LOCAL}/{draft.name}":
            return Denied("default: no links in reyn/local", f"`{LOCAL}/{draft.name}` is a link, or below one")
        plan = plan_files(target, draft.files, env)
        if isinstance(plan, Denied):
            return plan
        replaced = any(change.before is not None for change in plan.changes)
        path, files = target.display_path, sorted(draft.files)
        installed = call.ok(name=draft.name, skill_path=path, files=files, replaced=replaced)
        asked = _joined(reader.approval, plan.approval)
        if asked is None:
            return replace(plan, rule=plan.rule or _RULE, result=installed)
        about = "".join(f"{line}\n" for line in self._about(draft, env, [str(one) for one in findings], reader))
        # The rule names the content, so that a standing approval never covers another version of the skill.
        approval = f"{asked} and draft {_digest(draft.files)[:APPROVAL_DIGITS]}"
        return replace(plan, result=installed, approval=approval, about=about)

    def changes_error(self, call: Call, recorded: RecordedChanges) -> str:
        """Return why recorded changes are not those of one skill below `reyn/local/`."""
        names = {change.path.split("/")[2] for change in recorded.changes if change.path.count("/") > 2}
        if len(names) > 1:
            return "it changes one skill"
        prefix = f"{LOCAL}/{next(iter(names), '')}/"
        return recorded.outside(lambda path: path.startswith(prefix) and "/." not in path)

    def _about(self, draft: SkillDraft, env: Env, findings: list[str], reader: SkillReader) -> Iterator[str]:
        """Yield what a person should know besides the diff."""
        folder = folder_at(draft.location, env)
        yield f"skill {draft.name}, in {LOCAL}/{draft.name}/"
        if note := self._existing(draft.name):
            yield note
        noun = "warning" if len(findings) == 1 else "warnings"
        yield f"lint: {f'{len(findings)} {noun}' if findings else 'OK'}"
        yield from (f"  {' '.join(text.split())}" for text in findings[:_MAX_LISTED])
        trial = self.project.try_cases(folder, reader, None)
        yield trial.summary
        yield from (f"  {problem}" for problem in trial.failures[:_MAX_LISTED])
        try:
            skill = self.project.load(str(folder), reader)
        except ReynError as error:
            yield f"it cannot run here: {' '.join(error.message.split())}"
            return
        ops = sorted({kind for phase in skill.phases.values() for kind in phase.allowed_ops})
        yield f"ops: {', '.join(ops) or 'none'}"
        yield f"requests: {msgspec.json.encode(skill.permissions).decode() if skill.permissions else 'none'}"
        yield "graph:"
        yield from (f"  {line}" for line in to_text(skill).splitlines())

    def _existing(self, name: str) -> str:
        """Return what is there under the name of the draft."""
        try:
            folder = self.project.library.find(name)
        except SkillNotFound:
            return ""
        if folder.is_relative_to(STDLIB):
            return f"it takes the place of the standard skill `{name}` in this project"
        if folder.parent.name != "local":
            return f"it takes the place of the skill in reyn/{folder.parent.name}/{name}/"
        return "a skill of this name exists; the diff compares with it"
