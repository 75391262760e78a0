"""The op `file`. Forms that change files are planned down to the last byte; forms that only look are performed.

The gate decides when an op is planned and again when it is performed or applied.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from reyn.ops.file.finding import glob_files, glob_root
from reyn.ops.file.forms import FILE_FORMS, KEPT_READ
from reyn.ops.file.index import index_draft
from reyn.ops.file.reading import read_file
from reyn.ops.file.searching import grep_files
from reyn.ops.file.writing import delete_draft, edit_draft, write_draft
from reyn.ops.op import Call, Env, Plan
from reyn.permissions import Denied, NeedsApproval, refusal
from reyn.vocabulary import OpSpec
from reyn.workspace import locate

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.ops.file.writing import Arguments, Draft
    from reyn.ops.op import Result
    from reyn.permissions import Verdict
    from reyn.workspace import Place

_LOOKS: dict[str, Callable[[Call, Arguments, Place, Env], dict[str, Any]]] = {
    "read": read_file,
    "glob": glob_files,
    "grep": grep_files,
}
_SLOW = ("glob", "grep")
_DRAFTS: dict[str, Callable[[Arguments, Place, Env], Draft | Denied]] = {
    "write": write_draft,
    "edit": edit_draft,
    "delete": delete_draft,
    "regenerate_index": index_draft,
}
_DEFAULTS = {form.op: form.defaults for form in FILE_FORMS}


class FileOp:
    spec = OpSpec(
        "file",
        "Read, write, edit, delete, find and search files.",
        "reconcilable",
        forms=FILE_FORMS,
        advice="Paths are relative to the project; workspace:<path> is your own. Write to reyn/ or workspace:.",
        when_truncated=(KEPT_READ,),
        optional_permissions=("file.read", "file.write"),
    )

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        arguments = _arguments(call)
        verdict, place = _judge(call, arguments, env)
        if isinstance(verdict, Denied):
            return verdict
        approval = verdict.rule if isinstance(verdict, NeedsApproval) else None
        if call.op in _LOOKS:
            return Plan(verdict.rule, approval=approval)
        try:
            draft = _DRAFTS[str(call.op)](arguments, place, env)
        except Exception as error:  # noqa: BLE001 - becomes the result, under the rule that allowed the op
            return Plan(verdict.rule, result=call.failed(error))
        if isinstance(draft, Denied):
            return draft
        approval = approval if draft.changes else None
        return Plan(verdict.rule, draft.changes, call.ok(**draft.fields), draft.blobs, approval=approval)

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        if call.op in _SLOW:
            return await asyncio.to_thread(_look, call, plan, env)
        return _look(call, plan, env)


def _arguments(call: Call) -> Arguments:
    """The arguments with their defaults. JSON has no integers, so `3.0` is as good as `3`."""
    complete = _DEFAULTS[call.op] | call.args
    return {name: int(value) if isinstance(value, float) else value for name, value in complete.items()}


def _judge(call: Call, arguments: Arguments, env: Env) -> tuple[Verdict, Place]:
    match call.op:
        case "glob":
            text = glob_root(arguments)
        case "regenerate_index":
            text = arguments["output_path"]
        case _:
            text = arguments["path"]
    place = locate(text, env.roots)
    return (env.gate.read if call.op in _LOOKS else env.gate.write)(place), place


def _look(call: Call, plan: Plan, env: Env) -> Result:
    arguments = _arguments(call)
    verdict, place = _judge(call, arguments, env)
    if refused := refusal(verdict, is_approved=plan.is_approved):
        return call.denied(refused)
    return _LOOKS[str(call.op)](call, arguments, place, env)
