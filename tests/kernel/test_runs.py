"""Behaviour of runs, through the public API, with an in-memory journal."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from reyn import OSRuntime, RunResult, SyncRuntime
from reyn.errors import (
    InputInvalid,
    LimitUnknown,
    ModelUnknown,
    RunBlocked,
    RunIdInvalid,
    RunIdTaken,
    RunNotFound,
    RunNotResumable,
    SkillUnsupported,
)
from reyn.journal import decode, kinds
from reyn.testing import CountingIds, MemoryJournal, ScriptedModel, SteppingClock
from tests.support import abort, finish, go, write_skill

IN = {"text": "in"}


def open_runtime(root: Path, answers: list, journal: MemoryJournal | None = None, **settings) -> SyncRuntime:
    return SyncRuntime.open(
        root,
        model=ScriptedModel(answers),
        journal=journal or MemoryJournal(),
        clock=SteppingClock(),
        ids=CountingIds(),
        **settings,
    )


def run(root: Path, answers: list, skill: str = "pair", value=IN, **settings) -> tuple[RunResult, list]:
    with open_runtime(root, answers, **settings) as rt:
        result = rt.run(skill, value)
        return result, list(rt.runs.events(result.run_id))


def kinds_of(events: list) -> list[str]:
    return [event.kind for event in events]


# -- the plain course -------------------------------------------------------------------------------------


def test_a_run_finishes_with_the_artifact_of_the_last_phase(project: Path):
    result, events = run(project, [go("second"), finish("all done")])
    assert result.status == "finished"
    assert result.artifact == {"type": "note", "data": {"text": "all done"}}
    assert result.path == ("first", "second")
    assert result.exit_code == 0
    visit = [
        "phase_started",
        "frame_built",
        "llm_requested",
        "llm_responded",
        "control_decided",
        "artifact_stored",
        "phase_completed",
    ]
    assert kinds_of(events) == ["run_started", *visit, *visit, "skill_completed"]


def test_a_visit_costs_one_commit(project: Path, monkeypatch: pytest.MonkeyPatch):
    groups = []
    append = MemoryJournal.append

    def spy(self, run_id, expected_seq, events, blobs=(), wakes=()):
        groups.append(kinds_of(events))
        return append(self, run_id, expected_seq, events, blobs, wakes)

    monkeypatch.setattr(MemoryJournal, "append", spy)
    run(project, [go("second"), finish()])
    assert groups[0] == ["run_started", "phase_started", "frame_built", "llm_requested"]
    assert groups[1][0] == "llm_responded"
    assert groups[1][-3:] == ["phase_started", "frame_built", "llm_requested"]
    assert groups[2][-1] == "skill_completed"
    assert len(groups) == 3


def test_derived_events_inherit_the_time_of_the_input_before_them(project: Path):
    _, events = run(project, [go("second"), finish()])
    times = {event.kind: set() for event in events}
    for event in events:
        times[event.kind].add(event.ts)
    assert len({event.ts for event in events}) == 3  # the start and two answers
    assert times["llm_responded"] == times["control_decided"] == times["phase_completed"]


def test_the_artifact_of_a_phase_is_the_input_of_the_next(project: Path):
    _, events = run(project, [go("second", "made by first"), finish()])
    stored = next(event for event in events if event.kind == "artifact_stored")
    entered = [event for event in events if event.kind == "phase_started"]
    assert entered[1].data["input"] == stored.data["artifact"]


def test_a_union_input_accepts_any_of_its_members(tmp_path: Path):
    short = {"type": "object", "properties": {"text": {"maxLength": 3}}, "required": ["text"]}
    write_skill(
        tmp_path, "either", {"a": ["b"], "b": ["end"]}, artifacts={"short": short}, inputs={"b": "note | short"}
    )
    result, _ = run(tmp_path, [go("b", "abc", type="short"), finish()], "either")
    assert result.ok
    result, events = run(tmp_path, [go("b", "too long", type="short"), go("b", "too long"), finish()], "either")
    assert result.ok
    assert "validation_error" in kinds_of(events)


# -- answers that are not accepted --------------------------------------------------------------------------


def test_after_a_rejected_answer_the_model_is_called_again_with_the_error(project: Path):
    result, events = run(project, [go("nowhere"), go("second"), finish()])
    assert result.ok
    [wrong] = [event.data for event in events if event.kind == "validation_error"]
    assert wrong["class"] == "candidate"
    assert wrong["path"] == "$.control.next_phase"
    frames = [decode(event) for event in events if event.kind == "frame_built"]
    assert [len(frame.messages) for frame in frames] == [2, 4, 2]
    rejected, error = frames[1].messages[2:]
    assert rejected.parts[0].blob == wrong["text"]
    assert "'nowhere' is not offered here" in error.parts[0].text


def test_a_correction_contains_only_the_last_rejected_answer(project: Path):
    _, events = run(project, ["first nonsense", "second nonsense", go("second"), finish()])
    frames = [decode(event) for event in events if event.kind == "frame_built"]
    assert [len(frame.messages) for frame in frames[:3]] == [2, 4, 4]
    assert frames[1].messages[2] != frames[2].messages[2]


def test_too_many_rejected_answers_fail_the_run_and_a_retry_visits_the_phase_again(project: Path):
    journal = MemoryJournal()
    with open_runtime(project, ["no", "no", "no", go("second"), finish()], journal) as rt:
        failed = rt.run("pair", IN)
        assert (failed.status, failed.exit_code) == ("failed", 1)
        assert "3 answers rejected" in failed.reason
        with pytest.raises(RunNotResumable, match="failed"):
            rt.resume(failed.run_id)
        result = rt.resume(failed.run_id, retry=True)
        assert result.ok
        events = list(rt.runs.events(failed.run_id))
        visits = [
            event.data["visit"] for event in events if event.data.get("phase") == "first" and "input" in event.data
        ]
        assert visits == [1, 2]
        assert rt.runs.replay(failed.run_id).status == "finished"


def test_the_number_of_retries_is_configurable(project: Path):
    result, events = run(project, ["no"], max_phase_retries=0)
    assert result.status == "failed"
    assert kinds_of(events).count("validation_error") == 1


def test_text_around_the_answer_is_dropped_and_recorded(project: Path):
    import json

    wrapped = f"Sure!\n```json\n{json.dumps(go('second'))}\n```"
    result, events = run(project, [wrapped, finish()])
    assert result.ok
    [unwrapped] = [event.data for event in events if event.kind == "answer_unwrapped"]
    assert unwrapped["dropped"] == len("Sure!\n```json\n") + len("\n```")


# -- how runs end and stop ----------------------------------------------------------------------------------


def test_the_model_may_abort(project: Path):
    result, events = run(project, [go("second"), abort("no oven")])
    assert (result.status, result.reason, result.exit_code) == ("aborted", "no oven", 5)
    assert kinds_of(events)[-3:] == ["control_decided", "phase_completed", "skill_aborted"]


def test_the_visit_limit_stops_the_run_until_it_is_raised(tmp_path: Path):
    write_skill(tmp_path, "spin", {"turn": ["turn", "end"]})
    answers = [go("turn", str(number)) for number in range(4)] + [finish()]
    with open_runtime(tmp_path, answers, max_phase_visits=2, max_phase_retries=0) as rt:
        limited = rt.run("spin", IN)
        assert (limited.status, limited.exit_code) == ("limited", 3)
        assert "`turn` reached `max_phase_visits`, which is 2" in limited.reason
        with pytest.raises(RunNotResumable, match="limit"):
            rt.resume(limited.run_id)
        with pytest.raises(LimitUnknown):
            rt.resume(limited.run_id, raise_limits={"max_phase_visit": 9})
        with pytest.raises(LimitUnknown, match="does not raise"):
            rt.resume(limited.run_id, raise_limits={"max_phase_visits": 2})
        again = rt.resume(limited.run_id, raise_limits={"max_phase_visits": 3})
        assert again.status == "limited"
        result = rt.resume(limited.run_id, raise_limits={"max_phase_visits": 9})
        assert result.ok
        with pytest.raises(LimitUnknown, match="unknown limit `max_phase_visit`") as unknown:
            rt.resume(limited.run_id, raise_limits={"max_phase_visit": 20})
        assert unknown.value.hint.startswith("Did you mean `max_phase_visits`? The limits are `max_phase_visits`, ")
        assert rt.runs.replay(limited.run_id).status == "finished"


def test_a_model_error_fails_the_run_and_a_retry_continues_it(project: Path):
    journal = MemoryJournal()
    with open_runtime(project, [go("second")], journal) as rt:
        failed = rt.run("pair", IN)
        assert failed.status == "failed"
        assert "has 1 answer;" in failed.reason
    with open_runtime(project, [go("second"), finish("at last")], journal) as rt:
        result = rt.resume(failed.run_id, retry=True)
        assert result.artifact == {"type": "note", "data": {"text": "at last"}}
        events = list(rt.runs.events(failed.run_id))
        assert kinds_of(events).count("phase_started") == 2  # the open visit continues and is not started again
        [resumed] = [event.data for event in events if event.kind == "run_resumed"]
        assert resumed == {"driver": "run-1", "retry": True}  # the intent has an outcome: the failure
        assert rt.runs.replay(failed.run_id).status == "finished"


def test_a_cancelled_run_stops_before_its_next_effect(project: Path):
    class Cancelling(ScriptedModel):
        async def complete(self, request):
            rt.cancel("mine", "enough")
            return await super().complete(request)

    journal = MemoryJournal()
    with SyncRuntime.open(project, model=Cancelling([go("second"), finish()]), journal=journal) as rt:
        result = rt.run("pair", IN, run_id="mine")
        assert (result.status, result.reason, result.exit_code) == ("cancelled", "enough", 6)
        assert kinds_of(list(rt.runs.events("mine"))).count("llm_responded") == 1
        assert rt.runs.replay("mine").status == "cancelled"
        assert rt.resume("mine").status == "cancelled"


def test_every_answer_of_a_failed_run_is_recorded(project: Path):
    with open_runtime(project, ["one", "two", "three"]) as rt:
        failed = rt.run("pair", IN)
        texts = [event.data["text"] for event in rt.runs.events(failed.run_id) if event.kind == "llm_responded"]
        assert [rt.runs.content(text) for text in texts] == [b"one", b"two", b"three"]


# -- starting and finding -----------------------------------------------------------------------------------


def test_a_run_id_starts_a_run_once(project: Path):
    journal = MemoryJournal()
    with open_runtime(project, [go("second"), finish()], journal) as rt:
        first = rt.run("pair", IN, run_id="order-17")
        again = rt.run("pair", IN, run_id="order-17")
        assert first == again
        assert kinds_of(list(rt.runs.events("order-17"))).count("run_started") == 1
        with pytest.raises(RunIdTaken):
            rt.run("pair", {"text": "other"}, run_id="order-17")
        for name in ("../up", "", "ä", "a" * 101):
            with pytest.raises(RunIdInvalid):
                rt.run("pair", IN, run_id=name)


def test_the_run_id_of_another_skill_is_refused_whatever_the_input(project: Path):
    folder = write_skill(project, "other", {"a": ["end"]}, inputs={"a": "user_message"})
    with open_runtime(project, [go("second"), finish("end")]) as rt:
        assert rt.run("pair", IN, run_id="k").ok
        for value in ("text", {"text": 1}, {"type": "unknown", "data": {}}, None):
            with pytest.raises(RunIdTaken, match="a run of skill `pair`, not of `other`"):
                rt.run("other", value, run_id="k")
        with pytest.raises(RunIdTaken, match="a run of skill `pair`"):
            rt.run(str(folder), "text", run_id="k")
        assert rt.run(str(project / "reyn/project/pair"), IN, run_id="k").ok
        with pytest.raises(RunIdTaken, match="different input"):
            rt.run("pair", {"text": "different"}, run_id="k")


def test_a_run_is_found_by_a_unique_prefix(project: Path):
    with open_runtime(project, [go("second"), finish()]) as rt:
        rt.run("pair", IN, run_id="alpha")
        rt.run("pair", IN, run_id="alps")
        assert rt.runs.result("alph").run_id == "alpha"
        with pytest.raises(RunNotFound, match="`al` is the beginning of 2 run ids: `alps`, `alpha`"):
            rt.runs.result("al")
        with pytest.raises(RunNotFound):
            rt.runs.result("beta")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({}, "data: 'text' is missing"),
        ({"text": 3}, "data.text"),
        ("plain text", "accepts `note`"),
        ({"type": "other", "data": {}}, "accepts `note`"),
        ([1], "text or a JSON object"),
        ({"text": float("nan")}, "not JSON"),
        ({"text": "\ud800"}, "surrogate"),
        ({"text": object()}, "not JSON"),
        ({1: 2}, "not a string"),
        ({"type": [], "data": {}}, "'text' is missing"),
        ({"type": "note", "data": {"text": "x"}, "more": 1}, "`more`"),
        ({"text": 10**5000}, "too large"),
    ],
)
def test_an_invalid_input_is_refused_before_the_run_exists(project: Path, value, expected: str):
    with open_runtime(project, []) as rt:
        with pytest.raises(InputInvalid, match=None) as caught:
            rt.run("pair", value)
        assert expected in caught.value.message
        assert rt.runs.all() == []


def test_text_is_a_user_message_if_the_entry_phase_accepts_one(tmp_path: Path):
    write_skill(tmp_path, "chat", {"a": ["end"]}, inputs={"a": "user_message"})
    result, events = run(tmp_path, [finish()], "chat", "hello there")
    assert result.ok
    assert events[0].data["input"]["type"] == "user_message"


def test_without_a_model_no_run_starts(project: Path):
    with SyncRuntime.open(project, journal=MemoryJournal()) as rt:
        with pytest.raises(ModelUnknown):
            rt.run("pair", IN)
        assert rt.runs.all() == []


@pytest.mark.parametrize(
    ("keys", "named"),
    [
        (
            {
                "phase_keys": {"a": "preprocessor: [{run_op: {op: {kind: index_merge}}}]\n"},
            },
            "a `run_op` step of `index_merge` in phase `a`",
        ),
    ],
)
def test_a_skill_with_an_unavailable_feature_does_not_start(tmp_path: Path, keys, named: str):
    write_skill(tmp_path, "more", {"a": ["end"]}, **keys)
    with open_runtime(tmp_path, []) as rt, pytest.raises(SkillUnsupported, match=named):
        rt.run("more", IN)


def test_a_run_continues_with_its_own_copy_of_the_skill(project: Path):
    journal = MemoryJournal()
    with open_runtime(project, [go("second")], journal) as rt:
        failed = rt.run("pair", IN)
    for path in (project / "reyn").rglob("*.*"):
        path.unlink()
    with open_runtime(project, [go("second"), finish()], journal) as rt:
        assert rt.resume(failed.run_id, retry=True).ok


def test_a_run_continues_with_its_own_settings(project: Path):
    journal = MemoryJournal()
    with open_runtime(project, [go("second")], journal, output_language="fr") as rt:
        failed = rt.run("pair", IN)
    with open_runtime(project, [go("second"), finish()], journal, output_language="ja") as rt:
        assert rt.resume(failed.run_id, retry=True).ok
        assert rt.runs.replay(failed.run_id).events > 0
        frames = [decode(event) for event in rt.runs.events(failed.run_id) if event.kind == "frame_built"]
        stable = journal.blob(frames[-1].messages[0].parts[0].blob).decode()
        assert "Write all texts in fr." in stable


# -- many at once, streams, drivers ---------------------------------------------------------------------------


def test_concurrent_runs_share_commits(project: Path, tmp_path: Path):
    commits = []

    class Counting(MemoryJournal):
        def append_many(self, batches):
            commits.append(len(batches))
            return super().append_many(batches)

    async def many():
        async with OSRuntime.open(project, model=ScriptedModel([go("second"), finish()]), journal=Counting()) as rt:
            results = await asyncio.gather(*(rt.run("pair", IN) for _ in range(50)))
            assert all(result.ok for result in results)
            for result in results:
                await rt.runs.replay(result.run_id)

    asyncio.run(many())
    assert sum(commits) >= 140
    assert len(commits) < 15


def test_a_stream_yields_durable_events_and_ends_with_the_result(project: Path):
    async def watch():
        async with OSRuntime.open(
            project, model=ScriptedModel([go("second"), finish()]), journal=MemoryJournal()
        ) as rt:
            stream = rt.stream("pair", IN)
            seen = [event async for event in stream]
            assert seen == list(rt.runs.events(stream.result.run_id))
            assert stream.result.ok
            with pytest.raises(InputInvalid):
                async for _ in rt.stream("pair", 3):
                    pass

    asyncio.run(watch())


def test_closing_a_stream_early_leaves_a_run_that_can_be_resumed(project: Path):
    class Slow(ScriptedModel):
        async def complete(self, request):
            if request.answered == 1:
                await asyncio.sleep(60)
            return await super().complete(request)

    async def watch():
        journal = MemoryJournal()
        async with OSRuntime.open(project, model=Slow([go("second"), finish()]), journal=journal) as rt:
            stream = rt.stream("pair", IN, run_id="s")
            async for event in stream:
                if event.kind == "phase_completed":
                    break
            await stream.aclose()
            assert rt.runs.display_status(rt.runs.find("s")) == "running (interrupted)"
        async with OSRuntime.open(project, model=ScriptedModel([go("second"), finish()]), journal=journal) as rt:
            assert (await rt.resume("s")).ok

    asyncio.run(watch())


def test_concurrent_calls_with_one_run_id_get_the_result_of_one_execution(project: Path):
    async def together():
        model = ScriptedModel([go("second"), finish()])
        async with OSRuntime.open(project, model=model, journal=MemoryJournal()) as rt:
            results = await asyncio.gather(*(rt.run("pair", IN, run_id="one") for _ in range(5)))
            assert all(result.ok and result == results[0] for result in results)
            assert [event.kind for event in rt.runs.events("one")].count("skill_completed") == 1
            assert not [event for event in rt.runs.events("one") if event.kind == "run_resumed"]
            with pytest.raises(RunIdTaken, match="different input"):
                await rt.run("pair", {"text": "other"}, run_id="one")

    asyncio.run(together())


@pytest.mark.parametrize("cancelled", [[0], [1], [2], [0, 1], [1, 0], [2, 0], [0, 1, 2], [2, 1, 0]])
def test_an_execution_goes_on_while_a_caller_waits_for_it(project: Path, cancelled: list[int]):
    async def together():
        asked, go_on = asyncio.Event(), asyncio.Event()

        class Slow(ScriptedModel):
            takes_time = True

            async def complete(self, request):
                asked.set()
                await go_on.wait()
                return await super().complete(request)

        async with OSRuntime.open(project, model=Slow([go("second"), finish()]), journal=MemoryJournal()) as rt:
            callers = [asyncio.create_task(rt.run("pair", IN, run_id="one")) for _ in range(3)]
            await asked.wait()
            for number in cancelled:
                callers[number].cancel()
                await asyncio.wait([callers[number]])
                assert callers[number].cancelled()
            assert rt.services.journal.is_claimed("one") == (len(cancelled) < 3)
            go_on.set()
            left = [await caller for number, caller in enumerate(callers) if number not in cancelled]
            assert all(result.ok for result in left)
            events = [event.kind for event in rt.runs.events("one")]
            assert ("skill_completed" in events) == bool(left)
            assert "run_resumed" not in events
            assert (await rt.run("pair", IN, run_id="one")).ok  # continues it if all were cancelled

    asyncio.run(together())


def test_without_waiting_the_state_of_a_run_that_is_executed_is_returned(project: Path):
    async def both():
        asked, go_on = asyncio.Event(), asyncio.Event()

        class Slow(ScriptedModel):
            takes_time = True

            async def complete(self, request):
                asked.set()
                await go_on.wait()
                return await super().complete(request)

        async with OSRuntime.open(project, model=Slow([go("second"), finish()]), journal=MemoryJournal()) as rt:
            first = asyncio.create_task(rt.run("pair", IN, run_id="one"))
            await asked.wait()
            second = asyncio.create_task(rt.run("pair", IN, run_id="one"))
            assert (await rt.run("pair", IN, run_id="one", wait=False)).status == "running"
            assert not second.done()
            go_on.set()
            assert await second == await first

    asyncio.run(both())


def test_a_visit_that_awaits_anything_but_an_effect_is_an_error(project: Path, monkeypatch: pytest.MonkeyPatch):
    from reyn.errors import ForeignAwait
    from reyn.kernel.visit import compiled_skill

    async def visit(*args):
        await asyncio.sleep(1)

    monkeypatch.setattr(compiled_skill, "visit", visit)
    with open_runtime(project, []) as rt, pytest.raises(ForeignAwait):
        rt.run("pair", IN)


def test_a_run_under_unsupported_rules_is_blocked_but_readable(project: Path, monkeypatch: pytest.MonkeyPatch):
    from reyn.kernel import versions

    journal = MemoryJournal()
    monkeypatch.setattr(versions, "RULES", 99)
    with open_runtime(project, [go("second")], journal) as rt:
        failed = rt.run("pair", IN)
        for blocked in (lambda: rt.resume(failed.run_id, retry=True), lambda: rt.runs.replay(failed.run_id)):
            with pytest.raises(RunBlocked, match="rules 99"):
                blocked()
        assert rt.runs.display_status(rt.runs.all()[0]) == "blocked"
        assert rt.runs.verify(failed.run_id).events == len(list(rt.runs.events(failed.run_id)))


def test_token_usage_is_summed(project: Path):
    from reyn import ModelAnswer

    class Counting:
        name = "counting"

        async def complete(self, request):
            text = [go("second"), finish()][request.answered]
            return ModelAnswer(msgspec.json.encode(text).decode(), kinds.Usage(10, 3))

    with SyncRuntime.open(project, model=Counting(), journal=MemoryJournal()) as rt:
        assert rt.run("pair", IN).usage == kinds.Usage(20, 6)


def test_a_model_that_raises_fails_the_run_with_its_error(project: Path):
    class Broken:
        name = "broken"

        async def complete(self, request):
            raise KeyError("choices")

    journal = MemoryJournal()
    with SyncRuntime.open(project, model=Broken(), journal=journal) as rt:
        result = rt.run("pair", IN, run_id="r")
        assert result.status == "failed"
        assert "KeyError: 'choices'" in result.reason
    with open_runtime(project, [go("second"), finish()], journal) as rt:
        assert rt.resume("r", retry=True).ok


def test_a_listener_that_raises_is_dropped_and_the_run_continues(project: Path):
    seen = []

    def listener(event):
        seen.append(event.seq)
        raise BrokenPipeError("gone")

    with open_runtime(project, [go("second"), finish()]) as rt:
        result = rt.run("pair", IN, listener=listener)
        assert result.ok
        assert seen == [1]
        assert result.warnings == ("the listener failed at event 1 and was dropped: BrokenPipeError('gone')",)


def test_the_id_of_a_stopped_run_returns_its_result_without_a_retry(project: Path):
    with open_runtime(project, ["no"] * 3 + [go("second"), finish()]) as rt:
        failed = rt.run("pair", IN, run_id="k")
        assert failed.status == "failed"
        assert rt.run("pair", IN, run_id="k") == failed
        assert rt.resume("k", retry=True).ok
        with pytest.raises(RunNotResumable, match="already finished"):
            rt.cancel("k")


def test_a_run_id_continues_its_run_even_if_the_skill_was_deleted(project: Path):
    class Gone(BaseException):
        pass

    class Dying(ScriptedModel):
        async def complete(self, request):
            if request.answered == 1:
                raise Gone
            return await super().complete(request)

    journal = MemoryJournal()
    with SyncRuntime.open(project, model=Dying([go("second")]), journal=journal) as rt, pytest.raises(Gone):
        rt.run("pair", IN, run_id="k")
    (project / "reyn/project/pair/skill.md").unlink()
    with open_runtime(project, [go("second"), finish()], journal) as rt:
        with pytest.raises(RunIdTaken):
            rt.run("other", IN, run_id="k")
        assert rt.run("pair", IN, run_id="k").ok


# -- what once went wrong -------------------------------------------------------------------------------------


class Interrupting(ScriptedModel):
    """Posts a message to its own run before it answers."""

    def __init__(self, answers: list, say) -> None:
        super().__init__(answers)
        self.say = say

    async def complete(self, request):
        self.say(request)
        return await super().complete(request)


def test_the_id_of_a_cancelled_run_does_not_restart_it(project: Path):
    journal = MemoryJournal()
    model = Interrupting([go("second"), finish()], lambda request: rt.cancel("k", "enough"))
    with SyncRuntime.open(project, model=model, journal=journal) as rt:
        assert rt.run("pair", IN, run_id="k").status == "cancelled"
        count = len(list(rt.runs.events("k")))
        assert rt.run("pair", IN, run_id="k").status == "cancelled"
        assert len(list(rt.runs.events("k"))) == count


@pytest.mark.parametrize("answers", [["no"] * 3, [go("second")]])
def test_a_failed_run_can_be_cancelled(project: Path, answers: list):
    with open_runtime(project, answers) as rt:
        rt.run("pair", IN, run_id="k")
        rt.cancel("k", "no use")
        assert rt.resume("k").status == "cancelled"
        assert rt.runs.replay("k").status == "cancelled"


def test_an_invalid_message_is_never_posted(tmp_path: Path):
    from reyn.errors import EventInvalid

    write_skill(tmp_path, "spin", {"turn": ["turn", "end"]})
    with open_runtime(tmp_path, [go("turn"), go("turn"), finish()], max_phase_visits=1, max_phase_retries=0) as rt:
        rt.run("spin", IN, run_id="k")
        with pytest.raises(EventInvalid):
            rt.resume("k", raise_limits={"max_phase_visits": 3.5})
        with pytest.raises(EventInvalid):
            rt.cancel("k", None)
        assert rt.resume("k", raise_limits={"max_phase_visits": 9}).ok
        with pytest.raises(RunNotResumable, match="cannot be continued"):
            rt.resume("k", raise_limits={"max_phase_visits": 99})


@pytest.mark.parametrize("usage", [kinds.Usage(-1, 0), kinds.Usage(1.5, 0), {"input_tokens": "x"}, object()])
def test_an_invalid_token_count_loses_the_count_and_not_the_answer(project: Path, usage):
    from reyn import ModelAnswer

    class Miscounting:
        name = "miscounting"

        async def complete(self, request):
            return ModelAnswer(msgspec.json.encode([go("second"), finish()][request.answered]).decode(), usage)

    with SyncRuntime.open(project, model=Miscounting(), journal=MemoryJournal()) as rt:
        result = rt.run("pair", IN)
        assert result.ok
        assert result.usage == kinds.Usage()
        assert "reported invalid token counts" in result.warnings[0]


@pytest.mark.parametrize("reply", [None, 5, b"bytes"])
def test_an_invalid_reply_fails_the_run(project: Path, reply):
    class Odd:
        name = "odd"

        async def complete(self, request):
            return reply

    with SyncRuntime.open(project, model=Odd(), journal=MemoryJournal()) as rt:
        assert rt.run("pair", IN).status == "failed"


def test_a_new_model_on_resume_is_recorded(project: Path):
    journal = MemoryJournal()
    with open_runtime(project, [go("second")], journal) as rt:
        rt.run("pair", IN, run_id="k")
    with SyncRuntime.open(project, model=ScriptedModel(["no", go("second"), finish()], "other"), journal=journal) as rt:
        assert rt.resume("k", retry=True).ok
        [resumed] = [event.data for event in rt.runs.events("k") if event.kind == "run_resumed"]
        assert resumed["model"] == "other"
        models = [event.data["model"] for event in rt.runs.events("k") if event.kind == "llm_requested"]
        assert models[0] == "scripted"
        assert set(models[2:]) <= {"other"}
        assert rt.runs.replay("k").status == "finished"


def test_a_lone_surrogate_in_an_answer_is_replaced(project: Path):
    journal = MemoryJournal()
    with open_runtime(project, ["\ud800", go("second"), finish()], journal) as rt:
        rt.run("pair", IN, run_id="k")
        texts = [event.data["text"] for event in rt.runs.events("k") if event.kind == "llm_responded"]
        assert journal.blob(texts[0]) == b"\\ud800"
