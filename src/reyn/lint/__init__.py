"""Findings about a skill before it runs, and the rewrite of older skills.

`lint_skill` returns the loader's findings and those of every rule. `fix_skill` rewrites a skill of the older form; no
other function here writes a file.
"""

from reyn.lint.check import lint_skill
from reyn.lint.fix import fix_skill

__all__ = ["fix_skill", "lint_skill"]
