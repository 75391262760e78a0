"""Plan the change of a file for an op of any kind: checked by the gate, recorded with its before-image, undoable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from reyn.ops.file import FileOp
from reyn.ops.op import Call, Plan
from reyn.permissions import Denied

if TYPE_CHECKING:
    from reyn.ops.op import Env

_FILE = FileOp()


def plan_write(call: Call, env: Env, path: str, text: str, /, **fields: Any) -> Plan | Denied:
    """Plan an op that writes one file and returns `fields` as its result.

    Args:
        call: The call of the op.
        env: What the op may use.
        path: The file, relative to the project or `workspace:<path>`.
        text: Its whole content.
        **fields: The fields of the result.
    """
    plan = _FILE.plan(Call(call.key, {"kind": "file", "op": "write", "path": path, "content": text}), env)
    if isinstance(plan, Denied):
        return plan
    assert plan.result is not None
    if plan.result["status"] != "ok":
        return Plan(plan.rule, result=call.error(str(plan.result.get("error", ""))))
    return replace(plan, result=call.ok(**fields))
