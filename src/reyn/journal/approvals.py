"""Standing approvals."""

from __future__ import annotations

import msgspec

APPROVAL_DIGITS = 32
"""Digits of a digest that an approval names. With 128 bits, a search for two actions with the same name is hopeless."""


class Approval(msgspec.Struct, frozen=True):
    """A standing approval: this version of a skill may use an op where a rule asks, in one project.

    `project` is the identity of the project that it was given in, see `project_identity`. `id` is 0 until it is stored.
    """

    skill: str
    skill_hash: str
    op: str
    rule: str
    by: str
    at: int
    run_id: str
    project: str = ""
    id: int = 0

    def covers(self, skill_hash: str, op: str, rule: str) -> bool:
        """A change of the skill, the op or the rule asks again."""
        return (self.skill_hash, self.op, self.rule) == (skill_hash, op, rule)

    def is_of(self, project: str) -> bool:
        """Return whether it was given in a project: at the same path, or in the same folder if it was moved."""
        (place, _, path), (other_place, _, other_path) = self.project.partition(" "), project.partition(" ")
        return place == other_place or path == other_path
