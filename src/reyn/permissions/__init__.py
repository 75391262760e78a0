"""Permissions: rules, requests and the gate that decides about every side effect.

The gate only decides; it touches nothing. Approvals by a person are the kernel's.
"""

from reyn.permissions.gate import Allowed, Denied, Gate, NeedsApproval, Verdict, refusal
from reyn.permissions.paths import PathPattern
from reyn.permissions.rules import (
    Policy,
    RuleError,
    parse_requests,
    parse_rules,
    recorded_requests,
)

__all__ = [
    "Allowed",
    "Denied",
    "Gate",
    "NeedsApproval",
    "PathPattern",
    "Policy",
    "RuleError",
    "Verdict",
    "parse_requests",
    "parse_rules",
    "recorded_requests",
    "refusal",
]
