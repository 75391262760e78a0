"""The public names of `reyn.kernel.visit.phase_executor`."""

from reyn.kernel.visit.model_free import postprocess, visit_skill
from reyn.kernel.visit.phase_executor import visit

__all__ = ["postprocess", "visit", "visit_skill"]
