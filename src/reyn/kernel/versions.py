"""The versions of derived events: `RULES` for decisions, `WORDING` for texts.

Raise `RULES` if the same recorded inputs derive other events. A run under unsupported rules is `blocked`: it stays
readable and can be forked. Raise `WORDING` if only a derived text changes (prompt, correction, reason, op description):
recorded turns keep their texts, and the run continues with the new ones.
"""

from __future__ import annotations

RULES = 5
SUPPORTED_RULES = frozenset({5})
WORDING = 3

RULES_HISTORY = {
    1: "the first release",
    2: "ops, questions, sub-runs, steps and rollback",
    3: "stable prompt text first; empty sections are left out",
    4: "examples follow their schemas; reasoning before an answer is ignored",
    5: "one event shape for all op kinds; sub-runs have events of their own; op specifications are recorded; "
    "copies of skills keep the author's order; derived texts have their own version",
}
"""What each version of the rules changed."""

WORDING_HISTORY = {
    1: "sections with JSON Schemas, one example answer",
    2: "plain words, the reason first, choices repeated after the input",
    3: "the fields of artifacts in the author's order, topics from the prompt of the answer",
}
"""What each version of the wording changed."""
