"""Budgets: every call reserves what it can use before it is made, and is settled afterwards."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import reyn
from reyn.errors import LimitUnknown, ModelTimeout, RateLimited, RunNotResumable
from reyn.journal import Balance, MemoryJournal, kinds
from reyn.journal.kinds import Usage
from reyn.journal.sqlite import SqliteJournal
from reyn.kernel.core.limits import refusal_reason
from reyn.kernel.world import budgets as budgets_module
from reyn.kernel.world import llm_call_recorder
from reyn.models import ModelAnswer, ModelRequest, PriceSettings
from reyn.models.prices import Prices, prompt_bound
from reyn.testing import ScriptedModel, SteppingClock
from tests.kernel.support import Project
from tests.support import act, finish, go, write_skill

TODAY = "2025-06-15"
"""The day of `SteppingClock`."""
RUN = {"kind": "run_skill", "skill": "inner", "input": {"text": "for inner"}}


USAGE = Usage(100, 20)


class Unpriced(ScriptedModel):
    """A model that reports usage, and fails as told.

    Args:
        answers: The answers.
        usage: The usage of each answer.
        failures: Errors of the first attempts.
    """

    takes_time = True

    def __init__(self, answers: list, usage: Any = USAGE, failures: tuple = ()) -> None:
        super().__init__(answers)
        self._usage = usage
        self._failures = list(failures)
        self.requests: list[ModelRequest] = []

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        self.requests.append(request)
        if self._failures and (failure := self._failures.pop(0)) is not None:
            raise failure
        return ModelAnswer((await super().complete(request)).text, self._usage)


class Provider(Unpriced):
    """The same with a price."""

    price = PriceSettings(2.0, 8.0, 0.5)


class Jumping(SteppingClock):
    """A clock that jumps."""

    jump = 0

    def now(self) -> int:
        return super().now() + self.jump


@pytest.fixture
def project(tmp_path: Path) -> Project:
    write_skill(tmp_path, "s", {"a": ["b"], "b": ["end"]})
    return Project(tmp_path)


def reservation(project: Project, number: int = 0, run_id: str = "k") -> kinds.BudgetReserved:
    [body] = project.events("budget_reserved", run_id=run_id)[number : number + 1]
    import msgspec

    return msgspec.convert(body, kinds.BudgetReserved)


def bound_of(project: Project) -> int:
    """Return how many tokens the first call of the skill reserves."""
    probe = Project(project.root)
    probe.run("s", [], model=Provider([go("b"), finish()]), run_id="probe")
    return reservation(probe, run_id="probe").tokens


# -- reserve and settle ---------------------------------------------------------------------------------------


def test_a_call_is_reserved_with_its_intent_and_settled_with_its_answer(project: Project):
    batches: list[list[str]] = []

    class Counting(MemoryJournal):
        def append(self, run_id, expected_seq, events, blobs=(), wakes=()):
            batches.append([event.kind for event in events])
            return super().append(run_id, expected_seq, events, blobs, wakes)

    project.journal = Counting()
    result = project.run("s", [], model=Provider([go("b"), finish()]))
    assert result.ok
    assert [batch[-1] for batch in batches] == ["budget_reserved", "budget_reserved", "skill_completed"]
    assert batches[0][-2] == "llm_requested"
    assert batches[1][:2] == ["budget_settled", "llm_responded"]
    reserved = reservation(project)
    assert reserved.output_tokens == 1024
    assert reserved.input_tokens > 100
    assert reserved.cost == reserved.input_tokens * 2000 + 1024 * 8000
    [settled, _] = project.events("budget_settled")
    assert settled == {
        "call": "1.1", "attempt": 1, "basis": "usage", "cost": 100 * 2000 + 20 * 8000,
        "usage": {"input_tokens": 100, "output_tokens": 20, "cached_tokens": 0, "cache_write_tokens": 0},
    }  # fmt: skip
    assert result.cost is not None
    assert (str(result.cost.amount), result.cost.currency, result.cost.calls) == ("0.00072", "USD", 2)
    assert project.journal.balance(f"day:{TODAY}") == Balance(240, 720_000)
    assert project.is_sound()


def test_a_model_that_takes_no_time_is_counted_only_under_a_budget(project: Project):
    answers = [go("b"), finish()]
    assert project.run("s", [], model=ScriptedModel(answers)).ok
    assert "budget_reserved" not in project.kinds()
    limited = project.run("s", [], model=ScriptedModel(answers), run_id="l", budgets={"run": {"tokens": 10}})
    assert limited.status == "limited"


def test_a_call_that_could_exceed_the_budget_is_not_made(project: Project):
    bound = bound_of(project)
    model = Provider([go("b"), finish()])
    result = project.run("s", [], model=model, budgets={"run": {"tokens": bound - 1}})
    assert (result.status, model.requests) == ("limited", [])
    left = f"only {bound - 1:,} of {bound - 1:,} tokens (`run_tokens`) are left"
    assert f"the next call of `scripted` needs up to {bound:,} tokens, but {left}" in result.reason
    assert project.kinds()[-3:] == ["llm_requested", "budget_refused", "limit_reached"]
    assert project.journal.balance("run:k") == Balance()
    assert project.is_sound()


@pytest.mark.parametrize(
    ("limit", "currency", "reserved", "expected"),
    [
        ("run_tokens", "", 0, "up to 7,000 tokens, but only 4,000 of 9,000 tokens (`run_tokens`) are left"),
        (
            "day_tokens",
            "",
            3_000,
            "only 1,000 of 9,000 tokens (`day_tokens`) are left; calls in progress reserve 3,000 tokens",
        ),
        ("day_tokens", "", 6_000, "only 0 of 9,000 tokens"),
        ("run_cost", "USD", 0, "up to 0.000007 USD, but only 0.000004 of 0.000009 USD (`run_cost`) is left"),
    ],
)
def test_a_refusal_states_what_the_call_needs_and_what_is_left(limit: str, currency: str, reserved: int, expected: str):
    refused = kinds.BudgetRefused("1.1", 1, "m", limit, "run:k", 9_000, 5_000, reserved, 7_000, currency)
    assert expected in refusal_reason(refused, "a")


def test_a_limited_run_continues_with_a_raised_budget(project: Project):
    bound, model = bound_of(project), Provider([go("b"), finish()])
    result = project.run("s", [], model=model, budgets={"run": {"tokens": bound + 119}})
    assert (result.status, len(model.requests)) == ("limited", 1)
    with project.open([], model=model) as rt:
        action = rt.runs.next_action(rt.runs.find("k"))
        assert action.limit == "run_tokens"
        assert action.value >= 2 * bound
        with pytest.raises(RunNotResumable):
            rt.resume("k")
        with pytest.raises(LimitUnknown):
            rt.resume("k", raise_limits={"run_tokens": bound})
        assert rt.resume("k", raise_limits={"run_tokens": action.value}).ok
    assert project.journal.balance("run:k") == Balance(240, 720_000)
    assert project.is_sound()


def test_a_budget_in_money_needs_a_price_that_is_declared(project: Project):
    budgets = {"run": {"cost": 1}}
    unknown = project.run("s", [], model=Unpriced([go("b"), finish()]), budgets=budgets)
    assert (unknown.status, unknown.code) == ("failed", "RYN520")
    assert "price of model `scripted` is unknown" in unknown.reason
    with project.open([], model=Provider([go("b"), finish()])) as rt:
        assert rt.resume("k", retry=True).ok
    assert project.is_sound()

    class Free(Provider):
        price = PriceSettings(0.0, 0.0)

    free = project.run("s", [], model=Free([go("b"), finish()]), run_id="free", budgets={"run": {"cost": 0}})
    assert free.ok
    assert free.cost is not None
    assert free.cost.amount == 0


def test_without_a_budget_in_money_an_unknown_price_is_not_zero(project: Project):
    result = project.run("s", [], model=Unpriced([go("b"), finish()]), budgets={"day": {"tokens": 100_000}})
    assert result.ok
    assert result.cost is not None
    assert (result.cost.currency, result.cost.unpriced) == ("", 2)
    assert [row.currency for row in project.journal.charges()] == [""]


def test_a_budget_in_money_refuses_the_last_cent(project: Project):
    model = Provider([go("b"), finish()])
    cost = (reserved := _first_reservation(project)).cost
    assert reserved.price is not None
    result = project.run("s", [], model=model, budgets={"run": {"cost": (cost - 1) / 1e9}})
    assert result.status == "limited"
    assert "USD (`run_cost`) is left" in result.reason
    with project.open([], model=model) as rt:
        assert rt.resume("k", raise_limits={"run_cost": 10**9}).ok
    assert project.is_sound()


def _first_reservation(project: Project) -> kinds.BudgetReserved:
    probe = Project(project.root)
    probe.run("s", [], model=Provider([go("b"), finish()]), run_id="probe")
    return reservation(probe, run_id="probe")


# -- usage that cannot be trusted -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "usage",
    [
        None,
        Usage(0, 0),
        Usage(100, 0),
        Usage(0, 20),
        Usage(10**12, 0),
        {"input_tokens": -5, "output_tokens": 1},
        "many",
    ],
    ids=["missing", "zero", "no output", "no input", "absurd", "negative", "nonsense"],
)
def test_missing_or_invalid_usage_is_charged_in_full_and_reported(project: Project, usage: Any):
    result = project.run("s", [], model=Provider([go("b"), finish()], usage), budgets={"run": {"tokens": 100_000}})
    assert result.ok
    reserved = sum(reservation(project, number).tokens for number in (0, 1))
    assert project.journal.balance("run:k").tokens == reserved
    assert [settled["basis"] for settled in project.events("budget_settled")] == ["no_usage", "no_usage"]
    assert "reported no valid usage; it was charged the" in " ".join(result.warnings)
    assert result.cost is not None
    assert result.cost.assumed == 2
    assert project.is_sound()


def test_a_model_that_exceeds_its_allowance_stops_the_run(project: Project):
    model = Provider([go("b"), finish()], Usage(100, 5000))
    result = project.run("s", [], model=model, budgets={"run": {"tokens": 100_000}})
    assert result.status == "limited"
    assert "call 1.1 used 3,976 tokens more than the model was allowed" in result.reason
    assert project.journal.balance("run:k").tokens == 5100, "it is charged what it used"
    assert project.kinds()[-3:] == ["budget_settled", "llm_responded", "limit_reached"]
    with project.open([], model=model) as rt:
        assert rt.runs.next_action(rt.runs.find("k")).limit == "overrun"
        assert rt.resume("k", raise_limits={"overrun": 4000}).ok
    assert len(model.requests) == 2, "the answer was not paid twice"
    assert reservation(project, 1).output_tokens == 1024 + 4000
    assert project.is_sound()


def test_without_a_cap_an_overrun_is_only_recorded(project: Project):
    result = project.run("s", [], model=Provider([go("b"), finish()], Usage(100, 5000)))
    assert (result.ok, result.warnings) == (True, ())
    assert [settled["over"] for settled in project.events("budget_settled")] == [3976, 3976]


# -- attempts -------------------------------------------------------------------------------------------------


class Patient(Provider):
    """A provider whose calls are retried."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        from reyn.config import ModelSettings

        self.settings = ModelSettings("scripted", retries=2)


@pytest.fixture
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    async def sleep(_: float) -> None:
        pass

    monkeypatch.setattr(llm_call_recorder, "_sleep", sleep)


@pytest.mark.usefixtures("no_delay")
def test_each_attempt_has_a_reservation_and_a_lost_answer_is_charged_in_full(project: Project):
    model = Patient([go("b"), finish()], failures=(RateLimited("429"), ModelTimeout("slow"), None))
    result = project.run("s", [], model=model, budgets={"run": {"tokens": 100_000}})
    assert result.ok
    settled = [(one["call"], one["attempt"], one["basis"]) for one in project.events("budget_settled")]
    assert settled == [("1.1", 1, "not_billed"), ("1.1", 2, "unknown"), ("1.1", 3, "usage"), ("2.1", 1, "usage")]
    assert project.journal.balance("run:k").tokens == reservation(project).tokens + 240
    assert "may have been charged for an answer that was lost" in " ".join(result.warnings)
    assert project.is_sound()


@pytest.mark.usefixtures("no_delay")
def test_a_retry_that_the_budget_does_not_cover_is_refused(project: Project):
    model = Patient([go("b"), finish()], failures=(ModelTimeout("slow"),))
    result = project.run("s", [], model=model, budgets={"run": {"tokens": bound_of(project) + 100}})
    assert (result.status, len(model.requests)) == ("limited", 1)
    [refused] = project.events("budget_refused")
    assert refused["attempt"] == 2
    assert project.is_sound()


def test_a_call_whose_process_died_is_charged_when_the_run_is_resumed(project: Project):
    class Dying(Provider):
        async def complete(self, request: ModelRequest) -> ModelAnswer:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        project.run("s", [], model=Dying([]), budgets={"run": {"tokens": 100_000}})
    bound = reservation(project).tokens
    assert project.journal.balance("run:k") == Balance(0, 0, bound, reservation(project).cost or 0)
    with project.open([], model=Provider([go("b"), finish()])) as rt:
        result = rt.resume("k")
    assert result.ok
    assert project.journal.balance("run:k").tokens == bound + 240
    assert project.journal.balance("run:k").reserved_tokens == 0
    assert [one["basis"] for one in project.events("budget_settled")] == ["unknown", "usage", "usage"]
    assert [one["attempt"] for one in project.events("budget_reserved")] == [1, 2, 1]
    assert project.is_sound()


def test_tools_that_a_model_gets_in_words_are_reserved(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["end"]}, ops={"a": "file, ask_user"})
    project = Project(tmp_path)

    class Native(Provider):
        answer_form = "tools"

        async def complete(self, request: ModelRequest) -> ModelAnswer:
            assert request.tools
            raise KeyboardInterrupt

    class Plain(Provider):
        """Reports the most tokens that its prompt can have."""

        def usage_bound(self, request: ModelRequest) -> Usage:
            return Usage(prompt_bound(request.messages), request.max_tokens)

        async def complete(self, request: ModelRequest) -> ModelAnswer:
            self.requests.append(request)
            return ModelAnswer(json.dumps(finish()), Usage(prompt_bound(request.messages), 20))

    with pytest.raises(KeyboardInterrupt):
        project.run("s", [], model=Native([]), budgets={"run": {"tokens": 10**6}})
    model = Plain([])
    with project.open([], model=model) as rt:
        result = rt.resume("k")
    assert "To call tools first" in model.requests[0].messages[0].text
    assert project.events("budget_settled")[1]["basis"] == "usage"
    assert "over" not in project.events("budget_settled")[1], result.reason


def test_cancelling_a_run_whose_process_died_releases_its_reservation(project: Project):
    class Dying(Provider):
        async def complete(self, request: ModelRequest) -> ModelAnswer:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        project.run("s", [], model=Dying([]))
    bound = reservation(project)
    with project.open([]) as rt:
        rt.cancel("k")
    assert project.journal.balance(f"day:{TODAY}") == Balance(bound.tokens, bound.cost or 0)
    assert project.is_sound()


@pytest.mark.parametrize(
    "price",
    [
        PriceSettings(float("nan"), 1.0),
        PriceSettings(1.0, float("inf")),
        PriceSettings(-1.0, -1.0),
        PriceSettings(1.0, 1.0, cached_input=-5.0),
        PriceSettings(1e300, 1.0),
        PriceSettings(9e6, 9e6),
        PriceSettings("1", 1.0),
        "free",
        None,
    ],
    ids=str,
)
def test_an_invalid_price_of_a_class_is_no_reason_to_spend(project: Project, price: Any):
    class Declared(Unpriced):
        pass

    Declared.price = price
    if price == PriceSettings(9e6, 9e6):

        def usage_bound(_: Any, request: ModelRequest) -> Usage:
            return Usage(10**11, 10**11)

        Declared.usage_bound = usage_bound
    model = Declared([go("b"), finish()])
    result = project.run("s", [], model=model, budgets={"run": {"cost": 1000}})
    assert (result.status, result.code, len(model.requests)) == ("failed", "RYN525", 0)
    assert project.is_sound()


@pytest.mark.parametrize("bound", [Usage(-(10**5), -5), None, "many", Usage(0, 0), Usage(10**30, 1), Usage(1.5, 2)])
def test_an_invalid_bound_of_a_class_is_no_reason_to_spend(project: Project, bound: Any):
    class Bounding(Provider):
        def usage_bound(self, request: ModelRequest) -> Usage:
            return bound

    model = Bounding([go("b"), finish()])
    result = project.run("s", [], model=model, budgets={"run": {"tokens": 10**6}})
    assert (result.status, result.code, len(model.requests)) == ("failed", "RYN525", 0)
    assert project.is_sound()


def test_a_price_of_zero_is_within_a_budget_of_zero(project: Project):
    class Free(Unpriced):
        price = PriceSettings(0.0, 0.0)

    assert project.run("s", [], model=Free([go("b"), finish()]), budgets={"run": {"cost": 0}}).ok
    charged = project.run("s", [], model=Provider([go("b"), finish()]), run_id="k2", budgets={"run": {"cost": 0}})
    assert charged.status == "limited"


def test_a_clock_that_jumps_back_over_midnight_opens_no_second_budget(project: Project):
    clock = project.clock = Jumping()
    bound = bound_of(project)
    budgets = {"day": {"tokens": bound + 119}}

    class Back(Provider):
        async def complete(self, request: ModelRequest) -> ModelAnswer:
            clock.jump = -86_400_000_000
            return await super().complete(request)

    model = Back([go("b"), finish()])
    result = project.run("s", [], model=model, budgets=budgets)
    assert (result.status, len(model.requests)) == ("limited", 1), "the next call counts toward the same day"
    assert {row.day for row in project.journal.charges()} == {TODAY}
    assert project.is_sound()


class Dying(Provider):
    """Ends the process during the call."""

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        raise KeyboardInterrupt


def test_a_call_does_not_wait_for_a_run_that_no_process_executes(project: Project, monkeypatch: pytest.MonkeyPatch):
    async def no_wait(_: float) -> None:
        raise AssertionError("it waits for a run that releases nothing")

    monkeypatch.setattr(budgets_module, "_sleep", no_wait)
    bound = bound_of(project)
    budgets = {"day": {"tokens": 2 * bound - 1}}
    with pytest.raises(KeyboardInterrupt):
        project.run("s", [], model=Dying([]), run_id="dead", budgets=budgets)
    model = Provider([go("b"), finish()])
    result = project.run("s", [], model=model, run_id="second", budgets=budgets)
    assert (result.status, len(model.requests)) == ("limited", 0)
    assert "run `dead` was interrupted during a call, which is charged in full" in result.reason
    assert "(resuming or cancelling the run settles the call)" in result.reason
    [refused] = project.events("budget_refused", run_id="second")
    assert refused["holders"] == [{"run": "dead", "amount": bound, "interrupted": True}]
    with project.open([]) as rt:
        [reserved] = rt.runs.usage().reserved
        assert (reserved.run_id, reserved.reserved.tokens, reserved.is_executing) == ("dead", bound, False)
        rt.cancel("dead")
        assert rt.runs.usage().reserved == ()
    assert project.journal.balance(f"day:{TODAY}") == Balance(bound, reservation(project, run_id="dead").cost or 0)
    with project.open([], model=model) as rt:
        assert rt.resume("second", raise_limits={"day_tokens": 10 * bound}).ok
        assert rt.runs.replay("second").status == "finished"


# -- nested runs ----------------------------------------------------------------------------------------------


def test_sub_runs_draw_on_the_budget_of_the_root_run(tmp_path: Path):
    write_skill(tmp_path, "inner", {"x": ["x", "end"]})
    write_skill(tmp_path, "outer", {"a": ["b"], "b": ["end"]}, ops={"a": "run_skill"})
    project = Project(tmp_path)
    model = Provider([act(RUN), go("x"), finish(), go("b"), finish()])
    result = project.run("outer", [], model=model, budgets={"run": {"tokens": 12_000}})
    assert result.ok
    assert project.journal.balance("run:k").tokens == 5 * 120
    assert project.journal.balance("run:k.1.1.1") == Balance()
    assert result.cost is not None
    assert (result.cost.calls, result.cost.tokens) == (5, 600)
    assert project.journal.balance(f"day:{TODAY}:outer").tokens == 600, "with its sub-runs"
    assert project.journal.balance(f"day:{TODAY}:inner").tokens == 240
    spent = {row.skill: row.input_tokens + row.output_tokens for row in project.journal.charges()}
    assert spent == {"outer": 360, "inner": 240}, "each call counts once"
    assert project.is_sound()


def test_a_sub_run_that_the_root_budget_does_not_cover_stops_both_and_both_continue(tmp_path: Path):
    write_skill(tmp_path, "inner", {"x": ["x", "end"]})
    write_skill(tmp_path, "outer", {"a": ["b"], "b": ["end"]}, ops={"a": "run_skill"})
    project = Project(tmp_path)
    model = Provider([act(RUN), go("x"), finish(), go("b"), finish()], Usage(2000, 100))
    result = project.run("outer", [], model=model, budgets={"run": {"tokens": 7000}})
    assert result.status == "limited"
    assert "sub-run `k.1.1.1`" in result.reason
    with project.open([], model=model) as rt:
        action = rt.runs.next_action(rt.runs.find("k"))
        assert action.limit == "run_tokens"
        assert rt.resume("k", raise_limits={"run_tokens": 50_000}).ok
    assert project.journal.balance("run:k") == Balance(5 * 2100, 5 * 4_800_000)
    assert project.is_sound()
    assert project.is_sound("k.1.1.1")


def test_a_sub_run_that_is_resumed_alone_still_draws_on_the_root_budget(tmp_path: Path):
    write_skill(tmp_path, "inner", {"x": ["x", "end"]})
    write_skill(tmp_path, "outer", {"a": ["b"], "b": ["end"]}, ops={"a": "run_skill"})
    project = Project(tmp_path)
    model = Provider([act(RUN), go("x"), finish(), go("b"), finish()], Usage(2000, 100))
    assert project.run("outer", [], model=model, budgets={"run": {"tokens": 7000}}).status == "limited"
    with project.open([], model=model) as rt:
        assert rt.resume("k.1.1.1", raise_limits={"run_tokens": 50_000}).ok
        assert project.journal.balance("run:k").tokens > 4000
        assert rt.resume("k", raise_limits={"run_tokens": 50_000}).ok
    assert project.is_sound()


def test_the_budget_of_a_skill_limits_each_of_its_runs(tmp_path: Path):
    write_skill(tmp_path, "inner", {"x": ["x", "end"]})
    write_skill(tmp_path, "outer", {"a": ["b"], "b": ["end"]}, ops={"a": "run_skill"})
    project = Project(tmp_path)
    model = Provider([act(RUN), go("x"), finish(), go("b"), finish()])
    budgets = {"skill": {"inner": {"run": {"tokens": 10}}}}
    result = project.run("outer", [], model=model, budgets=budgets)
    assert (result.status, len(model.requests)) == ("limited", 1)
    assert "only 10 of 10 tokens (`skill_tokens`) are left" in result.reason
    with project.open([], model=model) as rt:
        assert rt.resume("k", raise_limits={"skill_tokens": 50_000}).ok
    assert project.journal.balance("skill:k.1.1.1").tokens == 240
    assert project.is_sound()


def test_a_fork_has_a_budget_of_its_own(project: Project):
    budgets = {"run": {"tokens": bound_of(project) + 119}}
    assert project.run("s", [], model=Provider([go("b"), finish()]), budgets=budgets).status == "limited"
    with project.open([], model=Provider([go("b"), finish()])) as rt:
        forked = rt.fork("k", run_id="f")
    assert forked.ok
    assert project.journal.balance("run:f").tokens == 120
    assert forked.cost is not None
    assert forked.cost.calls == 1
    assert project.is_sound("f")


# -- days -----------------------------------------------------------------------------------------------------


def test_the_budget_of_a_day_holds_for_all_runs_of_a_project_in_all_processes(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["b"], "b": ["end"]})
    cap = bound_of(Project(tmp_path)) + 1300
    budgets = {"day": {"tokens": cap}}
    results = []
    for number in range(3):
        project = Project(tmp_path, SqliteJournal(tmp_path / ".reyn"))  # like another process; the runtime closes it
        model = Provider([go("b"), finish()], Usage(500, 100))
        results.append(project.run("s", [], model=model, run_id=f"r{number}", budgets=budgets).status)
    assert results == ["finished", "limited", "limited"]
    project = Project(tmp_path, SqliteJournal(tmp_path / ".reyn"))
    assert project.journal.balance(f"day:{TODAY}").tokens == 1800 <= cap
    with project.open([], model=Provider([go("b"), finish()])) as rt:
        assert rt.resume("r1", raise_limits={"day_tokens": 50_000}).ok
        assert rt.runs.replay("r1").status == "finished"


def test_a_call_over_midnight_is_charged_to_the_day_when_it_was_made(project: Project):
    clock = project.clock = Jumping()
    day = 86_400_000_000

    class Slow(Provider):
        async def complete(self, request: ModelRequest) -> ModelAnswer:
            clock.jump = day if request.call == "1.1" else -day
            return await super().complete(request)

    assert project.run("s", [], model=Slow([go("b"), finish()])).ok
    assert [one["day"] for one in project.events("budget_reserved")] == [TODAY, "2025-06-16"]
    assert {row.day: row.calls for row in project.journal.charges()} == {TODAY: 1, "2025-06-16": 1}
    assert project.journal.balance(f"day:{TODAY}").reserved_tokens == 0
    assert project.is_sound()


def test_the_day_after_a_run_continues_without_raising_the_budget(project: Project):
    clock = project.clock = Jumping()
    budgets = {"day": {"tokens": bound_of(project) + 119}}
    model = Provider([go("b"), finish()])
    assert project.run("s", [], model=model, budgets=budgets).status == "limited"
    with project.open([], model=model, budgets=budgets) as rt:
        assert rt.resume("k").status == "limited", "it is the same day"
        clock.jump = 86_400_000_000
        assert rt.resume("k").ok
    assert project.is_sound()


def test_days_begin_at_midnight_in_the_configured_time_zone(project: Project):
    budgets = {"timezone": "Pacific/Kiritimati"}
    assert project.run("s", [], model=Provider([go("b"), finish()]), budgets=budgets).ok
    assert reservation(project).day == "2025-06-16", "fourteen hours ahead of UTC"


def test_currencies_have_accounts_of_their_own(project: Project):
    assert project.run("s", [], model=Provider([go("b"), finish()]), budgets={"currency": "EUR"}).ok
    assert project.journal.balance(f"day:{TODAY}:EUR").tokens == 240
    assert [row.currency for row in project.journal.charges()] == ["EUR"]


@pytest.mark.parametrize("scope", ["run", "day"])
def test_a_budget_in_one_currency_allows_nothing_in_another(project: Project, scope: str):
    model = Provider([go("b"), finish()])
    yen, dollars = ({"currency": currency, scope: {"cost": 0.000001}} for currency in ("JPY", "USD"))
    assert project.run("s", [], model=model, budgets=yen).status == "limited"
    with project.open([], model=model, budgets=dollars) as rt:
        result = rt.resume("k", raise_limits={f"{scope}_cost": 10**9})
    assert (result.status, model.requests) == ("failed", [])
    assert "has a budget in JPY, and the budgets are now in USD" in result.reason
    with project.open([], model=model, budgets=yen) as rt:
        assert rt.resume("k", retry=True).ok
    assert project.is_sound()


def test_the_cost_of_a_run_is_in_one_currency(project: Project):
    class Dying(Provider):
        async def complete(self, request: ModelRequest) -> ModelAnswer:
            if request.call == "2.1":
                raise KeyboardInterrupt
            return await super().complete(request)

    with pytest.raises(KeyboardInterrupt):
        project.run("s", [], model=Dying([go("b")]), budgets={"currency": "JPY"})
    with project.open([], model=Provider([go("b"), finish()]), budgets={"currency": "USD"}) as rt:
        result = rt.resume("k")
    assert result.ok
    assert result.cost is not None
    assert (result.cost.currency, result.cost.calls, result.cost.unpriced) == ("JPY", 3, 1)
    spent = [row.cost for row in project.journal.charges() if row.currency == "JPY"]
    assert result.cost.amount.scaleb(9) == sum(spent)
    assert project.is_sound()


def test_the_budget_of_a_skill_is_found_in_every_normalization_form(tmp_path: Path):
    write_skill(tmp_path, "caf\N{LATIN SMALL LETTER E WITH ACUTE}", {"a": ["end"]})
    decomposed = "cafe\N{COMBINING ACUTE ACCENT}"
    for scope in ("run", "day"):
        project = Project(tmp_path)
        budgets = {"skill": {decomposed: {scope: {"tokens": 10}}}}
        assert project.run(decomposed, [], model=Provider([finish()]), budgets=budgets).status == "limited"


# -- waiting for other calls ----------------------------------------------------------------------------------


def test_a_call_waits_for_what_other_calls_have_reserved_and_says_how_long(tmp_path: Path):
    write_skill(tmp_path, "item", {"x": ["end"]})
    step = (
        "preprocessor:\n  - iterate: {over: data.items, concurrency: 3, into: data.all, "
        "apply: {run_skill: {skill: item, input: {text: _iter.item}}}}\n"
    )
    anything = {"type": "object", "additionalProperties": True}
    write_skill(
        tmp_path, "all", {"a": ["end"]}, inputs={"a": "list"}, artifacts={"list": anything}, phase_keys={"a": step}
    )
    project = Project(tmp_path)
    items = {"type": "list", "data": {"items": ["a", "b", "c", "d"]}}

    class Same(Provider):
        async def complete(self, request: ModelRequest) -> ModelAnswer:
            self.requests.append(request)
            import asyncio

            await asyncio.sleep(0)
            return ModelAnswer(json.dumps(finish()), Usage(100, 20))

    probe = Project(tmp_path)
    assert probe.run("all", [], items, model=Same([])).ok
    needed = max(reservation(probe, run_id=run).tokens for run in ("k", "k.1.pre.1.1", "k.1.pre.1.2"))
    result = project.run("all", [], items, model=Same([]), budgets={"run": {"tokens": needed + 5 * 120}})
    assert result.ok, result.reason
    assert project.journal.balance("run:k").tokens == 5 * 120
    waited = [one.get("waited_ms", 0) for row in project.journal.runs() for one in _reserved(project, row.run_id)]
    assert max(waited) > 0
    assert project.is_sound()


def _reserved(project: Project, run_id: str) -> list[dict[str, Any]]:
    return project.events("budget_reserved", run_id=run_id)


# -- nothing spends without a reservation ---------------------------------------------------------------------


def test_only_the_recorder_calls_models():
    """Every call passes `llm_call_recorder`; adapters may wrap other models, and the testing kit calls them itself."""
    source = Path(reyn.__file__).parent
    callers = {
        str(path.relative_to(source))
        for path in source.rglob("*.py")
        if re.search(r"\b(model|_model|override)\.complete\(", path.read_text())
    }
    assert {name for name in callers if not name.startswith("testing/")} == {
        "kernel/world/llm_call_recorder.py",
        "models/text_tools.py",  # called by the recorder
        "functions/interface.py",  # an adapter; `chat` is for programs without a project, and belongs to no run
    }


def test_a_replay_needs_no_prices(project: Project, monkeypatch: pytest.MonkeyPatch):
    assert project.run("s", [], model=Provider([go("b"), finish()]), budgets={"run": {"cost": 1}}).ok

    def of(*_: Any) -> None:
        raise AssertionError("a price was looked up")

    monkeypatch.setattr(Prices, "of", of)
    assert project.is_sound()


def test_a_fork_has_no_warnings_of_its_origin(project: Project):
    budgets = {"run": {"tokens": 100_000}}
    origin = project.run("s", [], model=Provider([go("b"), finish()], None), budgets=budgets)
    assert len(origin.warnings) == 2
    second = [event.seq for event in project.journal.read("k") if event.kind == "phase_started"][1]
    with project.open([], model=Provider([finish()])) as rt:
        assert rt.fork("k", at=second, run_id="f").warnings == ()


def test_missing_usage_of_a_model_that_costs_nothing_is_no_warning_under_a_budget_of_money(project: Project):
    model = Provider([go("b"), finish()], None)
    model.price = PriceSettings(0, 0)
    result = project.run("s", [], model=model, budgets={"run": {"cost": 1}})
    assert (result.ok, result.warnings) == (True, ())
