"""What may the OS do?

One module for each kind of op; a kind is planned, which only looks, and performed, which may be done again after a
crash. `ask_user` and `run_skill` are not here: the kernel itself performs them.
"""

from collections.abc import Mapping

from reyn.ops.file import FileOp
from reyn.ops.port import Call, Env, Op, Plan
from reyn.ops.results import denied_result, error_result

OPS: Mapping[str, Op] = {"file": FileOp()}

__all__ = ["OPS", "Call", "Env", "Op", "Plan", "denied_result", "error_result"]
