"""May it?

One gate that answers with the rule it went by. Knows zones; touches nothing.
"""

from reyn.permissions.gate import Allowed, Denied, Gate, Verdict

__all__ = ["Allowed", "Denied", "Gate", "Verdict"]
