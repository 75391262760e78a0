"""The public names of `reyn.kernel.core.run_state`."""

from reyn.kernel.core.run_state import EMPTY, apply

__all__ = ["EMPTY", "apply"]
