"""Findings about a skill or an agent before it runs, and the rewrite of older skills.

`lint_skill` and `lint_agent` return the loader's findings and those of every rule. `fix_skill` rewrites a skill of the
older form; no other function here writes a file.
"""

from reyn.lint.agents import lint_agent
from reyn.lint.check import lint_skill
from reyn.lint.fix import fix_skill

__all__ = ["fix_skill", "lint_agent", "lint_skill"]
