"""The example `graphs`: twelve tasks whose graph decides, each linted, drawn, executed and replayed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from reyn import RunResult, SyncRuntime
from reyn.skills import drawing
from reyn.testing import ScriptedModel
from tests.support import load_skill

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/graphs"
SKILLS = EXAMPLE / "reyn/project"
GUIDE = ROOT / "docs/guides/decide-in-code.md"
NAMES = sorted(path.name for path in SKILLS.iterdir())


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(EXAMPLE, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def answer(target: str, type: str, **data: Any) -> dict[str, Any]:
    """An answer of the model that goes on to a phase, or finishes."""
    is_end = target == "end"
    control = {
        "type": "finish" if is_end else "transition",
        "decision": "finish" if is_end else "continue",
        "next_phase": None if is_end else target,
        "confidence": 0.9,
        "reason": {"summary": "it fits"},
    }
    return {"control": control, "artifact": {"type": type, "data": data}}


def play(root: Path, skill: str, value: Any, *answers: Any, said: tuple[str, ...] = (), **options: Any) -> RunResult:
    """Run a skill with the answers of the model and of the user, and replay it."""
    with SyncRuntime.open(root, model=ScriptedModel(list(answers)), trust=True, **options) as rt:
        result = rt.run(skill, value, run_id="run")
        for text in said:
            assert result.question is not None, result
            rt.answer("run", result.question.id, text)
            result = rt.resume("run")
        assert rt.runs.replay("run").status == result.status
        rt.runs.verify("run")
    return result


def lines_of(name: str) -> int:
    """Return the number of lines of a skill that are not blank."""
    files = [path for path in (SKILLS / name).rglob("*") if path.is_file()]
    return sum(bool(line.strip()) for path in files for line in path.read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("name", NAMES)
def test_lint_has_no_findings_and_the_graph_can_be_drawn(name: str, project: Path):
    with SyncRuntime.open(project) as rt:
        assert [one for one in rt.project.lint(name) if one.severity != "info"] == []
    skill = load_skill(SKILLS / name)
    text, mermaid = drawing.to_text(skill), drawing.to_mermaid(skill)
    assert text.startswith("● entry ─▶ ")
    assert mermaid.startswith("flowchart TD\n")
    assert all(f"\n{node}\n" in text for node in drawing.nodes(skill) if node != "end")


def test_the_guide_counts_the_lines_of_each_example():
    rows = re.findall(r"^\| `(\w+)` \| .* \| (\d+) \| [^|]+ \|$", GUIDE.read_text(encoding="utf-8"), re.MULTILINE)
    assert {name: int(count) for name, count in rows} == {name: lines_of(name) for name in NAMES}


def test_expenses_are_paid_refused_or_reviewed(project: Path):
    small = {"purpose": "tape", "amount": 12.5, "has_receipt": False}
    assert play(project, "expenses", small).artifact["data"] == {"paid": 12.5, "why": "small"}


@pytest.mark.parametrize(("amount", "paid"), [(90, 0), (900, 450)])
def test_an_expense_without_a_receipt_is_refused_and_a_large_one_is_reviewed(project: Path, amount: float, paid: float):
    value = {"purpose": "desk", "amount": amount, "has_receipt": paid > 0}
    review = answer("end", "verdict", why="half", paid=450)
    result = play(project, "expenses", value, review)
    assert result.status == ("waiting" if paid else "finished")
    if paid:
        with SyncRuntime.open(project, model=ScriptedModel([review]), trust=True) as rt:
            rt.answer("run", result.question.id, {"decision": "approve"})
            result = rt.resume("run")
    assert result.artifact["data"]["paid"] == paid


@pytest.mark.parametrize(
    ("employees", "budget", "path"), [(900, 0, "key_accounts"), (20, 5000, "sales"), (0, 0, "newsletter")]
)
def test_a_lead_goes_to_the_team_that_its_score_names(project: Path, employees: int, budget: float, path: str):
    lead = answer("route", "lead", summary="They ask for a price.", employees=employees, budget=budget)
    result = play(project, "leads", "We need a price.", lead, answer("end", "ticket", team=path, note="Call them."))
    assert result.artifact["data"]["team"] == path
    assert result.path[:2] == ("score", "route")
    assert result.path[2:] == (() if path == "newsletter" else (path,))


def test_a_specialist_takes_a_conversation_over(project: Path):
    answers = [
        answer("welcome", "reply", text="What is it about?"),
        answer("refunds", "reply", text="The customer wants money back."),
        answer("refunds", "reply", text="Which order?"),
        answer("end", "reply", text="You get 20 back."),
    ]
    model = ScriptedModel(answers)
    with SyncRuntime.open(project, model=model, trust=True) as rt:
        result = rt.run("help_desk", "Hello", run_id="run")
        for text in ("I want my money back", "Number 7"):
            rt.answer("run", result.question.id, text)
            result = rt.resume("run")
        said = [message.text for message in rt.runs.transcript("run") if message.role == "user"]
        assert rt.runs.replay("run").status == "finished"
    assert result.path == ("welcome", "welcome", "refunds", "refunds")
    assert [said[0], said[1], said[-1]] == ["Hello", "I want my money back", "Number 7"]
    assert result.artifact["data"]["text"] == "You get 20 back."


def test_a_journey_and_a_hotel_are_booked_in_one_conversation(project: Path):
    answers = [
        answer("hotels", "booking", kind="journey", text="to Kyoto on 3 May"),
        answer("hotels", "booking", kind="none", text="Which hotel?"),
        answer("end", "booking", kind="hotel", text="the Larch"),
    ]
    with SyncRuntime.open(project, model=ScriptedModel(answers), trust=True) as rt:
        result = rt.run("holiday", "Kyoto on 3 May, please", run_id="run")
        rt.answer("run", result.question.id, "The Larch")
        result = rt.resume("run")
        prompts = [event.seq for event in rt.runs.events("run") if event.kind == "frame_built"]
        last = "\n".join(text for _, text in rt.runs.prompt_at("run", prompts[-1]))
    assert result.ok
    assert "Kyoto on 3 May, please" in last
    assert "Earlier booked 1" in last


def test_a_quiz_ends_after_three_right_answers(project: Path):
    answers: list[Any] = []
    for points in (1, 0, 1, 1):
        answers += [
            answer("ask", "result", text=f"Question {len(answers)}?"),
            answer("grade", "user_message", text=f"The answer is {len(answers)}."),
            answer("enough", "grade", points=points, text=f"Right: {len(answers)}."),
        ]
    result = play(project, "quiz", "rivers", *answers, said=("Nile", "Po", "Don", "Ob"))
    assert result.artifact["data"]["text"] == "3 of 4"


def test_a_plan_is_made_again_after_each_step(project: Path):
    answers = [
        answer("next", "plan", steps=["count the chairs", "count the guests"]),
        answer("plan", "step_done", text="12 chairs"),
        answer("next", "plan", steps=["count the guests"]),
        answer("plan", "step_done", text="14 guests"),
        answer("next", "plan", steps=[]),
        answer("end", "answer", text="Two chairs are missing."),
    ]
    result = play(project, "planner", "How many chairs are missing?", *answers)
    assert result.path == ("plan", "next", "work", "plan", "next", "work", "plan", "next", "report")
    assert result.artifact["data"]["text"] == "Two chairs are missing."


def test_the_sections_of_a_report_are_written_together(project: Path):
    answers = [
        answer("write_all", "topics", topics=[{"title": "tea"}, {"title": "cups"}]),
        answer("end", "section", text="Tea is a drink."),
        answer("end", "section", text="Cups hold it."),
        answer("end", "report", text="Tea: a drink in cups."),
    ]
    result = play(project, "sections", "tea", *answers)
    assert result.path == ("outline", "write_all", "assemble")
    with SyncRuntime.open(project, trust=True) as rt:
        assert sorted(row.run_id for row in rt.runs.all()) == ["run", "run.2.1", "run.2.2"]


@pytest.mark.parametrize("useful", [0.9, 0.1])
def test_a_search_is_repeated_until_it_helps(project: Path, useful: float):
    def found(words: str, score: float) -> list[dict[str, Any]]:
        lines = {"question": "When is tea?", "lines": [words]}
        return [answer("judge", "hits", **lines), answer("enough", "judged", **lines, useful=score)]

    def again(words: str) -> dict[str, Any]:
        return answer("search", "query", question="When is tea?", words=words)

    answers = [*found("a", 0.1), again("b"), *found("b", useful)]
    answers += [answer("end", "answer", text="At four.")] if useful > 0.5 else [again("c"), *found("c", useful)]
    result = play(project, "lookup", {"question": "When is tea?", "words": "tea"}, *answers)
    assert result.artifact["data"]["text"] == ("At four." if useful > 0.5 else "I found nothing about: When is tea?")


def test_an_essay_is_improved_three_times_at_most(project: Path):
    drafts = [answer("criticise", "draft", text=f"Tea is a drink, version {number}.") for number in range(4)]
    critiques = [answer("write", "critique", text=f"Say more ({number}).") for number in range(3)]
    answers = [answer("criticise", "draft", text="Tea.")]  # too short: the check sends it back
    for draft, critique in zip(drafts, critiques, strict=False):
        answers += [draft, critique]
    answers += [drafts[3], answer("write", "critique", text="Again."), answer("end", "draft", text="The last version.")]
    result = play(project, "essay", "Write about tea.", *answers)
    assert result.ok, result.reason
    assert result.path.count("write") == 4
    assert result.artifact["data"]["text"] == "The last version."


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("DROP TABLE orders", "write one SELECT"),
        ("SELECT id FROM users", "read from the table `orders`"),
        ("SELECT id, name FROM orders", "unknown columns: name"),
    ],
)
def test_a_query_that_fails_the_check_is_sent_back(project: Path, query: str, error: str):
    answers = [answer("end", "sql", text=query), answer("end", "sql", text="SELECT id, total FROM orders")]
    model = ScriptedModel(answers)
    with SyncRuntime.open(project, model=model, trust=True) as rt:
        result = rt.run("query", "Which orders are there?", run_id="run")
        [rejected] = [event for event in rt.runs.events("run") if event.kind == "validation_error"]
    assert result.artifact["data"]["text"] == "SELECT id, total FROM orders"
    assert error in rejected.data["message"]


def test_only_a_flight_that_was_found_can_be_chosen(project: Path):
    answers = [
        answer("any", "offers", flights=[]),
        answer("any", "offers", flights=[{"number": "RY1", "price": 80}, {"number": "RY2", "price": 60}]),
        answer("end", "choice", number="RY3", price=10),
        answer("end", "choice", number="RY2", price=60),
    ]
    result = play(project, "flights", "to Oslo on Monday", *answers)
    assert result.path == ("search", "any", "search", "any", "choose")
    assert result.artifact["data"] == {"number": "RY2", "price": 60}


def test_a_search_for_flights_ends(project: Path):
    answers = [answer("any", "offers", flights=[])] * 3
    assert play(project, "flights", "to Oslo", *answers).artifact["data"]["number"] == "none"


@pytest.mark.parametrize(
    ("amount", "is_open", "moved", "left"), [(30, True, 30, 70), (30, False, 0, 100), (300, True, 0, 100)]
)
def test_a_transfer_arrives_or_is_given_back(project: Path, amount: float, is_open: bool, moved: float, left: float):
    result = play(project, "transfer", {"amount": amount, "balance": 100, "is_open": is_open})
    assert result.artifact["data"] == {"moved": moved, "left": left}


def test_the_guide_has_the_graphs_as_they_are(project: Path):
    pictures = re.findall(r"```text\n\$ reyn graph (\w+)\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(pictures) == 4
    for name, picture in pictures:
        assert drawing.to_text(load_skill(SKILLS / name)) == picture, name
