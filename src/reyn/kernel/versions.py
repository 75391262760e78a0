"""The versions of derived events, which `reyn.journal.registry` defines."""

from reyn.journal.registry import RULES, SUPPORTED_RULES, WORDING

__all__ = ["RULES", "SUPPORTED_RULES", "WORDING"]
