"""The result of trying a skill with its cases, as ops return it and as a person sees it before an approval."""

from __future__ import annotations

import msgspec


class CaseReport(msgspec.Struct, frozen=True):
    """The result of one case; `problems` say how it differs from what the case expects."""

    name: str
    problems: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.problems


class TrialReport(msgspec.Struct, frozen=True):
    """The results of all cases of a skill."""

    cases: tuple[CaseReport, ...] = ()

    @property
    def failures(self) -> list[str]:
        """What is wrong, one line for each problem."""
        return [f"case `{case.name}`: {problem}" for case in self.cases for problem in case.problems]

    @property
    def passed(self) -> bool:
        return all(case.passed for case in self.cases)

    @property
    def summary(self) -> str:
        """Return the result in one line."""
        if not self.cases:
            return "no cases"
        count = sum(case.passed for case in self.cases)
        noun = "case" if len(self.cases) == 1 else "cases"
        return f"{count} of {len(self.cases)} {noun} passed"
