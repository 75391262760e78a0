"""The ops that draft, draw, try, import and install skills, used by any skill through the one gate."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from reyn import LATER, OSRuntime
from reyn.journal import MemoryJournal
from reyn.ops import Call, standard_ops
from reyn.ops.op import DerivableChanges, RecordedChanges
from reyn.runtime.trials import Trials
from reyn.testing import ScriptedModel
from reyn.workspace import Change
from tests.building import branching, case, phase, plan
from tests.kernel.support import Project
from tests.support import act, file, finish, write_skill

KINDS = "skill_draft, skill_import, skill_graph, skill_try, skill_install, lint, file"
REQUEST = "permissions: {skill.write: true}\n"
AGENT_SKILL = "---\nname: haiku\ndescription: Write a haiku.\n---\nWrite a haiku.\n"


class Approving:
    def __init__(self, reply: Any = "approve") -> None:
        self.reply = reply
        self.asked: list[str] = []

    async def ask(self, run_id: str, question: Any) -> Any:
        self.asked.append(question.message)
        return self.reply


def results(root: Path, *ops: dict, keys: str = REQUEST, **options: Any) -> list[dict]:
    """Return the results of ops in one act turn."""
    write_skill(root, "maker", {"a": ["end"]}, ops={"a": KINDS}, skill_keys=keys)
    project = Project(root)
    result = project.run("maker", [act(*ops), finish()], **options)
    assert result.ok, result.reason
    assert project.is_sound()
    with project.open([]) as rt:
        named = [event.data for event in rt.runs.events("k") if event.data.get("result") and "call" in event.data]
        # The start of an op names its planned result; its end replaces it.
        found = {data["call"]: json.loads(rt.runs.content(data["result"])) for data in named}
    return list(found.values())


DRAFT = {"kind": "skill_draft", "plan": branching()}
PATH = "workspace:draft/sorter"


def test_a_model_can_draft_check_and_install_a_skill(tmp_path: Path):
    people = Approving()
    drafted, linted, drawn, tried, installed = results(
        tmp_path,
        DRAFT,
        {"kind": "lint", "skill_path": PATH},
        {"kind": "skill_graph", "skill_path": PATH},
        {"kind": "skill_try", "skill_path": PATH},
        {"kind": "skill_install"},
        people=people,
    )
    assert (drafted["skill_path"], linted["passed"], tried["passed"]) == (PATH, True, True)
    assert "think" in drawn["graph"]
    assert installed["replaced"] is False
    assert (tmp_path / "reyn/local/sorter/skill.md").exists()
    assert len(people.asked) == 1


def test_a_second_draft_takes_the_place_of_the_first(tmp_path: Path):
    people = Approving("reject")
    *_, installed = results(
        tmp_path, DRAFT, {"kind": "skill_draft", "plan": plan()}, {"kind": "skill_install"}, people=people
    )
    assert installed["status"] == "denied"
    assert "reyn/local/greeter/" in people.asked[0]
    assert "sorter" not in people.asked[0]


def test_a_draft_that_is_drafted_again_is_tried_with_its_own_cases(tmp_path: Path):
    smaller = branching()
    smaller["cases"] = smaller["cases"][:1]
    again = {"kind": "skill_draft", "plan": smaller}
    *_, tried = results(tmp_path, DRAFT, again, {"kind": "skill_try", "skill_path": PATH, "on_fail": "abort"})
    assert tried["summary"] == "1 of 1 case passed"


@pytest.mark.parametrize(
    ("op", "error"),
    [
        ({"kind": "skill_draft", "plan": {"name": "x"}}, "missing required field"),
        ({"kind": "skill_draft", "plan": plan("../up")}, "skill name '../up' is invalid"),
        ({"kind": "skill_install"}, "there is no draft"),
        ({"kind": "skill_graph", "skill_path": "nowhere"}, "RYN101"),
        ({"kind": "skill_try", "skill_path": "nowhere"}, "no skill `nowhere`"),
        ({"kind": "skill_try", "skill_path": "maker", "on_fail": "abort"}, "no cases"),
        ({"kind": "skill_import", "path": "nowhere"}, "RYN430"),
        ({"kind": "skill_import", "path": "reyn"}, "no `SKILL.md`"),
    ],
)
def test_an_op_that_fails_says_why(tmp_path: Path, op: dict, error: str):
    [result] = results(tmp_path, op)
    assert result["status"] == "error"
    assert error in result["error"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lint", "skill_graph", "skill_try"])
@pytest.mark.parametrize("path", ["/etc", "../..", ".hidden/skill"])
def test_skills_outside_of_the_project_are_denied(tmp_path: Path, kind: str, path: str):
    [result] = results(tmp_path, {"kind": kind, "skill_path": path})
    assert result["status"] == "denied"


@pytest.mark.parametrize("path", ["/etc", "../..", ".hidden/skill"])
def test_an_import_from_outside_is_denied(tmp_path: Path, path: str):
    [result] = results(tmp_path, {"kind": "skill_import", "path": path})
    assert result["status"] == "denied"


def test_lint_and_cases_can_be_a_condition(tmp_path: Path):
    broken = plan(phases=[phase("greet", ["user_message"], ("end", ""), ops=["fly"])])
    skill = {"skill_path": "workspace:draft/greeter", "on_fail": "abort"}
    drafted, linted, tried, installed = results(
        tmp_path,
        {"kind": "skill_draft", "plan": broken},
        {"kind": "lint", **skill},
        {"kind": "skill_try", **skill},
        {"kind": "skill_install"},
        people=Approving(),
    )
    assert drafted["status"] == "ok"
    assert "unknown op `fly`" in linted["error"]
    assert "case `plain`" in tried["error"]
    assert "the draft has errors" in installed["error"]
    assert not (tmp_path / "reyn/local").exists()


def test_without_a_request_nothing_is_installed(tmp_path: Path):
    _, installed = results(tmp_path, DRAFT, {"kind": "skill_install"}, keys="", people=Approving())
    assert installed["status"] == "denied"
    assert "file.write" in installed["error"]


def test_a_draft_that_was_changed_by_hand_must_be_one_skill(tmp_path: Path):
    people = Approving()
    *_, installed = results(
        tmp_path,
        DRAFT,
        file("write", "workspace:draft/other/notes.md", content="x"),
        {"kind": "skill_install"},
        people=people,
    )
    assert "must contain one folder" in installed["error"]
    assert people.asked == []


def test_an_import_is_a_draft(tmp_path: Path):
    (tmp_path / "haiku").mkdir()
    (tmp_path / "haiku/SKILL.md").write_text(AGENT_SKILL)
    people = Approving()
    imported, installed = results(
        tmp_path, {"kind": "skill_import", "path": "haiku/SKILL.md"}, {"kind": "skill_install"}, people=people
    )
    assert imported["unconverted"] == []
    assert imported["instructions"] == "Write a haiku.\n"
    assert installed["skill_path"] == "reyn/local/haiku"
    assert "no cases" in people.asked[0]


def test_an_import_follows_no_link(tmp_path: Path):
    (tmp_path / "p/haiku").mkdir(parents=True)
    (tmp_path / "p/haiku/SKILL.md").write_text(AGENT_SKILL)
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "p/haiku/notes.txt").symlink_to(tmp_path / "secret.txt")
    [imported] = results(tmp_path / "p", {"kind": "skill_import", "path": "haiku"})
    assert "leads out of the folder" in imported["error"]


def test_an_interrupted_approval_is_asked_again_after_the_draft_changed(tmp_path: Path):
    write_skill(tmp_path, "maker", {"a": ["end"]}, ops={"a": KINDS}, skill_keys=REQUEST)
    project = Project(tmp_path, MemoryJournal())
    waiting = project.run("maker", [act(DRAFT, {"kind": "skill_install"}), finish()], people=Approving(LATER))
    assert waiting.status == "waiting"
    (tmp_path / ".reyn/workspace/k/draft/sorter/phases/sort.md").write_text(
        "---\ntype: phase\nname: sort\ninput: user_message\nallowed_ops: []\n---\nSomething else.\n"
    )
    with project.open([act(DRAFT, {"kind": "skill_install"}), finish()]) as rt:
        rt.answer("k", waiting.question.id, "approve")
        again = rt.resume("k")
        assert again.status == "waiting"
        assert "+Something else." in again.question.message
    assert not (tmp_path / "reyn/local").exists()


def test_replay_rejects_changes_that_an_op_cannot_make():
    elsewhere = (Change("output/x.md", None, "0" * 64),)
    for kind in ("skill_draft", "skill_import", "skill_install"):
        op = standard_ops().get(kind)
        assert isinstance(op, DerivableChanges)
        call = Call("k/1", {"kind": kind})
        assert op.changes_error(call, RecordedChanges(elsewhere, bytes, str))
    install = standard_ops().get("skill_install")
    assert isinstance(install, DerivableChanges)
    paths = {"reyn/local/a/skill.md": "", "reyn/local/a/.git/config": "x", "reyn/local/skill.md": "x"}
    for path, wrong in paths.items():
        changes = RecordedChanges((Change(path, None, "0" * 64),), bytes, str)
        found = install.changes_error(Call("k/1", {"kind": "skill_install"}), changes)
        assert bool(found) == bool(wrong), path
    two = (Change("reyn/local/a/skill.md", None, "0" * 64), Change("reyn/local/b/skill.md", None, "0" * 64))
    assert install.changes_error(Call("k/1", {"kind": "skill_install"}), RecordedChanges(two, bytes, str))


def test_a_case_cannot_escape_through_the_draft(tmp_path: Path):
    hostile = plan(cases=[case("x", {"next": "end", "values": [], "ops": '[{"kind": "skill_install"}]'})])
    _, tried = results(
        tmp_path,
        {"kind": "skill_draft", "plan": hostile},
        {"kind": "skill_try", "skill_path": "workspace:draft/greeter"},
    )
    assert tried["passed"] is False
    assert not (tmp_path / "reyn/local").exists()


@pytest.mark.parametrize("op", [DRAFT, {"kind": "skill_install"}], ids=lambda op: op["kind"])
def test_a_link_in_the_place_of_the_draft_is_refused(tmp_path: Path, op: dict):
    workspace = tmp_path / ".reyn/workspace/k"
    workspace.mkdir(parents=True)
    (workspace / "draft").symlink_to(tmp_path)
    [result] = results(tmp_path, op, people=Approving())
    assert "is a link" in result["error"]
    assert not (tmp_path / "sorter").exists()


def test_the_event_loop_goes_on_while_an_installation_tries_the_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_skill(tmp_path, "maker", {"a": ["end"]}, ops={"a": KINDS}, skill_keys=REQUEST)
    begun, released, went_on = threading.Event(), threading.Event(), []
    original = Trials._run

    async def held(self: Trials, *arguments: Any):
        begun.set()
        went_on.append(released.wait(30))  # only the event loop releases it
        return await original(self, *arguments)

    monkeypatch.setattr(Trials, "_run", held)

    async def release() -> None:
        while not begun.is_set():  # noqa: ASYNC110 - a thread sets it
            await asyncio.sleep(0.001)
        released.set()

    async def install() -> None:
        people, model = Approving(), ScriptedModel([act(DRAFT, {"kind": "skill_install"}), finish()])
        async with OSRuntime.open(tmp_path, model=model, journal=MemoryJournal(), people=people) as rt:
            result, _ = await asyncio.gather(rt.run("maker", {"text": "x"}), release())
            assert result.ok, result.reason
            assert "2 of 2 cases passed" in people.asked[0]
            await rt.runs.replay(result.run_id)

    asyncio.run(install())
    assert went_on == [True]
    assert (tmp_path / "reyn/local/sorter/skill.md").exists()
