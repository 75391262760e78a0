"""The page of a run in a real browser: long runs, decisions, diffs, children, and every act on a run."""

from __future__ import annotations

import asyncio
import json
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from reyn import OSRuntime
from reyn.journal import Event
from tests.gateway.browser import IN_BROWSER, Site
from tests.gateway.support import QUESTION
from tests.support import act, file, finish, go, write_skill

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=60_000)
pytestmark = IN_BROWSER
LOOP = {"a": ["b"], "b": ["a", "end"]}


def loop(visits: int) -> list[Any]:
    """Return the answers of a run of `LOOP` that visits so many phases."""
    return [*(go("ba"[number % 2], f"step {number}") for number in range(visits - 1)), finish("looped")]


def elements(page: Any) -> int:
    return int(page.evaluate("document.querySelectorAll('*').length"))


def test_ten_thousand_events_scroll_and_only_what_is_visible_is_in_the_page(page: Any, site: Site):
    write_skill(site.root, "loop", LOOP)
    model = site.script("long", *loop(1_430))
    site.reyn("run", "loop", '{"text": "in"}', "--run-id", "long", "--model", model, "--max-phase-visits", "none")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    page.goto(site.address("/runs/long"))
    lines = page.get_by_role("listbox", name="Events")
    lines.get_by_text("finished").wait_for()
    most = elements(page) + 60
    for tab, last in (("effects", 0), ("everything", 10_012)):
        page.get_by_role("tab", name=tab).click()
        lines.get_by_role("option").last.get_by_text(re.compile("finished|skill_completed")).wait_for()
        for share in (0.0, 0.4, 0.7, 1.0):
            lines.evaluate("(box, share) => { box.scrollTop = share * (box.scrollHeight - box.clientHeight) }", share)
            expect(lines.get_by_text("…", exact=True)).to_have_count(0)
            assert elements(page) < most
            if last:
                wanted = str(max(1, round(share * (last - 20)) + 10 * bool(share)))
                lines.locator(".seq", has_text=re.compile(f"^{wanted}$")).first.wait_for()
    page.get_by_role("slider").fill("5000")
    page.get_by_text("The run at event 5000 of").wait_for()
    expect(lines.locator("[aria-selected=true] .seq")).to_have_text("5000")
    page.locator("dt", has_text="Event").locator("+ dd", has_text=re.compile("^5000$")).wait_for()
    lines.press("End")
    expect(lines.locator("[aria-selected=true] .seq")).to_have_text("10012")
    assert all("limit=5000" not in url for url in sent)


def test_a_decision_shows_candidates_errors_and_the_size_of_its_prompt(page: Any, site: Site):
    site.run("pair", "wrong", go("nowhere"), go("second"), finish("right"))
    page.goto(site.address("/runs/wrong"))
    lines = page.get_by_role("listbox", name="Events")
    lines.get_by_text("rejected at").click()
    state = page.get_by_role("region", name="State")
    expect(state.locator(".error")).to_contain_text("$.control.next_phase")
    lines.get_by_text("→ second").click()
    expect(state.locator("tr.chosen")).to_contain_text("second")
    expect(state.locator("dt", has_text="Reason").locator("+ dd")).to_have_text("to second")
    expect(state.get_by_role("table").filter(has_text="Size of the prompt")).to_contain_text("correction")
    parts = ("Tokens", "Model call at event 7", "Reason", "Candidates", "Size of the prompt", "Prompt and answer")
    text = state.inner_text()
    assert sorted(parts, key=text.index) == list(parts)
    site.picture(page, "run")


def test_changed_files_are_diffs(page: Any, site: Site):
    ops = [file("write", "workspace:plan.md", content=text) for text in ("# Plan\nold\n", "# Plan\nnew\n")]
    site.run("writer", "files", act(*ops), finish("written"))
    page.goto(site.address("/runs/files"))
    page.get_by_text("workspace:plan.md").last.click()
    expect(page.locator(".diff .added", has_text="new")).to_be_visible()
    expect(page.locator(".diff", has_text="old")).to_have_count(0)


def test_children_are_shown_in_place(page: Any, site: Site):
    step = "preprocessor:\n  - run_skill: {skill: pair, input: {text: x}, into: data.inner}\n"
    write_skill(site.root, "above", {"first": ["second"], "second": ["end"]}, phase_keys={"first": step})
    site.run("above", "tree", go("second", "deep inside"), finish("end of both"))
    page.goto(site.address("/runs/tree"))
    child = page.locator("details.card", has_text="pair").last
    child.locator("summary").first.click()
    expect(child.get_by_role("listbox", name="Events")).to_contain_text("second (visit 1)")
    expect(child.get_by_text("Candidates")).to_be_visible()
    page.get_by_role("listbox", name="Events").first.get_by_text(re.compile("pair →")).click()
    expect(page.get_by_role("region", name="State").locator("details.card")).to_contain_text("Open this run")


def test_a_run_is_cancelled_and_another_retried(page: Any, site: Site):
    site.run("asker", "stop", QUESTION)
    page.goto(site.address("/runs/stop"))
    expect(page.get_by_role("button", name="Cancel")).to_have_attribute("title", "reyn cancel stop")
    page.get_by_role("button", name="Cancel").click()
    page.locator(".status", has_text="cancelled").first.wait_for()
    site.run("pair", "short", go("second"))
    page.goto(site.address("/runs/short"))
    page.locator(".status", has_text="failed").first.wait_for()
    site.script("short", go("second"), finish("at last"))
    page.get_by_role("button", name="Retry").click()
    page.get_by_text("at last").first.wait_for()
    page.get_by_role("button", name="Run again").click()
    expect(page).not_to_have_url(re.compile("/runs/short$"))
    page.locator(".status", has_text="finished").first.wait_for()


def test_an_interrupted_run_is_resumed(page: Any, site: Site):
    model = site.script("left", go("second"), finish("after all"))

    async def leave() -> None:
        def listener(event: Event) -> None:
            if event.kind == "phase_started" and event.data["phase"] == "second":
                raise asyncio.CancelledError

        async with OSRuntime.open(site.root, trust=True, model=model) as runtime:
            await asyncio.wait(
                [asyncio.ensure_future(runtime.run("pair", {"text": "in"}, run_id="left", listener=listener))]
            )

    with ThreadPoolExecutor() as beside:  # this thread has the loop of the browser
        beside.submit(asyncio.run, leave()).result()
    page.goto(site.address("/runs/left"))
    page.locator(".status", has_text="interrupted").first.wait_for()
    resume = page.get_by_role("button", name="Resume")
    expect(resume).to_have_attribute("title", "reyn resume left")
    resume.click()
    page.get_by_text("after all").first.wait_for()


def test_a_limit_is_raised_and_the_run_resumes(page: Any, site: Site):
    write_skill(site.root, "cycle", {"a": ["b", "end"], "b": ["a"]})
    model = site.script("capped", *loop(5))
    arguments = ["--run-id", "capped", "--model", model, "--max-phase-visits", "2"]
    site.reyn("run", "cycle", json.dumps({"text": "in"}), *arguments, check=False)
    page.goto(site.address("/runs/capped"))
    page.locator(".status", has_text="limited").first.wait_for()
    page.get_by_label("max_phase_visits").fill("5")
    page.get_by_role("button", name="Raise and resume").click()
    page.get_by_text("looped").first.wait_for()
    expect(page.get_by_role("listbox", name="Events")).to_contain_text("limit `max_phase_visits` raised to 5")
