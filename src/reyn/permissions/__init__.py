"""Permissions: one gate that every side effect passes; each verdict names the rule that decided.

The gate decides from zones, requests and grants. It does no I/O; `reyn.workspace` resolves paths before.
"""

from reyn.permissions.gate import Allowed, Denied, Gate, Verdict

__all__ = ["Allowed", "Denied", "Gate", "Verdict"]
