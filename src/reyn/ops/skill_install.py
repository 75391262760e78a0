"""The op `skill_install`: make the draft of the run a skill of this machine, in `reyn/local/`.

A person approves it: they see lint, the graph, the results of the cases, and a diff against what is there.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from reyn.errors import ReynError, SkillNotFound
from reyn.journal import canonical, digest
from reyn.ops.budget import OpFailed
from reyn.ops.op import Complete
from reyn.ops.skill_folder import Changes, Draft, draft_folder, folder_at, outside_error, read_draft
from reyn.ops.skill_lint import numbered
from reyn.permissions import Denied
from reyn.skills.drafts import MAX_FILES
from reyn.skills.drawing import to_text
from reyn.skills.resolve import STDLIB
from reyn.vocabulary import OpForm, OpSpec
from reyn.vocabulary.schemas import arguments, array, result
from reyn.workspace import locate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from reyn.ops.op import Call, Env, OpSetup
    from reyn.workspace import Change

LOCAL = "reyn/local"
_RULE = "default: install drafts"
_FORM = OpForm(
    op=None,
    summary="Write the draft in `workspace:draft/` to `reyn/local/`, after a person has approved the diff.",
    arguments=arguments("skill_install", None, {}),
    effect="reconcilable",
    result=result(
        "skill_install",
        None,
        {
            "name": {"type": "string"},
            "skill_path": {"type": "string"},
            "files": array({"type": "string"}, MAX_FILES),
            "replaced": {"type": "boolean"},
        },
    ),
    example={"kind": "skill_install"},
)


class SkillInstallOp:
    """Installs the draft of the run. A draft with errors is not installed."""

    spec = OpSpec("skill_install", _FORM.summary, "reconcilable", forms=(_FORM,), optional_permissions=("skill.write",))

    def __init__(self, setup: OpSetup | None = None) -> None:
        self._setup = setup

    def set_up(self, setup: OpSetup) -> SkillInstallOp:
        return SkillInstallOp(setup)

    def preparation(self, call: Call, env: Env) -> Callable[[], object] | None:
        """Try the cases of the draft: an approval shows the result, which may take half a minute."""
        folder = draft_folder(env)
        if self._setup is None or folder is None:
            return None
        if any(finding.severity == "error" for finding in self._setup.lint(folder)):
            return None
        return partial(self._setup.try_cases, folder)

    def plan(self, call: Call, env: Env) -> Complete | Denied:
        if self._setup is None:
            raise OpFailed("no project is open")
        draft = read_draft(env)
        findings = self._setup.lint(folder_at(draft.location, env))
        if errors := [str(finding) for finding in findings if finding.severity == "error"]:
            return Complete(_RULE, result=call.error(numbered("the draft has errors", errors)))
        target = locate(f"{LOCAL}/{draft.name}", env.roots)
        if target.zone != "project" or target.display_path != f"{LOCAL}/{draft.name}":
            return Denied("default: no links in reyn/local", f"`{LOCAL}/{draft.name}` is a link, or below one")
        changes = Changes(target, env)
        changes.replace(draft.files)
        if isinstance(changes.verdict, Denied):
            return changes.verdict
        replaced = any(change.before is not None for change in changes.changes)
        path, files = target.display_path, sorted(draft.files)
        installed = call.ok(name=draft.name, skill_path=path, files=files, replaced=replaced)
        if changes.approval is None:
            return Complete(changes.rule or _RULE, changes.changes, blobs=changes.blobs, result=installed)
        about = "".join(f"{line}\n" for line in self._about(draft, env, [str(one) for one in findings]))
        # The rule names the content, so that a standing approval never covers another version of the skill.
        approval = f"{changes.approval} and draft {_digest(draft)}"
        return Complete(
            changes.rule, changes.changes, blobs=changes.blobs, result=installed, approval=approval, about=about
        )

    def changes_error(
        self,
        call: Call,
        changes: tuple[Change, ...],
        content: Callable[[str], bytes],
        resolve: Callable[[str], str],
    ) -> str:
        """Return why recorded changes are not those of one skill below `reyn/local/`."""
        names = {change.path.split("/")[2] for change in changes if change.path.count("/") > 2}
        if len(names) > 1:
            return "it changes one skill"
        prefix = f"{LOCAL}/{next(iter(names), '')}/"
        return outside_error(changes, lambda path: path.startswith(prefix) and "/." not in path)

    def _about(self, draft: Draft, env: Env, findings: list[str]) -> Iterator[str]:
        """Yield what a person should know besides the diff."""
        assert self._setup is not None
        folder = folder_at(draft.location, env)
        yield f"skill {draft.name}, in {LOCAL}/{draft.name}/"
        if note := self._existing(draft.name, env):
            yield note
        yield f"lint: {'OK' if not findings else _count(len(findings), 'warning')}"
        yield from (f"  {' '.join(text.split())}" for text in findings[:_MAX_LISTED])
        trial = self._setup.try_cases(folder)
        yield trial.summary
        yield from (f"  {problem}" for problem in trial.failures[:_MAX_LISTED])
        try:
            skill = self._setup.load(str(folder))
        except ReynError as error:
            yield f"it cannot run here: {' '.join(error.message.split())}"
            return
        ops = sorted({kind for phase in skill.phases.values() for kind in phase.allowed_ops})
        yield f"ops: {', '.join(ops) or 'none'}"
        yield f"requests: {msgspec.json.encode(skill.permissions).decode() if skill.permissions else 'none'}"
        yield "graph:"
        yield from (f"  {line}" for line in to_text(skill).splitlines())

    def _existing(self, name: str, env: Env) -> str:
        """Return what is there under the name of the draft."""
        assert self._setup is not None
        try:
            folder = self._setup.library.find(name)
        except SkillNotFound:
            return ""
        if folder.is_relative_to(STDLIB):
            return f"it takes the place of the standard skill `{name}` in this project"
        if folder.parent.name != "local":
            return f"it takes the place of the skill in reyn/{folder.parent.name}/{name}/"
        return "a skill of this name exists; the diff compares with it"


_MAX_LISTED = 20


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _digest(draft: Draft) -> str:
    """Identify the content of a draft."""
    return digest(canonical({path: digest(content) for path, content in draft.files.items()}))[:16]
