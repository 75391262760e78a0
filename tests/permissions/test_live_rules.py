"""The rules of the files apply to every op of an open runtime, also in runs that have started."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reyn import SyncRuntime, tool
from reyn.errors import ConfigInvalid
from reyn.journal import Event, MemoryJournal
from reyn.permissions.trust import load_project, store_decision
from reyn.testing import ScriptedModel
from tests.kernel.support import IN
from tests.properties import examples
from tests.support import act, file, finish, write_skill

LENGTHS = count(1)
SENT: list[str] = []


@tool(name="send", effect="unsafe")
def send_op(text: str) -> str:
    """Send a text."""
    SENT.append(text)
    return "sent"


SEND, WRITE = {"kind": "send", "text": "hi"}, file("write", "desk/a.md", content="a")
REQUESTS = "permissions: {tool: true, file.write: [desk/]}\n"
ANSWERS = [act(SEND), act(WRITE), finish()]


@pytest.fixture(autouse=True)
def _nothing_sent() -> None:
    SENT.clear()


def write_desk(root: Path) -> None:
    write_skill(root, "desk", {"a": ["end"]}, skill_keys=REQUESTS, ops={"a": "send, file"})


def put(path: Path, text: str) -> None:
    """Write a configuration file. No two have the same length: a clock may be too coarse to tell them apart."""
    path.write_text(f"{text}\n#{'-' * next(LENGTHS)}\n")


def replace(path: Path, text: str) -> None:
    put(path.with_suffix(".new"), text)
    path.with_suffix(".new").replace(path)


def opened(root: Path, answers: list[Any], **options: Any) -> SyncRuntime:
    model, journal = ScriptedModel(answers), MemoryJournal()
    return SyncRuntime.open(root, **{"model": model, "journal": journal, "ops": [send_op]} | options)


def verdicts(rt: SyncRuntime, run_id: str) -> list[Any]:
    """Return what the gate decides about both ops in a new run: its status, and the rules."""
    try:
        result = rt.run("desk", IN, run_id=run_id)
    except ConfigInvalid as error:
        return ["invalid", [finding.message for finding in error.findings]]
    kinds = ("permission_denied", "approval_required", "send_started", "file_started")
    return [result.status, [event.data["rule"] for event in rt.runs.events(run_id) if event.kind in kinds]]


EFFECTS = st.sampled_from(["allow", "ask", "deny"])
RULES = st.one_of(
    st.builds("tool: {}".format, EFFECTS),
    st.builds("tool: [{{{}: send, skill: desk}}]".format, EFFECTS),
    st.builds("file.write: [{{{}: desk/}}]".format, EFFECTS),
)
TEXTS = st.one_of(
    st.builds(lambda rules: f"permissions: {{{', '.join(dict.fromkeys(rules))}}}", st.lists(RULES, max_size=1)),
    st.builds("permissions: {{tool: {}, file.write: {}}}".format, EFFECTS, EFFECTS),
    st.sampled_from(
        ["", "files: {write: [desk/]}", "files: {write: []}", "permissions: {tool: maybe}", "permissions: [", "tol: x"]
    ),
)
FILES = st.sampled_from(["reyn.yaml", "reyn.local.yaml"])
CHANGES = st.one_of(
    st.tuples(st.sampled_from([put, replace]), FILES, TEXTS),
    st.tuples(st.just(lambda path, text: path.unlink(missing_ok=True)), FILES, st.just("")),
    st.tuples(st.just(lambda path, text: decide(path.parent)), FILES, st.just("")),
)


def decide(root: Path) -> None:
    """Trust the project as it is now."""
    try:
        store_decision(load_project(root))
    except ConfigInvalid:
        return


@given(st.lists(CHANGES, min_size=1, max_size=4), st.sampled_from([None, True, False]))
@examples(20)
def test_an_open_runtime_decides_as_one_that_is_opened_now(
    changes: list[tuple[Callable[[Path, str], None], str, str]], trust: bool | None
):
    with TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        write_desk(root)
        with opened(root, ANSWERS, trust=trust) as rt:
            assert verdicts(rt, "r") == ["finished", ["default: no grant", "default: no grant"]]
            for number, (change, name, text) in enumerate(changes):
                change(root / name, text)
                try:
                    with opened(root, ANSWERS, trust=trust) as fresh:
                        expected = verdicts(fresh, "r")
                except ConfigInvalid as error:
                    expected = ["invalid", [finding.message for finding in error.findings]]
                assert verdicts(rt, f"r{number}") == expected


# -- runs that have started ------------------------------------------------------------------------------------

ALLOW, ASK, DENY, BROKEN = "permissions: {tool: allow}", "permissions: {tool: ask}", "permissions: {tool: deny}", "a: ["


def at_start(root: Path, number: int, text: str) -> Callable[[Event], None]:
    """Return a listener that writes `reyn.yaml` when the start of an op is durable."""
    started = count(1)

    def listen(event: Event) -> None:
        if event.kind == "send_started" and next(started) == number:
            put(root / "reyn.yaml", text)

    return listen


@pytest.mark.parametrize(("rules", "sent"), [(ALLOW, 2), (ASK, 1), (DENY, 1)])
@pytest.mark.parametrize("answers", [[act(SEND, SEND), finish()], [act(SEND), act(SEND), finish()]])
def test_rules_that_change_while_an_op_is_executed_apply_to_the_next_one(
    tmp_path: Path, answers: list[Any], rules: str, sent: int
):
    write_desk(tmp_path)

    @tool(name="send", effect="unsafe")
    def send_and_change(text: str) -> str:
        """Send a text, and change the rules."""
        SENT.append(text)
        put(tmp_path / "reyn.yaml", rules)
        return "sent"

    put(tmp_path / "reyn.yaml", ALLOW)
    with opened(tmp_path, answers, trust=True, ops=[send_and_change]) as rt:
        assert rt.run("desk", IN).status == ("waiting" if rules == ASK else "finished")
    assert len(SENT) == sent


@pytest.mark.parametrize("text", [DENY, BROKEN])
def test_an_unsafe_op_whose_rules_change_after_it_was_planned_is_not_executed(tmp_path: Path, text: str):
    write_desk(tmp_path)
    put(tmp_path / "reyn.yaml", ALLOW)
    with opened(tmp_path, [act(SEND), finish()], trust=True) as rt:
        result = rt.run("desk", IN, run_id="k", listener=at_start(tmp_path, 1, text))
        [completed] = [event.data for event in rt.runs.events("k") if event.kind == "send_completed"]
    assert (result.status, SENT, completed["status"]) == ("finished", [], "denied" if text == DENY else "error")
    assert any("cannot be read" in warning for warning in result.warnings) == (text == BROKEN)


def test_an_approval_does_not_outlive_the_rule(tmp_path: Path):
    write_desk(tmp_path)
    put(tmp_path / "reyn.yaml", ASK)
    with opened(tmp_path, [act(SEND), finish()], trust=True) as rt:
        waiting = rt.run("desk", IN, run_id="k")
        rt.answer("k", waiting.question.id, "approve")
        put(tmp_path / "reyn.yaml", DENY)
        assert rt.resume("k").ok
    assert not SENT


@pytest.mark.parametrize("skill", ["desk", "node", "step", "chat"])
@pytest.mark.parametrize("text", [BROKEN, "permissions: {tool: maybe}", "tol: 1"])
def test_a_file_with_errors_stops_the_run_until_it_is_repaired(tmp_path: Path, skill: str, text: str):
    write_desk(tmp_path)
    write_skill(tmp_path, "node", {"@desk": ["end"]}, skill_keys=REQUESTS)
    step = "preprocessor:\n  - run_skill: {skill: desk, input: {text: x}, into: data.r}\n"
    note = {"note": {"type": "object"}}
    write_skill(tmp_path, "step", {"a": ["end"]}, skill_keys=REQUESTS, phase_keys={"a": step}, artifacts=note)
    value = "hi" if skill == "chat" else IN
    keys = {"inputs": {"a": "user_message"}, "phase_keys": {"a": "conversation: true\n"}, "ops": {"a": "send"}}
    write_skill(tmp_path, "chat", {"a": ["end"]}, skill_keys=REQUESTS, **keys)
    put(tmp_path / "reyn.yaml", ALLOW)
    with opened(tmp_path, [act(SEND), finish(), finish()], trust=True) as rt:
        assert rt.run("desk", IN, run_id="before").ok
        SENT.clear()
        put(tmp_path / "reyn.local.yaml", text)
        for _ in range(2):
            with pytest.raises(ConfigInvalid):
                rt.run(skill, value, run_id="k")
        assert not SENT
        (tmp_path / "reyn.local.yaml").unlink()
        assert rt.run(skill, value, run_id="k").ok
    assert len(SENT) == 1


def test_undo_follows_the_rules_of_the_file(tmp_path: Path):
    write_desk(tmp_path)
    put(tmp_path / "reyn.yaml", "permissions: {file.write: [{allow: desk/}]}")
    with opened(tmp_path, [act(WRITE), finish()], trust=True) as rt:
        assert rt.run("desk", IN, run_id="k").ok
        put(tmp_path / "reyn.yaml", "permissions: {file.write: [{deny: desk/}]}")
        assert not rt.runs.undo("k").restored
        put(tmp_path / "reyn.yaml", "permissions: {file.write: [{allow: desk/}]}")
        assert rt.runs.undo("k").restored
    assert not (tmp_path / "desk/a.md").exists()


def test_the_result_of_cases_is_not_remembered_after_a_change_of_the_rules(tmp_path: Path):
    write_desk(tmp_path)
    case = tmp_path / "reyn/project/desk/cases/plain"
    case.mkdir(parents=True)
    (case / "input.json").write_text('{"text": "in"}')
    (case / "answers.jsonl").write_text("".join(f"{json.dumps(answer)}\n" for answer in [act(WRITE), finish()]))
    with opened(tmp_path, [], trust=True) as rt:
        passed = []
        for effect in ("allow", "deny", "allow"):
            put(tmp_path / "reyn.yaml", f"permissions: {{file.write: [{{{effect}: desk/}}]}}")
            passed.append(rt.project.try_cases("desk").passed)
    assert passed == [True, False, True]


def test_a_derived_runtime_adds_its_rules_to_those_of_the_file(tmp_path: Path):
    write_desk(tmp_path)
    with opened(tmp_path, ANSWERS, trust=True) as rt:
        derived = rt.derive(ops=[send_op], permissions={"file.write": [{"allow": "desk/"}]}, strict=True)
        put(tmp_path / "reyn.yaml", ALLOW)
        assert derived.run("desk", IN).ok
        put(tmp_path / "reyn.yaml", "permissions: {tool: deny, file.write: deny}")
        assert verdicts(derived, "k")[1] == ["permissions.tool: deny", "permissions.file.write: deny"]
    assert (SENT, (tmp_path / "desk/a.md").exists()) == (["hi"], True)


def test_the_other_settings_stay_as_they_were_when_the_project_was_opened(tmp_path: Path):
    write_desk(tmp_path)
    with opened(tmp_path, ANSWERS, trust=True) as rt:
        put(tmp_path / "reyn.yaml", f"max_act_turns: 1\n{ALLOW}")
        assert rt.run("desk", IN).ok
        assert rt.async_form.project.config.permissions == {}
