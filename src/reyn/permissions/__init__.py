"""Permissions: rules, requests and the gate that decides about every side effect.

The gate only decides; it touches nothing. Approvals by a person are the kernel's.
"""

from reyn.permissions.gate import Allowed, Denied, Gate, NeedsApproval, Verdict, refusal
from reyn.permissions.paths import PathPattern
from reyn.permissions.rules import (
    Policy,
    RuleError,
    SkillRequests,
    parse_requests,
    parse_rules,
    python_target,
    recorded_requests,
)
from reyn.permissions.targets import SYSTEM_CALLS, AnyTarget, is_program_path, unnamed_target

__all__ = [
    "SYSTEM_CALLS",
    "Allowed",
    "AnyTarget",
    "Denied",
    "Gate",
    "NeedsApproval",
    "PathPattern",
    "Policy",
    "RuleError",
    "SkillRequests",
    "Verdict",
    "is_program_path",
    "parse_requests",
    "parse_rules",
    "python_target",
    "recorded_requests",
    "refusal",
    "unnamed_target",
]
