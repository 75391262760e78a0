"""Chat and skills in a real browser: images, memory, past chats, asking again, stopping; cases, charts."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from reyn import ModelAnswer, ModelRequest, SyncRuntime, Usage
from reyn.testing import ScriptedModel
from tests.chat.support import reply, start_skill
from tests.gateway.browser import IN_BROWSER, Site
from tests.models.fake_server import FakeServer, chunk, event, good, stream
from tests.runtime.test_trials import add_case
from tests.support import finish, go

expect = pytest.importorskip("playwright.sync_api").expect
expect.set_options(timeout=60_000)
pytestmark = IN_BROWSER
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture(scope="module")
def held() -> Iterator[FakeServer]:
    """A provider that begins an answer and sends no more."""
    with FakeServer(stream(event(chunk("I am thinking")), then="silence")) as server:
        yield server


def say(page: Any, text: str) -> None:
    page.get_by_role("textbox", name="Message").fill(text)
    page.get_by_role("button", name="Send", exact=True).click()


def test_a_message_is_asked_again_edited_and_remembered(page: Any, site: Site):
    page.goto(site.address("/chat"))
    say(page, "first")
    page.locator(".message.agent", has_text="Hello").wait_for()
    say(page, "what is this")
    page.get_by_text("And again.").wait_for()
    first = page.url.rpartition("/")[2]
    page.get_by_text(re.compile("Memory, ")).click()
    page.get_by_label("Remember").first.fill("The user drinks tea.")
    page.get_by_role("button", name="Remember").click()
    page.get_by_role("listitem").filter(has_text="The user drinks tea.").wait_for()
    page.get_by_role("button", name="Forget").click()
    expect(page.get_by_role("listitem").filter(has_text="The user drinks tea.")).to_have_count(0)
    for name in ("Ask again", "Edit"):
        command = re.compile(rf"reyn chat --fork '?{first}@2'?$")
        expect(page.get_by_role("button", name=name).last).to_have_attribute("title", command)
        expect(page.get_by_role("button", name=name).first).to_have_attribute("title", re.compile("reyn chat default$"))
    page.get_by_role("button", name="Ask again").last.click()
    expect(page).not_to_have_url(re.compile(first))
    page.get_by_text("And again.").wait_for()
    page.get_by_role("button", name="Edit").last.click()
    page.get_by_label("Instead").fill("something else")
    page.locator("form", has=page.get_by_label("Instead")).get_by_role("button", name="Send").click()
    page.locator(".message.user", has_text="something else").wait_for()
    page.get_by_text("And again.").wait_for()
    site.picture(page, "chat")
    page.goto(site.address("/chat"))
    expect(page.get_by_role("link", name="first")).to_have_count(3)


def test_a_reply_in_progress_is_stopped_and_an_image_sent(page: Any, site: Site, held: FakeServer):
    (site.root / "reyn.yaml").write_text(
        (site.root / "reyn.yaml")
        .read_text()
        .replace("models:\n", f"models:\n  held: {{model: 'openai:m', images: true, base_url: '{held.url}'}}\n")
    )
    agents = site.root / "reyn" / "agents"
    agents.mkdir(parents=True, exist_ok=True)
    (agents / "slow.md").write_text(
        "---\ntype: agent\nname: slow\ndescription: Takes its time\nmodel: held\n---\nBe slow.\n"
    )
    site.reyn("trust", "--yes")
    site.stop()
    site.start()
    page.goto(site.address("/chat"))
    page.get_by_label("Agent").select_option("slow")
    say(page, "hello")
    page.get_by_role("button", name="Stop the reply").click()
    held.wait_for(lambda: held.drops == 1)
    page.get_by_text("stopped by the user").first.wait_for()
    expect(page.get_by_role("button", name="Stop the reply")).to_have_count(0)
    held.then(good(reply("A dot.")))
    page.get_by_label("Images").set_input_files({"name": "a.png", "mimeType": "image/png", "buffer": PIXEL})
    say(page, "what is this")
    page.locator(".message.agent", has_text="A dot.").wait_for()
    assert base64.b64encode(PIXEL).decode() in json.dumps(held.requests[-1].body)


def test_a_skill_runs_beside_a_chat_and_asks_in_place(page: Any, site: Site):
    agents = site.root / "reyn" / "agents"
    agents.mkdir(parents=True, exist_ok=True)
    folder = site.root / "reyn/project/poll"
    (folder / "phases").mkdir(parents=True)
    head = "type: skill\nname: poll\nentry: ask\nfinal_output: user_message\ngraph: {ask: [{else: end}]}\n"
    (folder / "skill.md").write_text(f"---\n{head}---\n")
    step = "preprocessor: [{ask_user: {question: 'Which one?', into: data.text}}]\n"
    (folder / "phases/ask.md").write_text(f"---\ntype: phase\nname: ask\ninput: user_message\n{step}---\n")
    own = {"type": "agent", "name": "helper", "skills": ["poll"], "allowed_ops": ["start_skill"]}
    own["model"] = site.script("helper", start_skill("poll"), reply("It runs."), reply("Noted."))
    (agents / "helper.md").write_text(f"---\n{json.dumps(own)}\n---\nHelp.\n")
    page.goto(site.address("/chat"))
    page.get_by_label("Agent").select_option("helper")
    say(page, "ask somebody")
    page.get_by_text("It runs.").wait_for()
    card = page.get_by_role("article").filter(has_text="Which one?")
    card.get_by_label("Reply").fill("the blue one")
    card.get_by_role("button", name="Send reply").click()
    expect(card).to_have_count(0)
    page.get_by_text("Noted.").wait_for()


def test_an_agent_is_explained(page: Any, site: Site):
    agents = site.root / "reyn" / "agents"
    agents.mkdir(parents=True, exist_ok=True)
    own = "type: agent\nname: clerk\nskills: [pair]\nbudget: {tokens: 9000}\n"
    (agents / "clerk.md").write_text(f"---\n{own}---\nBe kind.\n")
    (agents / "broken.md").write_text("---\ntype: agent\nname: broken\nallowed_ops: [nope]\n---\nBe kind.\n")
    page.goto(site.address("/skills"))
    page.get_by_role("link", name="clerk").click()
    page.get_by_text("Be kind.").wait_for()
    page.get_by_text("9,000 tokens").wait_for()
    page.get_by_role("cell", name="write files").first.wait_for()
    page.get_by_role("link", name="Talk with it").wait_for()
    page.goto(site.address("/agents/broken"))
    page.get_by_text("RYN122").wait_for()
    expect(page.get_by_role("link", name="Talk with it")).to_have_count(0)


def test_cases_are_run_and_permissions_explained(page: Any, site: Site):
    expected = {"path": ["first", "second"]}
    add_case(site.root / "reyn/project/pair", "good", [go("second"), finish("x")], expected)
    add_case(site.root / "reyn/project/pair", "wrong", [go("second"), finish("x")], {"path": ["second"]})
    phase = site.root / "reyn/project/pair/phases/first.md"
    phase.write_text(phase.read_text().replace("allowed_ops: []", "allowed_ops: []\nmax_act_turns: 3"))
    page.goto(site.address("/skills/pair"))
    page.get_by_role("button", name="Run all cases").click()
    page.get_by_role("listitem").filter(has_text="good").get_by_text("passed").wait_for()
    page.get_by_role("listitem").filter(has_text="wrong").get_by_text("failed").wait_for()
    page.get_by_role("cell", name="write files").first.wait_for()
    page.evaluate("scrollTo(0, 0)")
    site.picture(page, "skill")


class Charged(ScriptedModel):
    """Reports the same usage for every answer; a model that takes no time is not charged."""

    takes_time = True

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        return ModelAnswer((await super().complete(request)).text, Usage(100, 20))


def test_usage_is_a_chart(page: Any, site: Site, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(site.root / "config"))  # the journal belongs to the user who serves it
    with SyncRuntime.open(site.root, model=Charged([go("second"), finish("x")])) as runtime:
        assert runtime.run("pair", {"text": "in"}, run_id="two-calls").ok
    with SyncRuntime.open(site.root, model=Charged([finish("x")])) as runtime:
        assert runtime.run("writer", {"text": "in"}, run_id="one-call").ok
    page.goto(site.address("/usage"))
    page.get_by_role("tab", name="skill").click()
    label = page.get_by_role("img", name=re.compile("Tokens by skill: .*pair")).get_attribute("aria-label")
    assert label is not None
    shown = dict(
        row.rsplit(" ", 1) for row in label.partition(": ")[2].split(", ")
    )  # thousands have commas without a space
    assert (shown["pair"], shown["writer"]) == ("240", "120")
    rows = json.loads(site.reyn("usage", "--by", "skill", "--json"))["rows"]
    assert shown == {row["name"]: f"{row['input_tokens'] + row['output_tokens']:,}" for row in rows}
    bars = page.locator(".chart rect.bar")
    assert bars.count() == len(rows)
    widths = dict(zip(shown, (float(bar.get_attribute("width")) for bar in bars.all()), strict=True))
    assert widths["pair"] == 2 * widths["writer"]
