"""What values show in a notebook: whatever texts they hold, HTML that is bounded, balanced and without effects."""

from __future__ import annotations

import pickle
import re
import sys
from collections.abc import Callable, Iterator
from decimal import Decimal
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn import RunResult, SyncRuntime, Usage
from reyn.cells import MAX_HTML, MAX_PLAIN, InNotebook
from reyn.characters import escape
from reyn.journal import Event, Status
from reyn.journal.kinds import Question
from reyn.journal.results import Cost
from reyn.models import Delta
from reyn.notebook import LiveProgress
from reyn.runs.diff import Cause, Decision, DiffReport
from reyn.runs.inspection import RunInspection
from reyn.runs.usage import GROUPINGS, BudgetStatus, UsageReport, UsageRow
from reyn.skills import ArtifactType, Phase, Skill
from reyn.skills.graph_svg import VisitedPath, graph_html
from reyn.testing import ScriptedModel
from tests.properties import examples
from tests.support import abort, act, finish, go, question, two_phases, write_skill

TAGS = {"div", "table", "tr", "th", "td", "b", "code", "pre", "span", "svg", "g", "path", "rect", "text", "title"}
ATTRIBUTES = {
    "style",
    "class",
    "viewbox",
    "width",
    "height",
    "role",
    "d",
    "fill",
    "fill-opacity",
    "stroke",
    "stroke-width",
}
ATTRIBUTES |= {"stroke-dasharray", "x", "y", "rx", "text-anchor", "font-size"}
FRAGMENTS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</pre></table></div></svg><style>*{display:none}</style>",
    "&lt;b&gt; &amp;",
    "javascript:alert(1) url(//x.test/a)",
    "$\\href{javascript:alert(1)}{x}$",
    "\u202eexe.txt\u202c\u2066\u200b\U000e0041",
    "\x1b]0;title\x07\x1b[2J\r\x00",
    "\ud800",
    "line\nbreak\ttab\u2028",
    "日本語" * 9,
)
hostile = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.text(max_size=8)), min_size=1, max_size=3).map("".join)


class Checked(HTMLParser):
    """Parses HTML, and fails at what a notebook must not get."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS
        self.open.append(tag)
        for name, value in attrs:
            assert name in ATTRIBUTES
            assert value is not None
            assert not re.search(r"url|expression|import|position|javascript", value)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        assert self.open
        self.texts.append(data)
        is_escaped = any(tag in ("pre", "div") for tag in self.open)
        assert is_escaped

    def handle_comment(self, data: str) -> None:
        raise AssertionError(data)

    handle_decl = unknown_decl = handle_pi = handle_comment


def check(value: InNotebook) -> str:
    """Check what a value shows, and return the text of its HTML."""
    shown = value._repr_mimebundle_()
    assert shown.keys() == {"text/plain", "text/html"}
    text, html = shown["text/plain"], shown["text/html"]
    assert len(text) <= MAX_PLAIN
    assert len(html.encode()) <= MAX_HTML
    assert (escape(text), escape(html)) == (text, html)
    parser = Checked()
    parser.feed(html)
    parser.close()
    assert parser.open == []
    assert re.match(r'<pre|<div style="[^"]*" class="tex2jax_ignore mathjax_ignore">', html)
    return "".join(parser.texts)


# -- hostile texts -------------------------------------------------------------------------------------


def values_of(text: str, *, is_short: bool = False) -> Iterator[InNotebook]:
    """Yield values that have a text in every field."""
    asked = Question(text, text, text, {}, suggestions=(text, text))
    artifact, usage, cost = (
        {"type": text, "data": {text: [text]}},
        Usage(10**12, 10),
        Cost(Decimal("0.1"), text, 1, 1, 1),
    )
    try:
        msgspec.json.encode(text)
    except UnicodeEncodeError:  # no journal has it
        artifact = {}
    most = 1 if is_short else None
    for status in get_args(Status)[:most]:
        for one in (None, asked):
            yield RunResult(text, status, text, artifact, usage, (text,) * 20, (text,) * 30, one, text, text, cost)
    decision = Decision(1, text, text, text, text=text)
    for cause in get_args(Cause)[:most]:
        yield DiffReport(text, text, 1, cause, text, text, decision, decision, (text, text))
        yield DiffReport(text, text, 1, cause, text, skill=(text,) * 90)
    yield DiffReport(text, text, 1)
    row = UsageRow(text, 10**12, 1, 1, 1, 1, {text: 1, "USD": 10**12}, 1, 1)
    for by in GROUPINGS[:most]:
        yield UsageReport(by, (row,) * 90, row, text, (BudgetStatus(text, text, 1, 1, 1, text),) * 90)


def skill_of_graph(graph: dict[str, tuple[str, ...]], text: str = "", **fields: Any) -> Skill:
    note = ArtifactType(text or "note", {})
    phases = {name: Phase(name, (note,), text) for name in graph}
    return Skill(text or "drawn", next(iter(graph)), phases, graph, note, description=text, **fields)


@examples(10)
@given(text=hostile)
def test_no_text_is_markup(text: str):
    for value in values_of(text):
        check(value)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fragment", FRAGMENTS)
def test_no_text_is_too_large(fragment: str):
    for value in values_of(fragment * 10_000, is_short=True):
        check(value)


@examples(20)
@given(names=st.lists(hostile, min_size=1, max_size=6, unique=True), text=hostile, data=st.data())
def test_no_text_of_a_skill_is_markup(names: list[str], text: str, data: st.DataObject):
    targets = st.lists(st.sampled_from(names), unique=True, max_size=3)
    graph = {name: tuple(data.draw(targets)) for name in names}
    check(skill_of_graph(graph, text, edge_texts={names[0]: dict.fromkeys(graph[names[0]], text)}))


def test_texts_are_shown_as_they_are():
    result = RunResult("k", "failed", "<b>\u202ebold</b> costs $5 & $6", None, Usage(), (), hint="</td>")
    shown = check(result)
    assert "<b>\\u202ebold</b> costs $5 & $6" in shown
    assert "</td>" in shown


# -- graphs --------------------------------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn) -> dict[str, tuple[str, ...]]:
    names = [f"n{number}" for number in range(draw(st.integers(1, 12)))]
    targets = st.lists(st.sampled_from([*names, "end"]), unique=True, max_size=4)
    return {name: tuple(draw(targets)) for name in names}


@given(graph=graphs(), data=st.data())
def test_a_graph_is_drawn_whole_without_overlaps_and_with_its_path(graph: dict[str, tuple[str, ...]], data: Any):
    skill, path = skill_of_graph(graph), VisitedPath()
    node = skill.entry
    for _ in range(data.draw(st.integers(0, 12))):
        path.enter(node)
        following = graph.get(node)
        if not following:
            break
        node = data.draw(st.sampled_from(following))
    html = graph_html(skill, path)
    assert html == graph_html(skill, path)
    boxes = re.findall(r'<rect x="([^"]+)" y="([^"]+)" width="([^"]+)"', html)
    has_end = any(not targets or "end" in targets for targets in graph.values())
    assert len(boxes) == len(graph) + has_end
    by_row: dict[str, list[tuple[float, float]]] = {}
    for x, y, width in boxes:
        by_row.setdefault(y, []).append((float(x), float(x) + float(width)))
    for places in by_row.values():
        ordered = sorted(places)
        assert all(one[1] < other[0] for one, other in pairwise(ordered))
    assert html.count('fill="#0969da" fill-opacity') == len(path.nodes)
    assert html.count('stroke-width="2.5"') == len(path.edges)


@pytest.mark.parametrize("size", [39, 41, 2_000])
@pytest.mark.parametrize("shape", ["line", "loops", "dense"])
def test_a_large_graph_is_a_bounded_list(size: int, shape: str):
    names = [f"phase_with_a_long_name_{number}" for number in range(size)]
    following = {
        "line": lambda at: [at + 1],
        "loops": lambda at: [at + 1, at // 2],
        "dense": lambda at: range(0, size, 9),
    }
    graph = {name: tuple(names[to] for to in following[shape](at) if to < size) for at, name in enumerate(names)}
    skill, path = skill_of_graph(graph), VisitedPath()
    for name in names * 2:
        path.enter(name)
    check(skill)
    html = graph_html(skill, path)
    assert ("<svg" in html) == (size < 40 and shape != "dense")
    assert len(html) < MAX_HTML / 2
    assert "<svg" in html or f"{size:,} of {size:,} nodes visited" in html


# -- runs ----------------------------------------------------------------------------------------------

STOPPING: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "finished": ([go("second"), finish("<i>done</i>")], {}),
    "failed": ([go("nowhere")] * 9, {}),
    "limited": ([go("first", str(number)) for number in range(3)], {"max_phase_visits": 1}),
    "aborted": ([abort("<i>no</i>")], {}),
    "waiting": ([act(question("<i>which?</i>"))], {}),
}


@pytest.mark.parametrize("status", STOPPING)
def test_a_run_and_its_result_show_themselves_in_every_status(tmp_path: Path, status: str):
    answers, limits = STOPPING[status]
    write_skill(tmp_path, "pair", {"first": ["second", "first"], "second": ["end"]}, ops={"first": "ask_user"})
    with SyncRuntime.open(tmp_path, model=ScriptedModel(answers), **limits) as rt:
        result = rt.run("pair", {"text": "in"}, run_id="k")
        assert result.status == status, result
        inspection = rt.runs.inspect("k")
        shown = check(inspection)
        assert status in shown
        assert status in check(result)
        assert inspection._repr_mimebundle_()["text/plain"].startswith(f"run k: {status} · pair")
        assert ("<i>which?</i>" in shown) == (status == "waiting")
        if status in ("waiting", "limited", "failed"):
            rt.cancel("k", "<i>enough</i>")
            assert "cancelled" in check(rt.runs.inspect("k"))


def test_an_empty_run_shows_that():
    assert "no events" in check(RunInspection(lambda _: iter(()), lambda _: b""))


def test_a_run_whose_skill_is_lost_shows_the_rest(tmp_path: Path):
    two_phases(tmp_path)
    with SyncRuntime.open(tmp_path, model=ScriptedModel([go("second"), finish()])) as rt:
        rt.run("pair", {"text": "in"}, run_id="k")
        row = rt.runs.result("k")
        lost = RunInspection(lambda after: rt.runs.events("k", after), damaged(rt.runs.content))
        shown = check(lost)
    assert row.status in shown
    assert "cannot be read" in shown


def damaged(content: Callable[[str], bytes]) -> Callable[[str], bytes]:
    """Return content without skills."""
    return lambda name: b"{}" if b'"graph"' in content(name) else content(name)


def test_a_long_run_is_bounded_and_each_event_is_read_once(tmp_path: Path):
    visits = 120
    write_skill(tmp_path, "loop", {"a": ["a", "end"]})
    model = ScriptedModel([*[go("a", str(number)) for number in range(visits - 1)], finish()])
    with SyncRuntime.open(tmp_path, model=model, max_phase_visits=None) as rt:
        assert rt.run("loop", {"text": "in"}, run_id="k").ok
        events = list(rt.runs.events("k"))
        reads = 0
        arrived = len(events) // 2

        def read(after: int) -> Iterator[Event]:
            nonlocal reads
            for event in events[after:arrived]:
                reads += 1
                yield event

        run = RunInspection(read, rt.runs.content)
        check(run)
        arrived, reads = len(events), 0
        shown = check(run)
        # New events, once; the lines from the checkpoint before them, and the state from the last one.
        assert reads <= len(events) - len(events) // 2 + 40 * 10 + 200 + 200
        assert f"{visits} visits" in shown
        assert "earlier lines" in shown


def test_the_path_of_a_run_grows_with_the_graph_alone():
    path = VisitedPath()
    sizes = []
    for number in range(10_000):
        path.enter(f"n{number % 7}")
        if number in (100, 9_999):
            sizes.append(len(pickle.dumps((path.nodes, path.edges))))
    assert sizes[1] <= sizes[0] + 7 * 2 * 16
    skill = skill_of_graph({f"n{number}": (f"n{(number + 1) % 7}",) for number in range(7)})
    assert len(graph_html(skill, path)) < 20_000


def test_steps_back_are_no_edges():
    path = VisitedPath()
    path.enter("a")
    path.enter("b")
    path.leave()
    path.enter("a")
    path.enter("end")
    assert path.edges.keys() == {("a", "b"), ("a", "end")}
    assert (path.visits, path.edges["a", "end"].numbers) == (3, [4])


# -- values stay values --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        RunResult("k", "finished", "", None, Usage(), ("a",)),
        DiffReport("a", "b", 1, "answer"),
        UsageReport("day", (), UsageRow("total"), "2026-11-19"),
        skill_of_graph({"a": ()}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_compare_and_pickle_as_before(value: Any):
    check(value)
    again = pickle.loads(pickle.dumps(value))
    assert again == value
    assert repr(again) == repr(value)
    assert repr(value).startswith(f"{type(value).__name__}(")
    assert msgspec.json.decode(msgspec.json.encode(value), type=type(value)) == value
    if not isinstance(value, (Skill, UsageReport)):  # they have dictionaries
        assert hash(again) == hash(value)
        assert not hasattr(value, "__dict__")


# -- live progress -------------------------------------------------------------------------------------


class Displayed:
    """A notebook: what `IPython` would display."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, shell: str = "ZMQInteractiveShell") -> None:
        self.shown: list[str] = []
        self.displays = 0
        display = ModuleType("IPython.display")
        display.display = self.display  # type: ignore[attr-defined]
        ipython = ModuleType("IPython")
        ipython.get_ipython = type(shell, (), {})  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "IPython", ipython)
        monkeypatch.setitem(sys.modules, "IPython.display", display)

    def display(self, shown: dict[str, str], *, raw: bool, display_id: bool) -> Any:
        assert raw
        assert display_id
        self.displays += 1
        self.update(shown, raw=True)
        return SimpleNamespace(update=self.update)

    def update(self, shown: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(shown["text/plain"])


def test_progress_updates_one_display_and_ends_with_the_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    two_phases(tmp_path)
    notebook = Displayed(monkeypatch)
    with SyncRuntime.open(tmp_path, model=ScriptedModel([go("second"), finish()] * 2)) as rt:
        progress = LiveProgress(rt)
        assert notebook.shown == ["waiting for the run"]
        for _ in range(2):
            result = rt.run("pair", {"text": "in"}, listener=progress, on_delta=progress.on_delta)
            assert not result.warnings
            lines = notebook.shown[-1].splitlines()
            assert lines[-1] == "finished"
            assert any("→ second" in line for line in lines)
    assert notebook.displays == 1


def test_a_fast_run_updates_the_display_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_skill(tmp_path, "loop", {"a": ["a", "end"]})
    notebook = Displayed(monkeypatch)
    now = [0.0]
    monkeypatch.setattr("reyn.notebook.time", SimpleNamespace(monotonic=lambda: now[0]))
    answers = [*[go("a", str(number)) for number in range(30)], finish()]
    with SyncRuntime.open(tmp_path, model=ScriptedModel(answers), max_phase_visits=None) as rt:
        progress = LiveProgress(rt)
        rt.run("loop", {"text": "in"}, run_id="k", listener=progress)
        seen = len(notebook.shown)
        assert seen <= 4  # the time stands still: the first one, the last one, a timer of the loop
        now[0] = 1.0
        for text in ("abc", "de"):
            progress.on_delta(Delta("k", "1.1", text))
        assert notebook.shown[seen:-1] == [] or "3 characters received" in notebook.shown[seen]
        now[0] = 2.0
        progress.on_delta(Delta("k", "1.1", "f"))
        assert notebook.shown[-1].endswith("finished · 6 characters received")
        assert "earlier lines" in notebook.shown[-1]


@pytest.mark.parametrize("shell", ["", "TerminalInteractiveShell"])
def test_elsewhere_progress_prints_lines(
    tmp_path: Path, shell: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    two_phases(tmp_path)
    if shell:
        Displayed(monkeypatch, shell)
    else:
        monkeypatch.delitem(sys.modules, "IPython", raising=False)
    answers = [go("second", reason={"summary": "\x1b[2J\u202e"}), finish()]
    with SyncRuntime.open(tmp_path, model=ScriptedModel(answers)) as rt:
        rt.run("pair", {"text": "in"}, run_id="k", listener=LiveProgress(rt))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("run k · pair")
    assert lines[-1] == "  finished"
    assert all(escape(line) == line for line in lines)
    assert any("→ second" in line and "\\x1b[2J\\u202e" in line for line in lines)
