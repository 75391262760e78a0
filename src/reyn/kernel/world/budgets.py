"""Reserve what a model call can use at most before the call, and settle it afterwards.

A reservation becomes durable in the commit of its `llm_requested`, and the journal rejects it if it exceeds a cap. A
call draws on the accounts of its run, of the runs above it, of their skills, and of the day. An attempt whose outcome
is unknown is charged in full. `llm_call_recorder` makes the calls; prices belong to `reyn.models.prices`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from reyn.config.budgets import NO_CAPS, BudgetsSettings, Caps, DayBudgets
from reyn.errors import BudgetExceeded, CurrencyUnknown, ModelBroken, ModelError, PriceInvalid, PriceUnknown
from reyn.journal import Journal, kinds
from reyn.journal.kinds.shapes import MAX_INTEGER
from reyn.journal.port import open_reservations
from reyn.journal.spending import in_full, not_billed, run_accounts
from reyn.kernel.core.run_state import EMPTY
from reyn.kernel.world.loading import load_state
from reyn.models.prices import Prices, cost_of, highest_cost, usage_bound
from reyn.models.text_tools import in_words

if TYPE_CHECKING:
    from reyn.config import ModelSettings, RunSettings
    from reyn.kernel.core.snapshot import PersonInput, RunState
    from reyn.kernel.core.tape import Mark, Tape
    from reyn.models import Model, ModelRequest
    from reyn.models.roster import Roster

    Above = Callable[[], tuple["BudgetedRun", ...]]
    SettingsOf = Callable[[kinds.RunStarted, Callable[[str], bytes]], RunSettings]

MAX_USAGE = 100_000_000
"""Token counts above this are not plausible: no model reads or writes as much in one call."""
_MAX_BOUND = 10**12
"""A larger bound of a call's usage is a mistake of the model's class."""
_FIRST_POLL, _MAX_POLL = 0.02, 0.5
"""Seconds between attempts to reserve what other calls may release."""
_WAIT_SECONDS = 120
"""The longest wait for calls of other runs, if the model has no timeout of its own."""
_QUARTER = 900_000_000
"""Microseconds. In every time zone, a day begins at the start of a quarter of an hour."""
_MAX_HOLDERS = 8
"""The runs that a refusal names."""
_CACHED_RUNS = 256
_sleep = asyncio.sleep


class BudgetedRun(NamedTuple):
    """A run whose budgets a call draws on: the run that calls, or one above it."""

    run_id: str
    skill: str
    is_root: bool
    settings: RunSettings
    raised: Mapping[str, int | None]
    is_conversation: bool
    person: PersonInput
    usage: kinds.Usage
    answers: int

    def caps(self, scope: str, configured: Caps, raised: Mapping[str, int | None]) -> Caps:
        """Return the caps of a budget: as raised in the run that calls, as raised in this one, or as configured."""
        tokens, cost = configured.tokens, configured.cost
        for source in (self.raised, raised):
            tokens = source.get(f"{scope}_tokens", tokens)
            cost = source.get(f"{scope}_cost", cost)
        return Caps(tokens, cost)

    def limits_cost(self, raised: Mapping[str, int | None]) -> bool:
        """Return whether what the run has recorded limits money: its budgets, or a limit that was raised."""
        own = Caps(None, self.settings.limits.run_cost if self.is_root else None)
        costs = [self.caps("run", own, raised).cost]
        costs.append(self.caps("skill", self.settings.skill_budgets.get(self.skill, NO_CAPS), raised).cost)
        costs += [value for name, value in self.raised.items() if name.endswith("_cost")]
        return any(cost is not None for cost in costs)


def budgeted_run(state: RunState, settings: RunSettings) -> BudgetedRun:
    """Return what the budgets of a run depend on."""
    return BudgetedRun(
        state.run_id,
        state.started.skill,
        state.started.parent is None,
        settings,
        state.raised,
        state.is_conversation,
        state.person,
        state.usage,
        state.models.answers,
    )


def runs_above(journal: Journal, started: kinds.RunStarted, settings_of: SettingsOf) -> tuple[BudgetedRun, ...]:
    """Return the runs above a sub-run that is executed without its parent, from the journal."""
    found: list[BudgetedRun] = []
    parent = started.parent
    while parent is not None:
        if (state := load_state(journal, parent.run)) is EMPTY:
            break  # deleted
        found.append(budgeted_run(state, settings_of(state.started, journal.blob)))
        parent = state.started.parent
    return tuple(found)


class Draws(NamedTuple):
    """The accounts that a call draws on, whether one of them has a cap or limits money, and what they depend on."""

    accounts: tuple[kinds.Draw, ...]
    is_capped: bool
    limits_cost: bool
    day: str
    quarter: int
    own: BudgetedRun
    above: tuple[BudgetedRun, ...]


class Budgets(DayBudgets):
    """The budgets and prices of a project. Those of a day are the current ones, also for older runs."""

    def __init__(self, settings: BudgetsSettings, roster: Roster) -> None:
        super().__init__(settings)
        self._roster = roster
        self._prices = Prices(settings.currency, settings.currencies)
        self._override_price: tuple[kinds.Price | None] | None = None
        self._draws: dict[str, Draws] = {}

    def current_draws(self, state: RunState, settings: RunSettings, above: tuple[BudgetedRun, ...], ts: int) -> Draws:
        """Return the accounts that a call of a run draws on now, with their caps."""
        known = self._draws.get(state.started.run_id)
        if (
            known is not None
            and known.quarter == ts // _QUARTER
            and known.own.settings is settings
            and known.own.raised is state.raised
            and known.above == above
        ):
            return known
        while len(self._draws) >= _CACHED_RUNS:
            self._draws.pop(next(iter(self._draws)), None)
        own = budgeted_run(state, settings)
        found = self._draws[own.run_id] = self.draws(own, above, ts)
        return found

    def draws(self, own: BudgetedRun, above: tuple[BudgetedRun, ...], ts: int) -> Draws:
        """Return the accounts that a call of a run at a time draws on, with their caps."""
        day = self.day(ts)
        found = self._derive_draws(own, above, day)
        limits_cost = any(draw.cost is not None for draw in found)
        is_capped = limits_cost or any(draw.tokens is not None for draw in found)
        return Draws(found, is_capped, limits_cost, day, ts // _QUARTER, own, above)

    def _derive_draws(self, own: BudgetedRun, above: tuple[BudgetedRun, ...], day: str) -> tuple[kinds.Draw, ...]:
        found: list[kinds.Draw] = []
        skills: dict[str, None] = {}
        for run in (own, *above):
            skills[run.skill] = None
            if run.settings.currency != self.currency and run.limits_cost(own.raised):
                # A cap in one currency would not limit charges in a second currency.
                raise CurrencyUnknown(
                    f"run `{run.run_id}` has a budget in {run.settings.currency}, "
                    f"and the budgets are now in {self.currency}",
                    hint=f"Set `budgets.currency` to {run.settings.currency} in reyn.yaml, or start a new run.",
                )
            run_account, skill_account = run_accounts(run.run_id)
            if run.is_root:
                limits = run.settings.limits
                caps = run.caps("run", Caps(limits.run_tokens, limits.run_cost), own.raised)
                if caps:
                    found.append(kinds.Draw(run_account, "run", caps.tokens, caps.cost))
            if run.settings.skill_budgets:
                caps = run.caps("skill", run.settings.skill_budgets.get(run.skill, NO_CAPS), own.raised)
                if caps:
                    found.append(kinds.Draw(skill_account, "skill", caps.tokens, caps.cost))
        caps = own.caps("day", self.day_caps(), own.raised)
        found.append(kinds.Draw(self.account_of(day), "day", caps.tokens, caps.cost))
        for skill in skills:
            caps = own.caps("skill_day", self.day_caps(skill), own.raised)
            found.append(kinds.Draw(self.account_of(day, skill), "skill_day", caps.tokens, caps.cost))
        return tuple(found)

    def price(self, settings: ModelSettings | None, model: Model, now: int) -> kinds.Price | None:
        """Return the price of a model at a time; `None` if it is unknown."""
        override = self._roster.override
        if override is None:
            return self._prices.of(settings, model, now, is_override=False)
        if self._override_price is None:
            self._override_price = (self._prices.of(settings, override, now),)
        return self._override_price[0]

    def takes_time(self, model: str) -> bool:
        """Return whether answers of a model take time; one that answers at once is counted only under a cap."""
        return self._roster.takes_time(model)


def _is_plausible(usage: object) -> bool:
    """Return whether the bound that a model declares consists of numbers of tokens that can be counted."""
    if not isinstance(usage, kinds.Usage):
        return False
    read, written = usage.input_tokens, usage.output_tokens
    is_count = type(read) is int and type(written) is int and read >= 0 and written >= 0
    return is_count and 0 < read + written <= _MAX_BOUND


class CallAttempt(NamedTuple):
    """One attempt of a model call."""

    name: str
    settings: ModelSettings | None
    """The settings of the model; a model that the caller passed in may have none."""
    request: ModelRequest
    model: Model | ModelError
    """The opened model, or why it cannot answer the request."""
    in_words: bool
    """Whether the model gets the tools of the request in words."""


async def flush_whole(flush: Callable[[Tape], Coroutine[Any, Any, None]], tape: Tape) -> None:
    """Make the events of a run durable, in a task that may be cancelled."""
    flushing = asyncio.ensure_future(flush(tape))
    try:
        await asyncio.shield(flushing)
    except asyncio.CancelledError:
        await asyncio.wait([flushing])  # a commit under way must be known to have succeeded or failed
        raise


class CallBudget:
    """Reserves and settles the attempts of one model call."""

    def __init__(
        self,
        budgets: Budgets,
        journal: Journal,
        tape: Tape,
        settings: RunSettings,
        above: Above,
        call: str,
        now: Callable[[], int],
        flush: Callable[[Tape], Coroutine[Any, Any, None]],
    ) -> None:
        """Prepare a call.

        Args:
            budgets: The budgets of the project.
            journal: The journal, in which a call that has to wait finds the runs that it waits for.
            tape: The tape of the run.
            settings: The settings of the run.
            above: Returns the runs above it.
            call: The id of the call.
            now: Returns the time.
            flush: Makes the events of a tape durable. Raises `BudgetExceeded`.
        """
        self._budgets = budgets
        self._journal = journal
        self._tape = tape
        self._settings = settings
        self._above = above
        self._call = call
        self._now = now
        self._flush = flush
        self._mark: Mark | None = None
        self._is_reserved = False
        self._is_abandoned = False

    def propose(self, attempt: CallAttempt, now: int) -> None:
        """Add the reservation of the first attempt to the events that are committed next, with the intent of the call.

        The attempt itself reports a model that cannot be opened, and a price that is unknown.
        """
        try:
            body = self._reservation(attempt, now)
        except ModelError:
            return
        self._mark, self._is_reserved = self._tape.mark(), True
        if body is not None:
            self._tape.record(body, now)

    def withdraw(self) -> None:
        """Drop the reservation of the first attempt, which a budget does not cover now: `reserve` waits or refuses."""
        if self._mark is not None:
            self._tape.rewind(self._mark)
        self._is_reserved = False

    def take_proposal(self) -> bool:
        """Return whether the next attempt is the first one, whose reservation is durable."""
        is_reserved, self._is_reserved = self._is_reserved, False
        return is_reserved

    async def reserve(self, attempt: CallAttempt) -> kinds.BudgetRefused | None:
        """Reserve what the next attempt can use.

        A call that fits, but for what other calls have reserved, waits for them. It does not wait for a run whose
        process died during a call: that call is charged in full.

        Returns:
            The refusal, if a budget does not cover the call.

        Raises:
            PriceUnknown: A budget limits money, and the price of the model is unknown.
        """
        waited, delay, next_look = 0.0, _FIRST_POLL, 0.0
        interrupted = 0
        longest = attempt.settings.timeout_seconds if attempt.settings is not None else _WAIT_SECONDS
        while True:
            body = self._reservation(attempt, self._now(), int(waited * 1000))
            error = await self._try(body)
            if error is None or body is None:
                return None
            if waited >= next_look:  # looking at all runs costs more than another attempt
                interrupted = sum(holder.amount for holder in self._holders(error) if holder.interrupted)
                next_look = 2 * waited
            if error.used + interrupted + error.needed > error.cap or waited >= longest:
                return self._refusal(body, error)
            await _sleep(delay)
            waited, delay = waited + delay, min(2 * delay, _MAX_POLL)

    async def _try(self, body: kinds.BudgetReserved | None) -> BudgetExceeded | None:
        """Make a reservation durable, or only what came before if there is none."""
        if body is None:
            await flush_whole(self._flush, self._tape)
            return None
        mark = self._tape.mark()
        self._tape.record(body, self._now())
        try:
            await flush_whole(self._flush, self._tape)
        except asyncio.CancelledError:
            if self._tape.pending:  # it did not become durable
                self._tape.rewind(mark)
            raise
        except BudgetExceeded as error:
            self._tape.rewind(mark)
            # Release what the last call had reserved: otherwise two runs would wait for each other.
            await flush_whole(self._flush, self._tape)
            return error
        return None

    def _reservation(self, attempt: CallAttempt, now: int, waited: int = 0) -> kinds.BudgetReserved | None:
        """Return what an attempt can use; `None` if the model answers at once and there is no cap.

        Raises:
            ModelError: The model could not be opened.
        """
        tape, name, settings, model = self._tape, attempt.name, attempt.settings, attempt.model
        if isinstance(model, ModelError):
            raise model
        draws = self._budgets.current_draws(tape.state, self._settings, self._above(), max(now, tape.ts))
        if not draws.is_capped and not self._budgets.takes_time(name):
            return None
        try:
            request = in_words(attempt.request) if attempt.in_words else attempt.request
            bound = usage_bound(model, request, settings.window if settings is not None else None)
            price = self._budgets.price(settings, model, now)
        except ModelError:
            raise
        except Exception as error:
            raise ModelBroken(f"model `{name}` raised {type(error).__name__}: {error}") from error
        if not _is_plausible(bound):
            raise PriceInvalid(f"the bound that model `{name}` declares for its usage is invalid: {bound!r:.100}")
        most = bound.output_tokens + (tape.state.raised.get("overrun") or 0)
        if price is None and draws.limits_cost:
            raise PriceUnknown(f"the price of model `{name}` is unknown, and a budget limits the cost of the run")
        cost = None if price is None else highest_cost(price, bound.input_tokens, most)
        if cost is not None and cost > MAX_INTEGER:
            raise PriceInvalid(f"a call of model `{name}` could cost more than can be counted: {price}")
        number = tape.state.next_attempt(self._call)
        return kinds.BudgetReserved(
            self._call, number, name, draws.day, bound.input_tokens, most, cost, price, draws.accounts, waited
        )

    def _holders(self, error: BudgetExceeded) -> list[kinds.Holder]:
        """Return the runs that have reserved a part of an account, first those that were interrupted."""
        is_cost = error.limit.endswith("_cost")
        found = [
            kinds.Holder(
                reservation.run_id,
                (reservation.reserved.cost or 0) if is_cost else reservation.reserved.tokens,
                not reservation.is_executing,
            )
            for reservation in open_reservations(self._journal)
            if any(draw.account == error.account for draw in reservation.reserved.draws)
        ]
        return sorted(found, key=lambda one: (not one.interrupted, -one.amount))

    def _refusal(self, body: kinds.BudgetReserved, error: BudgetExceeded) -> kinds.BudgetRefused:
        return kinds.BudgetRefused(
            body.call,
            body.attempt,
            body.model,
            error.limit,
            error.account,
            error.cap,
            error.used,
            error.reserved,
            error.needed,
            self._budgets.currency if error.limit.endswith("_cost") else "",
            tuple(self._holders(error)[:_MAX_HOLDERS]) if error.reserved else (),
        )

    def settle(self, outcome: kinds.Usage | ModelError | None) -> None:
        """Settle the attempt in progress: by the usage of its answer, or by its error.

        Args:
            outcome: The usage that the model reported, `None` if it reported none, or the error.
        """
        reserved = self._tape.state.reserved
        if reserved is None or self._is_abandoned:
            return
        if isinstance(outcome, kinds.Usage) and 0 < outcome.total <= MAX_USAGE:
            cost = None if reserved.price is None else min(cost_of(reserved.price, outcome), MAX_INTEGER)
            over = max(0, outcome.input_tokens - reserved.input_tokens)
            over += max(0, outcome.output_tokens - reserved.output_tokens)
            settled = kinds.BudgetSettled(reserved.call, reserved.attempt, outcome, "usage", cost, over)
        elif not isinstance(outcome, ModelError):
            settled = in_full(reserved, "no_usage")
        else:
            settled = in_full(reserved) if outcome.may_be_billed else not_billed(reserved)
        self._tape.record(settled, self._now())

    def release(self) -> None:
        """Settle an attempt that was not sent: nothing is charged."""
        reserved = self._tape.state.reserved
        self._is_abandoned = True
        if reserved is not None:
            self._tape.record(not_billed(reserved), self._now())

    def abandon(self) -> None:
        """Charge an attempt that was cancelled in full. What the abandoned call does later is ignored."""
        reserved = self._tape.state.reserved
        self._is_abandoned = True
        if reserved is not None:
            self._tape.record(in_full(reserved), self._now())
