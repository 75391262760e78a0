"""The op `file`: the gate is asked when it is planned, and again when it is performed.

Forms that only look are planned by the gate alone. Forms that change something are planned to the last byte, so that
performing one is applying its plan, the same before and after a crash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from reyn.ops.finding import glob_files, glob_root
from reyn.ops.index import index_draft
from reyn.ops.port import Call, Env, Plan
from reyn.ops.reading import read_file
from reyn.ops.results import FAULTS, denied_result, error_result, failed_result, result
from reyn.ops.searching import grep_files
from reyn.ops.writing import delete_draft, edit_draft, write_draft
from reyn.permissions import Denied
from reyn.vocabulary.file_forms import FILE_FORMS
from reyn.workspace import apply_change, locate

if TYPE_CHECKING:
    from collections.abc import Callable

    from reyn.ops.writing import Draft, Settings
    from reyn.permissions import Verdict
    from reyn.workspace import Place

_LOOKS: dict[str, Callable[[Call, Settings, Place, Env], dict[str, Any]]] = {
    "read": read_file,
    "glob": glob_files,
    "grep": grep_files,
}
_DRAFTS: dict[str, Callable[[Settings, Place, Env], Draft | Denied]] = {
    "write": write_draft,
    "edit": edit_draft,
    "delete": delete_draft,
    "regenerate_index": index_draft,
}
_DEFAULTS = {form.op: form.defaults for form in FILE_FORMS}


class FileOp:
    def plan(self, call: Call, env: Env) -> Plan | Denied:
        settings = _settings(call)
        try:
            verdict, place = _judged(call, settings, env)
        except FAULTS as fault:
            return Plan("", result=failed_result(call, fault))
        if isinstance(verdict, Denied):
            return verdict
        if call.op in _LOOKS:
            return Plan(verdict.rule)
        try:
            draft = _DRAFTS[str(call.op)](settings, place, env)
        except FAULTS as fault:
            return Plan(verdict.rule, result=failed_result(call, fault))
        if isinstance(draft, Denied):
            return draft
        return Plan(verdict.rule, draft.changes, result(call, "ok", **draft.said), draft.blobs)

    def perform(self, call: Call, plan: Plan, env: Env) -> dict[str, Any]:
        try:
            if plan.changes:
                return _change(call, plan, env)
            return _look(call, env) if plan.result is None else plan.result
        except FAULTS as fault:
            return failed_result(call, fault)


def _settings(call: Call) -> Settings:
    """The fields of the op with those it leaves out. JSON has no integers: `3.0` is as good a 3 as `3`."""
    given = _DEFAULTS[call.op] | call.args
    return {name: int(value) if isinstance(value, float) else value for name, value in given.items()}


def _judged(call: Call, settings: Settings, env: Env) -> tuple[Verdict, Place]:
    match call.op:
        case "glob":
            text = glob_root(settings)
        case "regenerate_index":
            text = settings["output_path"]
        case _:
            text = settings["path"]
    place = locate(text, env.roots)
    return (env.gate.read if call.op in _LOOKS else env.gate.write)(place), place


def _look(call: Call, env: Env) -> dict[str, Any]:
    settings = _settings(call)
    verdict, place = _judged(call, settings, env)
    if isinstance(verdict, Denied):
        return denied_result(call, verdict)
    return _LOOKS[str(call.op)](call, settings, place, env)


def _change(call: Call, plan: Plan, env: Env) -> dict[str, Any]:
    at_hand = {blob.hash: blob.content for blob in plan.blobs}

    def content(hash: str) -> bytes:
        return at_hand[hash] if hash in at_hand else env.content(hash)

    for change in plan.changes:
        verdict = env.gate.write(locate(change.path, env.roots))
        if isinstance(verdict, Denied):
            return denied_result(call, verdict)
        if apply_change(change, env.roots, content, call.key) == "conflict":
            return error_result(
                call, f"`{change.path}` was changed by somebody else meanwhile; it was left as it is. Read it again."
            )
    return plan.result or result(call, "ok")
