"""The public names of `reyn.kernel.visit.phase_executor`."""

from reyn.kernel.visit.model_free import visit_skill
from reyn.kernel.visit.phase_executor import postprocess, visit

__all__ = ["postprocess", "visit", "visit_skill"]
