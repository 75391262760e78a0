"""The web pages in a real browser: questions, live runs, conversations, forks, keyboard, hostile texts."""

from __future__ import annotations

import json
import re
import signal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx2
import pytest

from tests.gateway.browser import IN_BROWSER, Site
from tests.gateway.support import QUESTION
from tests.support import act, file, finish, go, write_skill

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=60_000)
pytestmark = IN_BROWSER
MARKUP = '<img src=x onerror="document.title=1"><script>document.title=1</script>'
HOSTILE = f"{MARKUP} [click](javascript:document.title=1) [bank](https://evil.example/x) \u202egnp.exe"


def test_the_login_link_signs_in_once(browser: Any, site: Site):
    for expected in ("Inbox", "Sign in"):
        context = browser.new_context()
        page = context.new_page()
        page.goto(site.login)
        page.get_by_role("heading", name=expected).wait_for()
        expect(page).not_to_have_url(re.compile(re.escape(site.login.partition("#")[2])))
        context.close()


def test_a_server_at_another_port_cannot_use_the_session_that_it_receives(page: Any, site: Site):
    """Browsers send a cookie to every port of its host."""
    received: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            received.append(self.headers.get("Cookie", ""))
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    page.get_by_role("heading", name="Inbox").wait_for()
    key = page.evaluate("localStorage.getItem('reyn-session-key')")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as other:
        thread = Thread(target=other.serve_forever)
        thread.start()
        page.goto(f"http://127.0.0.1:{other.server_port}/")
        assert page.evaluate("localStorage.length + sessionStorage.length") == 0
        other.shutdown()
        thread.join()
    cookie = next(one for one in received if "reyn_session" in one)
    assert key not in cookie
    for path in ("/api/session", "/api/runs", "/api/questions", "/api/stream", "/metrics"):
        taken = httpx2.get(site.address(path), headers={"Cookie": cookie})
        assert (taken.status_code, taken.json()["code"]) == (401, "RYN802"), path
        assert key not in taken.text
        if path == "/api/runs":
            own = {"Cookie": cookie, "X-Session-Key": key}
            assert httpx2.get(site.address(path), headers=own).status_code == 200


def test_a_user_signs_out_in_all_tabs(browser: Any, site: Site):
    context = browser.new_context()
    page = context.new_page()
    page.goto(site.address("/"))
    page.get_by_label("Token").fill(site.reyn("token", "new", "leaving", "--scope", "view"))
    page.get_by_role("button", name="Sign in").click()
    other = context.new_page()
    for tab in (page, other):
        tab.goto(site.address("/runs"))
        tab.get_by_role("heading", name="Runs").wait_for()
    page.get_by_role("button", name="Sign out").click()
    page.get_by_role("heading", name="Sign in").wait_for()
    assert page.evaluate("localStorage.length") == 0
    other.reload()
    other.get_by_role("heading", name="Sign in").wait_for()
    context.close()


def test_a_question_is_answered_in_the_inbox(page: Any, site: Site):
    site.run("asker", "q1", QUESTION, finish("thanks"))
    card = page.get_by_role("article").filter(has_text="q1")
    card.get_by_label("Reply").fill("the blue one")
    card.get_by_role("button", name="Send reply").click()
    expect(card).to_have_count(0)
    page.goto(site.address("/runs/q1"))
    page.get_by_text("thanks").first.wait_for()


def test_an_approval_shows_the_diff_and_is_given_by_a_click(page: Any, site: Site):
    site.run("writer", "w1", act(file("write", "output/a.txt", content="one line\n")), finish("written"))
    card = page.get_by_role("article").filter(has_text="w1")
    expect(card.locator(".added").last).to_contain_text("one line")
    site.picture(page, "inbox")
    card.get_by_role("button", name="Approve").click()
    expect(card).to_have_count(0)
    page.goto(site.address("/runs/w1"))
    page.get_by_text("written").first.wait_for()
    assert (site.root / "output" / "a.txt").read_text() == "one line\n"


def test_an_artifact_is_edited_and_approved(page: Any, site: Site):
    write_skill(site.root, "reviewed", {"draft": ["end"]}, phase_keys={"draft": "requires_approval: true\n"})
    site.run("reviewed", "e1", finish("first draft"))
    card = page.get_by_role("article").filter(has_text="e1")
    card.get_by_role("button", name="Edit …").click()
    editor = card.get_by_label("Edited artifact, as JSON")
    expect(editor).to_have_value(re.compile("first draft"))
    for text, fault in (
        ('{"type": "note"', "is not valid JSON"),
        ('{"type": "note", "data": {"text": 5}}', "data.text is"),
    ):
        editor.fill(text)
        card.get_by_role("button", name="Edit and approve").click()
        expect(card.get_by_role("alert")).to_contain_text(fault)
    editor.fill('{"type": "note", "data": {"text": "my own draft", "number": 12345678901234567890}}')
    card.get_by_role("button", name="Edit and approve").click()
    expect(card).to_have_count(0)
    page.goto(site.address("/runs/e1"))
    expect(page.get_by_text("my own draft").first).to_be_visible()
    assert "12345678901234567890" in site.reyn("show", "e1", "--json")
    expect(page.get_by_text("approval: edit by").first).to_be_visible()


def test_an_op_is_edited_shown_again_and_approved(page: Any, site: Site):
    site.run("writer", "e2", act(file("write", "output/e.txt", content="one\n")), finish("written"))
    card = page.get_by_role("article").filter(has_text="e2")
    card.get_by_role("button", name="Edit …").click()
    editor = card.get_by_label("Edited op, as JSON")
    expect(editor).to_have_value(re.compile("output/e.txt"))
    editor.fill(json.dumps(file("write", "output/e.txt", content="edited\n")))
    card.get_by_role("button", name="Edit, and show what it does").click()
    expect(card.locator(".added").last).to_contain_text("edited")
    expect(card.get_by_label("Edited op, as JSON")).to_have_count(0)
    card.get_by_role("button", name="Approve").click()
    expect(card).to_have_count(0)
    expect(page.get_by_role("article").filter(has_text="e2")).to_have_count(0)


def test_two_tabs_that_answer_at_once_answer_once(page: Any, site: Site):
    other = page.context.new_page()
    site.run("asker", "q2", QUESTION, finish("thanks"))
    other.goto(site.address("/runs/q2"))
    buttons = []
    for tab in (page, other):
        card = tab.get_by_role("article").filter(has_text="q2")
        card.get_by_label("Reply").fill("mine")
        buttons.append(card.get_by_role("button", name="Send reply"))
    for button in buttons:
        button.evaluate("one => one.click()")
    expect(page.get_by_role("article").filter(has_text="q2")).to_have_count(0)
    other.get_by_text("finished").first.wait_for()


def test_a_run_is_started_and_followed_live_and_forked(page: Any, site: Site):
    model = site.script("live", go("second"), QUESTION, finish("served"), finish("other"))
    write_skill(site.root, "live", {"first": ["second"], "second": ["end"]}, ops={"second": "ask_user"})
    page.goto(site.address("/skills/live"))
    page.get_by_label("Input").fill('{"text": "in"}')
    page.get_by_label("Model").fill(model)
    page.get_by_role("button", name="Start").click()
    card = page.get_by_role("article")
    card.get_by_label("Reply").fill("the blue one")
    expect(page.locator(".graph .visited, .graph .current")).to_have_count(2)
    card.get_by_role("button", name="Send reply").click()
    page.get_by_text("served").first.wait_for()
    slider = page.get_by_role("slider")
    slider.fill("3")
    page.get_by_text("The run at event 3 of").wait_for()
    page.locator("dd", has_text=re.compile("^first$")).first.wait_for()
    page.get_by_text("Prompt and answer at this event").click()
    page.get_by_role("heading", name="system").wait_for()
    page.get_by_role("tab", name="everything").click()
    page.get_by_text("run_started").first.wait_for()
    page.get_by_role("button", name="Fork …").click()
    expect(page.locator("form .command")).to_contain_text("reyn fork")
    page.get_by_label("Another model").fill(site.script("fork", finish("unused"), finish("another end")))
    page.get_by_role("button", name="Fork", exact=True).click()
    page.get_by_role("heading", name="Compare").wait_for()
    page.get_by_text("in common").wait_for()


def test_a_fork_takes_an_edited_answer_and_edited_instructions(page: Any, site: Site):
    site.run("pair", "edit", go("second"), finish("first end"))
    page.goto(site.address("/runs/edit"))
    page.get_by_role("button", name="Fork …").click()
    page.get_by_role("button", name="Copy the recorded answer").click()
    answer = page.get_by_label("Your answer to the model call")
    expect(answer).to_have_value(re.compile("first end"))
    answer.fill(json.dumps(finish("my own end")))
    expect(page.locator("form .command")).to_contain_text("--answer FILE")
    page.get_by_role("button", name="Fork", exact=True).click()
    expect(page.get_by_role("heading", name="Compare")).to_be_visible()
    expect(page.get_by_text("my own end").first).to_be_visible()
    page.goto(site.address("/runs/edit"))
    page.get_by_role("button", name="Fork …").click()
    page.get_by_label("Other instructions of phase").select_option("second")
    page.get_by_label("Instructions of second").fill("Do it in another way.")
    page.get_by_label("Another model").fill(site.script("edited", go("second"), finish("another way")))
    page.get_by_role("button", name="Fork", exact=True).click()
    expect(page.locator(".added", has_text="Do it in another way.")).to_be_visible()
    expect(page.get_by_text("another way").last).to_be_visible()


def test_a_conversation_is_streamed_and_continued(page: Any, site: Site):
    page.goto(site.address("/chat"))
    page.get_by_role("textbox", name="Message").fill("hello")
    page.keyboard.press("Enter")
    page.locator(".message.agent strong", has_text="Hello").wait_for()
    page.get_by_role("textbox", name="Message").fill("more")
    page.get_by_role("button", name="Send").click()
    page.get_by_text("And again.").wait_for()
    page.goto(site.address("/chat"))
    page.get_by_role("link", name="hello").wait_for()


def test_texts_of_models_are_never_markup(page: Any, site: Site):
    site.run(
        "asker", "evil", {"control_ir": [{"kind": "ask_user", "question": HOSTILE}]}, finish(HOSTILE), text=HOSTILE
    )
    card = page.get_by_role("article").filter(has_text="evil")
    expect(card).to_contain_text(MARKUP)
    expect(card).to_contain_text("\\u202e")
    card.get_by_label("Reply").fill(HOSTILE)
    card.get_by_role("button", name="Send reply").click()
    page.goto(site.address("/runs/evil"))
    page.get_by_text("finished").first.wait_for()
    page.get_by_text("Prompt and answer at this event").click()
    page.get_by_role("heading", name="system").wait_for()
    for _ in range(2):
        assert page.locator("main img, main script, main a[href^='javascript:']").count() == 0
        assert page.title() != "1"
        page.get_by_role("tab", name="everything").click()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("path", ["/", "/runs", "/runs/shown", "/chat", "/skills/pair", "/agents/default", "/usage"])
def test_pages_fit_a_small_screen_and_have_no_findings_of_axe(page: Any, site: Site, path: str):
    from axe_playwright_python.sync_playwright import Axe

    if not any(site.root.glob("shown.jsonl")):
        site.run("pair", "shown", go("second"), finish("served"))
    page.set_viewport_size({"width": 380, "height": 800})
    page.goto(site.address(path))
    page.get_by_role("heading", level=1).wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= 380"), "the page is wider than the screen"
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]})
        assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found.response["violations"]] == []


def test_the_keyboard_reaches_everything(page: Any, site: Site):
    for key, heading in (("r", "Runs"), ("s", "Skills"), ("u", "Usage"), ("c", "Chat"), ("i", "Inbox")):
        page.keyboard.press(key)
        page.get_by_role("heading", name=heading, level=1).wait_for()
    site.run("asker", "keys", QUESTION, finish("thanks"))
    card = page.get_by_role("article").filter(has_text="keys")
    card.wait_for()
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "TEXTAREA":
            break
    page.keyboard.type("by keyboard")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(card).to_have_count(0)


def test_a_page_goes_on_after_the_server_was_killed(page: Any, site: Site):
    page.get_by_text("live", exact=True).wait_for()
    site.stop(signal.SIGKILL)
    page.get_by_text("reconnecting", exact=True).wait_for()
    site.start()
    site.run("asker", "after", QUESTION, finish("thanks"))
    card = page.get_by_role("article").filter(has_text="after")
    card.get_by_label("Reply").fill("still here")
    card.get_by_role("button", name="Send reply").click()
    expect(card).to_have_count(0)
