"""What would go wrong with this skill?

A folder becomes findings, all at once: what the loader refuses, and what it would let pass but an author should know.
Writes nothing, except to rewrite the older
form where it is asked to.
"""

from reyn.lint.check import lint_skill
from reyn.lint.fix import fix_skill

__all__ = ["fix_skill", "lint_skill"]
