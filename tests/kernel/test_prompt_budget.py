"""The token budget of a whole prompt: what is truncated first, what never is, and how it is counted and recorded."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reyn import SyncRuntime
from reyn.config.values import PromptLimit
from reyn.context import estimate_tokens
from reyn.errors import CounterUnavailable, ModelBroken, RunBlocked
from reyn.journal import MemoryJournal, decode, kinds
from reyn.kernel.visit.compiled_phase import UNCALIBRATED
from reyn.kernel.visit.prompt_budget import MESSAGE_TOKENS
from reyn.models import ModelAnswer
from reyn.runs.frames import RecordedPrompt
from reyn.testing import ScriptedModel
from tests.fuzz.archives import Archive
from tests.kernel.support import IN, Project
from tests.kernel.test_handoffs import plant
from tests.support import act, file, finish, go, write_skill

CHAIN = {"look": ["build"], "build": ["check"], "check": ["end"]}
WORDS = "The quick brown fox jumps over the lazy dog. "


def configure(root: Path, limit: int, **context: Any) -> None:
    (root / "reyn.yaml").write_text(f"context: {json.dumps({'max_prompt_tokens': limit} | context)}\n")


def one_phase(root: Path, ops: str = "file", keys: str = "") -> Project:
    write_skill(root, "s", {"a": ["end"]}, ops={"a": ops}, phase_keys={"a": keys})
    return Project(root)


def tokens_of(project: Project, call: int, count: Callable[[str], int] = estimate_tokens) -> int:
    """Count a prompt that was sent, with the tokens of the chat template."""
    system, *others = project.model.requests[call].messages
    return count(system.text) + count("".join(one.text for one in others)) + MESSAGE_TOKENS * (1 + len(others))


def budgets(project: Project, run_id: str = "k") -> list[dict[str, Any] | None]:
    return [frame.get("budget") for frame in project.events("frame_built", run_id=run_id)]


def test_an_input_that_exceeds_the_budget_is_truncated_and_can_be_read(tmp_path: Path):
    project = one_phase(tmp_path)
    configure(tmp_path, 800)
    rest = act(file("read", "workspace:.full/1.input", start=15_000, length=100))
    assert project.run("s", [rest, finish()], {"text": WORDS * 400}).ok
    assert tokens_of(project, 0) <= 800
    assert tokens_of(project, 0) > 700
    text = project.model.turn_message(0)
    assert text.startswith(WORDS)
    assert (
        '[truncated. Read the whole, in parts, with {"kind": "file", "op": "read", "path": "workspace:.full/1.in'
        in text
    )
    assert project.results()[0]["status"] == "ok"
    assert len(project.results()[0]["content"]) == 100
    budget = budgets(project)[0]
    assert budget is not None
    assert (budget["limit"], budget["counter"]) == (800, "bytes")
    assert budget["tokens"] <= 800
    costs = {section["name"]: section for section in budget["sections"]}
    assert costs["input"]["original_tokens"] == 4500
    assert costs["input"]["tokens"] < 800
    assert costs["system"]["tokens"] == costs["system"]["original_tokens"]
    assert project.is_sound()


def test_without_a_budget_and_below_it_prompts_do_not_change(tmp_path: Path):
    plain, limited, short = (tmp_path / name for name in ("plain", "limited", "short"))
    projects = [one_phase(root) for root in (plain, limited, short)]
    configure(limited, 100_000)
    configure(short, 1_500)
    for project in projects:
        assert project.run("s", [finish()], {"text": WORDS * 20}).ok
    first, *others = projects
    for other in others:
        assert other.model.requests[0].messages == first.model.requests[0].messages
    assert budgets(first) == [None]
    assert budgets(projects[1]) == [None]  # fewer bytes than tokens: it fits, however it is counted
    [counted] = budgets(projects[2])
    assert counted == {
        "limit": 1500,
        "tokens": tokens_of(short_project := projects[2], 0),
        "counter": "bytes",
        "factor": 1000,
    }
    assert all(project.is_sound() for project in (*others, short_project))


def test_the_oldest_results_are_truncated_first_and_the_newest_kept_longest(tmp_path: Path):
    project = one_phase(tmp_path)
    configure(tmp_path, 1500)
    answers = []
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text(f"begin{number} " + WORDS * 40 + f"end{number}")
        answers.append(act(file("read", f"{number}.txt")))
    assert project.run("s", [*answers, finish()]).ok
    assert all(tokens_of(project, call) <= 1500 for call in range(6))
    assert "end0" in project.model.turn_message(1)
    last = project.model.turn_message(5)
    assert "end4" in last
    assert "begin0" not in last
    assert "(older results are truncated or left out)" in last
    assert last.startswith("in\n\n# Results\n")
    budget = budgets(project)[-1]
    assert budget is not None
    assert "1.1.1" in [one["name"] for one in budget["truncated"]]
    costs = {section["name"]: section["tokens"] < section["original_tokens"] for section in budget["sections"]}
    assert costs == {"system": False, "input": False, "results": True, "notes": False}
    assert project.is_sound()


def test_handoffs_go_before_reads_and_reads_before_the_input(tmp_path: Path):
    write_skill(
        tmp_path,
        "s",
        CHAIN,
        artifacts={"plan": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}},
        inputs={"build": "plan"},
        phase_keys={"check": "context: {handoff_fields: [goal, decisions_made], narrative_cap: 2000}\nreads: [plan]\n"},
    )
    project = Project(tmp_path)
    plan = go("build", "PLAN " + WORDS * 30, "plan")
    answers = [plan, go("check", "CODE " + WORDS * 20), finish()]
    truncated = []
    for number, limit in enumerate((2000, 1250, 900, 560)):
        configure(tmp_path, limit)
        assert project.run("s", answers, run_id=f"r{number}").ok
        assert tokens_of(project, 2) <= limit
        budget = budgets(project, f"r{number}")[-1] or {}
        sections = budget.get("sections", [])
        truncated.append([one["name"] for one in sections if one["tokens"] < one["original_tokens"]])
        assert project.is_sound(f"r{number}")
    assert truncated == [[], ["handoff"], ["earlier plan", "handoff"], ["input", "earlier plan", "handoff"]]


def test_of_the_handoffs_the_oldest_is_truncated_first(tmp_path: Path):
    write_skill(tmp_path, "s", CHAIN, phase_keys={"check": "context: {narrative_cap: 2000}\n"})
    project = Project(tmp_path)
    configure(tmp_path, 520)
    assert project.run("s", [go("build", "OLD " + WORDS * 20), go("check", "NEW " + WORDS * 6), finish()]).ok
    assert tokens_of(project, 2) <= 520
    text = project.model.turn_message(2).partition("# Handoff")[2]
    assert "Narrative: NEW" in text
    assert "Narrative: OLD" not in text


def test_a_run_stops_where_only_what_is_never_truncated_is_left(tmp_path: Path):
    project = one_phase(tmp_path)
    configure(tmp_path, 60)
    stopped = project.run("s", [finish()], {"text": WORDS * 20})
    assert stopped.status == "limited"
    assert "`max_prompt_tokens` is 60" in stopped.reason
    assert "phase `a`: the parts of the prompt that are never truncated take " in stopped.reason
    assert project.model.requests == []
    assert project.is_sound()
    assert project.resume([finish()], raise_limits={"max_prompt_tokens": 500}).ok
    assert tokens_of(project, 0) <= 500
    assert project.is_sound()


def test_a_limit_can_be_removed(tmp_path: Path):
    project = one_phase(tmp_path)
    configure(tmp_path, 60)
    assert project.run("s", [finish()], {"text": WORDS * 100}).status == "limited"
    assert project.resume([finish()], raise_limits={"max_prompt_tokens": None}).ok
    assert WORDS * 99 in project.model.turn_message(0)
    assert project.is_sound()


def test_a_phase_has_its_own_limit_then_its_skill_then_the_project(tmp_path: Path):
    keys = {"look": "context: {max_prompt_tokens: 500}\n"}
    write_skill(tmp_path, "s", CHAIN, phase_keys=keys, skill_keys="context: {max_prompt_tokens: 600}\n")
    write_skill(tmp_path, "t", {"a": ["end"]})
    project = Project(tmp_path)
    configure(tmp_path, 700)
    long = WORDS * 200
    assert project.run("s", [go("build", long), go("check", long), finish()], {"text": long}).ok
    assert [budget and budget["limit"] for budget in budgets(project)] == [500, 600, 600]
    assert project.run("t", [finish()], {"text": long}, run_id="t").ok
    assert [budget and budget["limit"] for budget in budgets(project, "t")] == [700]
    assert "handoff_recorded" not in project.kinds()


class Window(ScriptedModel):
    """A model that declares its prompt limit and reports how many tokens a prompt had."""

    def __init__(self, answers: list[Any], per_token: float | None = None, limit: int = 600) -> None:
        super().__init__(answers)
        self.max_prompt_tokens = limit
        self.requests: list[Any] = []
        self._per_token = per_token

    async def complete(self, request: Any) -> ModelAnswer:
        self.requests.append(request)
        reply = await super().complete(request)
        if self._per_token is None:
            return reply
        length = sum(len(message.text) for message in request.messages)
        return ModelAnswer(reply.text, kinds.Usage(int(length / self._per_token), 10, 0))


class Tokenizing(Window):
    """A model with a tokenizer of its own: one token per word."""

    counted = 0
    is_broken = False

    async def with_tokenizer(self, work: Callable[[Callable[[str], int]], Any]) -> Any:
        if self.is_broken:
            raise ModelBroken("the tokenizer is not loaded")
        return work(self._count)

    def _count(self, text: str) -> int:
        Tokenizing.counted += 1
        return len(text.split())


def run_with(project: Project, model: Any, value: Any, **how: Any) -> Any:
    project.model = model
    with project.open([], model=model) as rt:
        project.model = model
        return rt.run("s", value, run_id="k", **how)


def test_a_model_declares_its_limit_and_a_smaller_one_of_the_project_holds(tmp_path: Path):
    project = one_phase(tmp_path)
    assert run_with(project, Window([finish()], limit=800), {"text": WORDS * 100}).ok
    assert tokens_of(project, 0) <= 800
    assert [budget and budget["limit"] for budget in budgets(project)] == [800]
    assert project.is_sound()
    for limit, expected in ((5000, 800), (700, 700)):
        other = one_phase(tmp_path / str(limit))
        configure(tmp_path / str(limit), limit)
        assert run_with(other, Window([finish()], limit=800), {"text": WORDS * 100}).ok
        assert [budget and budget["limit"] for budget in budgets(other)] == [expected]


def test_the_usage_that_a_model_reports_calibrates_the_estimate(tmp_path: Path):
    write_skill(tmp_path, "s", CHAIN)
    project = Project(tmp_path)
    long = WORDS * 100
    answers = [go("build", long), go("check", long), finish()]
    assert run_with(project, Window(answers, per_token=2, limit=1000), {"text": long}).ok
    first, second, third = (budget or {} for budget in budgets(project))
    assert first["factor"] == UNCALIBRATED
    assert 1900 < second["factor"] < 2000  # two characters a token, less the tokens of the chat template
    assert 1900 < third["factor"] < 2000
    lengths = [sum(len(message.text) for message in request.messages) for request in project.model.requests]
    assert lengths[1] <= 2100
    assert lengths[1] < 0.7 * lengths[0]
    assert project.is_sound()


@pytest.mark.parametrize("text", ["def f(x):\n    return x+1\n" * 400, "敏捷的棕色狐狸跳过懒狗。" * 300, WORDS * 200])
def test_a_first_prompt_leaves_a_margin_in_the_window_of_a_model(tmp_path: Path, text: str):
    """A tokenizer that takes a token for every 3.2 bytes refuses a prompt that fills the window by the estimate."""
    write_skill(tmp_path, "s", {"a": ["end"]})
    project = Project(tmp_path)
    assert run_with(project, Window([finish()], per_token=1, limit=1000), {"text": text}).ok
    [message, turn] = project.model.requests[0].messages
    assert len((message.text + turn.text).encode()) / 3.2 <= 1000
    [budget] = budgets(project)
    assert (budget["factor"], budget["limit"]) == (UNCALIBRATED, 1000)
    write_skill(tmp_path / "own", "s", {"a": ["end"]})
    own = Project(tmp_path / "own")
    configure(tmp_path / "own", 900)
    assert run_with(own, Window([finish()], per_token=1, limit=1000), {"text": text}).ok
    assert [budget["factor"] for budget in budgets(own)] == [1000]  # a limit of the project holds under its own counter


def test_a_nonsensical_usage_does_not_break_the_estimate(tmp_path: Path):
    write_skill(tmp_path, "s", CHAIN)
    long = WORDS * 100
    for number, per_token in enumerate((1e-3, 1e9)):
        project = Project(tmp_path, MemoryJournal())
        answers = [go("build", long), go("check", long), finish()]
        result = run_with(project, Window(answers, per_token=per_token), {"text": long})
        factors = [(budget or {}).get("factor", 1000) for budget in budgets(project)]
        assert result.status == ("limited", "finished")[number]
        assert all(250 <= factor <= 8000 for factor in factors)
        assert project.is_sound()


@pytest.mark.parametrize(("counter", "characters"), [("auto", 250), ("bytes", 250), ("chars", 800)])
def test_estimates_count_bytes_or_characters(tmp_path: Path, counter: str, characters: int):
    project = one_phase(tmp_path)
    configure(tmp_path, 700, counter=counter)
    assert project.run("s", [finish()], {"text": "漢字と仮名。" * 400}).ok
    [budget] = budgets(project)
    assert budget is not None
    assert budget["counter"] == ("chars" if counter == "chars" else "bytes")
    assert characters < project.model.turn_message(0).count("仮名") * 6 < 2 * characters
    assert project.is_sound()


def test_the_tokenizer_of_a_model_counts_its_prompts_and_a_replay_needs_none(tmp_path: Path):
    project = one_phase(tmp_path)
    model = Tokenizing([finish()])
    assert run_with(project, model, {"text": WORDS * 200}).ok
    assert tokens_of(project, 0, lambda text: len(text.split())) <= 600
    assert "[truncated. Read the whole" in model.requests[0].messages[1].text
    [counted] = project.events("tokens_counted")
    assert (counted["counter"], counted["original_tokens"] > 1800) == ("model", True)
    [budget] = budgets(project)
    assert budget is not None
    assert (budget["counter"], budget["tokens"]) == ("model", counted["tokens"])
    assert 500 < budget["tokens"] <= 600
    Tokenizing.counted = 0
    assert project.is_sound()
    assert Tokenizing.counted == 0


def test_a_tokenizer_counts_static_text_once(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["a", "end"]})
    project = Project(tmp_path)
    long = WORDS * 30  # too long to be sure, short enough to fit
    seen: list[str] = []

    class Listening(Tokenizing):
        def _count(self, text: str) -> int:
            seen.append(text)
            return super()._count(text)

    assert run_with(project, Listening([go("a", long + "1"), go("a", long + "2"), finish()]), {"text": long}).ok
    assert len(project.events("tokens_counted")) == 3
    assert len([text for text in seen if "Do what a does." in text]) == 1


def test_a_run_fails_if_the_tokenizer_does_and_continues_when_it_works(tmp_path: Path):
    project = one_phase(tmp_path)
    model = Tokenizing([finish()])
    model.is_broken = True
    failed = run_with(project, model, {"text": WORDS * 200})
    assert (failed.status, "the tokenizer is not loaded" in failed.reason) == ("failed", True)
    assert model.requests == []
    with project.open([], model=Tokenizing([finish()])) as rt:
        assert rt.resume("k", retry=True).ok
    assert project.is_sound()


def test_exact_counts_limit_handoffs_and_prompts(tmp_path: Path):
    from reyn.context.token_counting import exact_counter

    write_skill(tmp_path, "s", CHAIN, phase_keys={"check": "context: {max_tokens: 120, narrative_cap: 2000}\n"})
    project = Project(tmp_path)
    configure(tmp_path, 700, counter="exact")
    text = "0123456789abcdef漢字 " * 150
    assert project.run("s", [go("build", text), go("check", text), finish()], {"text": text}).ok
    count = exact_counter().count
    assert all(tokens_of(project, call, count) <= 700 for call in range(3))
    assert all(tokens_of(project, call, count) > 600 for call in range(3))
    [applied] = project.events("context_budget_applied")
    assert applied["counter"] == "o200k_base"
    assert 100 < applied["truncated_tokens"] <= 120
    block = project.journal.blob(applied["text"]).decode()
    assert count(block) == applied["truncated_tokens"]
    assert {one["counter"] for one in project.events("tokens_counted")} == {"o200k_base"}
    assert project.is_sound()


def test_a_replay_needs_no_exact_counter_and_a_new_run_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    project = one_phase(tmp_path)
    configure(tmp_path, 700, counter="exact")
    assert project.run("s", [finish()], {"text": WORDS * 200}).ok
    monkeypatch.setattr("reyn.context.token_counting.find_spec", lambda name: None)
    monkeypatch.setattr(
        "reyn.context.token_counting.import_module", lambda name: pytest.fail("a replay loaded the counter")
    )
    assert project.is_sound()
    with pytest.raises(CounterUnavailable, match=r"needs the extra `tokens`") as caught:
        project.run("s", [finish()], run_id="other")
    assert caught.value.code == "RYN720"
    assert "reyn[tokens]" in caught.value.hint


def test_a_sub_run_has_the_limit_of_its_model_and_of_a_raise_in_its_parent(tmp_path: Path):
    write_skill(tmp_path, "child", {"c": ["end"]})
    write_skill(tmp_path, "s", {"@child": ["z"], "z": ["end"]}, entry="@child")
    project = Project(tmp_path)
    configure(tmp_path, 60)
    stopped = project.run("s", [finish(), finish()], {"text": WORDS * 40})
    assert (stopped.status, "sub-run" in stopped.reason) == ("limited", True)
    assert project.resume([finish(), finish()], raise_limits={"max_prompt_tokens": 400}).ok
    assert all(tokens_of(project, call) <= 400 for call in range(2))
    assert project.is_sound()
    assert project.is_sound("k.1.1")


def test_an_interrupted_visit_is_asked_again_with_the_same_prompt(tmp_path: Path):
    project = one_phase(tmp_path)
    configure(tmp_path, 700)
    (tmp_path / "f.txt").write_text(WORDS * 100)
    answers = [act(file("read", "f.txt")), finish()]
    assert project.run("s", answers[:1], {"text": WORDS * 50}).status == "failed"
    before = project.events("frame_built")[-1]
    assert project.resume(answers, retry=True).ok
    assert project.events("frame_built")[-1] == before
    assert tokens_of(project, 0) <= 700
    assert project.is_sound()


def test_a_rejected_answer_is_truncated_in_the_correction(tmp_path: Path):
    project = one_phase(tmp_path)
    configure(tmp_path, 600)
    assert project.run("s", [json.dumps({"junk": WORDS * 100}), finish()], {"text": WORDS * 10}).ok
    messages = project.model.requests[1].messages
    assert [message.role for message in messages] == ["system", "user", "assistant", "user"]
    assert tokens_of(project, 1) <= 600
    assert "workspace:.full/1.1.answer" in messages[2].text
    assert messages[3].text.startswith("Your answer was rejected")
    assert project.is_sound()


def test_a_preview_is_truncated_as_a_run_is_and_warns_where_a_run_would_stop(tmp_path: Path):
    project = one_phase(tmp_path)
    configure(tmp_path, 500, counter="exact")
    with project.open([]) as rt:
        frame = rt.project.first_frame("s", {"text": WORDS * 100})
        assert "[truncated. Read the whole" in frame.messages[1][1]
        assert frame.input_artifact["data"]["text"] == WORDS * 100
        assert frame.warnings == ()
    configure(tmp_path, 50)
    with project.open([]) as rt:
        frame = rt.project.first_frame("s", {"text": WORDS * 100})
        assert WORDS * 99 in frame.messages[1][1]
        assert "`max_prompt_tokens` is 50" in frame.warnings[0]


def test_the_sections_of_a_frame_are_those_that_the_budget_recorded(tmp_path: Path):
    project = one_phase(tmp_path)
    configure(tmp_path, 500)
    assert project.run("s", [finish()], {"text": WORDS * 100}).ok
    sections = RecordedPrompt.at("k", project.journal.read("k"), None, project.journal.blob).sections
    [recorded] = [body.budget for body in map(decode, project.journal.read("k")) if isinstance(body, kinds.FrameBuilt)]
    assert recorded is not None
    assert [(one.name, one.tokens, one.original_tokens) for one in sections] == [
        (one.name, one.tokens, one.original_tokens) for one in recorded.sections
    ]


@pytest.mark.parametrize(
    ("models", "counter", "limit"),
    [
        ({"m": {"model": "openai:x"}}, "auto", PromptLimit()),
        ({"m": {"model": "openai:x", "context_tokens": 8000}}, "auto", PromptLimit(6976)),
        (
            {"m": {"model": "openai:x", "context_tokens": 8000, "max_tokens": 3000}},
            "exact",
            PromptLimit(5000, "o200k_base"),
        ),
        ({"m": {"model": "openai:x", "context_tokens": 256}}, "auto", PromptLimit(128)),
        ({"m": {"model": "local"}}, "auto", PromptLimit(7168, "model")),
        ({"m": {"model": "local"}}, "chars", PromptLimit(7168, "chars")),
        ({"m": {"model": "local", "context_tokens": 2048}}, "exact", PromptLimit(1024, "model")),
        (
            {"m": {"model": "openai:x", "context_tokens": 32000, "fallback": ["n"]}, "n": {"model": "local"}},
            "auto",
            PromptLimit(7168),
        ),
    ],
)
def test_the_limit_of_a_model_is_its_window_less_its_answer(
    tmp_path: Path, models: dict[str, Any], counter: str, limit: PromptLimit
):
    (tmp_path / "reyn.yaml").write_text(json.dumps({"models": models, "model": "m", "context": {"counter": counter}}))
    with SyncRuntime.open(tmp_path, trust=True) as rt:
        assert rt.async_form.services.roster.prompt_limit("m") == limit


def test_a_small_window_of_a_class_limits_the_phases_of_that_class(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["b"], "b": ["end"]}, phase_keys={"a": "model_class: light\n"})
    script = [go("b", WORDS * 100), finish()]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in script))
    light = {"model": "scripted:answers.jsonl", "context_tokens": 512, "max_tokens": 100}
    (tmp_path / "reyn.yaml").write_text(json.dumps({"models": {"light": light}, "model": "scripted:answers.jsonl"}))
    project = Project(tmp_path)
    with project.open([], model=None) as rt:
        assert rt.run("s", {"text": WORDS * 100}, run_id="k").ok
    assert [budget and budget["limit"] for budget in budgets(project)] == [412, None]
    assert project.is_sound()


def test_a_resumed_run_has_the_limit_of_its_new_model(tmp_path: Path):
    write_skill(tmp_path, "s", {"a": ["b"], "b": ["end"]})
    project = Project(tmp_path)
    assert project.run("s", [go("b", WORDS * 100)], IN).status == "failed"
    assert budgets(project) == [None, None]
    small = Window([go("b"), finish()])
    small.name = "small"
    with project.open([], model=small) as rt:
        assert rt.resume("k", retry=True).ok
    [resumed] = project.events("run_resumed")
    assert resumed["prompt_limit"] == {"tokens": 600}


@pytest.mark.parametrize("forgery", ["bytes", "sections"])
def test_a_run_with_a_forged_count_is_blocked(tmp_path: Path, forgery: str):
    project = one_phase(tmp_path)
    configure(tmp_path, 700, counter="exact")
    assert project.run("s", [finish()], {"text": WORDS * 200}).ok
    with project.open([]) as rt:
        archive = Archive(b"".join(rt.runs.export("k")))
    [counted] = [event["data"] for event in archive.events if event["kind"] == "tokens_counted"]
    if forgery == "sections":
        counted["sections"] = counted["sections"][:1]
    else:
        [section] = [one for one in counted["sections"] if one.get("text")]
        section["text"] = archive.add_blob(b"\xff")
    other = Project(tmp_path)
    plant(other, archive)
    with other.open([]) as rt, pytest.raises(RunBlocked):
        rt.runs.replay("k")
