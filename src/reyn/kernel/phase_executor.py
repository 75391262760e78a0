"""The public names of `reyn.kernel.visit.phase_executor`."""

from reyn.kernel.visit.phase_executor import postprocess, visit, visit_skill

__all__ = ["postprocess", "visit", "visit_skill"]
