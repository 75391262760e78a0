"""Ops: one object per kind, with its specification, `plan` and `perform`, in one table.

Adding a kind is one module with such an object and one registration. Whether an op may run is decided by
`reyn.permissions`; recording, recovery and replay are the kernel's.
"""

from reyn.journal.kinds import AskRequest, RunRequest
from reyn.ops.op import Call, Env, Op, OpFailed, Plan, Result, RunOutcome
from reyn.ops.table import OpTable, standard_ops
from reyn.ops.writing import plan_write
from reyn.permissions import Denied
from reyn.vocabulary import OpForm, OpSpec

__all__ = [
    "AskRequest",
    "Call",
    "Denied",
    "Env",
    "Op",
    "OpFailed",
    "OpForm",
    "OpSpec",
    "OpTable",
    "Plan",
    "Result",
    "RunOutcome",
    "RunRequest",
    "plan_write",
    "standard_ops",
]
