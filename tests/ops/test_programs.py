"""`sandboxed_exec` and `shell`: what a program gets is what the gate grants, whatever the model asks for."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from reyn.errors import SandboxStartFailed
from reyn.journal import Cancel, Event, decode, kinds
from reyn.sandbox.backends import BACKENDS
from tests.attacks.test_sandbox import survivors
from tests.kernel.support import Project
from tests.support import act, finish, write_skill

pytestmark = pytest.mark.skipif(all(backend.problem for backend in BACKENDS), reason="no process sandbox")
GRANTED = {"exec": [{"allow": ["cat", "sh", "touch"]}]}


def call(*argv: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "sandboxed_exec", "argv": list(argv)} | fields


def shell(script: str, **fields: Any) -> dict[str, Any]:
    return call("sh", "-c", script, **fields)


def command(cmd: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "shell", "cmd": cmd} | fields


def make(root: Path, requests: str = "{exec: [cat, sh, touch]}", more: str = "") -> Project:
    """Write a skill that allows the ops whose permission it requests."""
    keys = f"permissions: {requests}\n{more}"
    ops = [kind for key, kind in {"exec": "sandboxed_exec", "shell": "shell"}.items() if f"{key}:" in requests]
    write_skill(root, "s", {"a": ["end"]}, ops={"a": ", ".join(ops)}, skill_keys=keys)
    (root / "notes.txt").write_text("a note\n")
    (root / ".env").write_text("KEY=hidden\n")
    return Project(root)


def results(project: Project, *ops: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    options = {"permissions": GRANTED} | options
    assert project.run("s", [act(*ops), finish()], **options).ok
    assert project.is_sound()
    return recorded(project)


def recorded(project: Project, run_id: str = "k") -> list[dict[str, Any]]:
    """The results of the ops of a run, as the model sees them."""
    bodies = [decode(event) for event in project.journal.read(run_id)]
    outcomes = [body for body in bodies if isinstance(body, kinds.OpCompleted | kinds.PermissionDenied)]
    return [msgspec.json.decode(project.journal.blob(body.result)) for body in outcomes]


def one(project: Project, op: dict[str, Any], **options: Any) -> dict[str, Any]:
    [result] = results(project, op, **options)
    return result


class TestSandboxedExec:
    def test_a_program_reads_what_it_was_given(self, tmp_path: Path):
        result = one(make(tmp_path), call("cat", "notes.txt", read_paths=["notes.txt"]))
        assert (result["status"], result["stdout"], result["returncode"]) == ("ok", "a note\n", 0)
        assert result["backend"] in ("bubblewrap", "landlock")

    def test_without_read_paths_it_sees_no_files_of_the_project(self, tmp_path: Path):
        result = one(make(tmp_path), call("cat", str(tmp_path / "notes.txt")))
        assert (result["status"], result["error"]) == ("error", "the program ended with exit code 1")
        assert result["stdout"] == ""

    def test_hidden_names_and_the_state_directory_are_not_in_a_folder_that_it_reads(self, tmp_path: Path):
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub/.secret").write_text("hidden")
        script = "cat notes.txt; cat .env; cat sub/.secret; cat .reyn/journal.db; ls .reyn"
        result = one(make(tmp_path), shell(script, read_paths=["."], allow_subprocess=True))
        assert result["stdout"] == "a note\n"

    def test_a_link_out_of_the_project_leads_nowhere(self, tmp_path: Path):
        root, outside = tmp_path / "project", tmp_path / "outside.txt"
        root.mkdir()
        outside.write_text("outside")
        project = make(root)
        (root / "link").symlink_to(outside)
        assert one(project, call("cat", "link", read_paths=["."]))["stdout"] == ""

    @pytest.mark.parametrize("path", [".env", ".reyn", "/etc", "../x", "workspace:../../journal.db"])
    def test_a_path_that_the_run_may_not_read_is_denied(self, tmp_path: Path, path: str):
        assert one(make(tmp_path), call("cat", "x", read_paths=[path]))["status"] == "denied"

    def test_a_missing_path_is_an_error(self, tmp_path: Path):
        result = one(make(tmp_path), call("cat", "x", read_paths=["nowhere"]))
        assert result["error"] == "there is no file or folder `nowhere`"

    def test_it_writes_in_the_workspace(self, tmp_path: Path):
        result = one(make(tmp_path), shell("echo new > out.txt", write_paths=["workspace:"]))
        assert result["status"] == "ok"
        assert (tmp_path / ".reyn/workspace/k/out.txt").read_text() == "new\n"

    @pytest.mark.parametrize("path", ["output", ".", "reyn", "/tmp"])
    def test_it_writes_nowhere_else(self, tmp_path: Path, path: str):
        (tmp_path / "output").mkdir()
        result = one(make(tmp_path), shell("echo x > output/x", write_paths=[path]))
        assert (result["status"], result["rule"]) == ("denied", "default: programs write in the workspace")

    def test_a_readable_file_cannot_be_written(self, tmp_path: Path):
        project = make(tmp_path)
        assert one(project, shell("echo x >> notes.txt", read_paths=["."]))["status"] == "error"
        assert (tmp_path / "notes.txt").read_text() == "a note\n"

    def test_the_network_needs_a_grant_of_its_own(self, tmp_path: Path):
        result = one(make(tmp_path), call("cat", network=True))
        assert result["status"] == "denied"
        assert "`web: true`" in result["error"]
        project = (
            make(tmp_path / "granted", "{exec: [cat], web: true}") if (tmp_path / "granted").mkdir() is None else 0
        )
        granted = GRANTED | {"web": [{"allow": "sandboxed_exec"}]}
        assert one(project, call("cat", network=True), permissions=granted)["status"] == "ok"

    def test_another_program_is_denied(self, tmp_path: Path):
        not_requested, not_granted = results(
            make(tmp_path, "{exec: [cat, ls]}"), call("rm", "-rf", "."), call("ls"), permissions=GRANTED
        )
        assert not_requested["status"] == not_granted["status"] == "denied"
        assert "request it: `exec: [rm]`" in not_requested["error"]
        assert "grant" in not_granted["error"]

    def test_a_program_of_the_project_with_an_allowed_name_is_denied(self, tmp_path: Path):
        assert one(make(tmp_path), call("./cat", read_paths=["."]))["status"] == "denied"

    def test_subprocesses_need_to_be_asked_for_and_to_be_configured(self, tmp_path: Path):
        script = "cat notes.txt; true"
        plain, asked = results(
            make(tmp_path),
            shell(script, read_paths=["."]),
            shell(script, read_paths=["."], allow_subprocess=True),
        )
        assert plain["stdout"] == ""
        assert asked["stdout"] == "a note\n"
        (tmp_path / "off").mkdir()
        off = one(
            make(tmp_path / "off"),
            shell(script, read_paths=["."], allow_subprocess=True),
            sandbox={"processes": 1},
        )
        assert off["stdout"] == ""

    @pytest.mark.slow
    def test_the_time_is_capped_by_the_configuration(self, tmp_path: Path):
        result = one(make(tmp_path), shell("while :; do :; done", timeout_seconds=3_000), sandbox={"seconds": 1})
        assert (result["status"], result["error"]) == ("timeout", "the program was ended: it took more than 1 seconds")

    def test_output_is_bounded(self, tmp_path: Path):
        script = "i=0; while [ $i -lt 99 ]; do echo xxxxxxxxx; i=$((i+1)); done"
        result = one(make(tmp_path), shell(script), sandbox={"output_bytes": 99})
        assert (len(result["stdout"]), result["truncated"], result["status"]) == (99, True, "ok")

    def test_a_rule_that_asks_waits_for_a_person(self, tmp_path: Path):
        project = make(tmp_path)
        rules = {"exec": [{"ask": "cat"}], "file.read": [{"ask": "notes.txt"}]}
        answers = [act(call("cat", "notes.txt", read_paths=["notes.txt"])), finish()]
        result = project.run("s", answers, permissions=rules)
        assert result.status == "waiting"
        assert "exec: ask cat and permissions.file.read: ask notes.txt" in result.question.message
        with project.open(answers, permissions=rules) as runtime:
            runtime.answer("k", result.question.id, "approve")
            assert runtime.resume("k").ok
        assert recorded(project)[-1]["stdout"] == "a note\n"

    def test_credentials_are_those_that_the_skill_requires(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        monkeypatch.setenv("REYN_SECRET_TOKEN", "long-value-of-a-token")
        monkeypatch.setenv("REYN_SECRET_OTHER", "another-long-value")
        project = make(tmp_path, more="required_credentials: [TOKEN]\n")
        script = 'test "$TOKEN" = long-value-of-a-"token" && test -z "$OTHER" && echo same'
        given, other, printed = results(
            project,
            shell(script, env_passthrough=["TOKEN"]),
            shell("echo", env_passthrough=["OTHER"]),
            shell('echo "$TOKEN"', env_passthrough=["TOKEN"]),
        )
        assert given["stdout"] == "same\n"
        assert "does not require the credential `OTHER`" in other["error"]
        assert (printed["status"], printed["rule"]) == ("denied", "default: no secret in an op")

    def test_a_sub_run_has_the_credentials_that_all_skills_require(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.setenv("REYN_SECRET_TOKEN", "long-value-of-a-token")
        make(tmp_path, more="required_credentials: [TOKEN]\n")
        requests = "permissions: {exec: [cat, sh, touch]}\n"
        for name, required in (("none", "[]"), ("some", "[TOKEN]")):
            write_skill(tmp_path, name, {"@s": ["end"]}, skill_keys=f"{requests}required_credentials: {required}\n")
            project = Project(tmp_path)
            op = shell('test -n "$TOKEN" && echo set', env_passthrough=["TOKEN"])
            assert project.run(name, [act(op), finish()], run_id=name, permissions=GRANTED).ok
            [run] = [row.run_id for row in project.journal.runs() if row.run_id.startswith(f"{name}.")]
            [seen] = recorded(project, run)
            assert (seen["status"] == "ok") == (name == "some"), seen

    def test_without_a_sandbox_it_is_refused(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
        for backend in BACKENDS:
            monkeypatch.setitem(vars(backend), "problem", "not here")
        result = one(make(tmp_path), call("cat"))
        assert result["status"] == "error"
        assert result["error"].startswith("RYN330: no process sandbox is available")

    def test_a_sandbox_that_cannot_start_is_an_error_with_the_cause(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        def start(*args: object) -> None:
            raise SandboxStartFailed("no further processes can be started")

        for backend in BACKENDS:
            monkeypatch.setattr(type(backend), "start", start)
            monkeypatch.setitem(vars(backend), "problem", "")
        result = one(make(tmp_path), call("cat"))
        assert result["status"] == "error"
        assert result["error"] == "RYN331: no further processes can be started"


class TestShell:
    REQUESTS = "{shell: true}"
    ALLOWED: ClassVar = {"permissions": {"shell": [{"allow": "echo *"}]}, "allow_shell": True}

    def make(self, root: Path) -> Project:
        return make(root, self.REQUESTS)

    def test_it_runs_with_the_switch_and_a_grant(self, tmp_path: Path):
        result = one(self.make(tmp_path), command("echo hello"), **self.ALLOWED)
        assert (result["status"], result["stdout"]) == ("ok", "hello\n")

    def test_it_is_off_without_the_switch(self, tmp_path: Path):
        result = one(self.make(tmp_path), command("echo hello"), permissions=self.ALLOWED["permissions"])
        assert (result["status"], result["rule"]) == ("denied", "default: shell is off")

    def test_the_switch_is_no_grant(self, tmp_path: Path):
        result = one(self.make(tmp_path), command("echo hello"), permissions={}, allow_shell=True)
        assert (result["status"], result["rule"]) == ("denied", "default: no grant")

    def test_a_skill_that_does_not_request_it_is_denied(self, tmp_path: Path):
        result = one(make(tmp_path, "{shell: [date]}"), command("echo hello"), **self.ALLOWED)
        assert (result["status"], result["rule"]) == ("denied", "default: no request")

    @pytest.mark.parametrize(
        "cmd",
        ["echo a; touch x", "echo a && touch x", "echo $(touch x)", "echo `touch x`", "echo a\ntouch x", "echo a > x"],
    )
    def test_a_rule_for_a_command_does_not_cover_a_second_one(self, tmp_path: Path, cmd: str):
        result = one(self.make(tmp_path), command(cmd), **self.ALLOWED)
        assert result["status"] == "denied"
        assert not (tmp_path / "x").exists()

    def test_a_grant_for_everything_covers_shell_syntax(self, tmp_path: Path):
        allowed = {"permissions": {"shell": "allow"}, "allow_shell": True}
        result = one(self.make(tmp_path), command("echo a; pwd; exit 3"), **allowed)
        assert (result["returncode"], result["stdout"]) == (3, f"a\n{tmp_path}\n")

    @pytest.mark.slow
    def test_its_time_is_bounded(self, tmp_path: Path):
        allowed = {"permissions": {"shell": "allow"}, "allow_shell": True}
        result = one(self.make(tmp_path), command("while :; do :; done", timeout=1), **allowed)
        assert result["status"] == "timeout"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("approved", "other"),
    [
        (call("sh", "-c", "echo a"), call("sh", "-c", "echo b")),
        (call("cat"), call("cat", read_paths=["notes.txt"])),
        (command("echo a"), command("echo a; echo b")),
        (command("echo a"), command("echo b")),
    ],
)
def test_a_standing_approval_covers_the_same_arguments_alone(tmp_path: Path, approved: dict, other: dict):
    project = make(tmp_path, "{exec: [cat, sh], shell: true}")
    settings = {"permissions": {"exec": "ask", "shell": "ask"}, "allow_shell": True}
    waiting = project.run("s", [act(approved), finish()], **settings)
    with project.open([act(approved), finish()], **settings) as runtime:
        runtime.answer("k", waiting.question.id, {"decision": "approve", "always": True})
        assert runtime.resume("k").ok
    assert project.run("s", [act(approved), finish()], run_id="same", **settings).ok
    assert project.run("s", [act(other), finish()], run_id="other", **settings).status == "waiting"
    assert project.is_sound()


def test_cancelling_the_run_ends_its_program(tmp_path: Path):
    project = make(tmp_path, "{shell: true, exec: [sh]}")
    mark = f"cancelled-{os.getpid()}-{time.monotonic_ns()}"
    loop = call("sh", "-c", "while :; do :; done", mark)

    def cancel(event: Event) -> None:
        if event.kind == "sandboxed_exec_started":
            project.journal.post("k", Cancel("enough"))

    with project.open([act(loop)], permissions=GRANTED) as runtime:
        assert runtime.run("s", {"text": "in"}, run_id="k", listener=cancel).status == "cancelled"
    assert survivors(mark) == []
