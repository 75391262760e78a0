"""Ops: one object per kind with its specification, `plan` and `perform`, registered in one table.

To add a kind, write one module with such an object and register it. `reyn.permissions` decides whether an op may run;
`reyn.kernel` records, recovers and replays it.
"""

from reyn.journal.kinds import AskRequest, RunRequest
from reyn.ops.budget import OpFailed
from reyn.ops.file.op import plan_write
from reyn.ops.op import Call, DerivableChanges, Env, Op, OpSetup, Plan, Result, RunOutcome, Targeted
from reyn.ops.overviews import HasOverview, Overview
from reyn.ops.table import OpTable, standard_ops
from reyn.permissions import Denied
from reyn.vocabulary import OpForm, OpSpec

__all__ = [
    "AskRequest",
    "Call",
    "Denied",
    "DerivableChanges",
    "Env",
    "HasOverview",
    "Op",
    "OpFailed",
    "OpForm",
    "OpSetup",
    "OpSpec",
    "OpTable",
    "Overview",
    "Plan",
    "Result",
    "RunOutcome",
    "RunRequest",
    "Targeted",
    "plan_write",
    "standard_ops",
]
