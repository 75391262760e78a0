"""`reyn frame` with handoffs: what each section costs, and what was truncated."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from reyn.cli.charts import prompts_svg, prompts_text
from reyn.context.budget import FrameSection
from reyn.runs.frames import VisitContext
from tests.cli.support import IN, write_answers
from tests.support import finish, go, write_skill


@pytest.fixture
def ran(here: Path, reyn) -> Path:
    """A finished run `r` of two phases; the second receives a truncated handoff."""
    keys = {"b": "context: {max_tokens: 20}\n"}
    write_skill(here, "rpi", {"a": ["b"], "b": ["end"]}, phase_keys=keys)
    write_answers(here, go("b", "word " * 100), finish("end"))
    assert reyn("run", "rpi", IN, "--run-id", "r").code == 0
    return here


def test_frame_ends_with_the_sections_if_one_was_truncated(ran: Path, reyn):
    output = reyn("frame", "r").out
    table = output.partition("[tokens]\n")[2].splitlines()
    assert [line.split("  ")[0].strip() or line.split("  ")[1] for line in table] == [
        "system", "task", "static", "input", "handoff", "header", "phase 1: a", "answer", "total",
    ]  # fmt: skip
    assert "(truncated)" in table[4]
    assert "[tokens]" not in reyn("frame", "r", "7").out


def test_frame_shows_tokens_as_a_table_and_as_json(ran: Path, reyn):
    assert reyn("frame", "r", "--tokens").out == reyn("frame", "r").out.partition("[tokens]\n")[2]
    shown = reyn("frame", "r", "--tokens", "--json").json
    assert shown["tokens"] == sum(section["tokens"] for section in shown["sections"])
    [handoff] = [section for section in shown["sections"] if section["name"] == "handoff"]
    assert handoff["truncated"]
    assert handoff["tokens"] < handoff["original_tokens"]
    assert [part["name"] for part in handoff["parts"]] == ["header", "phase 1: a"]
    preview = reyn("frame", "rpi", IN, "--tokens", "--json").json
    assert [section["name"] for section in preview["sections"]] == ["system", "input"]


def test_show_reports_the_truncation(ran: Path, reyn):
    assert "context truncated: " in reyn("show", "r").out


def test_run_warns_if_the_log_cannot_be_written(ran: Path, reyn):
    (ran / ".agents/rpi/context-budget-log.jsonl").unlink()
    (ran / ".agents/rpi").rmdir()
    (ran / ".agents/rpi").write_text("a file")
    output = reyn("run", "rpi", IN, "--run-id", "r2")
    assert output.code == 0
    assert "context-budget-log.jsonl" in output.out + output.err
    assert reyn("replay", "r2").code == 0


# -- reyn context -------------------------------------------------------------------------------------


def test_context_draws_a_bar_per_visit_with_what_was_truncated(ran: Path, reyn):
    lines = reyn("context", "r").out.splitlines()
    assert lines[0].split()[1:4] == ["a", "(visit", "1)"]
    assert lines[1].strip().startswith("handed over: ")
    assert lines[2].split()[1] == "b"
    assert set(lines[2].split()[-1]) == set("stih.")
    assert lines[3].strip().startswith("handoff truncated: ")
    assert lines[-1] == "s static  t task  i input  h handoff  . other"


def test_context_as_json_has_the_sections_of_each_visit(ran: Path, reyn):
    first, second = [json.loads(line) for line in reyn("context", "r", "--json").out.splitlines()]
    assert (first["phase"], first["turns"], second["phase"]) == ("a", 1, "b")
    assert second["tokens"] == sum(section["tokens"] for section in second["sections"])
    assert second["sections"] == reyn("frame", "r", "--tokens", "--json").json["sections"]


def test_context_as_svg_is_well_formed(ran: Path, reyn):
    drawing = ElementTree.fromstring(reyn("context", "r", "--format", "svg").out)
    names = [element.text for element in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert "a (visit 1)" in names
    assert "handoff" in names


@pytest.mark.parametrize("phase", ["a", "summarise_results", "a_phase_with_a_name_of_thirty_nine_letters", "é" * 200])
@pytest.mark.parametrize("number", [1, 99])
def test_bars_of_the_svg_begin_after_the_names(phase: str, number: int):
    visit = VisitContext(5, phase, number, 1, (FrameSection("system", 400, 400),))
    drawing = ElementTree.fromstring(prompts_svg("r", [visit]))
    name, amount, *_ = drawing.iter("{http://www.w3.org/2000/svg}text")
    bar = next(drawing.iter("{http://www.w3.org/2000/svg}rect"))
    assert name.text.startswith(phase[:10])
    assert name.text.endswith(f" (visit {number})")
    assert float(name.get("x")) + len(name.text) * 13 * 0.61 < float(bar.get("x"))
    assert float(amount.get("x")) + len(amount.text) * 13 * 0.61 < float(drawing.get("width"))


def test_context_reports_cached_tokens(here: Path):
    visit = VisitContext(5, "a", 1, 1, (FrameSection("system", 400, 400),), 420, 300)
    assert "reported: 420 input tokens, 300 cached" in prompts_text([visit])


def test_context_of_a_run_without_prompts(here: Path):
    assert prompts_text([]) == "no prompts yet\n"
    assert prompts_svg("r", []).endswith("</svg>\n")
