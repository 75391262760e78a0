"""A path of recorded content in a history names no content of the run that the history is passed to."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn import SyncRuntime
from reyn.journal import MemoryJournal
from reyn.models.protocol import ModelAnswer
from reyn.workspace import Roots, locate
from reyn.workspace.earlier import arguments_as_earlier, as_earlier, is_earlier
from tests.functions.test_chat import Chatty, calls
from tests.support import finish, write_skill
from tests.workspace.support import make_roots

NAMES = st.sampled_from(["1.1.1", "1.2.input", "input", "2.artifact", "1.1.run/1.artifact", "earlier/1.1", "", "x/.."])
DETOURS = st.lists(st.sampled_from(["/", "./", "x/../", "a/b/../../", ".full/../", ".full/earlier/../../"]), max_size=3)
PATHS = st.builds(lambda before, name: f"workspace:{''.join(before)}.full/{name}", DETOURS, NAMES)
OTHERS = st.sampled_from(["workspace:notes.md", "workspace:x/.full/y", ".full/1", "output/a", "workspace:", "plain"])


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Roots:
    return make_roots(tmp_path_factory.mktemp("run"))


def names_content(path: str, roots: Roots) -> bool:
    """Whether a path names recorded content of the run that uses it."""
    location = locate(path, roots)
    return location.zone == "recorded" and not is_earlier(location.parts)


@given(st.lists(PATHS | OTHERS, min_size=1, max_size=4), st.sampled_from(['"{}"', "`{}`", " {} ", "<{}>"]))
def test_no_path_in_a_text_names_content_of_the_run(roots: Roots, paths: list[str], form: str):
    text = as_earlier(" and ".join(form.format(path) for path in paths))
    assert as_earlier(text) == text
    before, after = form.split("{}")
    found = [one.removeprefix(before).removesuffix(after) for one in text.split(" and ")]
    assert len(found) == len(paths)
    for old, new in zip(paths, found, strict=True):
        assert not (new and names_content(new, roots))
        is_recorded = locate(old, roots).zone == "recorded"
        assert is_recorded or new == old


@given(st.recursive(PATHS | OTHERS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(OTHERS, inner)))
def test_no_path_in_the_arguments_of_a_call_names_content_of_the_run(roots: Roots, value: Any):
    for encoded in (
        json.dumps(value),
        json.dumps(value).replace("/", "\\/"),
        re.sub("f", "\\\\u0066", json.dumps(value)),
    ):
        moved = arguments_as_earlier(encoded)
        assert arguments_as_earlier(moved) == moved
        strings = re.findall(r'"workspace:[^"]*"', json.dumps(json.loads(moved)))
        assert not any(names_content(json.loads(one), roots) for one in strings if len(one) > 12)


async def read_what_was_named(request: Any) -> ModelAnswer:
    """Read every path of recorded content that a request names."""
    said = "\n".join(f"{one.text} {one.tool_calls}" for one in request.messages)
    paths = sorted(set(re.findall(r"workspace:[.]full/[\w./-]*\w", said)))
    return ModelAnswer("", tool_calls=tuple(calls(*(("file_read", json.dumps({"path": path})) for path in paths))))


def test_a_run_does_not_take_its_own_content_for_that_of_the_history(tmp_path: Path):
    ops, inputs = {"talk": "file, run_skill"}, {"talk": "user_message"}
    write_skill(tmp_path, "inner", {"x": ["end"]})
    write_skill(tmp_path, "s", {"talk": ["end"]}, ops=ops, inputs=inputs, phase_keys={"talk": "conversation: true\n"})
    for name in ("old", "new"):
        (tmp_path / f"{name}.txt").write_text(f"{name} " * 5000)

    def look(name: str) -> list[Any]:
        inner = json.dumps({"skill": "inner", "input": {"text": "x"}})
        return [calls(("file_read", f'{{"path": "{name}.txt"}}'), ("run_skill", inner)), json.dumps(finish(name))]

    read = calls(("file_read", '{"path": "workspace:.full/1.1.1"}'), ("file_read", '{"path": "workspace:.full/input"}'))
    model = Chatty(*look("old"), read, "Old.", *look("new"), read_what_was_named, "New.")
    with SyncRuntime.open(tmp_path, model=model, journal=MemoryJournal(), trust=True) as rt:
        assert rt.run("s", "Look.", run_id="old").ok
        history = rt.runs.transcript("old")
        assert rt.run("s", "Look again.", run_id="new", history=history).ok
        shown = list(model.requests[-1].messages)
        [*_, at] = [number for number, one in enumerate(shown) if one.tool_calls]
        asked = [json.loads(call.arguments)["path"].removeprefix("workspace:.full/") for call in shown[at].tool_calls]
        read_again = {path: one.text for path, one in zip(asked, shown[at + 1 :], strict=False)}
        earlier = {path for path in asked if path.startswith("earlier/")}
        assert {"earlier/1.1.1", "earlier/input", "earlier/1.1.2.run/1.artifact", "1.1.1"} <= {*asked}
        assert {path for path, text in read_again.items() if "of an earlier run" in text} == earlier
        assert "new new" in read_again["1.1.1"]
        assert not any("old old" in text for text in read_again.values())
        named = {path for one in rt.runs.transcript("new") for path in re.findall(r"workspace:[.]full/(\w+)", one.text)}
        assert named == {"earlier"}
        assert rt.runs.replay("new").events == rt.runs.verify("new").events
