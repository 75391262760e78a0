"""Findings about a skill or an agent before it runs, and the rewrite of older skills.

`lint_skill`, `lint_shared` and `lint_agent` return the loader's findings and those of every rule; `check_skill` returns
those of a skill that was read. `fix_skill` rewrites a skill of the older form; no other function here writes a file.
"""

from reyn.lint.agents import lint_agent
from reyn.lint.check import check_skill, lint_shared, lint_skill
from reyn.lint.fix import fix_skill

__all__ = ["check_skill", "fix_skill", "lint_agent", "lint_shared", "lint_skill"]
