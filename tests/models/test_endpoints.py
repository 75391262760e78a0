"""Limits of endpoints that all runs of a process share: order, the circuit breaker, and what runs record."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from reyn import SyncRuntime
from reyn.config import ModelSettings
from reyn.config.load import load_config
from reyn.config.models import EndpointSettings
from reyn.errors import CircuitOpen, ConfigInvalid, KeyRejected, ModelUnavailable, RateLimited
from reyn.models.endpoints import Endpoint, EndpointClock, Endpoints, Wait, endpoint_name, endpoint_settings
from tests.models.calling import IN, ONE, Caller, until
from tests.models.fake_server import good, hang_up, silence, status
from tests.support import finish


class SteppedClock(EndpointClock):
    """A clock that stands still."""

    def __init__(self) -> None:
        self.time = 1000.0

    def now(self) -> float:
        return self.time


class SteppedEndpoint(Endpoint):
    """An endpoint with a stepped clock that remembers who waited and why."""

    def __init__(self, **settings: int | None) -> None:
        self.time = SteppedClock()
        super().__init__("e", EndpointSettings(**settings), self.time)
        self.waits: list[Wait] = []

    async def on_wait(self, wait: Wait) -> None:
        self.waits.append(wait)

    async def call(self, error: BaseException | None = None) -> float:
        """Make a call that ends at once; return when it was admitted."""
        async with self.slot(self.on_wait):
            if error is not None:
                raise error
            return self.time.now()

    async def fail(self, count: int, error: type[Exception] = ModelUnavailable) -> None:
        for _ in range(count):
            with pytest.raises(error):
                await self.call(error=error("down"))


async def settled(condition: Callable[[], bool]) -> None:
    """Let the other tasks run until a condition holds."""
    await until(condition)


# -- concurrency -----------------------------------------------------------------------------------------------


def test_calls_beyond_the_concurrency_wait_in_the_order_of_their_arrival():
    async def main() -> None:
        endpoint = SteppedEndpoint(concurrency=2)
        order: list[int] = []
        gates = [asyncio.Event() for _ in range(6)]

        async def call(number: int) -> None:
            async with endpoint.slot(endpoint.on_wait):
                order.append(number)
                await gates[number].wait()

        tasks = []
        for number in range(6):
            tasks.append(asyncio.ensure_future(call(number)))
            await asyncio.sleep(0)
        await settled(lambda: len(endpoint.waits) == 4)
        assert order == [0, 1]
        assert [wait.ahead for wait in endpoint.waits] == [0, 1, 2, 3]
        for number in (1, 0, 2, 3, 4, 5):
            gates[number].set()
            await settled(lambda done=number: tasks[done].done())
        assert order == [0, 1, 2, 3, 4, 5]

    asyncio.run(main())


def test_a_cancelled_wait_lets_the_next_call_in():
    async def main() -> None:
        endpoint = SteppedEndpoint(concurrency=1)
        async with AsyncExitStack() as held:
            await held.enter_async_context(endpoint.slot(endpoint.on_wait))
            first, second = (asyncio.ensure_future(endpoint.call()) for _ in range(2))
            await settled(lambda: len(endpoint.waits) == 2)
            first.cancel()
            await asyncio.wait([first])
            assert not second.done()
        await second
        assert first.cancelled()

    asyncio.run(main())


def test_a_cancelled_call_frees_its_slot():
    async def main() -> None:
        endpoint = SteppedEndpoint(concurrency=1)

        async def hang() -> None:
            async with endpoint.slot(endpoint.on_wait):
                await asyncio.Event().wait()

        running = asyncio.ensure_future(hang())
        await asyncio.sleep(0)
        waiting = asyncio.ensure_future(endpoint.call())
        await settled(lambda: len(endpoint.waits) == 1)
        running.cancel()
        await waiting

    asyncio.run(main())


def test_calls_of_several_threads_share_the_limits():
    endpoint = SteppedEndpoint(concurrency=1)
    running, most = 0, 0
    lock = threading.Lock()

    async def call() -> None:
        nonlocal running, most
        for _ in range(20):
            async with endpoint.slot(endpoint.on_wait):
                with lock:
                    running += 1
                    most = max(most, running)
                await asyncio.sleep(0)
                with lock:
                    running -= 1

    threads = [threading.Thread(target=lambda: asyncio.run(call())) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert (running, most) == (0, 1)


def test_a_call_whose_event_loop_is_gone_holds_no_slot():
    endpoint = SteppedEndpoint(concurrency=1)
    loop = asyncio.new_event_loop()
    slot = endpoint.slot(endpoint.on_wait)
    loop.run_until_complete(slot.__aenter__())
    loop.close()
    assert asyncio.run(endpoint.call()) == 1000.0


# -- the circuit breaker ----------------------------------------------------------------------------------------


def test_the_circuit_opens_after_consecutive_failures_and_is_tested_with_one_call():
    async def main() -> None:
        endpoint = SteppedEndpoint(failures=3, cooldown=30)
        await endpoint.fail(3)
        with pytest.raises(CircuitOpen, match="e failed 3 times in a row") as caught:
            await endpoint.call()
        assert caught.value.retry_after == 30.0
        endpoint.time.time += 30
        await endpoint.fail(1)  # the probe
        with pytest.raises(CircuitOpen):
            await endpoint.call()
        endpoint.time.time += 30
        await endpoint.call()
        await endpoint.fail(2)
        await endpoint.call()

    asyncio.run(main())


def test_other_calls_wait_for_the_probe():
    async def main() -> None:
        endpoint = SteppedEndpoint(failures=1, cooldown=30)
        await endpoint.fail(1)
        endpoint.time.time += 30
        async with endpoint.slot(endpoint.on_wait):
            others = [asyncio.ensure_future(endpoint.call()) for _ in range(2)]
            await settled(lambda: len(endpoint.waits) == 2)
        await asyncio.gather(*others)
        assert [wait.reason for wait in endpoint.waits] == ["probe", "probe"]

    asyncio.run(main())


def test_a_failed_probe_fails_the_calls_that_wait_for_it():
    async def main() -> None:
        endpoint = SteppedEndpoint(failures=1, cooldown=30)
        await endpoint.fail(1)
        endpoint.time.time += 30
        others: list[asyncio.Future[float]] = []

        async def probe() -> None:
            async with endpoint.slot(endpoint.on_wait):
                others.extend(asyncio.ensure_future(endpoint.call()) for _ in range(2))
                await settled(lambda: len(endpoint.waits) == 2)
                raise ModelUnavailable("still down")

        results = await asyncio.gather(probe(), return_exceptions=True)
        results += await asyncio.gather(*others, return_exceptions=True)
        assert [type(result) for result in results] == [ModelUnavailable, CircuitOpen, CircuitOpen]

    asyncio.run(main())


def test_a_cancelled_probe_leaves_the_next_call_to_test():
    async def main() -> None:
        endpoint = SteppedEndpoint(failures=1, cooldown=30)
        await endpoint.fail(1)
        endpoint.time.time += 30
        with pytest.raises(asyncio.CancelledError):
            await endpoint.call(error=asyncio.CancelledError())
        await endpoint.call()

    asyncio.run(main())


@pytest.mark.parametrize("error", [KeyRejected, RateLimited])
def test_a_rejected_request_is_no_failure_of_the_endpoint(error: type[Exception]):
    async def main() -> None:
        endpoint = SteppedEndpoint(failures=2)
        await endpoint.fail(1)
        await endpoint.fail(1, error)
        await endpoint.fail(1)
        await endpoint.call()

    asyncio.run(main())


def test_the_circuit_breaker_can_be_switched_off():
    async def main() -> None:
        endpoint = SteppedEndpoint(failures=None)
        await endpoint.fail(50)
        await endpoint.call()

    asyncio.run(main())


# -- names and settings -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "base_url", "name"),
    [
        ("openai:m", None, "https://api.openai.com"),
        ("openai:m", "http://127.0.0.1:8000/v1", "http://127.0.0.1:8000"),
        ("anthropic:m", None, "https://api.anthropic.com"),
        ("gemini:m", None, "https://generativelanguage.googleapis.com"),
        ("litellm:bedrock/m", None, "litellm:bedrock"),
        ("acme:m", None, "acme"),
        ("local", None, ""),
        ("scripted:x", None, ""),
    ],
)
def test_models_of_one_server_share_an_endpoint(model: str, base_url: str | None, name: str):
    assert endpoint_name(ModelSettings(model, base_url=base_url)) == name


def test_settings_are_found_by_origin_then_by_adapter_then_by_default():
    settings = {name: EndpointSettings(concurrency=n) for n, name in enumerate(("https://a", "openai", "default"), 1)}
    names = (("https://a", "openai"), ("https://b", "openai"), ("x", "y"))
    found = [endpoint_settings(*pair, settings) for pair in names]
    assert [one.concurrency for one in found] == [1, 2, 3]
    assert endpoint_settings("https://b", "openai", {}) == EndpointSettings()


def test_all_runtimes_of_a_process_share_an_endpoint():
    endpoints = Endpoints()
    first = endpoints.get("https://a", EndpointSettings(concurrency=1))
    assert endpoints.get("https://a", EndpointSettings(concurrency=2)) is first
    assert first.settings.concurrency == 2


@pytest.mark.parametrize(
    "text", ["endpoints: {openai: {concurrency: 0}}", "endpoints: {openai: {rpm: 5}}", "endpoints: {'a b': {}}"]
)
def test_invalid_limits_are_configuration_errors(tmp_path: Path, text: str):
    (tmp_path / "reyn.yaml").write_text(text)
    with pytest.raises(ConfigInvalid):
        load_config(tmp_path)


# -- what a run records ------------------------------------------------------------------------------------------


def limit(far: Caller, **settings: int) -> None:
    """Limit the endpoint of the fake server."""
    path = far.root / "reyn.yaml"
    origin = far.server.url.removesuffix("/v1")
    listed = ", ".join(f"{key}: {value}" for key, value in settings.items())
    path.write_text(f"{path.read_text()}endpoints:\n  '{origin}': {{{listed}}}\n")


@pytest.mark.slow
@pytest.mark.sockets
def test_a_run_that_waits_for_a_slot_records_it_and_can_be_cancelled(far: Caller):
    pytest.importorskip("openai")

    async def main() -> None:
        async with far.runtime() as rt:
            holds = asyncio.ensure_future(rt.run(ONE, IN, run_id="holds"))
            await until(lambda: len(far.server.requests) == 1)
            kinds: list[str] = []
            waits = asyncio.ensure_future(
                rt.run(ONE, IN, run_id="waits", listener=lambda event: kinds.append(event.kind))
            )
            await until(lambda: "model_queued" in kinds)
            rt.cancel("waits")
            assert (await waits).status == "cancelled"
            rt.cancel("holds")
            assert (await holds).status == "cancelled"

    limit(far, concurrency=1)
    far.server.then(silence)
    asyncio.run(main())
    assert len(far.server.requests) == 1
    [queued] = far.events("model_queued", run_id="waits")
    assert (queued["model"], queued["reason"], queued["ahead"]) == ("far", "concurrency", 0)


@pytest.mark.sockets
def test_runs_of_one_process_take_turns(far: Caller):
    pytest.importorskip("openai")

    async def main() -> list[str]:
        async with far.runtime() as rt:
            runs = (rt.run(ONE, IN, run_id=f"r{number}") for number in range(4))
            return [result.status for result in await asyncio.gather(*runs)]

    limit(far, concurrency=1)
    far.server.then(good(finish()))
    assert asyncio.run(main()) == ["finished"] * 4
    assert far.server.connections == 1
    assert sum(len(far.events("model_queued", run_id=f"r{number}")) for number in range(4)) == 3


@pytest.mark.sockets
def test_a_run_whose_endpoint_is_not_called_switches_to_its_fallback(far: Caller, delays: list[float]):
    pytest.importorskip("openai")
    (far.root / "answers.jsonl").write_text(json.dumps(finish()) + "\n")
    far.configure(retries=1, fallback=["scripted:answers.jsonl"])
    limit(far, failures=2, cooldown=600)
    far.server.then(hang_up)
    assert far.run().status == "finished"
    assert far.run(run_id="k2").status == "finished"
    assert [event["code"] for event in far.events("model_switched", run_id="k2")] == ["RYN533"]
    assert len(far.server.requests) == 2


@pytest.mark.sockets
def test_a_run_without_a_fallback_tries_again_after_the_cooldown(far: Caller, delays: list[float]):
    pytest.importorskip("openai")
    far.configure(retries=2)
    limit(far, failures=2, cooldown=60)
    far.server.then(status(503))
    assert far.run().status == "failed"
    assert far.codes() == ["RYN506", "RYN506"]
    assert far.codes("llm_failed") == ["RYN533"]
    assert len(far.server.requests) == 2
    assert far.retry().status == "failed"
    assert far.codes("llm_failed")[-1] == "RYN533"
    assert 0 < delays[-1] <= 60


@pytest.mark.sockets
def test_the_timeline_of_a_run_shows_what_it_waits_for(far: Caller):
    pytest.importorskip("openai")
    from reyn.runs.timeline import Timeline

    limit(far, concurrency=1)
    far.server.then(good(finish()))

    async def main() -> None:
        async with far.runtime() as rt:
            await asyncio.gather(*(rt.run(ONE, IN, run_id=f"r{number}") for number in range(2)))

    asyncio.run(main())
    with SyncRuntime(far.runtime()) as rt:
        events = [event for number in range(2) for event in rt.runs.events(f"r{number}")]
        timeline = Timeline(rt.runs.content)
        activities, texts = [], []
        for event in events:
            entry = timeline.add(event)
            texts += [entry.text] if entry is not None else []
            activities.append(timeline.activity)
    origin = far.server.url.removesuffix("/v1")
    assert f"far: waiting for {origin} (calls at the same time)" in texts
    assert any(f"waiting for {origin}" in one for one in activities)
