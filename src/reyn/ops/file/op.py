"""The op `file`: dispatch of its forms and permission checks.

Forms that change files compute the complete change in `plan`; forms that only read do their work in `perform`. The gate
decides when the op is planned and again when it is performed.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from reyn.journal import digest
from reyn.ops.file.checking import changes_error
from reyn.ops.file.finding import glob_files, glob_root
from reyn.ops.file.forms import FILE_FORMS, READ_FULL_CONTENT
from reyn.ops.file.index import index_draft
from reyn.ops.file.reading import read_file
from reyn.ops.file.searching import grep_files
from reyn.ops.file.writing import delete_draft, edit_draft, write_draft
from reyn.ops.op import Call, Env, Plan
from reyn.permissions import Denied, NeedsApproval, refusal
from reyn.vocabulary import OpSpec
from reyn.workspace import locate, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.ops.file.writing import Arguments, Draft
    from reyn.ops.op import Result
    from reyn.permissions import Verdict
    from reyn.workspace import Change, Location

_READERS: dict[str, Callable[[Call, Arguments, Location, Env], dict[str, Any]]] = {
    "read": read_file,
    "glob": glob_files,
    "grep": grep_files,
}
_SLOW = ("glob", "grep")
"""Forms that run in a thread."""
_WRITERS: dict[str, Callable[[Arguments, Location, Env], Draft | Denied]] = {
    "write": write_draft,
    "edit": edit_draft,
    "delete": delete_draft,
    "regenerate_index": index_draft,
}
_DEFAULTS = {form.op: form.defaults for form in FILE_FORMS}


class FileOp:
    """Reads, writes, edits, deletes, lists and searches files."""

    spec = OpSpec(
        "file",
        "Read, write, edit, delete, find and search files.",
        "reconcilable",
        forms=FILE_FORMS,
        advice="Paths are relative to the project; workspace:<path> is your own. Write to output/ or workspace:.",
        when_truncated=(READ_FULL_CONTENT,),
        optional_permissions=("file.read", "file.write"),
    )

    def plan(self, call: Call, env: Env) -> Plan | Denied:
        op = str(call.op)
        arguments = _arguments(call, op)
        verdict, location = _decide(op, arguments, env)
        if isinstance(verdict, Denied):
            return verdict
        approval = verdict.rule if isinstance(verdict, NeedsApproval) else None
        if op in _READERS:
            reads = _content_hash(location, env) if approval and op == "read" else ""
            return Plan(verdict.rule, approval=approval, reads=reads)
        try:
            draft = _WRITERS[op](arguments, location, env)
        except Exception as error:  # noqa: BLE001 - becomes the result, under the rule that allowed the op
            return Plan(verdict.rule, result=call.failed(error))
        if isinstance(draft, Denied):
            return draft
        rules = [rule for rule in (approval if draft.changes else None, draft.approval) if rule]
        asked = " and ".join(rules) or None
        return Plan(verdict.rule, draft.changes, call.ok(**draft.fields), draft.blobs, approval=asked)

    def changes_error(
        self,
        call: Call,
        changes: tuple[Change, ...],
        content: Callable[[str], bytes],
        resolve: Callable[[str], str],
    ) -> str:
        return changes_error(str(call.op), _arguments(call, str(call.op)), changes, content, resolve)

    async def perform(self, call: Call, plan: Plan, env: Env) -> Result:
        if call.op in _SLOW:
            return await asyncio.to_thread(_read, call, plan, env)
        return _read(call, plan, env)


def _content_hash(location: Location, env: Env) -> str:
    """Return the hash of a file; empty if it cannot be read, which `perform` reports."""
    with suppress(Exception):
        image = read(location, env.roots, env.file_bytes)
        return "" if image is None else digest(image.content)
    return ""


def _arguments(call: Call, op: str) -> Arguments:
    """Return the arguments with defaults. JSON Schema accepts `3.0` as an integer, so convert floats."""
    complete = _DEFAULTS[op] | call.args
    if float not in map(type, complete.values()):
        return complete
    return {name: int(value) if isinstance(value, float) else value for name, value in complete.items()}


def _decide(op: str, arguments: Arguments, env: Env) -> tuple[Verdict, Location]:
    match op:
        case "glob":
            text = glob_root(arguments)
        case "regenerate_index":
            text = arguments["output_path"]
        case _:
            text = arguments["path"]
    location = locate(text, env.roots)
    return (env.gate.read if op in _READERS else env.gate.write)(location), location


def _read(call: Call, plan: Plan, env: Env) -> Result:
    op = str(call.op)
    arguments = _arguments(call, op)
    verdict, location = _decide(op, arguments, env)
    if refused := refusal(verdict, approved=plan.approved):
        return call.denied(refused)
    return _READERS[op](call, arguments, location, env)
