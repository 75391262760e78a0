"""The versions of derived events: `RULES` for decisions, `WORDING` for texts.

After the first release, raise `RULES` if the same recorded inputs derive other events. A run under unsupported rules is
`blocked`: it stays readable and can be forked. Raise `WORDING` if only a derived text changes (prompt, correction,
reason, op description): recorded turns keep their texts, and the run continues with the new ones.
"""

from __future__ import annotations

RULES = 1
SUPPORTED_RULES = frozenset({1})
WORDING = 1
