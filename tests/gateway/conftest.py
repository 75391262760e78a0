"""Fixtures of the tests in a browser: a project that is served, and a page that is signed in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.chat.support import reply
from tests.gateway.browser import CHROMIUM, FLAGS, NAMED, Site
from tests.support import two_phases, write_skill


@pytest.fixture(scope="module")  # while a browser is open, no other test of the process can start an event loop
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        opened = started.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    root = tmp_path_factory.mktemp("site")
    models = "".join(f"  {name}: scripted:{name}.jsonl\n" for name in NAMED)
    (root / "reyn.yaml").write_text(
        f"model: scripted:chat.jsonl\nmodels:\n{models}permissions: {{file.write: {{ask: ['output/**']}}}}\n"
    )
    two_phases(root)
    write_skill(root, "asker", {"ask": ["end"]}, ops={"ask": "ask_user"})
    write_skill(root, "writer", {"write": ["end"]}, ops={"write": "file"})
    found = Site(root)
    found.script("chat", reply("**Hello** from the agent."), reply("And again."))
    found.start()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def signed_in(browser: Any, site: Site) -> Any:
    """What the browser stores about a user who has signed in."""
    with browser.new_context() as context:
        opened = context.new_page()
        opened.goto(site.address("/"))
        opened.get_by_label("Token").fill(site.reyn("token", "new", "browser", "--scope", "admin"))
        opened.get_by_role("button", name="Sign in").click()
        opened.get_by_role("heading", name="Inbox").wait_for()
        return context.storage_state()


@pytest.fixture
def page(browser: Any, site: Site, signed_in: Any) -> Iterator[Any]:
    """The inbox of a user who has signed in. A script error or a refused resource fails the test."""
    context = browser.new_context(viewport={"width": 1200, "height": 900}, storage_state=signed_in)
    context.set_default_timeout(60_000)
    opened = context.new_page()
    errors: list[str] = []
    opened.on("pageerror", lambda error: errors.append(str(error)))
    opened.on("console", lambda message: errors.append(message.text) if "Content Security" in message.text else None)
    opened.goto(site.address("/"))
    yield opened
    context.close()
    assert errors == []
