"""Budgets with the adapter of a real protocol: prices, retries, fallbacks and servers that ignore `max_tokens`."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
import yaml

from tests.models.calling import PAIR, Caller
from tests.models.fake_server import FakeServer, good, status
from tests.support import finish, go

pytestmark = pytest.mark.sockets
PRICE = {"input": 2.0, "output": 8.0, "cached_input": 0.5}
CACHED = {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 60}}


def limit(far: Caller, budgets: dict[str, Any], **settings: Any) -> None:
    """Configure the model and the budgets."""
    far.configure(**settings)
    path = far.root / "reyn.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(path.read_text()) | {"budgets": budgets}))


def test_cached_tokens_are_priced_apart(far: Caller, server: FakeServer):
    limit(far, {"run": {"cost": 1}}, price=PRICE)
    server.then(good(finish(), usage=CACHED))
    result = far.run()
    assert result.ok
    assert result.cost is not None
    assert result.cost.amount == Decimal("0.00027"), "40 tokens at 2, 60 at 0.5 and 20 at 8 dollars a million"
    [reserved] = far.events("budget_reserved")
    assert reserved["price"]["source"] == "reyn.yaml"


def test_a_server_whose_price_is_unknown_is_not_called(far: Caller, server: FakeServer):
    limit(far, {"day": {"cost": 1}})
    result = far.run()
    assert (result.status, result.code, server.requests) == ("failed", "RYN520", [])
    limit(far, {"day": {"cost": 1}}, price=PRICE)
    server.then(good(finish()))
    assert far.retry().ok


def test_a_call_that_the_budget_does_not_cover_is_not_sent(far: Caller, server: FakeServer):
    limit(far, {"run": {"tokens": 50}})
    result = far.run()
    assert (result.status, server.requests) == ("limited", [])


def test_a_server_that_ignores_max_tokens_stops_the_run(far: Caller, server: FakeServer):
    limit(far, {"run": {"tokens": 50_000}}, max_tokens=100)
    server.then(good(go("second"), usage=(50, 400)), good(finish(), usage=(50, 400)))
    result = far.run(PAIR)
    assert (result.status, len(server.requests)) == ("limited", 1)
    assert "used 300 tokens more than the model was allowed" in result.reason
    assert far.resume(raise_limits={"overrun": 300}).ok


def test_each_retry_and_each_fallback_reserves_its_own_budget(far: Caller, server: FakeServer, delays: list[float]):
    server.then(status(503, "down"), status(503, "down"))
    with FakeServer(good(finish(), usage=(100, 20))) as other:
        near = {"model": "openai:near", "base_url": other.url, "price": {"input": 1, "output": 1}}
        far.configure(others={"near": near}, fallback=["near"], retries=1, price=PRICE)
        result = far.run()
    assert result.ok
    reserved = [(one["model"], one["attempt"]) for one in far.events("budget_reserved")]
    assert reserved == [("far", 1), ("far", 2), ("near", 3)]
    assert [one["basis"] for one in far.events("budget_settled")] == ["not_billed", "not_billed", "usage"]
    assert result.cost is not None
    assert (result.cost.calls, result.cost.amount) == (3, Decimal("0.00012"))
