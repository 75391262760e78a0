"""What a visit of a phase needs and no visit changes: contract, stable text, their names. Made once, used by every run
of the same pinned skill under the same settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from reyn.context import stable_frame, stable_text
from reyn.contract import Contract, candidates_of
from reyn.journal import Blob, canonical

if TYPE_CHECKING:
    from reyn.config import RunSettings
    from reyn.context import StableFrame
    from reyn.skills import Skill


class PhaseBrief:
    def __init__(self, skill: Skill, phase: str, settings: RunSettings, max_phase_visits: int | None) -> None:
        candidates = candidates_of(skill, phase)
        self.phase = phase
        self.max_attempts = settings.max_phase_retries + 1
        self.contract = Contract(candidates, strict=settings.strict, sizes=settings.sizes)
        self.frame: StableFrame = stable_frame(
            skill,
            phase,
            candidates,
            max_phase_visits=max_phase_visits,
            output_language=settings.output_language,
        )
        self.stable = Blob.of(stable_text(self.frame).encode())
        self.schema = Blob.of(canonical(self.contract.schema))


class Briefs:
    """The briefs of one skill, each made when its phase is first visited."""

    def __init__(self, skill: Skill, settings: RunSettings) -> None:
        self.skill = skill
        self.settings = settings
        self._made: dict[tuple[str, int | None], PhaseBrief] = {}

    def of(self, phase: str, max_phase_visits: int | None) -> PhaseBrief:
        key = (phase, max_phase_visits)
        if key not in self._made:
            self._made[key] = PhaseBrief(self.skill, phase, self.settings, max_phase_visits)
        return self._made[key]
