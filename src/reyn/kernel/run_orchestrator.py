"""The public names of `reyn.kernel.core.run_orchestrator`."""

from reyn.kernel.core.run_orchestrator import Move, Postprocess, Visit, next_move, stop_for

__all__ = ["Move", "Postprocess", "Visit", "next_move", "stop_for"]
