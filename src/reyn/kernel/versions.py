"""The versions of derived events, which `reyn.journal.versions` defines."""

from reyn.journal.versions import RULES, SUPPORTED_RULES, WORDING

__all__ = ["RULES", "SUPPORTED_RULES", "WORDING"]
