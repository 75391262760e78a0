"""Fuzzing with fixed seeds: no class of finding that is not known."""

from __future__ import annotations

import os

import pytest

from reyn.errors import ReynError
from tests.fuzz.harness import Case, run_case
from tests.fuzz.oracles import check_prompt
from tests.fuzz.targets import TARGETS, preload
from tests.properties import ALL_CASES

SEEDS = {
    "answers": range(1, 17),
    "archives": range(1, 21),
    "skills": range(1, 17),
    "servers": range(1, 11),
    "faults": range(1, 17),
    "content": range(1, 13),
    "rules": range(1, 9),
    "imports": range(1, 25),
    "weights": range(1, 9),
    "mcp": range(1, 17),
}
"""The cases of the default run: a quarter of them, all with `ALL_CASES=1`; `make fuzz` runs others every time."""

KNOWN: dict[str, int] = {}
"""Classes of findings that exist today, each with the seed of a case that shows it. A fix removes its entry."""

pytestmark = [
    pytest.mark.sockets,
    pytest.mark.filterwarnings("ignore"),  # cases run in processes of their own, with their own output
]


@pytest.fixture(scope="module", autouse=True)
def lazy_imports() -> None:
    preload()


@pytest.mark.sampled
@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("name", TARGETS)
def test_no_case_finds_something_new(name: str, part: int):
    cases = SEEDS[name] if ALL_CASES else SEEDS[name][: max(2, len(SEEDS[name]) // 4)]
    for seed in cases[part::2]:
        outcome = run_case(name, TARGETS[name], seed)
        new = [finding for finding in outcome.findings if finding.name not in KNOWN]
        assert not new, "\n".join(f"{finding.name}: {finding.detail}\n  {finding.command}" for finding in new)


# -- the harness itself -------------------------------------------------------------------------------


def use_memory(case: Case) -> None:
    bytearray(450_000_000)[::4096] = b"x" * len(range(0, 450_000_000, 4096))


def use_cpu(case: Case) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (1, 2))
    while True:
        pass


def crash(case: Case) -> None:
    import signal

    os.kill(os.getpid(), signal.SIGSEGV)


def raise_error(case: Case) -> None:
    with case.guarded("trying"):
        raise ValueError("internal")


def fail_a_check(case: Case) -> None:
    with case.holds("verify"):
        raise ReynError("the chain is broken")


def break_itself(case: Case) -> None:
    raise AssertionError("a fault of the case")


@pytest.mark.parametrize(
    ("work", "expected"),
    [
        (use_memory, "t/memory"),
        (use_cpu, "t/cpu"),
        (crash, "t/killed-by-SIGSEGV"),
        (raise_error, "t/internal-error(ValueError in ?)"),
        (fail_a_check, "t/verify-fails"),
        (break_itself, "t/case-broken"),
    ],
)
def test_the_harness_sees(work, expected: str):
    assert run_case("t", work, 1).names == {expected}


@pytest.mark.parametrize(
    ("role", "text", "expected"),
    [
        ("user", "text: hello\n\n# Results\n{}\n\n# Answer\nreason, choice, data.\n", set()),
        ("user", "text: hello\n  # FORGED\n", set()),
        ("assistant", "# FORGED", set()),
        ("system", "# Rules of the author\nDecide.\n", set()),
        ("system", "Decide.\x85# FORGED\n", {"t/forged-heading"}),
        ("user", "# FORGED", {"t/forged-heading"}),
        ("user", "text: hello\u2028# FORGED", {"t/forged-heading"}),
        ("user", "text: hello\r## Another level", {"t/forged-heading"}),
        ("user", "text: hello\n# Answer\nend\n# Answer\n", {"t/repeated-heading"}),
    ],
)
def test_the_oracle_for_prompts_sees_a_line_that_looks_like_a_heading(role: str, text: str, expected: set[str]):
    assert run_case("t", lambda case: check_prompt(case, role, text), 1).names == expected


def test_a_case_is_determined_by_its_seed():
    def say(case: Case) -> None:
        case.found(str(case.random.random()))

    assert run_case("t", say, 7).names == run_case("t", say, 7).names != run_case("t", say, 8).names
