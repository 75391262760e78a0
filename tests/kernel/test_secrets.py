"""No op reads, writes or reports a known secret, and nothing that is recorded or sent holds one."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from reyn import SyncRuntime
from reyn.journal import MemoryJournal
from reyn.kernel.runtime_types import LATER
from reyn.ops import Call, Env, Plan
from reyn.vocabulary import OpForm, OpSpec
from reyn.vocabulary.schemas import arguments, result
from tests.kernel.support import IN, Project
from tests.support import act, file, finish, question, write_skill

KEY = "sk-live/0123+456789abcdef"
HANDLE = "secret://FAR_KEY"
GRANT = {"permissions": {"file.read": [{"allow": ".env"}], "file.write": [{"allow": ".env"}]}}
REQUESTS = "permissions:\n  file.read: [.env]\n  file.write: [.env]\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("REYN_SECRET_FAR_KEY", KEY)
    write_skill(tmp_path, "s", {"work": ["end"]}, ops={"work": "file, ask_user"}, skill_keys=REQUESTS)
    (tmp_path / ".env").write_text(f"A=1\nTOKEN={KEY}\n")
    return Project(tmp_path)


def everything(project: Project) -> str:
    """All events and contents of the journal, and all prompts."""
    journal = project.journal
    assert isinstance(journal, MemoryJournal)
    events = [event.raw.decode() for row in journal.runs() for event in journal.read(row.run_id)]
    texts = [message.text for request in project.model.requests for message in request.messages]
    blobs = [content.decode(errors="replace") for content in vars(journal)["_blobs"].values()]
    return "\n".join([*events, *texts, *blobs])


def assert_denied(project: Project, *, run_id: str = "k") -> dict[str, Any]:
    [denied] = project.events("permission_denied", run_id=run_id)
    assert denied["rule"] == "default: no secret in an op"
    assert f"`{HANDLE}`" in denied["reason"]
    assert KEY not in everything(project)
    assert project.is_sound(run_id)
    return denied


@pytest.mark.parametrize(
    "op",
    [
        file("read", ".env"),
        {"kind": "file", "op": "grep", "pattern": "TOKEN", "path": ".env"},
        file("edit", ".env", old_string="A=1", new_string="A=2"),
        file("write", ".env", content="empty"),
        file("delete", ".env"),
    ],
    ids=lambda op: op["op"],
)
def test_an_op_on_a_file_that_holds_a_secret_is_denied_in_spite_of_a_grant(project: Project, op: dict[str, Any]):
    before = (project.root / ".env").read_text()
    assert project.run("s", [act(op), finish()], **GRANT).ok
    assert_denied(project)
    assert (project.root / ".env").read_text() == before
    assert project.results()[0]["status"] == "denied"


@pytest.mark.parametrize(
    "spelling",
    [
        KEY,
        json.dumps(KEY).replace("/", "\\/"),
        base64.b64encode(f"user:{KEY}".encode()).decode(),
        KEY.replace("+", "%2B"),
    ],
)
def test_every_spelling_of_a_secret_is_found(project: Project, spelling: str):
    (project.root / "notes.txt").write_text(f"see {spelling} there\n")
    assert project.run("s", [act(file("read", "notes.txt")), finish()]).ok
    assert_denied(project)


def test_the_name_of_a_file_can_be_a_secret(project: Project, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("REYN_SECRET_FAR_KEY", "name-0123456789")
    (project.root / "name-0123456789.txt").write_text("x")
    assert project.run("s", [act({"kind": "file", "op": "glob", "pattern": "*.txt"}), finish()]).ok
    [denied] = project.events("permission_denied")
    assert denied["op"] == "glob"
    assert "name-0123456789" not in everything(project)


def test_a_model_that_knows_a_secret_cannot_write_it(project: Project):
    assert project.run("s", [act(file("write", "output/a.txt", content=KEY)), finish(f"it is {KEY}")]).ok
    assert (project.root / "output/a.txt").read_text() == HANDLE
    assert KEY not in everything(project)


def test_inputs_and_answers_are_scrubbed(project: Project):
    with project.open([act(question("which?")), finish()]) as rt:
        wait = rt.run("s", {"text": f"use {KEY}"}, run_id="k").question
        assert wait is not None
        posted = rt.answer("k", wait.id, f"take {KEY}")
        result = rt.resume_answered(posted)
    assert result is not None
    assert result.ok
    assert KEY not in everything(project)
    assert f"use {HANDLE}" in everything(project)
    assert f"take {HANDLE}" in everything(project)
    with project.open([]) as rt:  # the same input names the same run
        assert rt.run("s", {"text": f"use {KEY}"}, run_id="k") == rt.runs.result("k")


def test_an_answer_at_the_terminal_is_scrubbed(project: Project):
    class Helpful:
        async def ask(self, run_id: str, wait: Any) -> Any:
            return f"take {KEY}" if wait.reason == "question" else LATER

    with project.open([act(question("which?")), finish()], people=Helpful()) as rt:
        assert rt.run("s", IN, run_id="k").ok
    assert KEY not in everything(project)


def test_content_recorded_before_a_secret_was_known_is_not_sent(project: Project, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("REYN_SECRET_FAR_KEY")
    with project.open([act(question("which?"))]) as rt:
        assert rt.run("s", {"text": f"use {KEY}"}, run_id="k").status == "waiting"
    monkeypatch.setenv("REYN_SECRET_FAR_KEY", KEY)
    with project.open([act(question("which?")), finish()]) as rt:
        wait = rt.runs.result("k").question
        assert wait is not None
        assert rt.resume_answered(rt.answer("k", wait.id, "x")) is not None
    assert not any(KEY in message.text for request in project.model.requests for message in request.messages)


def test_the_key_of_a_configured_model_is_known_even_if_another_model_answers(
    project: Project, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("REYN_SECRET_FAR_KEY")
    monkeypatch.setenv("FAR_KEY", KEY)
    models = {"far": {"model": "openai:m", "key": "env://FAR_KEY"}}
    assert project.run("s", [act(file("read", ".env")), finish()], models=models, **GRANT).ok
    [denied] = project.events("permission_denied")
    assert "`env://FAR_KEY`" in denied["reason"]
    assert KEY not in everything(project)


class Telling:
    """An op from outside that reveals a secret in its plan, its result or an exception."""

    def __init__(self, how: str) -> None:
        self.how = how
        form = OpForm(
            op=None,
            summary="Tell.",
            arguments=arguments("tell", None, {}),
            effect="unsafe",
            result=result("tell", None, {"told": {"type": "string"}}),
            example={"kind": "tell"},
        )
        self.spec = OpSpec("tell", "Tell.", effect="unsafe", forms=(form,))

    def plan(self, call: Call, env: Env) -> Plan:
        if self.how == "plan":
            return Plan("", result=call.ok(told=KEY))
        return Plan("")

    async def perform(self, call: Call, plan: Plan, env: Env) -> dict[str, Any]:
        if self.how == "exception":
            raise RuntimeError(f"bad key {KEY}")
        return call.ok(told=f"it is {KEY}")


@pytest.mark.parametrize("how", ["plan", "result", "exception"])
def test_an_op_from_outside_cannot_reveal_a_secret(project: Project, how: str):
    write_skill(project.root, "t", {"work": ["end"]}, ops={"work": "tell"})
    ops = [Telling(how)]
    with project.open([act({"kind": "tell"}), finish()], ops=ops) as rt:
        assert rt.run("t", IN, run_id="k").ok
        assert rt.runs.replay("k").events == len(project.kinds())
    [denied] = project.events("permission_denied")
    assert denied["op_kind"] == "tell"
    assert project.kinds().count("tell_started") == (0 if how == "plan" else 1)
    assert KEY not in everything(project)


def test_a_hard_link_to_the_secrets_file_is_out_of_reach(project: Project, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("REYN_SECRET_FAR_KEY")
    folder = Path(os.environ["XDG_CONFIG_HOME"]) / "reyn"
    folder.mkdir(parents=True, mode=0o700)
    for name in ("secrets.json", "config.yaml"):
        (folder / name).write_text("# CANARY\n" if name == "config.yaml" else '{"values": {"K": "CANARY"}}')
        (folder / name).chmod(0o600)
        (project.root / f"{name}.txt").hardlink_to(folder / name)
    looks = [file("read", "secrets.json.txt"), file("read", "config.yaml.txt")]
    searches = [{"kind": "file", "op": "grep", "pattern": "CANARY", "path": "."}]
    assert project.run("s", [act(*looks, *searches), finish()]).ok
    first, second, third = project.results()
    assert (first["status"], second["status"], third["matches"]) == ("error", "error", [])
    assert "out of reach" in first["error"]
    assert "CANARY\n" not in everything(project)


def test_the_state_directory_is_closed_to_other_users(project: Project):
    with SyncRuntime.open(project.root, model=project.model) as rt:
        project.model._model = type(project.model._model)([act(file("write", "workspace:a", content="x")), finish()])
        assert rt.run("s", IN).ok
        state = project.root / ".reyn"
        modes = {path.name: path.stat().st_mode & 0o777 for path in (state, *state.glob("journal.db*"))}
    assert modes[".reyn"] == 0o700
    assert {mode for name, mode in modes.items() if name != ".reyn"} == {0o600}
    assert len(modes) == 4


def test_a_state_directory_that_is_open_to_others_is_closed_by_the_next_run(project: Project):
    state = project.root / ".reyn"
    for _ in range(2):
        with SyncRuntime.open(project.root, model=project.model) as rt:
            project.model._model = type(project.model._model)([finish()])
            assert rt.run("s", IN).ok
        modes = [path.stat().st_mode & 0o777 for path in (state, state / "journal.db")]
        assert modes == [0o700, 0o600]
        state.chmod(0o755)
        (state / "journal.db").chmod(0o644)


def test_a_workspace_without_a_journal_on_disk_is_closed_too(project: Project):
    assert project.run("s", [act(file("write", "workspace:a", content="x")), finish()]).ok
    assert (project.root / ".reyn").stat().st_mode & 0o777 == 0o700


def test_runs_work_without_a_home_directory(project: Project, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("XDG_CONFIG_HOME")
    monkeypatch.setattr(Path, "home", lambda: (_ for _ in ()).throw(RuntimeError("no home")))
    assert project.run("s", [act(file("read", ".env")), finish()], **GRANT).ok
    assert_denied(project)
