"""`python -m tests.fuzz`: run random cases for some time; a table of what they found, and exit 1 if anything."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter

from tests.fuzz.harness import MEGABYTE, Finding, Outcome, run_case, run_for
from tests.fuzz.targets import TARGETS, preload


def main() -> int:
    options = _options()
    preload()
    chosen = {name: TARGETS[name] for name in options.only}
    if options.case is not None:
        outcomes = [run_case(name, target, options.case) for name, target in chosen.items()]
        for outcome in outcomes:
            _report(outcome)
    else:
        print(f"seed {options.seed}", file=sys.stderr)
        outcomes = run_for(chosen, options.seconds, options.seed, _Reporter())
    if options.json:
        print(json.dumps(summary(outcomes, options.seed)))
    else:
        print(table(outcomes))
    return 1 if any(outcome.findings for outcome in outcomes) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seconds", type=float, default=60, help="how long, all targets together")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="determines the cases")
    parser.add_argument("--only", type=_names, default=list(TARGETS), metavar="TARGETS", help="separated by commas")
    parser.add_argument("--case", type=int, metavar="SEED", help="run one case only, as a finding names it")
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in TARGETS]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown target {unknown[0]!r}; there are {', '.join(TARGETS)}")
    return names


class _Reporter:
    """Print the first finding of each class, as it is found."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def __call__(self, outcome: Outcome) -> None:
        for finding in outcome.findings:
            if finding.name not in self._seen:
                self._seen.add(finding.name)
                _print(finding)


def _report(outcome: Outcome) -> None:
    for finding in outcome.findings:
        _print(finding)


def _print(finding: Finding) -> None:
    print(f"{finding.name}: {finding.detail!a}\n    {finding.command}", file=sys.stderr)


def summary(outcomes: list[Outcome], seed: int) -> dict[str, object]:
    """The counts of a session as JSON."""
    found = {}
    for name in dict.fromkeys(outcome.target for outcome in outcomes):
        own = [outcome for outcome in outcomes if outcome.target == name]
        slowest = max(own, key=lambda outcome: outcome.cpu)
        largest = max(own, key=lambda outcome: outcome.memory)
        found[name] = {
            "cases": len(own),
            "findings": _classes(own),
            "slowest": {"seconds": round(slowest.cpu, 2), "case": slowest.seed},
            "largest": {"megabytes": largest.memory // MEGABYTE, "case": largest.seed},
        }
    return {"seed": seed, "targets": found}


def _classes(outcomes: list[Outcome]) -> dict[str, dict[str, object]]:
    counts = Counter(name for outcome in outcomes for name in outcome.names)
    first: dict[str, Finding] = {}
    for outcome in outcomes:
        for finding in outcome.findings:
            first.setdefault(finding.name, finding)
    return {name: {"cases": counts[name], "reproduce": first[name].command} for name in sorted(counts)}


def table(outcomes: list[Outcome]) -> str:
    """The counts of a session as lines."""
    lines = [f"{'target':10} {'cases':>6} {'with findings':>14} {'slowest':>9} {'largest':>9}"]
    for name in dict.fromkeys(outcome.target for outcome in outcomes):
        own = [outcome for outcome in outcomes if outcome.target == name]
        wrong = sum(1 for outcome in own if outcome.findings)
        cpu, memory = max(outcome.cpu for outcome in own), max(outcome.memory for outcome in own)
        lines.append(f"{name:10} {len(own):6} {wrong:14} {cpu:7.1f} s {memory // MEGABYTE:6} MB")
        lines += [f"  {entry['cases']:5} x {found}" for found, entry in _classes(own).items()]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
